"""What is no id is an error of its field, with 400, and changes nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import serializers
from rest_framework.test import APIClient

from django_idgen.core.segment import MAX_ID
from django_idgen.strings.drf import IdField
from tests.app.models import Leg, Line, Order, Receipt, Shipment, Tag
from tests.strings.rest.conftest import FAR, sent

NO_IDS: list[Any] = [
    *(1.0, 1.5, 1e400, True, False, 0, -1, 2**63, 10**400, [], [1], {}, {"id": 1}, [[1]]),
    *("", " ", "abc", "1.0", "1e3", "+1", "-1", "0x10", "1_000", " 1", "1\n", "1\x00", "01"),
    *("NaN", "Infinity", "true", "null", "inv_1", "0", str(2**63), "9" * 5000, "\U0001f600"),
    *("\u0661\u0662", "\uff11", "\u00b2"),  # digits: Arabic, a full-width one, a raised one
    "\ud800",  # a surrogate, which no UTF-8 can hold
]


def posted(api: APIClient, address: str, body: Any) -> Any:
    # Python's JSON has words for what JSON has not: an infinite number, and surrogates.
    return api.post(address, json.dumps(body), content_type="application/json")


def test_keys_that_are_no_ids(api: APIClient, shipment: Shipment) -> None:
    """400, and the field is named: of decimal ids, of ids in a form, one of many, by a slug.

    Also for whatever can't be parsed.
    """
    # What 1.0, True and other digits might mean.
    others = [kind.objects.create(pk=1) for kind in (Order, Tag)]
    others += [Receipt.objects.create(number=1), Shipment.objects.create(pk=1, order=others[0])]
    counts = [type(each).objects.count() for each in others]
    for value in NO_IDS:
        asked = [
            ("/lines/", {"order": value, "text": "x"}, "order"),
            ("/legs/", {"shipment": value, "place": "x"}, "shipment"),
            ("/orders/", {"tags": [value]}, "tags"),
        ]
        if value not in ([], [1], {}):
            asked.append(("/orders/", {"tags": value}, "tags"))
        if value != "":  # null, as for any relation, and these may be
            asked.append(("/shipments/", {"order": FAR, "receipt": value}, "receipt"))
            asked.append(("/declared/", {"order": FAR, "previous": value}, "previous"))
        for address, body, name in asked:
            errors = sent(posted(api, address, body), 400)
            assert list(errors) in ([name], ["detail"]), (address, value)
            if "detail" in errors:
                assert float("inf") in (value, body[name]), "JSON itself knows all the others"
    assert [type(each).objects.count() for each in others] == counts
    assert not Line.objects.exists()
    assert not Leg.objects.exists()


def test_declared_fields() -> None:
    """``IdField`` itself, with a code to branch on."""

    class Plain(serializers.Serializer):
        id = IdField()

    for value in NO_IDS:
        form = Plain(data={"id": value})
        assert not form.is_valid()
        (error,) = form.errors["id"]
        too_far = type(value) is int and (value < 1 or value > MAX_ID)
        assert (error.code in {"min_value", "max_value"}) is too_far
        assert too_far or error.code == "invalid"
        json.dumps(form.errors).encode()


def test_null_is_refused_unless_allowed(api: APIClient) -> None:
    """As for any field."""
    assert sent(posted(api, "/lines/", {"order": None, "text": "x"}), 400)["order"]
    assert sent(posted(api, "/lines/", {"text": "x"}), 400)["order"]


def test_a_megabyte(api: APIClient, order: Order) -> None:
    """A string of that length is refused in few words."""
    for text in ("9" * 1_000_000, "é" * 100_000, "shp_" + "0" * 1_000_000):
        for address, name in (("/lines/", "order"), ("/legs/", "shipment")):
            answer = posted(api, address, {name: text, "text": "x", "place": "x"})
            assert list(sent(answer, 400)) == [name]
            assert len(answer.content) < 500


def test_addresses_of_no_row(api: APIClient, shipment: Shipment) -> None:
    """404, whatever stands in the path; 400 for a link to what is no id."""
    for value in ("abc", str(2**63), "0", "shp_1", "1.5", "%00", "9" * 5000):
        for folder in ("orders", "shipments", "legs"):
            assert api.get(f"/{folder}/{value}/").status_code == 404
    for link in (
        *("", "http://testserver/orders/abc/", "/orders/0/", f"/orders/{2**63}/"),
        *(7, None, [], {}, 1.5),
    ):
        assert list(sent(posted(api, "/linked/", {"order": link}), 400)) == ["order"]


def test_an_id_of_no_row(api: APIClient, order: Order) -> None:
    """Django REST framework's own code, as before."""
    answer = posted(api, "/lines/", {"order": str(FAR + 2), "text": "x"})
    assert sent(answer, 400)["order"] == [f'Invalid pk "{FAR + 2}" - object does not exist.']


@given(st.integers(1, MAX_ID), st.sampled_from(["decimal", "base36", "base62", "crockford"]))
def test_what_is_written_is_read(value: int, form: str) -> None:
    """In every form, as text and as a number."""
    field = IdField(text_form=form, prefix="x_")
    text = field.to_representation(value)
    assert field.to_internal_value(text) == field.to_internal_value(value) == value


DIGITS = re.compile("[1-9][0-9]*")


@given(st.text() | st.floats() | st.none() | st.booleans() | st.integers() | st.binary())
def test_nothing_else_than_a_validation_error(value: Any) -> None:
    """Whatever comes in: an id, or an error that the client is told."""
    codes = {"min_value", "max_value"} if type(value) is int else {"invalid"}
    field = IdField()
    if type(value) is int and 1 <= value <= MAX_ID:
        assert field.to_internal_value(value) == value
    elif type(value) is str and DIGITS.fullmatch(value) and int(value) <= MAX_ID:
        assert field.to_internal_value(value) == int(value)
    else:
        with pytest.raises(serializers.ValidationError) as refused:
            field.to_internal_value(value)
        assert set(refused.value.get_codes()) <= codes

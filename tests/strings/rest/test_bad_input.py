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
from tests.app.models import Leg, Line, Order, Receipt, Shipment
from tests.strings.rest.conftest import FAR, sent

NO_IDS = [
    1.0,
    1.5,
    1e400,
    True,
    False,
    "",
    " ",
    "abc",
    "1.0",
    "1e3",
    "+1",
    "-1",
    "0x10",
    "1_000",
    " 1",
    "1\n",
    "1\x00",
    "01",
    "NaN",
    "Infinity",
    "true",
    "null",
    "\u0661\u0662",  # Arabic digits
    "\uff11",  # a full-width one
    "\u00b2",
    "\ud800",  # a surrogate, which no UTF-8 can hold
    "\U0001f600",
    "inv_1",
    0,
    -1,
    2**63,
    10**400,
    "0",
    str(2**63),
    "9" * 5000,
    [],
    [1],
    {},
    {"id": 1},
    [[1]],
]


def names(values: list[Any]) -> list[str]:
    return [ascii(value)[:20] for value in values]


def posted(api: APIClient, address: str, body: Any) -> Any:
    # Python's JSON has words for what JSON has not: an infinite number, and surrogates.
    return api.post(address, json.dumps(body), content_type="application/json")


@pytest.mark.parametrize("value", NO_IDS, ids=names(NO_IDS))
def test_keys_of_decimal_ids(api: APIClient, order: Order, value: Any) -> None:
    """A foreign key: 400, and the field is named, for whatever can't be parsed as well."""
    Order.objects.create(pk=1)
    answer = posted(api, "/lines/", {"order": value, "text": "x"})
    errors = sent(answer, 400)
    assert list(errors) in (["order"], ["detail"])
    if "detail" in errors:
        assert value == float("inf"), "JSON itself knows all the others"
    assert not Line.objects.exists()


@pytest.mark.parametrize("value", NO_IDS, ids=names(NO_IDS))
def test_keys_of_ids_in_a_form(api: APIClient, shipment: Shipment, value: Any) -> None:
    """A foreign key to base62 ids with a prefix."""
    errors = sent(posted(api, "/legs/", {"shipment": value, "place": "x"}), 400)
    assert list(errors) in (["shipment"], ["detail"])
    assert not Leg.objects.exists()


@pytest.mark.parametrize("value", NO_IDS, ids=names(NO_IDS))
def test_keys_of_many(api: APIClient, value: Any) -> None:
    """One wrong value among many-to-many keys, or such a value instead of them."""
    assert list(sent(posted(api, "/orders/", {"tags": [value]}), 400)) in (["tags"], ["detail"])
    if value not in ([], {}):
        assert list(sent(posted(api, "/orders/", {"tags": value}), 400)) in (["tags"], ["detail"])
    assert not Order.objects.exists()


@pytest.mark.parametrize("value", NO_IDS, ids=names(NO_IDS))
def test_slugs_that_are_ids(api: APIClient, order: Order, value: Any) -> None:
    """``SlugRelatedField`` by a column of ours, declared or for a ``to_field``."""
    Shipment.objects.create(pk=1, order=order)  # what 1.0, True and other digits might mean
    Receipt.objects.create(number=1)
    if value == "":
        return  # null, as for any relation, and this one may be
    for address, name in (("/shipments/", "receipt"), ("/declared/", "previous")):
        errors = sent(posted(api, address, {"order": FAR, name: value}), 400)
        assert list(errors) in ([name], ["detail"])
    assert Shipment.objects.count() == 1


@pytest.mark.parametrize("value", NO_IDS, ids=names(NO_IDS))
def test_declared_fields(value: Any) -> None:
    """``IdField`` itself, with a code to branch on."""

    class Plain(serializers.Serializer):
        id = IdField()

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


def test_ten_megabytes(api: APIClient, order: Order, settings: Any) -> None:
    """A string of that length is refused in few words, where Django lets it in at all."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    for text in ("9" * 10_000_000, "é" * 5_000_000, "shp_" + "0" * 10_000_000):
        for address, name in (("/lines/", "order"), ("/legs/", "shipment")):
            answer = posted(api, address, {name: text, "text": "x", "place": "x"})
            assert list(sent(answer, 400)) == [name]
            assert len(answer.content) < 500


@pytest.mark.parametrize("value", ["abc", str(2**63), "0", "shp_1", "1.5", "%00", "9" * 5000])
def test_addresses_of_no_row(api: APIClient, shipment: Shipment, value: str) -> None:
    """404, whatever stands in the path."""
    for folder in ("orders", "shipments", "legs"):
        assert api.get(f"/{folder}/{value}/").status_code == 404


@pytest.mark.parametrize(
    "link",
    ["", "http://testserver/orders/abc/", "/orders/0/", f"/orders/{2**63}/", 7, None, [], {}, 1.5],
)
def test_links_to_no_row(api: APIClient, link: Any) -> None:
    """A link to what is no id."""
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

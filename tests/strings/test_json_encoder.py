"""JSON as JavaScript reads it: no integer is changed on the way."""

from __future__ import annotations

import io
import json
import uuid
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.http import JsonResponse
from django.utils.html import json_script
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.strings.json_encoder import MAX_SAFE, IdJSONEncoder

BIG = 249_963_840_991_657_984
Point = namedtuple("Point", ["x", "y"])


class Code(IntEnum):
    SMALL = 7
    LARGE = BIG


class Whole(int):
    def __str__(self) -> str:
        return "not digits"

    __repr__ = __str__


class OrderEncoder(IdJSONEncoder):
    id_keys = frozenset({"id", "customer_id", "ids"})


class MoneyEncoder(IdJSONEncoder):
    def default(self, o: Any) -> Any:
        if isinstance(o, complex):
            return {"parts": [int(o.real), int(o.imag)]}
        return super().default(o)


def read(data: Any, encoder: type[json.JSONEncoder] = IdJSONEncoder, **options: Any) -> Any:
    return json.loads(json.dumps(data, cls=encoder, **options))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


def as_javascript(value: Any) -> Any:
    """What is expected: integers that a double can't hold by their digits, tuples as lists."""
    if isinstance(value, dict):
        return {key: as_javascript(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_javascript(each) for each in value]
    if isinstance(value, int) and abs(value) >= 2**53:
        return str(value)
    return value


@given(values)
def test_javascript_reads_every_integer_right(value: Any) -> None:
    """At any depth: read with doubles for numbers, as a browser does, nothing has changed."""
    text = json.dumps(value, cls=IdJSONEncoder)
    assert json.loads(text, parse_int=lambda digits: int(float(digits))) == as_javascript(value)


@given(values)
def test_every_way_to_write_is_the_same(value: Any) -> None:
    """``dumps``, ``dump`` (in pieces) and an indent, which Python writes without C."""
    expected = read(value)
    piecewise = io.StringIO()
    json.dump(value, piecewise, cls=IdJSONEncoder)
    assert json.loads(piecewise.getvalue()) == expected
    assert read(value, indent=2) == expected
    assert read(value, separators=(",", ":"), sort_keys=True) == expected


def test_the_last_safe_integer_is_a_number() -> None:
    """The next one, either way, is a string."""
    for number, past in ((MAX_SAFE, MAX_SAFE + 1), (-MAX_SAFE, -MAX_SAFE - 1)):
        assert read([number, past]) == [number, str(past)]
        assert json.dumps(past, cls=IdJSONEncoder) == f'"{past}"'


def test_containers_of_all_kinds() -> None:
    """Subclasses of dict and list, named tuples, views and iterators, and int keys."""
    data = OrderedDict(a=Point(BIG, 1), b=[(BIG,)])
    assert read(data) == {"a": [str(BIG), 1], "b": [[str(BIG)]]}
    assert read({"n": (n for n in (BIG, 1))}) == {"n": [str(BIG), 1]}
    assert read({"n": map(int, [str(BIG)])}) == {"n": [str(BIG)]}
    assert read({"a": BIG}.values()) == [str(BIG)]
    assert read({"a": BIG}.items()) == [["a", str(BIG)]]
    assert read({"a": BIG}.keys()) == ["a"]
    assert read({BIG: BIG}) == {str(BIG): str(BIG)}


def test_kinds_of_int() -> None:
    """Bools stay bools; enums and subclasses are their digits, whatever their str() is."""
    assert read([True, False]) == [True, False]
    assert read([Code.SMALL, Code.LARGE]) == [7, str(BIG)]
    assert read([Whole(3), Whole(BIG)]) == [3, str(BIG)]


def test_what_django_writes() -> None:
    """Moments, decimals, UUIDs and lazy texts, as ``DjangoJSONEncoder`` does."""
    data = {
        "at": datetime(2025, 1, 1, tzinfo=UTC),
        "price": Decimal("9007199254740993.10"),
        "uuid": uuid.UUID(int=BIG),
        "text": gettext_lazy("Yes"),
    }
    assert read(data) == read(data, DjangoJSONEncoder)


def test_what_a_default_returns_is_written_right_too() -> None:
    """A subclass's own, and one that was given."""
    assert read([complex(2**60, 1)], MoneyEncoder) == [{"parts": [str(2**60), 1]}]
    assert read([object()], default=lambda o: {"n": BIG}) == [{"n": str(BIG)}]
    with pytest.raises(TypeError, match="object"):
        read([object()])


def test_keys_whose_integers_are_always_strings() -> None:
    """Small ids too, and those of lists; what is no integer stays as it is."""
    data = {
        "id": 1,
        "customer_id": None,
        "ids": [1, [2], BIG],
        "count": 1,
        "lines": [{"id": 2, "n": 3}, {"id": "x"}, {"id": {"n": 3}}, {"id": True}],
        "code": {"id": Code.SMALL},
    }
    assert read(data, OrderEncoder) == {
        "id": "1",
        "customer_id": None,
        "ids": ["1", ["2"], str(BIG)],
        "count": 1,
        "lines": [{"id": "2", "n": 3}, {"id": "x"}, {"id": {"n": 3}}, {"id": True}],
        "code": {"id": "7"},
    }
    assert read(data)["id"] == 1
    assert data["ids"] == [1, [2], BIG], "what is written is a copy"


def test_a_response_and_a_script() -> None:
    """Where Django takes an encoder."""
    response = JsonResponse({"id": BIG}, encoder=IdJSONEncoder)
    assert json.loads(response.content) == {"id": str(BIG)}
    assert f'{{"id": "{BIG}"}}' in json_script({"id": BIG}, "order", encoder=IdJSONEncoder)


def test_a_circle_is_the_error_that_json_has() -> None:
    """Not a crash of the stack."""
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        json.dumps(circle, cls=IdJSONEncoder)

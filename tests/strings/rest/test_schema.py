"""drf-spectacular: what the schema says is what the API does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.validation import validate_schema

from django_idgen.core.encoding import TextForm
from django_idgen.strings.spectacular import as_string
from tests.app.models import Shipment
from tests.strings.rest import shop_api
from tests.strings.rest.conftest import FAR

PLAIN = {
    "type": "string",
    "format": "int64",
    "pattern": "^[0-9]+$",
    "example": "249817364518924288",
}
TEXT = {
    "type": "string",
    "pattern": "^(?:shp_)?[0-9A-Za-z]+$",
    "example": Shipment(pk=249_817_364_518_924_288).get_id_display(),
}


@pytest.fixture(scope="module")
def schema() -> Any:
    return generated()


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The schema with components for requests beside those for answers."""
    monkeypatch.setattr(spectacular_settings, "COMPONENT_SPLIT_REQUEST", True, raising=False)
    return generated()


def generated() -> Any:
    GENERATOR_STATS.reset()
    found = SchemaGenerator(patterns=shop_api.urlpatterns).get_schema(request=None, public=True)
    validate_schema(found)
    assert not GENERATOR_STATS._error_cache
    assert not [warning for warning in GENERATOR_STATS._warn_cache if "path param" in warning]
    return found


def of(schema: Any, component: str, name: str) -> dict[str, Any]:
    """The schema of a property, without what says nothing about its values."""
    found = schema["components"]["schemas"][component]["properties"][name]
    return bare(found)


def bare(schema: dict[str, Any]) -> dict[str, Any]:
    silent = {"readOnly", "title", "description", "nullable"}
    kept = {key: value for key, value in schema.items() if key not in silent}
    return kept | ({"items": bare(kept["items"])} if "items" in kept else {})


def test_answers_are_strings(schema: Any) -> None:
    """Hazard 43: ids and keys to them are strings in the schema, in the form of the field."""
    many = {"type": "array", "items": PLAIN}
    for name in ("id", "pk", "parcel"):
        assert of(schema, "Order", name) == PLAIN
    for name in ("tags", "labels", "lines"):
        assert of(schema, "Order", name) == many
    assert of(schema, "Order", "shipments") == {"type": "array", "items": TEXT}
    for name in ("id", "order", "order_id"):
        assert of(schema, "Line", name) == PLAIN
    for name in ("id", "previous"):
        assert of(schema, "Shipment", name) == TEXT
    for name in ("order", "receipt"):
        assert of(schema, "Shipment", name) == PLAIN
    assert of(schema, "Receipt", "id")["type"] == "integer"
    assert of(schema, "Receipt", "number") == PLAIN


def test_declared_relations_are_strings(schema: Any) -> None:
    """Also those without rows to choose from; those that ask for numbers are integers."""
    for name in ("order", "order_read", "order_by_slug", "order_property"):
        assert of(schema, "Declared", name) == PLAIN
    for name in ("id", "previous", "previous_id"):
        assert of(schema, "Declared", name) == TEXT
    for name in ("watchers", "watchers_read", "legs"):
        assert of(schema, "Declared", name) == {"type": "array", "items": PLAIN}
    for name in ("number", "order_number"):
        assert of(schema, "Declared", name)["type"] == "integer"


def parameters(schema: Any, path: str, method: str = "get") -> dict[str, Any]:
    return {each["name"]: each["schema"] for each in schema["paths"][path][method]["parameters"]}


def test_paths_hold_strings(schema: Any) -> None:
    """The parameter of a view set's rows."""
    for path, expected in (("/orders/{id}/", PLAIN), ("/shipments/{id}/", TEXT)):
        for method in ("get", "put", "patch", "delete"):
            assert bare(parameters(schema, path, method)["id"]) == expected
    assert bare(parameters(schema, "/parcels/{order}/")["order"]) == PLAIN


def test_filters_take_strings(schema: Any) -> None:
    """One id, several, and keys."""
    found = parameters(schema, "/shipments/")
    for name in ("id", "id__lt", "previous", "previous__id"):
        assert bare(found[name]) == TEXT
    for name in ("id__in", "id__range", "previous__id__in"):
        assert bare(found[name]) == {"type": "array", "items": TEXT}
    for name in ("order", "receipt"):
        assert bare(found[name]) == PLAIN
    for name in ("watchers", "legs"):
        assert bare(found[name]) == {"type": "array", "items": PLAIN}
    found = parameters(schema, "/orders/")
    assert bare(found["id"]) == PLAIN
    assert bare(found["id__created__gte"]) == {"type": "string", "format": "date-time"}


def test_requests_take_either(split: Any) -> None:
    """With components of their own, requests say that a number will do."""
    number = {"type": "integer", "format": "int64", "minimum": 1, "maximum": 2**63 - 1}
    assert of(split, "LineRequest", "order") == {"oneOf": [PLAIN, number]}
    assert of(split, "LegRequest", "shipment") == {"oneOf": [TEXT, number]}
    assert of(split, "OrderRequest", "tags")["items"] == {"oneOf": [PLAIN, number]}
    assert of(split, "Line", "order") == PLAIN


def test_patterns_match_what_is_sent() -> None:
    """Examples, too."""
    for schema, text in ((PLAIN, str(FAR)), (TEXT, Shipment(pk=FAR).get_id_display())):
        assert re.fullmatch(schema["pattern"], text)
        assert re.fullmatch(schema["pattern"], schema["example"])
        assert Shipment._meta.pk.text.read(schema["example"]) == 249_817_364_518_924_288


def test_patterns_are_javascripts_too() -> None:
    """Its regular expressions know no escaped hyphen."""
    assert as_string(TextForm("base36", "ord-"))["pattern"] == "^(?:ord-)?[0-9A-Za-z]+$"

"""django-ninja: schemas of models and paths have ids as strings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.test import Client
from django.urls import path
from ninja import ModelSchema, NinjaAPI, Schema
from ninja.orm import create_schema
from pydantic import TypeAdapter, ValidationError

from django_idgen.strings.ninja import Id, id_type
from django_idgen.strings.registration import register
from tests.app.models import Leg, Line, Order, Receipt, Shipment, Tag
from tests.strings.rest.conftest import FAR, sent
from tests.strings.rest.test_serializers import NO_IDS

register("ninja")

ShipmentId = id_type("base62", prefix="shp_")


class LineOut(ModelSchema):
    class Meta:
        model = Line
        fields = "__all__"


class ShipmentOut(ModelSchema):
    class Meta:
        model = Shipment
        fields = "__all__"


class NumberOut(ModelSchema):
    id: int

    class Meta:
        model = Shipment
        fields = ("id",)


LegIn = create_schema(Leg, name="LegIn", exclude=["id", "number"])
LegDeep = create_schema(Leg, name="LegDeep", depth=1)
LineIn = create_schema(Line, name="LineIn")
OrderIn = create_schema(Order, name="OrderIn", fields=["note", "tags"])
ReceiptOut = create_schema(Receipt, name="ReceiptOut")


class Looked(Schema):
    id: Id
    text: ShipmentId | None = None


_numbers = itertools.count()


def build() -> NinjaAPI:
    api = NinjaAPI(urls_namespace=f"ninja-{next(_numbers)}")

    @api.get("/shipments/{shipment_id}", response=ShipmentOut)
    def shipment(request: HttpRequest, shipment_id: ShipmentId) -> Shipment:
        assert type(shipment_id) is int
        return get_object_or_404(Shipment, pk=shipment_id)

    @api.get("/numbers/{shipment_id}", response=NumberOut)
    def number(request: HttpRequest, shipment_id: ShipmentId) -> Shipment:
        return get_object_or_404(Shipment, pk=shipment_id)

    @api.get("/lines", response=list[LineOut])
    def lines(request: HttpRequest, order_id: Id) -> Any:
        return Line.objects.filter(order_id=order_id)

    @api.post("/lines", response=LineOut)
    def make_line(request: HttpRequest, body: LineIn) -> Line:
        return Line.objects.create(**body.dict(by_alias=True))

    @api.post("/legs", response=LegDeep)
    def make_leg(request: HttpRequest, body: LegIn) -> Leg:
        assert type(body.shipment) is int
        return Leg.objects.create(**body.dict(by_alias=True))

    @api.post("/orders", response=OrderIn)
    def make_order(request: HttpRequest, body: OrderIn) -> Order:
        order = Order.objects.create(note=body.note)
        order.tags.set(body.tags)
        return order

    @api.get("/receipts", response=list[ReceiptOut])
    def receipts(request: HttpRequest) -> Any:
        return Receipt.objects.all()

    @api.post("/look", response=Looked)
    def look(request: HttpRequest, body: Looked) -> Looked:
        assert type(body.id) is int
        return body

    return api


class Urls:
    urlpatterns: list[Any]


@pytest.fixture
def api(db: None, settings: Any) -> Iterator[NinjaAPI]:
    found = build()
    Urls.urlpatterns = [path("", found.urls)]
    settings.ROOT_URLCONF = Urls
    return found


def posted(address: str, body: Any) -> Any:
    return Client().post(address, json.dumps(body), content_type="application/json")


def test_answers_are_strings(api: NinjaAPI, shipment: Shipment, tag: Tag) -> None:
    """The key, keys to other rows, and many-to-many keys; null stays null."""
    shipment.watchers.add(tag)
    text = shipment.get_id_display()
    for given in (text, str(shipment.pk)):
        answer = Client().get(f"/shipments/{given}")
        assert f'"order": "{FAR}"' in answer.content.decode()
        assert sent(answer) == {
            "id": text,
            "order": str(FAR),
            "previous": None,
            "receipt": None,
            "watchers": [str(tag.pk)],
        }


def test_numbers_that_are_shown(api: NinjaAPI, shipment: Shipment) -> None:
    """Keys that other systems wrote, 0 and negative ones; a declared ``int`` is a number."""
    Line.objects.create(pk=-3, order=Order.objects.create(pk=5))
    (row,) = sent(Client().get("/lines?order_id=5"))
    assert row["id"] == "-3"
    answer = Client().get(f"/numbers/{shipment.pk}")
    assert answer.content.decode() == f'{{"id": {shipment.pk}}}'


def test_keys_are_read_as_numbers_or_strings(
    api: NinjaAPI, order: Order, shipment: Shipment, tag: Tag
) -> None:
    """An ``int`` for the model; the key of the new row is made, if not given.

    A text in its form besides, with the nested row in the answer, whose ids are strings as well.
    """
    for kind in (int, str):
        made = sent(posted("/lines", {"order_id": kind(FAR), "text": "cup"}))
        line = Line.objects.latest("pk")
        assert line.order_id == FAR
        assert made == {"id": str(line.pk), "order": str(FAR), "text": "cup"}
        assert made in sent(Client().get(f"/lines?order_id={FAR}"))
        made = sent(posted("/orders", {"note": "x", "tags": [kind(tag.pk)]}))
        assert made == {"note": "x", "tags": [str(tag.pk)]}
        assert Order.objects.exclude(pk=FAR).latest("pk").tags.get() == tag
    text = shipment.get_id_display()
    for number, key in enumerate((shipment.pk, str(shipment.pk), text)):
        made = sent(posted("/legs", {"shipment_id": key, "place": f"Rome {number}"}))
        leg = Leg.objects.get(place=f"Rome {number}")
        assert (made["id"], made["number"]) == (str(leg.pk), str(leg.number))
        assert (made["shipment"]["id"], made["shipment"]["order"]) == (text, str(FAR))


def test_numbers_off_the_key(api: NinjaAPI) -> None:
    """Beside a key that is none of ours."""
    receipt = Receipt.objects.create(number=FAR, stamp=FAR + 2)
    (row,) = sent(Client().get("/receipts"))
    assert (row["id"], row["number"], row["stamp"]) == (receipt.pk, str(FAR), str(FAR + 2))


def test_declared_ids(api: NinjaAPI) -> None:
    """Types of the user's own schemas."""
    text = Shipment(pk=FAR).get_id_display()
    assert sent(posted("/look", {"id": FAR, "text": text})) == {"id": str(FAR), "text": text}
    assert sent(posted("/look", {"id": str(FAR)})) == {"id": str(FAR), "text": None}


def test_what_is_no_id(api: NinjaAPI, shipment: Shipment) -> None:
    """422, ninja's own, and the field is named; 400 for what is no JSON."""
    for value in NO_IDS:
        for address, body, name in (
            ("/look", {"id": value}, "id"),
            ("/lines", {"order_id": value, "text": "x"}, "order_id"),
            ("/legs", {"shipment_id": value, "place": "x"}, "shipment_id"),
            ("/orders", {"note": "x", "tags": [value]}, "tags"),
        ):
            answer = posted(address, body)
            if answer.status_code == 400:  # too long a number for Python
                assert value == 10**400
                continue
            (error, *_) = sent(answer, 422)["detail"]
            assert name in error["loc"], (address, value)
    assert not Line.objects.exists()
    assert not Leg.objects.exists()
    for value in ("abc", "0", "1.5", str(2**63), "inv_1", "9" * 5000):
        (error,) = sent(Client().get(f"/shipments/{value}"), 422)["detail"]
        assert error["loc"] == ["path", "shipment_id"]


def test_a_megabyte(api: NinjaAPI) -> None:
    """A string of that length is refused in few words."""
    answer = posted("/look", {"id": "9" * 1_000_000})
    assert sent(answer, 422)["detail"][0]["loc"][-1] == "id"
    assert len(answer.content) < 500


def test_the_schema_says_string(api: NinjaAPI) -> None:
    """Bodies, answers and parameters."""
    schema = json.loads(json.dumps(api.get_openapi_schema()))
    components = schema["components"]["schemas"]
    plain = {"type": "string", "pattern": "^[0-9]+$"}
    text = {"type": "string", "pattern": "^(?:shp_)?[0-9A-Za-z]+$"}

    def of(component: str, name: str) -> Any:
        found = components[component]["properties"][name]
        for each in found.get("anyOf", [found]):
            if each.get("type") != "null":
                return {key: each[key] for key in ("type", "pattern", "items") if key in each}
        raise AssertionError(found)

    assert of("LineOut", "order") == of("LineOut", "id") == plain
    assert of("LineIn", "order_id") == plain
    assert of("LegIn", "shipment_id") == text
    assert of("ShipmentOut", "id") == of("ShipmentOut", "previous") == text
    assert of("ShipmentOut", "watchers")["items"] == plain
    assert of("NumberOut", "id") == {"type": "integer"}
    assert of("ReceiptOut", "id") == {"type": "integer"}
    (parameter,) = schema["paths"]["/shipments/{shipment_id}"]["get"]["parameters"]
    assert {key: parameter["schema"][key] for key in text} == text


def test_pydantic_alone() -> None:
    """Without ninja: JSON has strings, Python has ints."""
    adapter: TypeAdapter[Any] = TypeAdapter(dict[str, ShipmentId])
    text = Shipment(pk=FAR).get_id_display()
    assert adapter.validate_python({"a": text}) == {"a": FAR}
    assert adapter.validate_json(f'{{"a": {FAR}}}') == {"a": FAR}
    assert adapter.dump_python({"a": FAR}) == {"a": FAR}
    assert adapter.dump_json({"a": FAR}).decode() == f'{{"a":"{text}"}}'
    with pytest.raises(ValidationError, match="is not an id"):
        adapter.validate_python({"a": "inv_1"})

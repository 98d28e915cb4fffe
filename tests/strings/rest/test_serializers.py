"""Serializers that say nothing of ids send strings, read strings and numbers, refuse the rest."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import models as django_models
from django.test.utils import isolate_apps, override_settings
from django.urls import path
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import serializers
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.validators import UniqueValidator

from django_idgen.core.segment import MAX_ID
from django_idgen.strings.drf import IdField
from tests.app import models
from tests.app.models import Leg, Line, Order, Parcel, Receipt, Shipment, Tag
from tests.strings.rest.conftest import FAR, sent
from tests.strings.rest.shop_api import GradeSerializer, LegSerializer, serializer


def test_ids_and_keys_are_strings(api: APIClient, order: Order, tag: Tag) -> None:
    """The key, a foreign key, its column, and many-to-many keys both ways.

    Hazards 42 and 43: no serializer declares any of them.
    """
    line = Line.objects.create(order=order, text="cup")
    order.tags.add(tag)
    order.labels.add(tag)
    assert sent(api.get("/orders/"))["results"][0]["id"] == str(FAR)
    answer = api.get(f"/orders/{order.pk}/")
    assert f'"id":"{FAR}","pk":"{FAR}"' in answer.content.decode()
    assert sent(answer) == {
        "id": str(FAR),
        "pk": str(FAR),
        "note": "tea",
        "tags": [str(tag.pk)],
        "labels": [str(tag.pk)],
        "lines": [str(line.pk)],
        "shipments": [],
        "parcel": None,
    }
    assert sent(api.get(f"/lines/{line.pk}/")) == {
        "id": str(line.pk),
        "order": str(FAR),
        "order_id": str(FAR),
        "text": "cup",
    }


def test_keys_are_read_as_numbers_or_strings(api: APIClient, order: Order, tag: Tag) -> None:
    """The row refers to the very order, and the answer says so in a string; also in a list."""
    for kind in (int, str):
        answer = api.post("/lines/", {"order": kind(FAR), "text": "cup"}, format="json")
        assert sent(answer, 201)["order"] == str(FAR)
        assert Line.objects.latest("pk").order == order
        answer = api.post("/orders/", {"id": "77", "tags": [kind(tag.pk)]}, format="json")
        made = Order.objects.exclude(pk=FAR).latest("pk")
        assert made.pk != 77, "nobody types keys"
        assert sent(answer, 201)["id"] == str(made.pk)
        assert answer.json()["tags"] == [str(tag.pk)]
        assert made.tags.get() == tag


def test_one_to_one_as_the_key(api: APIClient, order: Order) -> None:
    """A parcel's key is its order's: as a string, and read back."""
    answer = api.post("/parcels/", {"order": str(FAR), "weight": 3}, format="json")
    assert sent(answer, 201) == {"order": str(FAR), "weight": 3}
    assert sent(api.get(f"/orders/{FAR}/"))["parcel"] == str(FAR)
    again = api.post("/parcels/", {"order": str(FAR)}, format="json")
    assert sent(again, 400)["order"][0]
    assert Parcel.objects.get().weight == 3


def test_the_fields_form_is_the_answers(api: APIClient, order: Order, tag: Tag) -> None:
    """base62 with a prefix, on the key and on keys to it; a key by another column, too."""
    receipt = Receipt.objects.create(number=FAR + 6)
    first = Shipment.objects.create(order=order)
    body = {
        "order": FAR,
        "previous": first.get_id_display(),
        "receipt": str(FAR + 6),
        "watchers": [tag.pk],
    }
    made = sent(api.post("/shipments/", body, format="json"), 201)
    shipment = Shipment.objects.get(previous=first)
    assert made == {
        "id": shipment.get_id_display(),
        "order": str(FAR),
        "previous": first.get_id_display(),
        "receipt": str(FAR + 6),
        "watchers": [str(tag.pk)],
        "legs": [],
    }
    assert made["id"].startswith("shp_")
    assert shipment.receipt == receipt
    assert sent(api.get(f"/shipments/{made['id']}/"))["id"] == made["id"]


def test_a_form_is_read_besides_numbers(api: APIClient, shipment: Shipment) -> None:
    """A key to base62 ids as a number, its digits, or the text."""
    text = shipment.get_id_display()
    for number, key in enumerate((shipment.pk, str(shipment.pk), text)):
        body = {"shipment": key, "place": f"Rome {number}"}
        made = sent(api.post("/legs/", body, format="json"), 201)
        leg = Leg.objects.get(shipment=shipment, place=body["place"])
        told = {"id": str(leg.pk), "shipment": text, "number": str(leg.number)}
        assert made == {**told, "place": body["place"]}


def test_constraints_with_keys_are_checked(api: APIClient, shipment: Shipment) -> None:
    """Unique together with a key: an error of the form, not of the database.

    A generated number in one needs no value: it has a default, but none that a serializer could
    put in.
    """
    body = {"shipment": shipment.get_id_display(), "place": "Rome"}
    assert api.post("/legs/", body, format="json").status_code == 201
    again = sent(api.post("/legs/", body, format="json"), 400)
    assert "unique set" in again["non_field_errors"][0]
    row = Leg.objects.get()
    changed = api.patch(f"/legs/{row.pk}/", {"place": "Oslo"}, format="json")
    assert sent(changed)["number"] == str(row.number)


def test_such_a_number_may_be_left_out_where_it_can_be_written(shipment: Shipment) -> None:
    """It is made for a new row, kept in an old one, and checked where it is given."""

    kept = ["shipment", "place", "number"]
    writable = serializer(Leg, kept, extra_kwargs={"number": {"read_only": False}})

    def saved(instance: Leg | None = None, **data: Any) -> Leg:
        form = writable(instance, data={"shipment": shipment.pk, "place": "Rome", **data})
        assert form.is_valid(), form.errors
        return form.save()

    made = saved()
    assert made.number > 0
    assert saved(made).number == made.number
    assert saved(place="Oslo", number=str(FAR)).number == FAR
    again = {"shipment": shipment.pk, "place": "Bonn", "number": FAR}
    assert not writable(data=again).is_valid()
    (validator,) = LegSerializer().validators
    assert "number" not in validator.fields


def test_null_stays_null(api: APIClient, shipment: Shipment) -> None:
    """A nullable key is null in JSON, and may be set to it."""
    assert sent(api.get(f"/shipments/{shipment.pk}/"))["previous"] is None
    other = Shipment.objects.create(order=shipment.order, previous=shipment)
    body = {"previous": None, "receipt": None}
    assert sent(api.patch(f"/shipments/{other.pk}/", body, format="json"))["previous"] is None
    other.refresh_from_db()
    assert other.previous is None


def test_nested_rows_have_strings(api: APIClient, shipment: Shipment) -> None:
    """``depth = 1``, and the keys within."""
    leg = Leg.objects.create(shipment=shipment, place="Rome")
    row = sent(api.get(f"/nested/{leg.pk}/"))
    assert row["id"] == str(leg.pk)
    assert row["shipment"]["id"] == shipment.get_id_display()
    assert row["shipment"]["order"] == str(FAR)


def test_declared_relations_are_strings(api: APIClient, shipment: Shipment, tag: Tag) -> None:
    """Relations that the user declared, with and without rows to choose from."""
    leg = Leg.objects.create(shipment=shipment, place="Rome")
    text = shipment.get_id_display()
    body = {"order": str(FAR), "previous": text, "watchers": [str(tag.pk)]}
    made = sent(api.post("/declared/", body, format="json"), 201)
    other = Shipment.objects.exclude(pk=shipment.pk).get()
    assert made == {
        "id": other.get_id_display(),
        "order": str(FAR),
        "order_read": str(FAR),
        "order_by_slug": str(FAR),
        "previous": text,
        "watchers": [str(tag.pk)],
        "watchers_read": [str(tag.pk)],
        "legs": [],
        "order_property": str(FAR),
        "previous_id": text,
        "title": f"Order object ({FAR})",
        # Declared as numbers, sent as numbers: that a double can't hold them is the point.
        "number": int(float(other.pk)),
        "order_number": 2**62,
    }
    assert sent(api.get(f"/declared/{text}/"))["legs"] == [str(leg.number)]
    for previous in (shipment.pk, str(shipment.pk)):
        changed = api.patch(f"/declared/{other.pk}/", {"previous": previous}, format="json")
        assert sent(changed)["previous"] == text


def test_links_have_the_fields_form(api: APIClient, shipment: Shipment, settings: Any) -> None:
    """Links to a model whose ids are base62 hold base62, and are read back.

    ``<int:pk>`` can't hold a text: such a link has the number.
    """
    Shipment.objects.create(order=shipment.order, previous=shipment)
    text = shipment.get_id_display()
    row = sent(api.get(f"/linked/{text}/"))
    assert row["url"] == f"http://testserver/shipments/{text}/"
    assert row["order"] == f"http://testserver/orders/{FAR}/"
    assert row["id"] == text
    body = {"order": row["order"], "previous": row["url"]}
    assert sent(api.post("/linked/", body, format="json"), 201)["previous"] == row["url"]
    assert Shipment.objects.filter(previous=shipment).count() == 2

    class Urls:
        urlpatterns = (path("s/<int:pk>/", lambda request, pk: None, name="shipment-detail"),)

    class Linked(serializers.HyperlinkedModelSerializer):
        Meta = serializer(Shipment, ["url"]).Meta

    settings.ROOT_URLCONF = Urls
    form = Linked(shipment, context={"request": APIRequestFactory().get("/")})
    assert form.data["url"] == f"http://testserver/s/{shipment.pk}/"


def test_choices_are_left_alone(api: APIClient) -> None:
    """A key that is a choice of the user's remains one."""
    models.Grade.objects.create(pk=2)
    # Before 3.17, Django REST framework made no choice of what can't be edited.
    is_choice = isinstance(GradeSerializer().fields["id"], serializers.ChoiceField)
    assert sent(api.get("/grades/2/")) == {"id": 2 if is_choice else "2"}


def test_numbers_off_the_key_are_strings(api: APIClient) -> None:
    """Beside a key that is none of ours, which remains a number; as a part of a composite key."""
    receipt = Receipt.objects.create(number=FAR, stamp=FAR + 2)
    row = sent(api.get(f"/receipts/{receipt.pk}/"))
    assert row == {"id": receipt.pk, "number": str(FAR), "stamp": str(FAR + 2), "note": ""}
    folder = models.Folder.objects.create(pk=FAR)
    models.Document.objects.create(folder=folder, number=FAR + 2, title="map")
    row = sent(api.get("/documents/"))["results"][0]
    assert row == {"folder": str(FAR), "number": str(FAR + 2), "title": "map"}


def test_inherited_and_odd_keys(db: None) -> None:
    """Multi-table inheritance: the parent's key under its name, and its column.

    0 and negative keys, which other systems wrote, don't keep a page from being shown.
    """

    car = models.Car.objects.create(pk=FAR, id=FAR)
    shown = serializer(models.Car, ["id", "pk", "vehicle_ptr_id", "doors"])
    assert shown(car).data == {
        "id": str(FAR),
        "pk": str(FAR),
        "vehicle_ptr_id": str(FAR),
        "doors": 4,
    }
    shown = serializer(Shipment, ["id", "order"])
    assert shown(Shipment(pk=0, order_id=-5)).data == {"id": "0", "order": "-5"}


def test_a_generic_key_is_a_string_when_declared(order: Order) -> None:
    """``object_id`` may hold any model's key: the user says that it is an id."""

    class CommentSerializer(serializers.ModelSerializer):
        object_id = IdField()

        class Meta:
            model = models.Comment
            fields = ("id", "object_id")

    comment = models.Comment.objects.create(about=order)
    assert CommentSerializer(comment).data["object_id"] == str(FAR)
    form = CommentSerializer(data={"object_id": str(FAR)})
    assert form.is_valid()
    assert form.validated_data == {"object_id": FAR}


def test_a_plain_serializer_goes_by_the_instance(shipment: Shipment, tag: Tag) -> None:
    """Without ``Meta.model``: the rows that are shown say what their keys are."""

    class Plain(serializers.Serializer):
        id = IdField()
        order = serializers.PrimaryKeyRelatedField(read_only=True)
        watchers = serializers.PrimaryKeyRelatedField(many=True, read_only=True)
        previous_id = serializers.ReadOnlyField()
        order_key = serializers.ReadOnlyField(source="order.pk")

    shipment.watchers.add(tag)
    shipment.previous = shipment
    assert Plain(shipment).data == {
        "id": shipment.get_id_display(),
        "order": str(FAR),
        "watchers": [str(tag.pk)],
        "previous_id": shipment.get_id_display(),
        "order_key": str(FAR),
    }
    assert Plain([shipment], many=True).data[0]["order"] == str(FAR)


def test_a_relation_that_chooses_its_rows_itself(order: Order) -> None:
    """``get_queryset()`` of the user's own is asked when a value comes in."""

    class Mine(serializers.PrimaryKeyRelatedField):
        def get_queryset(self) -> Any:
            return Order.objects.all()

    class Plain(serializers.Serializer):
        order = Mine()

    form = Plain(data={"order": str(FAR)})
    assert form.is_valid(), form.errors
    assert form.validated_data["order"] == order
    assert form.data == {"order": str(FAR)}
    assert not Plain(data={"order": float(FAR)}).is_valid()


def test_rows_of_values_are_strings(order: Order) -> None:
    """Dictionaries instead of instances."""
    Line.objects.create(order=order)

    row = Line.objects.values("id", "order_id").get()
    assert serializer(Line, ["id", "order_id"])(row).data == {
        key: str(value) for key, value in row.items()
    }


def test_the_form_may_be_given() -> None:
    """``text_form`` and ``prefix`` of a serializer's own, with bounds."""

    class Plain(serializers.Serializer):
        id = IdField(text_form="base36", prefix="x_", max_value=2**40, allow_null=True)

    class Copied(Plain):
        pass

    text = Copied({"id": 7}).data["id"]
    assert text == "x_0000000000007"
    form = Copied(data={"id": text})
    assert form.is_valid()
    assert form.validated_data["id"] == 7
    assert Copied(data={"id": None}).is_valid()
    form = Copied(data={"id": 2**40 + 1})
    assert not form.is_valid()
    assert form.errors["id"][0].code == "max_value"


def test_a_key_that_the_user_lets_be_written(db: None) -> None:
    """Declared, or made writable: an ``int`` for the model, also with a validator."""

    class Declared(serializers.ModelSerializer):
        id = IdField(validators=[UniqueValidator(queryset=Order.objects.all())])

        class Meta:
            model = Order
            fields = ("id", "note")

    form = Declared(data={"id": str(FAR)})
    assert form.is_valid(), form.errors
    assert form.save().pk == FAR
    form = Declared(data={"id": str(FAR)})
    assert not form.is_valid()
    assert form.errors["id"][0].code == "unique"
    writable = serializer(Shipment, ["id"], extra_kwargs={"id": {"read_only": False}})
    form = writable(data={"id": Shipment(pk=FAR).get_id_display()})
    assert form.is_valid(), form.errors
    assert form.validated_data == {"id": FAR}


def test_no_query_more(api: APIClient, shipment: Shipment, django_assert_num_queries: Any) -> None:
    """Keys are written without loading what they refer to."""
    for place in "abc":
        Leg.objects.create(shipment=shipment, place=place)
    with django_assert_num_queries(2):  # the count and the page
        rows = json.loads(api.get("/legs/").content)["results"]
    assert {row["shipment"] for row in rows} == {shipment.get_id_display()}


def test_options_say_string(api: APIClient, order: Order) -> None:
    """``OPTIONS`` names the kind of the id, and of what refers to it as it did."""
    fields = sent(api.options("/lines/"))["actions"]["POST"]
    assert (fields["id"]["type"], fields["id"]["read_only"]) == ("string", True)
    assert fields["order"] == {
        "type": "field",
        "required": True,
        "read_only": False,
        "label": "Order",
    }


def test_the_browsable_api_chooses_by_the_text(api: APIClient, shipment: Shipment) -> None:
    """Options of the select hold the text, and the row's own is selected."""
    leg = Leg.objects.create(shipment=shipment, place="Rome")
    page = api.get(f"/legs/{leg.pk}/", headers={"accept": "text/html"}).content.decode()
    text = shipment.get_id_display()
    assert f'<option value="{text}" selected >to {FAR}</option>' in page
    body = {"shipment": text, "place": "Oslo"}
    assert api.post("/legs/", body, format="multipart").status_code == 201
    assert Leg.objects.get(place="Oslo").shipment == shipment


# --- what is no model, or not one alone: as Django REST framework has it, and each in its form ---


class Shelf:
    """What DRF takes for a queryset: it has ``get()``, and no model."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def get(self, **wanted: Any) -> Any:
        self.asked.append(wanted)
        if wanted in ({"name": "tea"}, {"pk": 3}):
            return SimpleNamespace(pk=3, name="tea")
        raise ObjectDoesNotExist


def test_a_queryset_of_the_users_own_needs_no_model() -> None:
    """For slugs and for keys, given to the field or by a method of it."""
    shelf = Shelf()
    slug = serializers.SlugRelatedField(slug_field="name", queryset=shelf)  # type: ignore[arg-type]
    assert slug.to_internal_value("tea").pk == 3

    class Own(serializers.PrimaryKeyRelatedField):
        def get_queryset(self) -> Any:
            return shelf

    assert Own(read_only=False, many=False).to_internal_value(3).name == "tea"
    with pytest.raises(serializers.ValidationError):
        slug.to_internal_value("coffee")


class Feed(serializers.Serializer):
    """Rows of several models in one list: what happened lately, or what a search found."""

    id = IdField()
    pk = serializers.ReadOnlyField()


def test_rows_of_several_models_have_each_their_own_form() -> None:
    """An order's id in the form of a shipment's would lead to another row."""
    shipment, order, user = Shipment(pk=FAR), Order(pk=FAR), User(pk=7)
    rows = [shipment, order, user, shipment, user, order]
    shown = [dict(row) for row in Feed(rows, many=True).data]
    texts = {Shipment: shipment.get_id_display(), Order: str(FAR)}
    assert [row["id"] for row in shown] == [texts.get(type(row), "7") for row in rows]
    assert [row["pk"] for row in shown] == [texts.get(type(row), 7) for row in rows]


class Links(serializers.Serializer):
    previous = serializers.PrimaryKeyRelatedField(read_only=True)
    previous_id = serializers.ReadOnlyField()


@isolate_apps("tests.app")
def test_relations_of_rows_of_several_models_do_so_too() -> None:
    """Whatever the first row's relation of that name led to."""

    class Edition(django_models.Model):
        previous = django_models.ForeignKey(Order, on_delete=django_models.CASCADE)

        class Meta:
            app_label = "app"

    rows = [Edition(previous_id=FAR), Shipment(previous_id=FAR), Edition(previous_id=FAR)]
    texts = [str(FAR), Shipment(pk=FAR).get_id_display(), str(FAR)]
    for some in (rows, rows[1:]):
        shown = [dict(row) for row in Links(some, many=True).data]
        assert [row["previous"] for row in shown] == texts[-len(some) :]
        assert [row["previous_id"] for row in shown] == texts[-len(some) :]


def test_a_link_of_others_asks_a_row_once() -> None:
    """Its look-up may be a property that costs something."""
    asked = []

    class Page:
        @property
        def slug(self) -> str:
            asked.append(self)
            return "tea"

    field = serializers.HyperlinkedIdentityField(view_name="page", lookup_field="slug")
    with override_settings(ROOT_URLCONF=(path("pages/<slug>/", print, name="page"),)):
        assert field.get_url(Page(), "page", None, None) == "/pages/tea/"
    assert len(asked) == 1


def test_fields_of_other_models_are_left_to_the_library() -> None:
    """From the second row on nothing of ours is called: a long list costs what it did."""

    class UserSerializer(serializers.ModelSerializer):
        rank = serializers.ReadOnlyField(source="pk")
        Meta = serializer(User, ["rank"]).Meta

    class Own(serializers.ReadOnlyField):
        def get_attribute(self, instance: Any) -> Any:
            return -super().get_attribute(instance)

    class OwnSerializer(UserSerializer):
        rank = Own(source="pk")

    rows = [User(pk=7), User(pk=8), User(pk=9)]
    made = UserSerializer(rows, many=True)
    assert [row["rank"] for row in made.data] == [7, 8, 9]
    assert "django_idgen" not in made.child.fields["rank"].get_attribute.__module__
    assert [row["rank"] for row in OwnSerializer(rows, many=True).data] == [-7, -8, -9]


class Document:
    """A row of another library's: its models have a ``_meta`` of their own."""

    _meta: ClassVar[dict[str, Any]] = {"collection": "documents"}
    pk = 7
    name = "tea"

    @property
    def author(self) -> Document:
        return self


def test_models_of_other_libraries_are_left_alone() -> None:
    """As ``Meta.model``, as a row, as what a relation leads to, and behind a link."""

    class DocumentSerializer(serializers.Serializer):
        class Meta:
            model = Document

        pk = serializers.ReadOnlyField()
        author = serializers.PrimaryKeyRelatedField(read_only=True)
        author_name = serializers.SlugRelatedField(
            slug_field="name", source="author", read_only=True
        )
        link = serializers.HyperlinkedIdentityField(view_name="page", lookup_field="name")

    class Plain(DocumentSerializer):
        Meta = None  # type: ignore[assignment]

    with override_settings(ROOT_URLCONF=(path("pages/<name>/", print, name="page"),)):
        for kind in (DocumentSerializer, Plain):
            shown = kind([Document(), Document()], many=True, context={"request": None}).data
            assert shown[1] == {
                "pk": 7,
                "author": 7,
                "author_name": "tea",
                "link": "/pages/tea/",
            }


# --- what is no id is an error of its field, with 400, and changes nothing ----


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

"""What is no model, or not one alone: as Django REST framework has it, and each in its form."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.test.utils import isolate_apps, override_settings
from django.urls import path
from rest_framework import serializers

from django_idgen.strings.drf import IdField
from tests.app.models import Order, Shipment
from tests.strings.rest.conftest import FAR


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


class Feed(serializers.Serializer):  # type: ignore[type-arg]
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


class Links(serializers.Serializer):  # type: ignore[type-arg]
    previous = serializers.PrimaryKeyRelatedField(read_only=True)
    previous_id = serializers.ReadOnlyField()


@isolate_apps("tests.app")
def test_relations_of_rows_of_several_models_do_so_too() -> None:
    """Whatever the first row's relation of that name led to."""

    class Edition(models.Model):
        previous = models.ForeignKey(Order, on_delete=models.CASCADE)

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

    class UserSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
        rank = serializers.ReadOnlyField(source="pk")

        class Meta:
            model = User
            fields = ("rank",)

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

    class DocumentSerializer(serializers.Serializer):  # type: ignore[type-arg]
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

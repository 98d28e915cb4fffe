"""Other packages ask a field for its default in two ways, which agree (hazard 108)."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from django.db import models
from django.db.models.fields import NOT_PROVIDED
from django.test.utils import isolate_apps
from model_bakery import baker
from rest_framework import serializers

from django_idgen.fields import (
    SegmentAutoField,
    SegmentIdField,
    SnowflakeAutoField,
    SnowflakeField,
)
from tests.app.models import Leg


@pytest.mark.parametrize(
    "kind", [SnowflakeField, SegmentIdField, SnowflakeAutoField, SegmentAutoField]
)
def test_a_key_that_is_made_on_save_has_no_default(kind: Any) -> None:
    """As ``BigAutoField``."""
    with isolate_apps("tests.app"):

        class Made(models.Model):
            key = kind(primary_key=True)

            class Meta:
                app_label = "app"

    field = Made._meta.get_field("key")
    assert (field.has_default(), field.default, field.get_default()) == (False, NOT_PROVIDED, None)


@pytest.mark.django_db
@pytest.mark.parametrize("kind", [SnowflakeField, SegmentIdField])
def test_a_number_that_is_made_on_save_has_none_until_then(kind: Any) -> None:
    """The default is a callable, as that of ``UUIDField(default=uuid4)``, and makes no id."""
    with isolate_apps("tests.app"):

        class Made(models.Model):
            number = kind(unique=True)

            class Meta:
                app_label = "app"

    field = Made._meta.get_field("number")
    assert (field.has_default(), field.default(), Made().number) == (True, None, None)
    assert "default" not in field.deconstruct()[3]
    assert not field.clone().has_default()
    assert field.check() == []


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{"primary_key": True}, {"unique": True}])
def test_an_eager_field_makes_an_id_when_asked(options: dict[str, bool]) -> None:
    """On the primary key and off it; migrations and checks know nothing of the callable."""
    with isolate_apps("tests.app"):

        class Made(models.Model):
            number = SnowflakeField(eager=True, **options)

            class Meta:
                app_label = "app"

    field = Made._meta.get_field("number")
    assert field.has_default()
    assert 0 < Made().number < field.default() < field.get_default()
    assert "default" not in field.deconstruct()[3]
    assert not field.clone().has_default()
    assert field.check() == []


@pytest.mark.django_db
def test_model_bakery_fills_what_is_optional() -> None:
    """A number is made on save, as if it were left out."""
    made = baker.make(Leg, _quantity=2, _fill_optional=["number"])
    assert len({leg.number for leg in made}) == 2


@pytest.mark.django_db
def test_a_serializer_without_the_number_leaves_it_alone() -> None:
    """In a unique set DRF puts the default of a left-out field into the row: not in an old one."""

    class Serializer(serializers.ModelSerializer[Leg]):
        class Meta:
            model = Leg
            fields = ("shipment", "place")

    leg = baker.make(Leg)
    form = Serializer(leg, data={"shipment": leg.shipment.get_id_display(), "place": "Oslo"})
    assert form.is_valid(), form.errors
    assert form.save().number == Leg.objects.get().number == leg.number
    form = Serializer(data={"shipment": leg.shipment.get_id_display(), "place": "Rome"})
    assert form.is_valid(), form.errors
    assert form.save().number not in (None, leg.number)


def test_a_field_that_is_put_into_a_second_model_is_a_copy() -> None:
    """Hazard 107. One of an abstract model is each child's own."""
    with isolate_apps("tests.app"):

        class Numbered(models.Model):
            number = SegmentIdField(unique=True, prefix="n_")

            class Meta:
                app_label = "app"
                abstract = True

        class First(Numbered):
            class Meta:
                app_label = "app"

        class Audit(models.Model):
            class Meta:
                app_label = "app"

    first = First._meta.get_field("number")
    copy(first).contribute_to_class(Audit, "number")
    kept = Audit._meta.get_field("number")
    assert (first.copied_from, kept.copied_from) == (None, first)
    assert kept.resolved_tag == first.resolved_tag == "app.first"
    assert kept.text == first.text
    assert (kept.has_default(), kept.check()) == (False, [])

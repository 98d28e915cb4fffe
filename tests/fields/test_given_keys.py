"""Keys that the user gives, keys of failed saves, and keys in forms: as with ``BigAutoField``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django import forms
from django.core.management import call_command
from django.db import IntegrityError, connections, models, transaction
from django.forms.models import model_to_dict
from django.test.utils import CaptureQueriesContext

from django_idgen.fields import SegmentAutoField, SnowflakeAutoField
from tests.app.models import (
    Car,
    Counter,
    Document,
    Folder,
    Leg,
    Order,
    Receipt,
    Shipment,
    Tag,
    Vehicle,
)
from tests.fields.conftest import KEYED, keyed
from tests.places import on_every_database

pytestmark = [on_every_database, pytest.mark.usefixtures("warm")]


def statements(alias: str, act: Callable[[], Any]) -> list[str]:
    """The first words of what ``act`` sends to ``alias``."""
    with CaptureQueriesContext(connections[alias]) as captured:
        act()
    words = [query["sql"].split()[0] for query in captured]
    return [word for word in words if word not in ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT")]


@contextmanager
def refused_update(alias: str) -> Iterator[None]:
    match = "Cannot force an update in save"
    with pytest.raises(ValueError, match=match), transaction.atomic(using=alias):
        yield


# --- a key that the user gives --------------------------------------------------


@keyed
def test_a_row_saved_under_a_key(model: type[models.Model], alias: str) -> None:
    """A known one is one UPDATE, and no second row (hazard 93); a new one is inserted then."""
    rows = model._default_manager.using(alias)
    known = rows.create(**{KEYED[model]: "first"}).pk
    row = model(pk=known, **{KEYED[model]: "second"})
    assert statements(alias, lambda: row.save(using=alias)) == ["UPDATE"]
    assert rows.values_list("pk", KEYED[model]).get() == (known, "second")
    new = model(pk=known + 1)
    assert statements(alias, lambda: new.save(using=alias)) == ["UPDATE", "INSERT"]
    assert {*rows.values_list("pk", flat=True)} == {known, known + 1}


@keyed
def test_created_under_a_key_is_one_insert(model: type[models.Model], alias: str) -> None:
    """``create(pk=...)`` inserts at once, and refuses a key that a row has."""
    rows = model._default_manager.using(alias)
    assert statements(alias, lambda: rows.create(pk=41)) == ["INSERT"]
    with pytest.raises(IntegrityError), transaction.atomic(using=alias):
        rows.create(pk=41)


@keyed
def test_an_update_without_a_key_is_refused(model: type[models.Model], alias: str) -> None:
    """``update_fields`` and ``force_update`` without a key: ``ValueError``, no row, no key."""
    row = model(**{KEYED[model]: "x"})
    for how in ({"update_fields": [KEYED[model]]}, {"force_update": True}):
        with refused_update(alias):
            row.save(using=alias, **how)
    assert row.pk is None
    assert not model._default_manager.using(alias).exists()


def test_a_child_of_an_existing_parent(alias: str) -> None:
    """Its row is updated, its key kept; ``save_base(raw=True)`` adds just the child's row."""
    first, second = (Vehicle.objects.using(alias).create(name="old") for _ in range(2))
    Car(vehicle_ptr=first, name="new", doors=2).save(using=alias)
    car = Car(vehicle_ptr_id=second.pk)
    car.__dict__.update(second.__dict__)
    car.save_base(raw=True, using=alias)
    cars = Car.objects.using(alias).order_by("pk").values_list("pk", "name")
    assert list(cars) == [(first.pk, "new"), (second.pk, "old")]
    assert Vehicle.objects.using(alias).count() == 2


def test_a_new_child_is_two_inserts(alias: str) -> None:
    """A child under a new key tries no UPDATE, neither of its own row nor of its parent's."""
    car = Car(name="new")
    assert statements(alias, lambda: car.save(using=alias)) == ["INSERT", "INSERT"]


def test_a_composite_key_is_one_insert_by_save(alias: str) -> None:
    """A row whose composite key lacks the member that we make. A failed one loses it again."""
    folder = Folder.objects.using(alias).create()
    document = Document(folder=folder, title=None)
    with pytest.raises(IntegrityError), transaction.atomic(using=alias):
        document.save(using=alias)
    assert (document.folder_id, document.number) == (folder.pk, None)
    document.title = "first"
    assert statements(alias, lambda: document.save(using=alias)) == ["INSERT"]
    document.title = "second"
    assert statements(alias, lambda: document.save(using=alias)) == ["UPDATE"]
    with refused_update(alias):
        Document(folder=folder, title="x").save(using=alias, update_fields=["title"])
    assert Document.objects.using(alias).get().title == "second"


def test_a_method_of_the_users_is_still_called(alias: str) -> None:
    """A model that has its own ``_save_table()`` keeps it, and gets keys as the others do."""
    called: list[str] = []

    class Noisy(Order):
        class Meta:
            proxy = True
            app_label = "app"

        def _save_table(self, *args: Any, **kwargs: Any) -> Any:
            called.append("mine")
            return super()._save_table(*args, **kwargs)  # type: ignore[misc]

    try:
        assert statements(alias, lambda: Noisy().save(using=alias)) == ["INSERT"]
    finally:
        del Order._meta.apps.all_models["app"]["noisy"]
        Order._meta.apps.clear_cache()
    assert called == ["mine"]


# --- a save that fails ----------------------------------------------------------


@keyed
def test_a_failed_save_takes_the_key_back(model: type[models.Model], alias: str) -> None:
    """A row that the database refused has no key but the user's; saved again, it gets one."""
    row, given = model(**{KEYED[model]: None}), model(pk=41, **{KEYED[model]: None})
    for refused in (row, given):
        with pytest.raises(IntegrityError), transaction.atomic(using=alias):
            refused.save(using=alias)
    assert (row.pk, given.pk) == (None, 41)
    setattr(row, KEYED[model], "right")
    assert statements(alias, lambda: row.save(using=alias)) == ["INSERT"]
    assert model._default_manager.using(alias).get().pk == row.pk


def test_a_failed_child_can_be_saved_again(alias: str) -> None:
    """A child refused after its parent's INSERT is saved whole when it is right."""
    car = Car(doors=None)
    with pytest.raises(IntegrityError), transaction.atomic(using=alias):
        car.save(using=alias)
    car.doors = 4
    car.save(using=alias)
    assert Car.objects.using(alias).get().pk == Vehicle.objects.using(alias).get().pk == car.pk


# --- fixtures -------------------------------------------------------------------


@keyed
def test_a_fixture_keeps_its_keys(model: type[models.Model], alias: str, tmp_path: Path) -> None:
    """``loaddata`` changes a row that is there, and sends no second INSERT for it.

    A new key is kept as given; an entry without one gets an id.
    """
    rows = model._default_manager.using(alias)
    known = rows.create(**{KEYED[model]: "first"}).pk
    entries = [
        {"model": model._meta.label_lower, "fields": {KEYED[model]: text}, **key}
        for text, key in (("second", {"pk": known}), ("given", {"pk": known + 5}), ("made", {}))
    ]
    fixture = tmp_path / "rows.json"
    fixture.write_text(json.dumps(entries))
    call_command("loaddata", fixture, database=alias, verbosity=0)
    found = {text: key for key, text in rows.values_list("pk", KEYED[model])}
    assert (found["second"], found["given"], len(found)) == (known, known + 5, 3)
    assert found["made"] not in (None, known, known + 5)


# --- bulk_create ----------------------------------------------------------------


def test_keys_after_update_conflicts_are_read_back(alias: str) -> None:
    """After ``update_conflicts`` the rows' keys are read by unique columns (hazard 94)."""
    shipment = Shipment.objects.using(alias).create(order=Order.objects.using(alias).create())
    legs = Leg.objects.using(alias).filter(shipment=shipment)
    there = legs.create(shipment=shipment, place="Oslo")
    rows = [Leg(shipment=shipment, place="Oslo"), Leg(shipment=shipment, place="Rome")]
    unique = ["shipment", "place"] if connections[alias].vendor != "mysql" else None
    legs.bulk_create(rows, update_conflicts=True, update_fields=["number"], unique_fields=unique)
    keys = dict(legs.filter(place__in=[row.place for row in rows]).values_list("place", "pk"))
    for row in rows:
        row.pk = keys[row.place]
    assert rows[0].pk == there.pk
    assert {row.pk: row.number for row in rows} == dict(legs.values_list("pk", "number"))


# --- forms ----------------------------------------------------------------------


class Plain(models.Model):
    """What the automatic kinds are compared with; it needs no table."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=40, blank=True)

    class Meta:
        app_label = "given_keys"


AUTOMATIC = [Tag, Counter]
"""A model for each of the automatic kinds."""


def of_form(model: type[models.Model]) -> list[str]:
    return list(forms.modelform_factory(model, fields=["id", "name"]).base_fields)


def of_formset(model: type[models.Model]) -> list[str]:
    formset = forms.modelformset_factory(model, fields=["id", "name"], extra=1)
    return list(formset(queryset=model._default_manager.none()).forms[0].fields)


@pytest.mark.parametrize("fields", [of_form, of_formset])
def test_automatic_kinds_may_be_named_in_forms(fields: Any) -> None:
    """Forms and formsets that name the ``id`` have the fields of Django's kinds."""
    for model in AUTOMATIC:
        assert fields(model) == fields(Plain)


def test_automatic_kinds_are_in_model_to_dict() -> None:
    """``model_to_dict()`` has the ``id``, as it has a ``BigAutoField``; no form has others."""
    for model in AUTOMATIC:
        assert model_to_dict(model(pk=5, name="n")) == model_to_dict(Plain(pk=5, name="n"))
    assert model_to_dict(Receipt(number=1, stamp=2)).keys() == {"id", "note"}


@pytest.mark.parametrize("kind", [SnowflakeAutoField, SegmentAutoField])
def test_automatic_kinds_keep_editable_false(kind: Any) -> None:
    """``editable=False`` said by the user is kept, and stands in migrations; else nothing does."""
    field = kind(primary_key=True, editable=False)
    assert field.clone().editable is False
    assert "editable" not in kind(primary_key=True).deconstruct()[3]

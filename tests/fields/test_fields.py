"""The four fields: when they make a value, which one, and at what price."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from django_idgen.fields import SegmentAutoField, SnowflakeField
from tests.app.models import (
    Counter,
    Document,
    EagerOrder,
    Folder,
    Invoice,
    Order,
    Receipt,
    Tag,
    Ticket,
)
from tests.fields.conftest import KEYED, keyed
from tests.places import on_every_database

pytestmark = on_every_database


@contextmanager
def one_insert(alias: str) -> Iterator[None]:
    with CaptureQueriesContext(connections[alias]) as captured:
        yield
    statements = [query["sql"] for query in captured]
    assert len(statements) == 1, statements
    assert statements[0].startswith("INSERT"), statements
    assert "RETURNING" not in statements[0], statements


# --- the price ----------------------------------------------------------------


@keyed
def test_a_new_row_is_one_insert(model: type[models.Model], alias: str, warm: None) -> None:
    """By each way to make one: nothing is read back, and keys rise in the order of a list."""
    rows = model._default_manager.using(alias)
    saved, forced = model(), model()
    with one_insert(alias):
        saved.save(using=alias)
    with one_insert(alias):
        forced.save(using=alias, force_insert=True)
    with one_insert(alias):
        created = rows.create()
    with one_insert(alias):
        made = rows.bulk_create([model(), model(), model()])
    keys = [row.pk for row in (saved, forced, created, *made)]
    assert keys == sorted(set(keys))
    assert keys[0] > 0
    assert rows.filter(pk__in=keys).count() == 6


@keyed
def test_copy_without_its_key_is_one_insert(
    model: type[models.Model], alias: str, warm: None
) -> None:
    """``obj.pk = None; obj.save()`` makes a second row with a new id, without an UPDATE first."""
    row = model._default_manager.using(alias).create()
    first = row.pk
    row.pk = None
    with one_insert(alias):
        row.save(using=alias)
    assert row.pk != first
    assert model._default_manager.using(alias).filter(pk__in=[first, row.pk]).count() == 2


def test_fields_off_the_key_ride_in_the_same_insert(alias: str, warm: None) -> None:
    """Two generated columns beside an ordinary key are filled in the row's one INSERT."""
    with CaptureQueriesContext(connections[alias]) as captured:
        row = Receipt.objects.using(alias).create()
    assert len(captured) == 1
    stored = Receipt.objects.using(alias).get(number=row.number)
    assert (stored.stamp, stored.pk) == (row.stamp, row.pk)


def test_saving_again_keeps_every_value(alias: str) -> None:
    """An UPDATE changes no generated value, on the key or off it."""
    row = Receipt.objects.using(alias).create()
    before = (row.pk, row.number, row.stamp)
    row.note = "paid"
    row.save(using=alias)
    row.refresh_from_db()
    assert (row.pk, row.number, row.stamp) == before


# --- when and which value -----------------------------------------------------


def test_nothing_is_generated_before_the_save() -> None:
    """Making, validating and discarding instances uses up no id."""
    for model in KEYED:
        source = model._meta.pk.next_value  # type: ignore[union-attr]
        before = source()
        row = model()
        assert row.pk is None
        try:
            row.full_clean()
        except ValidationError as error:
            assert "id" not in error.message_dict  # noqa: PT017
        assert row.pk is None
        assert model is Order or model is Tag or source() == before + 1


def test_filtering_on_none_burns_no_id() -> None:
    """A query for None finds nothing and takes no number (hazard 40)."""
    before = segments["app.invoice"].next_id()
    assert not Invoice.objects.filter(pk=None).exists()
    assert not Invoice.objects.filter(pk__in=[None]).exists()
    assert Invoice._meta.pk.get_prep_value(None) is None
    assert segments["app.invoice"].next_id() == before + 1


def test_tags_name_what_they_number(alias: str) -> None:
    """Without ``tag`` a field takes ``app_label.modelname``; with it, just that tag."""
    assert Invoice.objects.using(alias).create().pk == segments["app.invoice"].next_id() - 1
    assert Ticket.objects.using(alias).create().pk == segments["tickets"].next_id() - 1


@keyed
def test_a_key_set_by_hand_is_kept(model: type[models.Model], alias: str, warm: None) -> None:
    """An explicit key is stored as given, by save, create and bulk_create, as text too."""
    rows = model.objects.using(alias)
    # Far from those that the tag, which is in use, gives out.
    one, two, three = 10**12 + 41, 10**12 + 42, 10**12 + 43
    model(pk=one).save(using=alias)
    rows.create(pk=str(two))
    rows.bulk_create([model(pk=three), model()])
    found = rows.filter(pk__in=[one, two, three]).values_list("pk", flat=True)
    assert set(found) == {one, two, three}


def test_get_or_create_and_update_or_create(alias: str) -> None:
    """Both find a row by another column, and give an id to the one they make."""
    orders = Order.objects.using(alias)
    made, created = orders.get_or_create(note="a")
    again, created_again = orders.get_or_create(note="a")
    assert (created, created_again, again.pk) == (True, False, made.pk)
    changed, created = orders.update_or_create(note="a", defaults={"note": "b"})
    assert (created, changed.pk) == (False, made.pk)
    by_key, created = orders.update_or_create(pk=9, defaults={"note": "c"})
    assert (created, by_key.pk) == (True, 9)


def test_update_and_expressions_are_untouched(alias: str) -> None:
    """``update()`` with ``F()`` works on generated columns, and makes no value."""
    row = Receipt.objects.using(alias).create()
    before = segments["receipts"].next_id()
    Receipt.objects.using(alias).filter(pk=row.pk).update(number=F("number") + 1_000_000, note="x")
    row.refresh_from_db()
    assert row.number == before - 1 + 1_000_000
    assert segments["receipts"].next_id() == before + 1


def test_composite_key_is_filled(alias: str, warm: None) -> None:
    """The member of a CompositePrimaryKey that is ours gets its value in one INSERT."""
    folder = Folder.objects.using(alias).create()
    with one_insert(alias):
        document = Document.objects.using(alias).create(folder=folder)
    saved = Document(folder=folder)
    saved.save(using=alias)
    assert saved.pk == (folder.pk, document.number + 1)
    made = Document.objects.using(alias).bulk_create([Document(folder=folder) for _ in range(3)])
    assert len({row.pk for row in (document, saved, *made)}) == 5
    assert Document.objects.using(alias).get(pk=document.pk).number == document.number


# --- eager --------------------------------------------------------------------


def test_eager_has_its_id_from_the_start(alias: str, warm: None) -> None:
    """``eager=True`` gives the id when the instance is made; that id is saved by one INSERT."""
    order = EagerOrder()
    assert order.pk > 0
    first = order.pk
    with one_insert(alias):
        order.save(using=alias)
    assert order.pk == first


def test_eager_takes_no_id_for_rows_read(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come from the database, deferred or not, take no id; nor does an explicit key."""
    pk = EagerOrder.objects.using(alias).create(note="here").pk

    def refuse(field: SnowflakeField) -> int:
        raise AssertionError("an id was taken")

    monkeypatch.setattr(SnowflakeField, "next_value", refuse)
    assert EagerOrder.objects.using(alias).get().pk == pk
    assert EagerOrder.objects.using(alias).only("note").get().note == "here"
    assert EagerOrder.objects.using(alias).defer("id").get().pk == pk
    assert EagerOrder(id=5).pk == 5


# --- fixtures, copies, async --------------------------------------------------


def test_loaddata_keeps_keys_and_makes_missing_ones(
    alias: str, tmp_path: pytest.TempPathFactory
) -> None:
    """A fixture's keys are kept; an entry without one gets an id."""
    fixture = tmp_path / "rows.json"  # type: ignore[operator]
    entries = [
        {"model": "app.order", "pk": 11, "fields": {"note": "kept", "tags": []}},
        {"model": "app.order", "fields": {"note": "made", "tags": []}},
        {"model": "app.counter", "pk": 12, "fields": {"name": "kept"}},
        {"model": "app.counter", "fields": {"name": "made"}},
    ]
    fixture.write_text(json.dumps(entries))
    call_command("loaddata", str(fixture), database=alias, verbosity=0)
    assert Order.objects.using(alias).get(note="kept").pk == 11
    assert Order.objects.using(alias).get(note="made").pk > 0
    assert Counter.objects.using(alias).get(name="kept").pk == 12
    assert Counter.objects.using(alias).get(name="made").pk > 0


def test_pickle_and_copy_keep_the_id() -> None:
    """A pickled or copied instance is the same row; an unsaved one stays without an id."""
    order = Order.objects.create()
    assert pickle.loads(pickle.dumps(order)) == order
    assert copy.deepcopy(order).pk == order.pk
    assert pickle.loads(pickle.dumps(Order())).pk is None


@pytest.mark.django_db(transaction=True, databases=["default"])
def test_async_calls() -> None:
    """``acreate``, ``asave`` and ``abulk_create`` give ids as their twins do."""

    async def make() -> list[int]:
        saved = Order()
        await saved.asave()
        created = await Order.objects.acreate()
        bulk = await Order.objects.abulk_create([Order(), Order()])
        # Of the thread in which all this runs; Django itself never closes one in memory.
        await sync_to_async(lambda: BaseDatabaseWrapper.close(connections["default"]))()
        return [saved.pk, created.pk, *(order.pk for order in bulk)]

    keys = asyncio.run(make())
    assert keys == sorted(set(keys))


# --- bad values ---------------------------------------------------------------


def test_values_that_are_no_ids_do_not_validate() -> None:
    """0, negative numbers, 2**63 and more, and text that is no number are refused."""
    for model in KEYED:
        for value in (0, -1, 2**63, "x"):
            with pytest.raises(ValidationError):
                model._meta.get_field("id").clean(value, None)


def test_the_whole_range_validates_and_is_stored(alias: str) -> None:
    """1 and 2**63-1 fit, and a number may be written as text."""
    for value in (1, 2**63 - 1, "123"):
        Order._meta.pk.clean(value, None)
        Order.objects.using(alias).create(pk=value)
        assert Order.objects.using(alias).get(pk=value).pk == int(value)


def test_looking_for_an_impossible_id_finds_nothing(alias: str) -> None:
    """Filtering on 0, -1 or 2**64 is an empty result, not an error."""
    for value in (0, -1, 2**64):
        assert not Counter.objects.using(alias).filter(pk=value).exists()
        assert not Order.objects.using(alias).filter(pk=value).exists()


def test_the_column_is_a_plain_bigint(alias: str) -> None:
    """No field of ours has an identity, a sequence or a default in the database."""
    connection = connections[alias]
    for field in (Order._meta.pk, Counter._meta.pk, SegmentAutoField(primary_key=True)):
        assert field.db_type(connection) == field.rel_db_type(connection) == "bigint"
        assert field.db_type_suffix(connection) is None

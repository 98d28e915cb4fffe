"""The four fields: when they make a value, which one and at what price; and among other fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.db import connections, models
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from django_idgen.fields import SnowflakeField
from tests.app.models import (
    Car,
    Counter,
    Coupon,
    Document,
    EagerOrder,
    Folder,
    Invoice,
    Labelling,
    Line,
    Order,
    Parcel,
    Receipt,
    Tag,
    Ticket,
    Vehicle,
    Voucher,
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


# --- inheritance --------------------------------------------------------------


def test_child_tables_share_the_parents_tag(alias: str) -> None:
    """Multi-table inheritance: one number for both rows, out of the parent's tag."""
    first = Vehicle.objects.using(alias).create()
    with CaptureQueriesContext(connections[alias]) as captured:
        car = Car.objects.using(alias).create(name="red", doors=2)
    assert sum(query["sql"].startswith("INSERT") for query in captured) == 2
    assert not any(query["sql"].startswith(("UPDATE", "SELECT")) for query in captured)
    assert car.pk == car.vehicle_ptr_id == first.pk + 1
    assert segments["app.vehicle"].next_id() == car.pk + 1
    assert Car.objects.using(alias).get(pk=car.pk).name == "red"


def test_a_copy_of_a_child_is_a_new_vehicle(alias: str) -> None:
    """Both keys set to None give a second pair of rows under one new number."""
    car = Car.objects.using(alias).create()
    first = car.pk
    car.pk = car.id = None
    car.save(using=alias)
    assert car.pk == car.id != first
    assert Car.objects.using(alias).count() == Vehicle.objects.using(alias).count() == 2


def test_abstract_bases_give_each_child_a_tag(alias: str) -> None:
    """The tag of an inherited field is that of the model which has the column."""
    assert Voucher._meta.pk.resolved_tag == "app.voucher"
    assert Coupon._meta.pk.resolved_tag == "app.coupon"
    voucher = Voucher.objects.using(alias).create()
    assert voucher.pk == segments["app.voucher"].next_id() - 1


# --- relations ----------------------------------------------------------------


def test_foreign_keys_hold_the_ids(alias: str) -> None:
    """FOREIGN KEY, ONE-TO-ONE as a key, and joins through them work in 64 bits."""
    order = Order.objects.using(alias).create(pk=2**62)
    line = Line.objects.using(alias).create(order=order, text="tea")
    parcel = Parcel.objects.using(alias).create(order=order)
    assert parcel.pk == line.order_id == 2**62
    assert Line.objects.using(alias).select_related("order").get().order == order
    assert Order.objects.using(alias).get(lines__text="tea") == order
    order.delete()
    assert not Parcel.objects.using(alias).exists()


def test_many_to_many(alias: str) -> None:
    """Automatic and explicit through tables join 64-bit ids; the automatic one has a plain key."""
    order = Order.objects.using(alias).create(pk=2**61)
    tag = Tag.objects.using(alias).create(pk=2**62)
    order.tags.add(tag)
    order.labels.add(tag)
    assert list(order.tags.all()) == list(order.labels.all()) == [tag]
    assert type(Order.tags.through._meta.pk) is models.BigAutoField
    assert Order.tags.through.objects.using(alias).get().pk < 2**31
    assert Labelling.objects.using(alias).get().pk > 2**31
    order.tags.clear()
    assert not order.tags.exists()


# --- forms and admin ----------------------------------------------------------


class InvoiceForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Invoice
        fields = "__all__"


def test_forms_leave_the_field_out_and_burn_nothing() -> None:
    """A ModelForm has no such field, is valid without it, and takes a number only to save."""
    before = segments["app.invoice"].next_id()
    form = InvoiceForm({"note": "x"})
    assert list(form.fields) == ["note"]
    assert form.is_valid()
    assert InvoiceForm({"note": "x" * 99}).is_valid() is False
    assert InvoiceForm().as_p()
    assert form.save().pk == before + 1


def test_admin_adds_and_changes_with_inlines(admin_client: Client) -> None:
    """The admin makes an order with a line, then changes that line, and shows the id."""
    add = {"note": "n", "lines-TOTAL_FORMS": "1", "lines-INITIAL_FORMS": "0", "lines-0-text": "tea"}
    assert admin_client.post("/admin/app/order/add/", add).status_code == 302
    order = Order.objects.get()
    line = order.lines.get()
    page = f"/admin/app/order/{order.pk}/change/"
    assert f'readonly">{order.pk}<' in admin_client.get(page).content.decode()
    change = {**add, "lines-INITIAL_FORMS": "1", "lines-0-text": "milk"}
    change |= {"lines-0-id": str(line.pk), "lines-0-order": str(order.pk)}
    assert admin_client.post(page, change).status_code == 302
    line.refresh_from_db()
    assert (line.text, Line.objects.count()) == ("milk", 1)

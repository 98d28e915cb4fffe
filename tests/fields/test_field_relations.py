"""The fields among others: inheritance, relations, forms and admin pages."""

from __future__ import annotations

import pytest
from django import forms
from django.db import connections, models
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from tests.app.models import (
    Car,
    Comment,
    Coupon,
    Invoice,
    Labelling,
    Line,
    Order,
    Parcel,
    RushOrder,
    Tag,
    Vehicle,
    Voucher,
)
from tests.places import on_every_database

pytestmark = on_every_database


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


def test_proxies_share_the_key(alias: str) -> None:
    """A row made through a proxy is a row of its model."""
    rush = RushOrder.objects.using(alias).create()
    assert Order.objects.using(alias).get(pk=rush.pk).pk == rush.pk


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


def test_an_unsaved_parent_is_noticed(alias: str) -> None:
    """Its child is refused, as for any key; once it is saved the child picks the id up."""
    order = Order()
    order._state.db = alias
    line = Line(order=order, text="tea")
    with pytest.raises(ValueError, match="unsaved related object"):
        line.save(using=alias)
    with pytest.raises(ValueError, match="unsaved related object"):
        Line.objects.using(alias).bulk_create([line])
    order.save(using=alias)
    line.save(using=alias)
    assert line.order_id == order.pk


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


def test_generic_foreign_keys(alias: str) -> None:
    """A GenericForeignKey with a bigint points at our rows, and back."""
    order = Order.objects.using(alias).create()
    comment = Comment(about=order)
    comment.save(using=alias)
    assert Comment.objects.using(alias).get().about == order
    assert list(order.comments.all()) == [comment]


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


def test_admin_refuses_a_form_and_burns_nothing(admin_client: Client) -> None:
    """A form with a fault in it takes no number."""
    before = segments["app.counter"].next_id()
    page = admin_client.post("/admin/app/counter/add/", {"name": "x" * 99})
    assert page.status_code == 200
    assert segments["app.counter"].next_id() == before + 1

"""Fields with a text form or a prefix: in the database nothing changes, at its edges all do."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from django.core import serializers
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections, models, transaction
from django.test.utils import isolate_apps

from django_idgen.core.encoding import ALPHABETS, TextForm
from django_idgen.core.errors import InvalidId
from django_idgen.fields import SegmentIdField, SnowflakeField
from tests.app.models import Bill, Customer, Purchase
from tests.fields.conftest import FOUR, NO_IDS
from tests.places import on_every_database

WRONG_OPTIONS: list[dict[str, Any]] = [
    {"text_form": "base64"},
    {"text_form": None},
    {"prefix": "1_"},
    {"prefix": "ä"},
    {"prefix": 5},
]


@isolate_apps("tests.app")
def test_a_form_that_cannot_be_used_is_an_error_of_the_checks() -> None:
    """E007, before anything is read or written."""
    for number, (field, option) in enumerate(product(FOUR, WRONG_OPTIONS)):
        body = {"id": field(primary_key=True, **option), "__module__": "tests.app.models"}
        wrong: Any = type(f"Wrong{number}", (models.Model,), body)
        assert [error.id for error in wrong.check()] == ["django_idgen.E007"], option


def test_the_options_make_the_form() -> None:
    """Of a copy as well."""
    for field, form in product(FOUR, (TextForm("base62"), TextForm("crockford", "o"))):
        made = field(text_form=form.alphabet, prefix=form.prefix)
        assert made.text == made.clone().text == form


# --- reading --------------------------------------------------------------------


@pytest.fixture
def customer(alias: str) -> Customer:
    return Customer.objects.using(alias).create(name="one")


@on_every_database
def test_the_database_has_the_number(alias: str, customer: Customer) -> None:
    """The instance, too: the text is for outside."""
    assert type(customer.pk) is int
    assert type(Customer.objects.using(alias).get().pk) is int
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT id FROM app_customer")
        assert cursor.fetchall() in ([(customer.pk,)], ((customer.pk,),))
    assert customer.get_id_display() == TextForm("base62", "cus_").format(customer.pk)
    assert Customer().get_id_display() == ""


@on_every_database
def test_queries_take_any_form(alias: str, customer: Customer) -> None:
    """``get``, ``filter``, ``exclude``, ``in``, ``in_bulk``, relations, both ways."""
    rows = Customer.objects.using(alias)
    other = rows.create()
    purchase = Purchase.objects.using(alias).create(customer_id=customer.get_id_display())
    assert purchase.customer == customer
    for form in (customer.pk, str(customer.pk), customer.get_id_display()):
        assert rows.get(pk=form) == rows.get(id=form) == rows.get(id__exact=form) == customer
        assert list(rows.exclude(pk=form)) == [other]
        assert rows.filter(pk__in=[form, other.get_id_display()]).count() == 2
        assert rows.filter(pk__gte=form, pk__lte=form).count() == 1
        assert rows.filter(pk__range=(form, form)).count() == 1
        assert list(rows.in_bulk([form]).values()) == [customer]
        assert Purchase.objects.using(alias).get(customer=form) == purchase
        assert Purchase.objects.using(alias).get(customer_id=form) == purchase
        assert Purchase.objects.using(alias).get(customer__pk__in=[form]) == purchase
        assert rows.get(purchases=purchase.get_id_display()) == customer
        assert rows.get_or_create(pk=form) == (customer, False)
        assert rows.update_or_create(pk=form, defaults={"name": "new"})[1] is False
    assert rows.in_bulk([customer.get_id_display()]).keys() == {customer.pk}
    assert rows.filter(pk=customer.get_id_display()).update(name="x") == 1
    assert rows.filter(pk=customer.get_id_display()).delete()[0] == 2


@on_every_database
def test_an_instance_made_with_a_text(alias: str) -> None:
    """Is stored under the number that it means; a repeated one is refused as any other."""
    made = Customer.objects.using(alias).create(pk="cus_00000000005", name="five")
    assert made.get_id_display() == "cus_00000000005"
    assert Customer.objects.using(alias).get(pk=5).name == "five"
    assert Customer.objects.using(alias).get_or_create(pk="cus_00000000006")[1] is True
    assert Customer.objects.using(alias).filter(pk=6).exists()
    made.refresh_from_db()
    assert made.name == "five"
    made.name = "changed"
    made.save(force_update=True)
    Customer.objects.using(alias).bulk_create([Customer(pk="cus_00000000007")])
    assert Customer.objects.using(alias).filter(pk__in=[5, 6, 7]).count() == 3


@pytest.mark.django_db
def test_a_wrong_text_is_refused() -> None:
    """A ``ValueError`` of a query, a ``ValidationError`` of an instance, and nothing stored."""
    for text in ("", *NO_IDS):
        for look_up in ("pk", "id__gt", "purchases__customer"):
            with pytest.raises(InvalidId):
                Customer.objects.filter(**{look_up: text})
        with pytest.raises(InvalidId):
            Customer.objects.filter(pk__in=[5, text])
        with pytest.raises(ValidationError):
            Customer._meta.pk.clean(text, None)
        with pytest.raises(InvalidId), transaction.atomic():
            Customer.objects.create(pk=text)
    assert not Customer.objects.exists()


@pytest.mark.django_db
def test_a_chosen_display_method_is_kept() -> None:
    """A model that has its own, or choices, shows what it says."""
    with isolate_apps("tests.app"):

        class Own(models.Model):
            id = SnowflakeField(primary_key=True, prefix="o")

            class Meta:
                app_label = "app"

            def get_id_display(self) -> str:
                return "mine"

        class Chosen(models.Model):
            id = SegmentIdField(primary_key=True, prefix="o", choices=[(1, "one")])

            class Meta:
                app_label = "app"

        class Child(Chosen):
            class Meta:
                app_label = "app"
                proxy = True

        assert Own(pk=5).get_id_display() == "mine"
        assert Chosen(pk=1).get_id_display() == "one"
        assert Child(pk=1).get_id_display() == "one"


# --- fixtures -------------------------------------------------------------------


@pytest.fixture
def rows() -> list[Any]:
    """Among them an id of 11 digits under base62 and of 13 under base36, which look like texts."""
    customers = [Customer.objects.create(pk=pk) for pk in (5, 2**62, 10**10)]
    purchase = Purchase.objects.create(pk=7, customer=customers[1], stamp=8)
    purchase.watchers.set(customers)
    bills = [Bill.objects.create(pk=pk, purchase=purchase) for pk in (1, 10**12, 2**63 - 1)]
    return [*customers, purchase, *bills]


@pytest.mark.django_db
def test_what_was_dumped_is_loaded(tmp_path: Any, rows: list[Any]) -> None:
    """``dumpdata`` and ``loaddata``, in each format: the same ids, the same relations."""
    before = {model: list(model.objects.order_by("pk").values()) for model in map(type, rows)}
    for kind in ("json", "jsonl", "xml", "yaml"):
        path = str(tmp_path / f"rows.{kind}")
        call_command("dumpdata", *(m._meta.label for m in before), format=kind, output=path)
        for model in (Bill, Purchase, Customer):
            model.objects.all().delete()
        call_command("loaddata", path, verbosity=0)
        assert {m: list(m.objects.order_by("pk").values()) for m in before} == before
        assert Purchase.objects.get().watchers.count() == 3


@pytest.mark.django_db
def test_fixtures_may_hold_texts() -> None:
    """A hand-written one is easier to read so."""
    data = [
        {"model": "app.customer", "pk": "cus_00000000005", "fields": {"name": "a"}},
        {"model": "app.purchase", "pk": 7, "fields": {"customer": "cus_00000000005"}},
    ]
    for row in serializers.deserialize("json", json.dumps(data)):
        row.save()
    assert Purchase.objects.get(pk=7).customer == Customer.objects.get(pk=5, name="a")


def test_a_value_written_as_a_string_is_read_back() -> None:
    """What serializers and sessions keep: every id comes back, also short ones."""
    for alphabet in ALPHABETS:
        field = SnowflakeField(text_form=alphabet)
        field.set_attributes_from_name("id")
        for value in (1, 10**10, 10**12, 10**18, 2**63 - 1):
            holder = type("Holder", (), {"id": value})()
            assert field.to_python(field.value_to_string(holder)) == value

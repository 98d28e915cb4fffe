"""Ids in the admin, found in any form, shown as text, filtered by creation; and in templates."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.template.backends.django import DjangoTemplates
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_idgen import generators, next_id
from django_idgen.core.encoding import TextForm
from django_idgen.core.errors import ConfigurationError, LayoutError
from django_idgen.core.layout import parse_layout
from django_idgen.strings.id_admin import CreatedListFilter
from tests.app.models import Bill, Customer, Invoice, Purchase

pytestmark = pytest.mark.django_db

PURCHASES = "/admin/app/purchase/"
CUSTOMERS = "/admin/app/customer/"


@pytest.fixture(autouse=True)
def _grouped() -> Any:
    with override_settings(USE_THOUSAND_SEPARATOR=True):
        yield


@pytest.fixture
def admin_client(client: Client) -> Client:
    """Without a password, whose hash would be most of the test's time."""
    client.force_login(User.objects.create(username="admin", is_staff=True, is_superuser=True))
    return client


@pytest.fixture
def purchases() -> list[Purchase]:
    made = []
    for name in "abc":
        customer = Customer.objects.create(name=f"customer {name}")
        made.append(Purchase.objects.create(customer=customer, note=f"note {name}"))
    return made


def found(client: Client, **params: str) -> list[Purchase]:
    response = client.get(PURCHASES, params)
    assert response.status_code == 200
    return list(response.context["cl"].queryset.order_by("pk"))


def grouped(number: int) -> str:
    return f"{number:,}"


# --- search ---------------------------------------------------------------------


def test_search_finds_a_row_by_any_form_of_its_id(
    admin_client: Client, purchases: list[Purchase]
) -> None:
    """Digits, the text, the text as people type it, and ids of related rows."""
    first, second, _ = purchases
    text = first.get_id_display()
    for term in (str(first.pk), text, text.lower(), f" {text} ", f"{text[:4]}-{text[4:]}"):
        assert found(admin_client, q=term) == [first], term
    for term in (str(second.customer_id), second.customer.get_id_display()):
        assert found(admin_client, q=term) == [second], term


def test_search_also_finds_what_it_found_before(
    admin_client: Client, purchases: list[Purchase]
) -> None:
    """By its other fields, several words, and a note that is also an id."""
    assert found(admin_client, q="note") == purchases
    assert found(admin_client, q="note b") == [purchases[1]]
    assert found(admin_client, q="nothing") == []
    assert found(admin_client, q="") == purchases
    purchases[2].note = f"see {purchases[0].pk}"
    purchases[2].save()
    assert found(admin_client, q=str(purchases[0].pk)) == [purchases[0], purchases[2]]


def test_a_search_for_no_id_finds_nothing(admin_client: Client, purchases: list[Purchase]) -> None:
    """And breaks nothing, in admins with and without other fields."""
    odd = ["0", "-1", "1.5", "😀", "9" * 30, "cus_x", "ord_00000000001", "x" * 10_000]
    for term in odd:
        assert found(admin_client, q=term) == []
    for url in (CUSTOMERS, "/admin/app/bill/"):
        for term in (*odd, "\x00", "'", '"'):
            assert admin_client.get(url, {"q": term}).status_code == 200


def test_an_admin_without_search_fields_searches_ids(admin_client: Client) -> None:
    """By the primary key alone, and by its index."""
    bills = [Bill.objects.create(), Bill.objects.create()]
    with CaptureQueriesContext(connection) as queries:
        response = admin_client.get("/admin/app/bill/", {"q": bills[1].get_id_display()})
    assert list(response.context["cl"].queryset) == [bills[1]]
    assert not [query for query in queries if "LIKE" in query["sql"]]
    assert list(admin_client.get("/admin/app/bill/", {"q": "x"}).context["cl"].queryset) == []


def test_autocomplete_finds_by_any_form(admin_client: Client, purchases: list[Purchase]) -> None:
    """Its answer has the id as a string of digits, as Django's select sends it back."""
    for term in (str(purchases[0].pk), purchases[0].get_id_display(), "note a"):
        params = {"app_label": "app", "model_name": "bill", "field_name": "purchase", "term": term}
        response = admin_client.get(reverse("admin:autocomplete"), params)
        results = json.loads(response.content)["results"]
        assert [row["id"] for row in results] == [str(purchases[0].pk)]


# --- what is shown --------------------------------------------------------------


def test_columns_have_no_separators(admin_client: Client, purchases: list[Purchase]) -> None:
    """The key, other ids and foreign keys' columns, in their text form; the link stays.

    So do the order of the id's header, and the admin's sign for no value.
    """
    purchase = purchases[0]
    page = admin_client.get(PURCHASES).content.decode()
    for number in (purchase.pk, purchase.customer_id, purchase.stamp):
        assert grouped(number) not in page
    link = reverse("admin:app_purchase_change", args=[purchase.pk])
    assert f'class="field-id"><a href="{link}">{purchase.get_id_display()}</a>' in page
    assert f">{purchase.customer.get_id_display()}<" in page
    assert f">{purchase.stamp}<" in page
    assert ">customer a<" in page
    Purchase.objects.filter(pk=purchase.pk).update(stamp=None)
    response = admin_client.get(PURCHASES, {"o": "-1"})
    assert list(response.context["cl"].result_list) == purchases[::-1]
    page = response.content.decode()
    assert 'class="sortable column-id sorted descending"' in page
    assert 'class="field-stamp">-<' in page


def test_read_only_fields_have_no_separators(
    admin_client: Client, purchases: list[Purchase]
) -> None:
    """Also those of inlines, and where an admin names them in a method of its own."""
    purchase = purchases[0]
    bill = Bill.objects.create(pk=1_234_567, purchase=purchase)
    page = admin_client.get(f"{PURCHASES}{purchase.pk}/change/").content.decode()
    for text in (purchase.get_id_display(), str(purchase.stamp), bill.get_id_display()):
        assert re.search(rf">\s*{text}\s*<", page), text
    for number in (purchase.pk, purchase.customer_id, purchase.stamp, bill.pk):
        assert grouped(number) not in page
    assert f'value="{purchase.customer_id}"' in page  # of the raw id widget
    added = admin_client.get(f"{PURCHASES}add/").content.decode()
    assert '<div class="readonly">-</div>' in added
    viewer = User.objects.create(username="viewer", is_staff=True)
    viewer.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    admin_client.force_login(viewer)  # who may change nothing: every field is read-only
    page = admin_client.get(f"{PURCHASES}{purchase.pk}/change/").content.decode()
    assert purchase.get_id_display() in page
    assert grouped(purchase.pk) not in page


# --- pages ----------------------------------------------------------------------


def test_a_page_is_found_by_the_text(admin_client: Client, purchases: list[Purchase]) -> None:
    """To change, to delete, and its history, which is kept under the digits."""
    customer = purchases[0].customer
    url = f"{CUSTOMERS}{customer.get_id_display()}/"
    data = {"name": "new", "_continue": "1"}
    assert admin_client.post(f"{url}change/", data).status_code == 302
    customer.refresh_from_db()
    assert customer.name == "new"
    assert LogEntry.objects.get().object_id == str(customer.pk)
    history = admin_client.get(f"{url}history/")
    assert len(history.context["action_list"]) == 1
    assert admin_client.get(f"{url}delete/").status_code == 200
    assert admin_client.post(f"{url}delete/", {"post": "yes"}).status_code == 302
    assert not Customer.objects.filter(pk=customer.pk).exists()


def test_a_text_that_looks_quoted(admin_client: Client) -> None:
    """``cus_0A...`` holds what the admin reads as a newline."""
    value = TextForm("base62", "cus_").parse("cus_0Aabcdefghi")
    Customer.objects.create(pk=value, name="found")
    response = admin_client.get(f"{CUSTOMERS}cus_0Aabcdefghi/change/")
    assert response.status_code == 200
    assert "found" in response.content.decode()


def test_a_page_that_is_not_there(admin_client: Client) -> None:
    """The admin's own message, and no error."""
    for text in ("0", "x", "ord_00000000001", "9" * 30, "%00", "1.5", "😀"):
        for action in ("change", "delete", "history"):
            response = admin_client.get(f"{CUSTOMERS}{text}/{action}/")
            assert response.status_code == 302
            assert response.url == reverse("admin:index")


def test_raw_ids_are_taken_in_any_form(admin_client: Client, purchases: list[Purchase]) -> None:
    """Of one row and of several; what is no id is an error at the field."""
    first, second = (purchase.customer for purchase in purchases[:2])
    inline = {"bill_set-TOTAL_FORMS": "0", "bill_set-INITIAL_FORMS": "0"}
    data = {
        **inline,
        "customer": first.get_id_display(),
        "watchers": f"{first.pk},{second.get_id_display()}",
        "note": "made",
    }
    assert admin_client.post(f"{PURCHASES}add/", data).status_code == 302
    made = Purchase.objects.get(note="made")
    assert made.customer == first
    assert set(made.watchers.all()) == {first, second}
    for wrong in ("x", "ord_00000000001", "\x00", "9" * 30, "1.5", "1"):
        for field in ("customer", "watchers"):
            response = admin_client.post(f"{PURCHASES}add/", data | {field: wrong})
            assert response.status_code == 200
            assert field in response.context["adminform"].form.errors


# --- the list filter ------------------------------------------------------------


def _at(when: datetime) -> int:
    return parse_layout("standard").min_id_at(when)


def _links(client: Client, number: int = 0, **params: str) -> dict[str, str]:
    changelist = client.get(PURCHASES, params).context["cl"]
    spec = changelist.filter_specs[number]
    return {str(choice["display"]): choice["query_string"] for choice in spec.choices(changelist)}


@pytest.fixture
def dated() -> dict[str, Purchase]:
    """Purchases of today and of long ago, in the time zone of the project."""
    now = timezone.localtime()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    moments = {
        "today": today,
        "yesterday": today - timedelta(milliseconds=1),
        "eight days ago": today - timedelta(days=8),
        "years ago": datetime(2025, 1, 2, tzinfo=UTC),
    }
    customer = Customer.objects.create(pk=_at(moments["years ago"]))
    return {
        name: Purchase.objects.create(pk=_at(when), customer=customer)
        for name, when in moments.items()
    }


def test_filtering_by_creation(admin_client: Client, dated: dict[str, Purchase]) -> None:
    """Today and the past days as a date column's filter has them, by ranges of the key."""
    links = _links(admin_client)
    assert list(links) == ["Any date", "Today", "Past 7 days", "This month", "This year"]
    expected = {
        "Any date": set(dated),
        "Today": {"today"},
        "Past 7 days": {"today", "yesterday"},
    }
    for title, names in expected.items():
        with CaptureQueriesContext(connection) as queries:
            response = admin_client.get(PURCHASES + links[title])
        rows = response.context["cl"].queryset
        assert set(rows) == {dated[name] for name in names}
        ranges = [query for query in queries if '"app_purchase"."id" BETWEEN' in query["sql"]]
        assert bool(ranges) == (title != "Any date")
        assert not any("dtdelta" in query["sql"] for query in queries)
        assert "created" in response.content.decode()
    for title in ("This month", "This year"):
        rows = admin_client.get(PURCHASES + links[title]).context["cl"].queryset
        assert dated["today"] in rows
        assert dated["years ago"] not in rows


def test_filtering_by_the_creation_of_a_related_row(
    admin_client: Client, dated: dict[str, Purchase]
) -> None:
    """Its own column is compared; a wrong parameter is the admin's error."""
    links = _links(admin_client, 1)
    assert admin_client.get(PURCHASES + links["This year"]).context["cl"].queryset.count() == 0
    since = {"customer__id__created__gte": "2025-01-02 00:00:00+00:00"}
    assert len(found(admin_client, **since)) == len(dated)
    wrong = admin_client.get(PURCHASES, {"id__created__gte": "soon"})
    assert wrong.status_code == 302
    assert wrong.url == f"{PURCHASES}?e=1"
    made = Purchase.objects.create(pk=next_id(), customer=Customer.objects.create())
    since = {"id__created__gte": str(generators["default"].decode(made.pk).created)}
    assert found(admin_client, **since) == [made]


def _filter(field: str, model: Any) -> CreatedListFilter:
    made = admin.ModelAdmin(model, admin.site)
    return CreatedListFilter(model._meta.get_field(field), None, {}, model, made, field)


def test_a_filter_of_what_holds_no_moment_is_refused() -> None:
    """A segment id, a text, a layout without time on top; a relation goes by its target."""
    for field, model in (("id", Invoice), ("note", Purchase)):
        with pytest.raises(ImproperlyConfigured, match=f"{field!r} is not a snowflake id"):
            _filter(field, model)
    relation = _filter("customer", Purchase)
    assert relation.lookup_kwarg_since == "customer__id__created__gte"
    assert str(relation.title) == "Customer: created"
    links = [str(title) for title, _ in _filter("stamp", Purchase).links]
    assert links[-2:] == ["No date", "Has date"]
    layout = {"worker": 4, "time": 41, "sequence": 12}
    settings = {"GENERATORS": {"default": {"LAYOUT": layout}}}
    with override_settings(IDGEN=settings), pytest.raises(LayoutError, match="not ordered by time"):
        _filter("id", Purchase)


# --- templates: text on request, and never with thousand separators ------------

PK = 1_234_567_890


def render(source: str, **context: Any) -> str:
    backend = DjangoTemplates({"NAME": "django", "DIRS": [], "APP_DIRS": True, "OPTIONS": {}})
    return str(backend.from_string(source).render(context))


@pytest.fixture
def numbered() -> Purchase:
    customer = Customer.objects.create(pk=PK, name="a")
    return Purchase.objects.create(pk=PK + 1, customer=customer, stamp=PK + 2)


def test_the_filter_writes_text(numbered: Purchase) -> None:
    """Of an instance in its own form, of a number in the form that is asked for."""
    cases = {
        "p|id_text": numbered.get_id_display(),
        'p|id_text:"customer"': numbered.customer.get_id_display(),
        'p|id_text:"customer_id"': numbered.customer.get_id_display(),
        'p|id_text:"stamp"': str(PK + 2),
        'p|id_text:"base62:x_"': f"x_{'0' * 5}1LY7VL",
        "p.id|id_text": str(PK + 1),
        "p.customer_id|id_text": str(PK),
        'p.id|id_text:"base36"': "0000000kf12oj",
        "nothing|id_text": "",
        "none|id_text": "",
        "text|id_text": "cus_1",
        "zero|id_text": "0",
        "new|id_text": "",
        "user|id_text": "1234567",
    }
    context = {
        "p": numbered,
        "none": None,
        "text": "cus_1",
        "zero": 0,
        "new": Purchase(),
        "user": User(pk=1_234_567),
    }
    for expression, expected in cases.items():
        source = "{% load idgen %}{{ " + expression + " }}"
        assert render(source, **context) == expected, expression
    context["p"] = Purchase.objects.get()
    with CaptureQueriesContext(connection) as queries:  # the id of a related row is in the row
        render('{% load idgen %}{{ p|id_text:"customer" }}', **context)
    assert len(queries) == 0


def test_a_form_that_is_not_there_is_an_error(numbered: Purchase) -> None:
    """A slip of the author's is not hidden from them."""
    for form in ("base64", "note", "nothing", "Base62:x"):
        with pytest.raises(ConfigurationError):
            render('{% load idgen %}{{ p|id_text:"' + form + '" }}', p=numbered)


def warned(**settings: Any) -> bool:
    with override_settings(**settings):
        return "django_idgen.W008" in [found.id for found in run_checks(tags=["templates"])]


def test_a_project_is_told_where_ids_are_grouped() -> None:
    """Where separators are on and Django's templates are used; the hint has the filter."""
    assert warned()
    assert not warned(USE_THOUSAND_SEPARATOR=False)
    assert not warned(TEMPLATES=[{"BACKEND": "django.template.backends.dummy.TemplateStrings"}])
    found = [one for one in run_checks(tags=["templates"]) if one.id == "django_idgen.W008"]
    assert "{{ order.id|id_text }}" in str(found[0].hint)

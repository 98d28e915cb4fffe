"""A URL finds out nothing that a page does not show: look-ups, sorting, popups, choices."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.db import models
from django.test import Client, override_settings
from django.urls import reverse

from django_idgen.models import AccessToken, LeafAlloc, SegmentHistory
from tests.admin.people import staff
from tests.tiers import LONG

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MODELS = [model for model in admin.site._registry if model._meta.app_label == "django_idgen"]
NO_LISTS = {"Decode", "WorkerLease"}
"""Pages that list no rows of a table."""
LISTED = [model for model in MODELS if model._meta.object_name not in NO_LISTS]
ALLOWED = {
    "leafalloc": {"state"},
    "segmenthistory": {"tag__exact"},
    "accesstoken": {"state"},
}
"""By page, the look-ups of its filters, and of our own links."""
USUAL = {"exact", "startswith", "gte", "isnull", "regex", "year"}


@pytest.fixture
def rows(no_tags: None) -> None:
    """A row on each page."""
    LeafAlloc.objects.create(biz_tag="orders")
    AccessToken.objects.create(name="shop", digest="ab" * 32, hint="abcd", tags="*")
    SegmentHistory.objects.create(tag="orders", start=1, stop=9, holder="web", taken_at=NOW)


@pytest.fixture
def viewer(rows: None) -> Iterator[Client]:
    """A member of the staff who may see all pages, and change nothing."""
    client = staff(*(f"view_{model._meta.model_name}" for model in LISTED))
    client.raise_request_exception = False
    with override_settings(DEBUG=False):
        yield client


def page(model: type[models.Model], name: str = "changelist", *args: object) -> str:
    return reverse(f"admin:django_idgen_{model._meta.model_name}_{name}", args=args)


def lookups_of(model: type[models.Model]) -> Iterator[str]:
    """Each field of a page, alone and with each look-up that it knows; in long alone, the rarer."""
    for field in model._meta.get_fields():
        yield field.name
        for lookup in getattr(field, "get_lookups", dict)():
            if LONG or lookup in USUAL:
                yield f"{field.name}__{lookup}"


def test_only_what_the_list_offers_can_be_asked_for(viewer: Client) -> None:
    """Any other column could be read letter by letter: 400, be it true of a row or not."""
    for model in LISTED:
        allowed = ALLOWED[str(model._meta.model_name)]
        for lookup in [*lookups_of(model), "pk", "pk__startswith"]:
            status = viewer.get(page(model), {lookup: "0"}).status_code
            assert (status == 400) is (lookup not in allowed), (model, lookup, status)


def test_the_filters_and_links_of_the_pages_work(viewer: Client) -> None:
    """With them there is the row."""
    queries: list[tuple[type[models.Model], dict[str, str]]] = [
        (LeafAlloc, {"state": "unused"}),
        (LeafAlloc, {"q": "orders", "o": "1"}),
        (SegmentHistory, {"tag__exact": "orders"}),
        (AccessToken, {"state": "works"}),
    ]
    for model, query in queries:
        answer: Any = viewer.get(page(model), query)
        assert answer.status_code == 200
        assert list(answer.context["cl"].result_list), query


def test_no_popup_names_another_column(viewer: Client) -> None:
    """``_to_field`` would show its values as the keys of rows, and find rows by them."""
    for model in LISTED:
        row: Any = model._default_manager.first()
        for field in model._meta.concrete_fields:
            if field.primary_key:
                continue
            asked = {"_popup": "1", "_to_field": field.name}
            assert viewer.get(page(model), asked).status_code == 400, field.name
            url = page(model, "change", field.value_to_string(row) or "x")
            assert viewer.get(url, {"_to_field": field.name}).status_code == 400, field.name


def test_nothing_is_offered_as_a_choice(viewer: Client) -> None:
    """Django's view of choices has none of the rows: no field refers to them."""
    for model in LISTED:
        for field in model._meta.concrete_fields:
            asked = {
                "app_label": "django_idgen",
                "model_name": str(model._meta.model_name),
                "field_name": field.name,
                "term": "0",
            }
            assert viewer.get(reverse("admin:autocomplete"), asked).status_code == 403


def test_no_secret_is_sorted_by_searched_or_shown(viewer: Client) -> None:
    """Nor its digest: neither by a column that is shown, nor by words."""
    secrets = ("ab" * 32, "0f" * 16, "0f")
    for model in LISTED:
        answer: Any = viewer.get(page(model))
        shown = answer.context["cl"]
        for each in shown.list_display:
            order = shown.get_ordering_field(each)
            if isinstance(order, str):
                assert order.lstrip("-") not in {"token", "digest"}, each
        for secret in secrets:
            found: Any = viewer.get(page(model), {"q": secret})
            assert not list(found.context["cl"].result_list), secret
        for secret in secrets[:2]:
            assert secret not in answer.content.decode()

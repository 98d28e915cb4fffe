"""The same in pytest-django's way."""

from __future__ import annotations

import pytest
from freezegun import freeze_time

from django_idgen import next_id, segments

from .models import Country, Invoice, Label, Order


def test_ids_without_the_database() -> None:
    assert len({next_id() for _ in range(5)}) == 5
    assert len({segments["shop.country"].next_id() for _ in range(5)}) == 5
    assert Order().pk is None


@pytest.mark.django_db
def test_rows() -> None:
    Country.objects.create(code="DE")
    assert len({Invoice.objects.create(order=Order.objects.create()).pk for _ in range(3)}) == 3


@pytest.mark.django_db(transaction=True)
def test_committed_rows(django_assert_num_queries) -> None:
    with django_assert_num_queries(1):
        Label.objects.create(text="one")
    Invoice.objects.bulk_create(Invoice() for _ in range(1200))


def test_ids_without_the_database_again() -> None:
    assert next_id() < next_id()
    assert len(segments["shop.invoice"].next_ids(3)) == 3


@pytest.mark.django_db
@freeze_time("2020-01-01")
def test_rows_under_a_frozen_clock(django_capture_on_commit_callbacks) -> None:
    with django_capture_on_commit_callbacks() as callbacks:
        Country.objects.create(code="DE")
        Order.objects.create()
    assert callbacks == []

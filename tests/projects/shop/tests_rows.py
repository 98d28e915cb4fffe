"""A user's tests that make rows, in each of the ways in which Django lets them."""

from __future__ import annotations

import datetime
import json
import urllib.request
from typing import Any

import time_machine
from django.conf import settings
from django.db import transaction
from django.test import (
    LiveServerTestCase,
    SimpleTestCase,
    TestCase,
    TransactionTestCase,
    override_settings,
)
from freezegun import freeze_time

from django_idgen import generators, next_id, segments

from .models import Country, Invoice, Label, Order

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def buy() -> Invoice:
    return Invoice.objects.create(order=Order.objects.create())


def numbers(count: int) -> set[int]:
    return {buy().pk for _ in range(count)}


# Django 6.1 has renamed it.
savepoint_create = getattr(transaction, "savepoint_create", None) or transaction.savepoint


class InTransactionTests(TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        cls.invoice = buy()
        cls.label = Label.objects.create(text="new")

    def test_rows_have_ids(self) -> None:
        self.assertGreater(self.label.pk, 2**40)
        self.assertEqual(Invoice.objects.get().order, self.invoice.order)

    def test_more_than_a_segment(self) -> None:
        Invoice.objects.bulk_create(Invoice() for _ in range(1200))
        self.assertEqual(Invoice.objects.count(), 1201)

    def test_ids_go_on_when_settings_change(self) -> None:
        changes: list[dict[str, Any]] = [
            {"CACHES": {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}},
            {"IDGEN": {"SEGMENTS": {"OPTIONS": {"default_step": 7}}}},
        ]
        for change in changes:
            with override_settings(**change):
                buy()
            buy()
        self.assertEqual(Invoice.objects.count(), 5)

    def test_a_create_is_one_query(self) -> None:
        with self.assertNumQueries(1):
            Order.objects.create()
        with self.assertNumQueries(1):
            Invoice.objects.create()
        with self.assertNumQueries(1):
            Invoice.objects.bulk_create([Invoice(), Invoice(), Invoice()])

    def test_no_callback_but_mine(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            with transaction.atomic():
                buy()
                Invoice.objects.bulk_create(Invoice() for _ in range(1200))
            transaction.on_commit(print)
        self.assertEqual(callbacks, [print])

    def test_a_rolled_back_savepoint(self) -> None:
        before = numbers(3)
        savepoint = savepoint_create()
        lost = numbers(3)
        transaction.savepoint_rollback(savepoint)
        self.assertEqual(len(before | lost | numbers(3)), 9)

    def test_under_a_frozen_clock(self) -> None:
        with freeze_time("2020-01-01"):
            frozen = {Order.objects.create().pk for _ in range(3)} | numbers(3)
        with time_machine.travel(LONG_AGO, tick=False):
            travelled = {Order.objects.create().pk for _ in range(3)} | numbers(3)
        self.assertEqual(len(frozen | travelled), 12)

    def test_rows_of_migrations(self) -> None:
        there = Country.objects.count()
        Country.objects.create(code="DE")
        self.assertEqual(Country.objects.count(), there + 1)


class FirstCommittedTests(TransactionTestCase):
    def test_rows(self) -> None:
        self.assertEqual(len(numbers(3)), 3)

    def test_rows_after_a_flush(self) -> None:
        self.assertFalse(Invoice.objects.exists())
        self.assertEqual(len(numbers(3)), 3)

    def test_a_create_is_one_query(self) -> None:
        with self.assertNumQueries(1):
            Order.objects.create()
        with self.assertNumQueries(1):
            Invoice.objects.create()

    def test_in_a_transaction_after_a_read(self) -> None:
        with transaction.atomic(durable=True):
            Invoice.objects.count()
            Invoice.objects.bulk_create(Invoice() for _ in range(1200))
            buy()


class SecondCommittedTests(TransactionTestCase):
    serialized_rollback = True

    def test_rows(self) -> None:
        self.assertEqual(len(numbers(3)), 3)

    def test_rows_of_migrations_are_back(self) -> None:
        there = Country.objects.count()
        Country.objects.create(code="DE")
        self.assertEqual(Country.objects.count(), there + 1)

    def test_once_more(self) -> None:
        self.assertEqual(numbers(3) & set(Invoice.objects.values_list("pk", flat=True)[3:]), set())
        Country.objects.create(code="DE")


class OnEveryDatabase:
    databases = "__all__"

    def test_rows(self) -> None:
        for alias in settings.DATABASES:
            order = Order.objects.using(alias).create()
            Invoice.objects.using(alias).create(order=order)


class OnEveryDatabaseTests(OnEveryDatabase, TransactionTestCase):
    pass


class OnEveryDatabaseInTransactionTests(OnEveryDatabase, TestCase):
    pass


class WithoutDatabaseTests(SimpleTestCase):
    def test_instances(self) -> None:
        self.assertIsNone(Order(note="unsaved").pk)

    def test_ids(self) -> None:
        self.assertEqual(len({next_id() for _ in range(5)}), 5)
        self.assertEqual(len(set(generators["default"].next_ids(5000))), 5000)
        self.assertEqual(len({segments["shop.invoice"].next_id() for _ in range(5)}), 5)


class LiveTests(LiveServerTestCase):
    def test_ids_of_the_server_and_mine(self) -> None:
        mine = numbers(2)
        theirs = {self.buy_there()["invoice"] for _ in range(2)}
        self.assertEqual(len(mine | theirs), 4)
        self.assertEqual(set(Invoice.objects.values_list("pk", flat=True)), mine | theirs)

    def buy_there(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.live_server_url}/buy/") as response:
            found: dict[str, int] = json.load(response)
        return found


class ClientTests(TestCase):
    def test_a_request(self) -> None:
        self.assertEqual(self.client.get("/buy/").status_code, 200)
        self.assertEqual(Invoice.objects.count(), 1)

"""Tests without the database between tests with it; Django runs them in order of their names."""

from __future__ import annotations

from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_idgen import next_id, segments

from .models import Country, Order


class Turn1WithoutDatabaseTests(SimpleTestCase):
    def test_ids(self) -> None:
        self.assertEqual(len(set(segments["shop.country"].next_ids(5000))), 5000)
        self.assertLess(next_id(), next_id())


class Turn2CommittedTests(TransactionTestCase):
    def test_rows(self) -> None:
        Country.objects.create(code="XX")
        Order.objects.create()


class Turn3WithoutDatabaseTests(Turn1WithoutDatabaseTests):
    pass


class Turn4CommittedTests(TransactionTestCase):
    def test_rows(self) -> None:
        Country.objects.bulk_create(Country(code="XX") for _ in range(10))
        Order.objects.create()


class FirstWithoutDatabaseTests(SimpleTestCase):
    """In a parallel run it may be a process' first."""

    def test_numbers(self) -> None:
        self.assertEqual(len(set(segments["shop.country"].next_ids(7))), 7)


class RowTests(TestCase):
    def test_rows(self) -> None:
        there = Country.objects.count()
        Country.objects.bulk_create(Country(code="XX") for _ in range(10))
        self.assertEqual(Country.objects.count(), there + 10)

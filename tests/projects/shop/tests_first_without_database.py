"""Runs in a class of its own: in a parallel run it may be a process' first."""

from __future__ import annotations

from django.test import SimpleTestCase, TestCase

from django_idgen import segments

from .models import Country


class CountryNumberTests(SimpleTestCase):
    def test_numbers(self) -> None:
        self.assertEqual(len(set(segments["shop.country"].next_ids(7))), 7)


class CountryRowTests(TestCase):
    def test_rows(self) -> None:
        there = Country.objects.count()
        Country.objects.bulk_create(Country(code="XX") for _ in range(10))
        self.assertEqual(Country.objects.count(), there + 10)

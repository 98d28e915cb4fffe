"""A user's tests that begin with rows of a fixture, whose keys no process has taken."""

from __future__ import annotations

from django.conf import settings
from django.core.management import call_command
from django.test import TestCase, TransactionTestCase, override_settings

from .models import Customer


class Fixtures:
    """Run in a transaction that is rolled back, and in tests that commit."""

    fixtures = ["old_customers"]  # noqa: RUF012 - as Django writes it

    def setUp(self) -> None:
        self.aliases = self.databases if self.databases != "__all__" else settings.DATABASES

    def make(self, count: int = 3) -> list[int]:
        return [
            Customer.objects.using(alias).create().pk
            for alias in self.aliases
            for _ in range(count)
        ]

    def test_new_rows(self) -> None:
        self.assertGreater(min(self.make()), 3)

    def test_the_same_in_another_test(self) -> None:
        self.assertGreater(min(self.make()), 3)

    def test_more_of_them(self) -> None:
        self.make()
        for alias in self.aliases:
            Customer.objects.using(alias).filter(pk__gt=3).delete()
            call_command("loaddata", "more_customers", database=alias, verbosity=0)
        self.assertGreater(min(self.make()), 21)

    def test_with_other_settings(self) -> None:
        with override_settings(CACHES={}):
            self.assertGreater(min(self.make()), 3)


class InTransactionTests(Fixtures, TestCase):
    pass


class CommittedTests(Fixtures, TransactionTestCase):
    pass


class SerializedTests(Fixtures, TransactionTestCase):
    serialized_rollback = True


class OnEveryDatabaseTests(Fixtures, TestCase):
    databases = "__all__"

"""A user's tests beside a data migration; run by name, as they need ``accounts`` installed."""

from django.test import TestCase

from .models import Account


class AccountTests(TestCase):
    def test_rows_of_the_migration_and_new_ones(self) -> None:
        Account.objects.create()
        self.assertEqual(Account.objects.count(), 1203)
        self.assertEqual(Account.objects.values("number").distinct().count(), 1203)

"""What a project can do in which nothing is installed but django_idgen and its own app.

Run by name: the other tests need no commands.
"""

from __future__ import annotations

from io import StringIO

from django.apps import apps
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db.models.signals import post_migrate, pre_migrate
from django.template import engines
from django.test import TestCase, TransactionTestCase

from .models import Invoice, Order


def said_by(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out, stderr=out)
    return out.getvalue()


class TemplateTests(TestCase):
    def test_without_an_id(self) -> None:
        self.assertEqual(engines["django"].from_string("hi").render(), "hi")

    def test_with_ids(self) -> None:
        order = Order.objects.create()
        template = engines["django"].from_string("{% load idgen %}{{ order|id_text }}")
        self.assertEqual(template.render({"order": order}), str(order.pk))


class CommandTests(TransactionTestCase):
    databases = "__all__"

    def setUp(self) -> None:
        Invoice.objects.create(order=Order.objects.create())

    def test_django(self) -> None:
        self.assertIn("no issues", said_by("check", "--database", "default"))
        self.assertIn("No changes detected", said_by("makemigrations", "--check", "--dry-run"))
        self.assertIn("No migrations to apply", said_by("migrate"))
        self.assertIn("shop.invoice", said_by("dumpdata"))

    def test_signals_that_say_nothing(self) -> None:
        for signal in (pre_migrate, post_migrate, request_started, request_finished):
            signal.send(sender=apps.get_app_config("shop"))

    def test_ours(self) -> None:
        self.assertIn("GENERATOR default", said_by("idgen_status"))
        self.assertIn("worker", said_by("idgen_decode", str(Order.objects.get().pk)))
        self.assertIn("All is well", said_by("idgen_doctor"))
        self.assertIn("shop.invoice", said_by("idgen_skip", "shop.invoice", "--by", "10", "--yes"))
        self.assertIn("prune_history", said_by("idgen_upkeep"))
        self.assertIn("2,003 ids", said_by("idgen_bench", "--count", "1000"))
        self.assertIn("idgen_", said_by("idgen_token", "create", "cook", "--tags=*"))
        self.assertIn("cook", said_by("idgen_token", "list"))
        self.assertIn("shop.Invoice", said_by("idgen_adopt", "shop.Invoice", "--back", "--dry-run"))

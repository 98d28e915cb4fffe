"""The admin's index. Run by name: it needs ``simple_admin_settings``."""

from __future__ import annotations

import os

from django.contrib.auth.models import User
from django.template import engines
from django.test import TestCase

PAGES = ("leafalloc", "segmenthistory", "workerlease", "accesstoken", "decode")


class IndexTests(TestCase):
    def setUp(self) -> None:
        # Which imports the template tags of all apps, and must not bring admin pages along.
        self.assertEqual(engines["django"].from_string("hi").render(), "hi")
        self.client.force_login(User.objects.create_superuser("chief"))

    def test_index(self) -> None:
        index = self.client.get("/admin/")
        self.assertEqual(index.status_code, 200)
        there = [page for page in PAGES if f"/admin/django_idgen/{page}/" in index.text]
        self.assertEqual(there, list(PAGES) if os.environ.get("OFFICE_AUTODISCOVER") else [])
        for page in there:
            found = self.client.get(f"/admin/django_idgen/{page}/", follow=True)
            self.assertEqual(found.status_code, 200)

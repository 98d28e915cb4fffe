"""The id service without users. Run by name: it needs ``service_settings``."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command
from django.test import TransactionTestCase

IDS = "/idgen/generators/default/ids"


class ServiceTests(TransactionTestCase):
    def test_with_a_token(self) -> None:
        out = StringIO()
        call_command("idgen_token", "create", "cook", "--generators=*", stdout=out, stderr=out)
        headers = {"Authorization": f"Bearer {out.getvalue().split()[-1]}"}
        self.assertGreater(int(self.client.get(IDS, headers=headers).json()["id"]), 0)
        self.assertEqual(self.client.get("/idgen/tags/", headers=headers).status_code, 403)

    def test_without_a_token(self) -> None:
        self.assertEqual(self.client.get(IDS).status_code, 401)
        self.assertEqual(self.client.get("/idgen/tags/").status_code, 401)
        self.assertEqual(self.client.get("/idgen/health/ready").status_code, 200)

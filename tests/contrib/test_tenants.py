"""Tenants in schemas of PostgreSQL: the page, with django-tenants itself (hazard 103)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from django.core.checks import Error
from django.db import connections
from django.test import override_settings

from django_idgen.checks import check_tenants
from tests import warm
from tests.console import BLOCK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "segments.md").read_text("utf-8")

SETTINGS = """
import os
DATABASES = {{"default": {database!r}}}
SECRET_KEY = "tenants"
USE_TZ = True
"""
CUSTOMERS = """
from django.db import models
from django_tenants.models import DomainMixin, TenantMixin
class Client(TenantMixin):
    auto_create_schema = True
class Domain(DomainMixin):
    pass
"""
START = """
import django; django.setup()
from django.core.management import call_command
from django.db import connection
from django_tenants.utils import schema_context
from django_idgen import segments
from customers.models import Client
from shop.models import Order, Ticket
"""


@pytest.fixture
def project(postgres: str, tmp_path: Path) -> Iterator[Any]:
    """``project(code)``: what a process of the page's project prints."""
    configured = connections[postgres].settings_dict
    names = "NAME", "USER", "PASSWORD", "HOST", "PORT"
    database = {name: configured[name] for name in names}
    files = {match["file"]: match["body"] for match in BLOCK.finditer(PAGE) if match["file"]}
    files["settings.py"] = SETTINGS.format(database=database) + files["settings.py"]
    files["customers/models.py"] = CUSTOMERS
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for app in ("customers", "shop"):
        for folder in (tmp_path / app, tmp_path / app / "migrations"):
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").touch()

    def run(code: str) -> list[str]:
        done = warm.run(
            ["-c", START + dedent(code)],
            timeout=120,
            cwd=tmp_path,
            env={"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    run("""
        call_command("makemigrations", "customers", "shop", verbosity=0)
        call_command("migrate_schemas", shared=True, verbosity=0)
        for name in ("north", "south"):
            Client.objects.create(schema_name=name)
        with schema_context("north"), connection.cursor() as cursor:  # what COPY does
            cursor.execute("INSERT INTO shop_order SELECT generate_series(1, 5000)")
    """)
    yield run
    with connections[postgres].cursor() as cursor:
        cursor.execute("DROP SCHEMA north CASCADE; DROP SCHEMA south CASCADE")


def test_a_project_with_tenants(project: Any) -> None:
    """A new tag's first insert, one process in both tenants, numbers of each, and the doctor."""
    assert project("""
        with schema_context("north"):
            print(Order.objects.create().pk)
            print([Ticket.objects.create().number for _ in range(3)])
        with schema_context("south"):
            print(Order.objects.create().pk)
            print([Ticket.objects.create().number for _ in range(3)])
    """) == ["5001", "[1, 2, 3]", "5002", "[1, 2, 3]"]
    said = project("""
        with schema_context("south"), connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop_order SELECT generate_series(10001, 20000)")
        from django.core.management import execute_from_command_line
        words = ["manage.py", "tenant_command", "idgen_doctor", "--schema=south"]
        try:
            execute_from_command_line(words)
        except SystemExit as end:
            print("exit", end.code)
    """)
    assert said[-1] == "exit 2"
    assert any("Raises tag 'shop.order'" in line for line in said)


def test_a_tenant_that_another_process_never_met(project: Any) -> None:
    """Another tenant's rows are not taken for its own, if that used the tag first."""
    assert project("""
        with schema_context("south"):
            print(Order.objects.create().pk)
        with schema_context("north"):
            print(Order.objects.create().pk)
    """) == ["1", "5001"]


def test_the_tables_stand_in_the_shared_schema(project: Any) -> None:
    """Once, also if a tenant's process is the first that needs them."""
    (found,) = project("""
        with schema_context("north"):
            Order.objects.create()
        with connection.cursor() as cursor:
            cursor.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'leaf_alloc'")
            print(cursor.fetchall())
    """)
    assert found == "[('public',)]"


@pytest.mark.parametrize(
    "setting",
    [
        {"TENANT_APPS": ["shop", "django_idgen"]},
        {"TENANT_APPS": ["django_idgen.apps.DjangoIdgenConfig"]},
        {"TENANT_TYPES": {"public": {"APPS": []}, "shop": {"APPS": ["django_idgen"]}}},
    ],
)
def test_tables_in_the_schemas_of_tenants_are_refused(setting: dict[str, Any]) -> None:
    with override_settings(**setting):
        (error,) = check_tenants()
        assert isinstance(error, Error)
        assert error.id == "django_idgen.E010"
        assert "django_idgen" in error.msg
        assert next(iter(setting)) in error.msg


def test_tables_in_the_shared_schema_are_not() -> None:
    """By either way to say it."""
    for setting in (
        {"SHARED_APPS": ["django_idgen"], "TENANT_APPS": ["shop"]},
        {"TENANT_TYPES": {"public": {"APPS": ["django_idgen"]}, "shop": {"APPS": ["shop"]}}},
    ):
        with override_settings(**setting):
            assert check_tenants() == []

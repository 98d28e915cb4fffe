"""A table on each server that has sequences, into which programs without Django insert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from django_idgen.core.errors import IdgenError
from django_idgen.ops.native import NativeColumn, Position, native_column, on_own_connection
from django_idgen.process import lifecycle
from tests.app.models import Invoice
from tests.places import idgen_on, using
from tests.server_tools import make_tables

FIELD: Any = Invoice._meta.pk
TAG = "app.invoice"
INSERT = "INSERT INTO app_invoice (note) VALUES ('psql')"


class Shop:
    """``app_invoice`` in ``alias``, whose tag is there, too, unless the settings say otherwise."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def command(self, *words: str) -> str:
        """What ``manage.py idgen_native`` printed."""
        out = StringIO()
        call_command("idgen_native", *words, stdout=out)
        return out.getvalue()

    def sql(self, statement: str) -> list[Any]:
        """As psql would: what the statement returned."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def insert(self, count: int = 1) -> list[int]:
        """Insert rows without Django, and the ids that they were given."""
        before = set(self.ids())
        for _ in range(count):
            self.sql(INSERT)
        return sorted(set(self.ids()) - before)

    def ids(self) -> list[int]:
        return sorted(Invoice.objects.using(self.alias).values_list("pk", flat=True))

    def column(self) -> NativeColumn:
        column = native_column(connections[self.alias], FIELD)
        assert column is not None
        return column

    def position(self) -> Position:
        position = self.column().position()
        assert position is not None
        return position

    def extend(self, **options: Any) -> str:
        """Extend as the scheduler does, on a connection of its own."""

        def work(connection: Any) -> str:
            column = native_column(connection, FIELD)
            assert column is not None
            return column.extend(**options)

        return on_own_connection(self.alias, work)


def unless_busy(work: Callable[[], str]) -> str:
    """What ``work`` returns; "" where another command, or a transaction, is in the way."""
    try:
        return work()
    except IdgenError as error:
        if "is in use" not in str(error):
            raise
        return ""


class Route:
    """A router that has all rows in one database."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.db_for_read = self.db_for_write = lambda model, **hints: alias

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db in (self.alias, "default")


@contextmanager
def on(alias: str, idgen: dict[str, Any] | None = None) -> Iterator[Shop]:
    """The table in ``alias``; its tag is where the settings ``idgen`` have it."""
    made = Shop(alias)
    given = {"IDGEN": idgen or idgen_on(alias), "DATABASE_ROUTERS": [Route(alias)]}
    with using(alias), override_settings(**given):
        make_tables(alias)
        try:
            yield made
        finally:
            with suppress(Exception):
                made.command(TAG, "--remove")
            lifecycle.close_all()


@pytest.fixture
def shop(server_alias: str) -> Iterator[Shop]:
    """An empty table and its tag, on each server in turn."""
    with on(server_alias) as made:
        yield made

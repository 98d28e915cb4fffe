"""The room's databases, and a project that is migrated a step at a time."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.test.utils import CaptureQueriesContext

from django_idgen import generators, segments
from django_idgen.fields import SegmentAutoField, SegmentIdField, SnowflakeAutoField, SnowflakeField
from tests.app.models import Counter, Invoice, Order, Tag
from tests.places import alias as alias
from tests.places import empty_place as empty_place

FOUR = [SnowflakeField, SegmentIdField, SnowflakeAutoField, SegmentAutoField]
KEYED = {Order: "note", Invoice: "note", Tag: "name", Counter: "name"}
"""A model for each of them, as its primary key; and a column that can't be NULL."""

keyed = pytest.mark.parametrize("model", KEYED)


NO_IDS = [
    *("0", "-1", "1.0", "1.5", "1e3", "1,000", "05", str(2**63), "9" * 5000, "9" * 10_000_000),
    *("x", "x" * 10_000_000, "\x00", "5\x00", "😀", "١", "\ud800"),
    *("ord_00000000005", "cus_5", "CUS_00000000005", "cus_zzzzzzzzzzz", "cus_"),
]
"""What a user may send instead of a customer's id."""


@pytest.fixture
def warm() -> None:
    """A first id of each source was taken: what follows asks nobody for a grant."""
    generators["default"].next_id()
    for tag in ("app.invoice", "app.counter", "app.vehicle", "tickets", "receipts", "documents"):
        segments[tag].next_id()


class Shop:
    """A project of one app, migrated a step at a time on a real database."""

    def __init__(self, alias: str) -> None:
        self.connection = connections[alias]
        self.state = ProjectState()

    def migrate(self, *operations: Operation) -> list[str]:
        """Apply them; returns the statements that were sent."""
        with CaptureQueriesContext(self.connection) as captured:
            for operation in operations:
                after = self.state.clone()
                operation.state_forwards("shop", after)
                with self.connection.schema_editor() as editor:
                    operation.database_forwards("shop", editor, self.state, after)
                self.state = after
        return [query["sql"] for query in captured]

    def model(self, name: str) -> type[models.Model]:
        found: type[models.Model] = self.state.apps.get_model("shop", name)
        return found

    def rows(self, model: str) -> models.QuerySet[Any]:
        return self.model(model)._default_manager.using(self.connection.alias)

    def column(self, table: str, column: str) -> tuple[str, bool]:
        """Its type, and whether the database gives it values by itself."""
        queries = {
            "postgresql": "SELECT data_type, is_identity = 'YES' OR column_default IS NOT NULL "
            "FROM information_schema.columns WHERE table_name = %s AND column_name = %s",
            "mysql": "SELECT data_type, extra <> '' FROM information_schema.columns WHERE "
            "table_schema = database() AND table_name = %s AND column_name = %s",
            "sqlite": "SELECT c.type, m.sql LIKE '%%AUTOINCREMENT%%' OR c.type = 'INTEGER' FROM "
            "sqlite_master m, pragma_table_info(m.name) c WHERE m.name = %s AND c.name = %s",
        }
        with self.connection.cursor() as cursor:
            cursor.execute(queries[self.connection.vendor], [table, column])
            kind, automatic = cursor.fetchone()
        return kind, bool(automatic)


@pytest.fixture
def shop(django_db_setup: None, empty_place: str) -> Shop:
    return Shop(empty_place)

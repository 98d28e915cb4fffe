"""A new tag begins above its rows, wherever the database finds the table (hazard 102)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.db import connections, models, router
from django.test import override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_idgen.db.tables import has_table
from django_idgen.fields import SegmentIdField
from django_idgen.process import maps
from django_idgen.process.watch import highest_in
from tests.faults.failover.mariadb_pair import MariadbServer, install
from tests.own_servers import Farm, pointing_at
from tests.places import Only, empty_sqlite, idgen_on
from tests.server_tools import make_tables
from tests.servers import fast_directory

ROWS = 500


def field_of(table: str) -> Any:
    """The key of a model whose rows are in ``table``."""
    with isolate_apps("tests.app"):

        class Parcel(models.Model):
            id = SegmentIdField(primary_key=True, tag="parcels")

            class Meta:
                app_label = "app"
                db_table = table

    return Parcel._meta.pk


@pytest.fixture
def only() -> Iterator[Any]:
    """Has all ids and rows in a database; what was opened for it is closed."""
    stack: list[Any] = []

    def begin(*aliases: str) -> None:
        make_tables(aliases[0])
        stack.append(
            override_settings(DATABASE_ROUTERS=[Only(*aliases)], IDGEN=idgen_on(aliases[0]))
        )
        stack[-1].enable()

    yield begin
    maps.reset()
    for each in stack:
        each.disable()


def run(alias: str, *statements: str) -> None:
    with connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def filled(table: str) -> list[str]:
    values = ", ".join(f"({number})" for number in range(1, ROWS + 1))
    return [f"CREATE TABLE {table} (id bigint PRIMARY KEY)", f"INSERT INTO {table} VALUES {values}"]


VIEW = "CREATE VIEW parcel AS SELECT * FROM kept"
PLACES = {
    "a schema in the name": ("postgres", 'crm"."parcel', ["CREATE SCHEMA crm"], "crm.parcel", []),
    "another database in the name": ("mariadb", "{0}`.`parcel", [], "{0}.parcel", []),
    "a view": ("postgres", "parcel", [], "kept", [VIEW]),
    "a view of MariaDB": (
        "mariadb",
        "parcel",
        [],
        "kept",
        [VIEW],
    ),
    "a schema in the search path": (
        "postgres",
        "parcel",
        ["CREATE SCHEMA tenant"],
        "tenant.parcel",
        ["SET search_path TO tenant, public"],
    ),
    "upper and lower case": ("sqlite", "Parcel", [], "parcel", []),
    "a view of SQLite": (
        "sqlite",
        "parcel",
        [],
        "kept",
        [VIEW],
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_tag_begins_above_the_rows_that_a_query_finds(
    name: str, only: Any, tmp_path: Path, request: pytest.FixtureRequest, django_db_blocker: Any
) -> None:
    """In a schema, another database, a view, a search path, by the database's own comparison."""
    server, table, before, filled_as, after = PLACES[name]
    with ExitStack() as stack:
        if server == "sqlite":
            stack.enter_context(django_db_blocker.unblock())
            alias = stack.enter_context(empty_sqlite(tmp_path / "shop.sqlite3"))
        else:
            alias = request.getfixturevalue(server)
        for statement in before:
            stack.callback(run, alias, statement.replace("CREATE", "DROP") + " CASCADE")
        stack.callback(maps.reset)
        here = connections.settings[alias]["NAME"]
        run(alias, *before, *filled(filled_as.format(here)), *after)
        only(alias)
        field = field_of(table.format(here))
        with CaptureQueriesContext(connections[alias]) as counted:
            assert highest_in(field) == ROWS
            assert maps.segments.of_field(field).next_id() == ROWS + 1
        assert len(counted) == 0
        assert has_table(connections[alias], field.model._meta.db_table)


class LowerCase(MariadbServer):
    """As on Windows, and on many servers that others run: names of tables in lower case."""

    def command(self) -> list[object]:
        return [*super().command(), "--lower-case-table-names=1"]


@pytest.mark.long
def test_a_tag_begins_above_rows_whose_table_the_server_renamed(mariadb: str, only: Any) -> None:
    with TemporaryDirectory(dir=fast_directory()) as name, closing(Farm(Path(name))) as farm:
        place = farm.place()
        install(place)
        with pointing_at(farm.started(LowerCase(place, 1)), mariadb), ExitStack() as stack:
            stack.callback(maps.reset)
            run(mariadb, *filled("Shop_Parcel"))
            assert "shop_parcel" in connections[mariadb].introspection.table_names()
            only(mariadb)
            field = field_of("Shop_Parcel")
            assert maps.segments.of_field(field).next_id() == ROWS + 1
            assert has_table(connections[mariadb], "Shop_Parcel")


def test_a_tag_begins_above_the_rows_of_every_database(
    postgres: str, another: str, only: Any
) -> None:
    """A router that spreads rows by instance names one of them where there is none."""
    run(postgres, *filled("parcel")[:1], "INSERT INTO parcel VALUES (7)")
    run(another, *filled("parcel"))
    only(postgres, another)
    field = field_of("parcel")
    assert router.db_for_write(field.model) == postgres
    assert maps.segments.of_field(field).next_id() == ROWS + 1


def test_a_table_that_is_not_there_has_no_rows(postgres: str, only: Any) -> None:
    """As before the first migration; the caller's transaction goes on."""
    only(postgres)
    assert highest_in(field_of("nowhere")) == highest_in(field_of('no"."where')) == 0

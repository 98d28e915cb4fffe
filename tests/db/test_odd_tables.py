"""Tables of the project that Django can't describe, or that are no ordinary tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

from tests.app.models import Invoice, Line, Order
from tests.ops.doctor.asking import doctor, findings, messages
from tests.ops.doctor.fleet import idgen, on_database
from tests.places import make_tables
from tests.server_tools import execute
from tests.servers import free_port

ODD = {
    "postgres": {
        "integer[]": "'{1, 2}'",
        "text[]": "'{a, b}'",
        "tsvector": "'a fat cat'",
        "xml": "'<a/>'",
        "money": "5",
        "bit(8)": "B'00000101'",
        "int4range": "'[1, 5)'",
        "point": "'(1, 2)'",
        "inet": "'127.0.0.1'",
        "oid": "5",
        "interval": "'1 day'",
        "mood": "'glad'",
        "small": "5",
        "text": "'five'",
        "numeric": "5.5",
        "bytea": "'five'",
    },
    "mariadb": {
        "year": "2026",
        "bit(8)": "b'00000101'",
        "set('a', 'b')": "'a'",
        "enum('a', 'b')": "'b'",
        "geometry": "ST_GeomFromText('POINT(1 2)')",
        "inet6": "'::1'",
        "uuid": "'6ccd780c-baba-1026-9564-5b8c656024db'",
        "json": "'[5]'",
        "mediumint unsigned": "5",
        "time(3)": "'10:11:12'",
        "text": "'five'",
        "decimal(9, 2)": "5.5",
        "blob": "'five'",
    },
}
"""By server: types of which Django knows few, and none that our ids belong in; and a value."""


LOOKING_AT_TABLES = ("columns", "exhaustion", "future", "native", "tags")
"""The doctor's examinations that do so."""


@pytest.fixture
def project(server_alias: str) -> Iterator[str]:
    """The alias of a server, the only one of the project; ids come from it."""
    others = {name: connections.settings[name] for name in ODD if name != server_alias}
    for name in others:
        connections.settings.pop(name)
    make_tables(server_alias)
    if server_alias == "postgres":
        execute(server_alias, "DROP TYPE IF EXISTS mood, small")
        execute(server_alias, "CREATE TYPE mood AS ENUM ('sad', 'glad')")
        execute(server_alias, "CREATE DOMAIN small AS integer CHECK (VALUE < 100)")
    try:
        found = idgen(on_database(server_alias), window=180)
        # All models are checked: those with scrambled ids need their key.
        found["SCRAMBLE_KEYS"] = settings.IDGEN["SCRAMBLE_KEYS"]
        with override_settings(IDGEN=found):
            yield server_alias
    finally:
        connections.settings.update(others)


def make(alias: str, table: str, columns: str) -> None:
    execute(alias, f"CREATE TABLE {table} ({columns})")


def narrow(alias: str) -> list[tuple[str, str]]:
    """What W003 and E023 say: the column, and the table."""
    ids = {"django_idgen.W003", "django_idgen.E023"}
    named = [str(message.obj).split("'") for message in messages(alias) if message.id in ids]
    return [(words[1], words[3]) for words in named]


def with_odd_columns(alias: str) -> str:
    return ", ".join(f"odd_{number} {kind}" for number, kind in enumerate(ODD[alias]))


def test_columns_of_types_that_django_does_not_know(project: str) -> None:
    """They are not asked for: what is narrow beside them is found, and nothing else (hazard 95)."""
    make(project, Order._meta.db_table, f"id bigint, note text, {with_odd_columns(project)}")
    make(project, Line._meta.db_table, f"id bigint, order_id int, {with_odd_columns(project)}")
    execute(project, f"INSERT INTO {Order._meta.db_table} (id) VALUES (1)")
    assert narrow(project) == [("order_id", Line._meta.db_table)]
    call_command("check", databases=[project])
    (finding,) = findings("columns", database=[project])
    assert "order_id" in finding["subject"]


def test_a_migration_beside_them(project: str, capfd: pytest.CaptureFixture[str]) -> None:
    """``migrate`` runs once more where a table of ours has such a column (hazard 95)."""
    for _ in range(2):
        call_command("migrate", "django_idgen", database=project, skip_checks=False, verbosity=0)
        if Order._meta.db_table not in connections[project].introspection.table_names():
            make(project, Order._meta.db_table, f"id bigint, {with_odd_columns(project)}")
    assert "Error" not in capfd.readouterr().err


def test_a_key_in_a_column_of_such_a_type(project: str) -> None:
    """Neither the check nor the doctor fails, whatever the type of a column (hazard 95)."""
    for kind, value in ODD[project].items():
        for model in (Invoice, Order):
            make(project, model._meta.db_table, f"id {kind}, note text")
            execute(project, f"INSERT INTO {model._meta.db_table} (id) VALUES ({value})")
        small = {("id", Invoice._meta.db_table), ("id", Order._meta.db_table)}
        assert {*narrow(project)} == (small if kind in ("small", "mediumint unsigned") else set())
        doctor(*LOOKING_AT_TABLES, database=[project])
        for model in (Invoice, Order):
            execute(project, f"DROP TABLE {model._meta.db_table}")


def test_tables_that_are_not_there(project: str) -> None:
    """A project before its first ``migrate`` gets no message, and no error."""
    assert narrow(project) == []
    assert doctor("columns", database=[project])[0] == 0


def test_views(project: str) -> None:
    """A view has no columns of its own to widen: its table is what counts."""
    make(project, Line._meta.db_table, "id bigint, order_id int")
    for model in (Order, Invoice):
        execute(
            project, f"CREATE VIEW {model._meta.db_table} AS SELECT id FROM {Line._meta.db_table}"
        )
    try:
        assert narrow(project) == [("order_id", Line._meta.db_table)]
        assert doctor("columns", "tags", "future", database=[project])[0]
    finally:
        for model in (Order, Invoice):
            execute(project, f"DROP VIEW {model._meta.db_table}")


@contextmanager
def dead_table(alias: str, table: str) -> Iterator[None]:
    """A foreign table whose server doesn't answer."""
    execute(alias, "CREATE EXTENSION IF NOT EXISTS postgres_fdw")
    port = free_port()
    execute(
        alias,
        "CREATE SERVER dead FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host '127.0.0.1', port '{port}', connect_timeout '2')",
    )
    execute(alias, "CREATE USER MAPPING FOR CURRENT_USER SERVER dead OPTIONS (user 'nobody')")
    execute(alias, f"CREATE FOREIGN TABLE {table} (id int, note text) SERVER dead")
    try:
        yield
    finally:
        execute(alias, "DROP SERVER dead CASCADE")


@pytest.mark.parametrize("server_alias", ["postgres"], indirect=True)
def test_a_foreign_table_whose_server_is_down(project: str) -> None:
    """It is left out, and named by the doctor; the other tables, and a transaction, go on."""
    make(project, Line._meta.db_table, "id bigint, order_id int")
    with dead_table(project, Order._meta.db_table):
        assert narrow(project) == [("order_id", Line._meta.db_table)]
        with transaction.atomic(using=project):
            assert narrow(project) == [("order_id", Line._meta.db_table)]
            assert execute(project, "SELECT 1") == [(1,)]
        _, words = doctor("columns", database=[project])
        assert "order_id" in words
        assert f"table '{Order._meta.db_table}' in database 'postgres'" in words

"""Our tables: made by migrations, or by whoever finds them missing."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from django.core import serializers
from django.core.management import call_command
from django.db import connections, transaction

from django_idgen.core.stored import ALL, SERVER
from django_idgen.db.connection import home_connection
from django_idgen.db.dialects import server_identity
from django_idgen.db.tables import make_missing_tables, missing_columns, missing_tables
from django_idgen.models import Installation, LeafAlloc
from django_idgen.testing.contracts.lenders import at_once
from tests.places import empty_place as empty_place
from tests.places import make_tables
from tests.server_tools import execute, python

TABLES = [
    "leaf_alloc",
    "django_idgen_installation",
    "django_idgen_namespace",
    "django_idgen_workerlease",
    "django_idgen_history",
    "django_idgen_leasehistory",
]


@pytest.fixture
def alias(empty_place: str) -> str:
    return empty_place


def identities(alias: str) -> list[str]:
    return list(Installation.objects.using(alias).values_list("identity", flat=True))


def test_missing_tables_are_made_once(alias: str) -> None:
    """The first call makes all of them, with their columns; the second finds them there."""
    connection = connections[alias]
    assert missing_tables(connection) == TABLES
    assert make_missing_tables(connection) == TABLES
    assert missing_tables(connection) == missing_columns(connection) == []
    assert make_missing_tables(connection) == []


def test_an_installation_knows_the_server_that_it_was_made_on(alias: str) -> None:
    """So a failover that loses the first use of a namespace is noticed (L7)."""
    make_missing_tables(home_connection(alias))
    memory = json.loads(Installation.objects.using(alias).get().namespaces)
    server = server_identity(home_connection(alias))
    assert server
    assert memory == {ALL: {SERVER: server}}


def test_no_table_is_made_behind_the_operators_back(server_alias: str) -> None:
    """Hazard 86: outside of ``migrate`` and of test runners it is an error that names it."""
    child = python(
        server_alias,
        f"""
from django.test import override_settings
from django_idgen import next_id, segments
from tests.places import idgen_on
with override_settings(IDGEN=idgen_on({server_alias!r})):
    for take in (next_id, lambda: segments.allocator().source.fetch("t")):
        try:
            print(take())
        except Exception as error:
            print(type(error).__name__, error)
""",
        migrated=False,
    )
    lines = child.communicate(timeout=60)[0].splitlines()
    assert [line.split()[0] for line in lines] == ["RegistryUnavailable", "SegmentUnavailable"]
    for line in lines:
        assert "lacks " in line
        assert f"Run 'manage.py migrate django_idgen --database {server_alias}'" in line
    assert missing_tables(home_connection(server_alias)) == TABLES


def test_one_table_alone_can_be_made(alias: str) -> None:
    """A database that lends segments only needs no table of leases."""
    only = make_missing_tables(home_connection(alias), only=("LeafAlloc",))
    if alias == "default":  # connecting to SQLite's file makes all
        assert (only, missing_tables(home_connection(alias))) == ([], [])
    else:
        assert (only, missing_tables(home_connection(alias))) == (["leaf_alloc"], TABLES[1:])


@pytest.mark.parametrize("empty_place", ["sqlite", "postgres"], indirect=True)
def test_tables_can_be_made_inside_a_transaction(alias: str) -> None:
    """Where DDL can be rolled back, the caller's rollback takes a server's tables along."""
    with transaction.atomic(using=alias):
        make_tables(alias)
        assert len(identities(alias)) == 1
        transaction.set_rollback(True, using=alias)
    assert missing_tables(home_connection(alias)) == ([] if alias == "default" else TABLES)


def test_eight_who_find_them_missing_at_once(server_alias: str) -> None:
    """All of them come through, and the installation gets one identity."""

    def job(_: int) -> None:
        try:
            make_tables(server_alias)
        finally:
            connections[server_alias].close()

    at_once(8, job)
    assert missing_tables(home_connection(server_alias)) == []
    assert len(identities(server_alias)) == 1


def test_the_identity_is_there_before_any_namespace(server_alias: str) -> None:
    """Whoever comes in between the installation's table and its row makes the row."""
    make_missing_tables(home_connection(server_alias), only=("Installation",))
    Installation.objects.using(server_alias).all().delete()
    make_tables(server_alias)
    assert len(identities(server_alias)) == 1


def test_an_emptied_installation_is_not_refilled(alias: str) -> None:
    """Once there are namespaces, that the row is missing is a loss, and has to show."""
    make_tables(alias)
    Installation.objects.using(alias).all().delete()
    make_tables(alias)
    assert identities(alias) == []


def test_migrations_make_the_tables_and_drop_them(alias: str) -> None:
    """Forwards from nothing, and back. Nothing is given out twice: the fleet may be running."""
    call_command("migrate", "django_idgen", database=alias, verbosity=0)
    assert missing_tables(home_connection(alias)) == missing_columns(home_connection(alias)) == []
    call_command("migrate", "django_idgen", "zero", database=alias, verbosity=0)
    assert missing_tables(home_connection(alias)) == TABLES
    call_command("migrate", "django_idgen", database=alias, verbosity=0)
    LeafAlloc.objects.using(alias).create(biz_tag="t", max_id=1001)
    call_command("migrate", "django_idgen", "zero", database=alias, verbosity=0)
    call_command("migrate", "django_idgen", database=alias, verbosity=0)
    assert LeafAlloc.objects.using(alias).get().max_id == 1001


def test_migrations_find_the_tables_there(alias: str) -> None:
    """Made on first use before, they keep their rows; the identity stays what it was."""
    make_tables(alias)
    before = identities(alias)
    call_command("migrate", "django_idgen", database=alias, verbosity=0)
    assert identities(alias) == before != []


def test_a_missing_column_is_named(server_alias: str) -> None:
    """A table that a newer version has yet to migrate shows by its columns."""
    make_tables(server_alias)
    execute(server_alias, "ALTER TABLE leaf_alloc DROP COLUMN step")
    assert missing_columns(home_connection(server_alias)) == ["leaf_alloc.step"]


def test_rows_of_other_writers_need_no_new_columns(alias: str) -> None:
    """Columns that came later have defaults in the database, so that older writers go on."""
    make_tables(alias)
    with closing(home_connection(alias).cursor()) as cursor:
        cursor.execute(
            "INSERT INTO django_idgen_namespace (name, fingerprint, server, generation, fence, "
            "largest_window, workers_made, protocol) VALUES ('a', '{}', '', 1, 0, 1, 0, 1)"
        )


def test_a_row_that_was_read_earlier_does_not_lower_its_tag(alias: str) -> None:
    """``row.step = 50; row.save()`` in a shell, while the fleet goes on."""
    make_tables(alias)
    tags = LeafAlloc.objects.using(alias)
    row = tags.create(biz_tag="t", max_id=1001)
    tags.update(max_id=5001)
    row.step = 50
    row.save()
    assert tags.values_list("max_id", "step").get() == (5001, 50)
    row.max_id = 7001
    row.save()
    assert tags.get().max_id == 7001


def test_a_fixture_does_not_lower_a_tag(alias: str) -> None:
    """``loaddata`` of an old dump makes what is missing, and changes the rest upwards."""
    make_tables(alias)
    tags = LeafAlloc.objects.using(alias)
    tags.create(biz_tag="t", max_id=1001)
    tags.create(biz_tag="u", max_id=9)
    dump = serializers.serialize("json", tags.all())
    tags.filter(biz_tag="u").delete()
    tags.update(max_id=5001)
    for loaded in serializers.deserialize("json", dump, using=alias):
        loaded.save(using=alias)
    assert dict(tags.values_list("biz_tag", "max_id")) == {"t": 5001, "u": 9}

"""Leaf's own table, shared with a Leaf that goes on running."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from django_idgen.connection import OwnConnection
from django_idgen.core.errors import SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.server import ServerSource
from django_idgen.tables import add_missing_columns, missing_columns
from tests.leaf import INSERT, leaf_fetch, make_leaf, migrated_leaf
from tests.places import empty_place as empty_place
from tests.server_tools import at_once, execute, python

TAG = "leaf-segment-test"
LEAFS_COLUMNS = {"biz_tag", "max_id", "step", "description", "update_time"}


@pytest.fixture
def alias(empty_place: str) -> str:
    return empty_place


def columns(alias: str) -> dict[str, Any]:
    connection = connections[alias]
    with connection.cursor() as cursor:
        found = connection.introspection.get_table_description(cursor, "leaf_alloc")
    return {column.name: column for column in found}


def test_migrate_adds_our_columns_and_nothing_else(alias: str) -> None:
    """Leaf's columns stay what they were, with their rows; a second run finds nothing to do."""
    make_leaf(alias)
    execute(alias, INSERT)
    before = columns(alias)
    call_command("migrate", "django_idgen", database=alias, verbosity=0)
    after = columns(alias)
    assert {name: after[name] for name in LEAFS_COLUMNS} == before
    assert missing_columns(connections[alias]) == []
    row = LeafAlloc.objects.using(alias).get()
    assert (row.biz_tag, row.max_id, row.step, row.delta, row.remainder) == (TAG, 1, 2000, 1, 0)
    assert add_missing_columns(connections[alias]) == []


def test_migrations_of_other_apps_alter_no_table_of_leafs(alias: str) -> None:
    """Only ours do."""
    make_leaf(alias)
    call_command("migrate", "contenttypes", database=alias, verbosity=0)
    assert set(columns(alias)) == LEAFS_COLUMNS


def test_leafs_insert_still_works(alias: str) -> None:
    """Each of our columns has a default in the database."""
    migrated_leaf(alias)
    execute(alias, INSERT)
    source = DatabaseSource(default_step=10, database=alias)
    # Beside SQLite the file of marks is new, and keeps its distance.
    assert len(source.fetch(TAG).ids()) == 2000


def test_a_description_of_null_is_read_and_kept(alias: str) -> None:
    """Leaf's column allows it, and ours doesn't."""
    migrated_leaf(alias)
    execute(alias, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a', 1, 10)")
    row = LeafAlloc.objects.using(alias).get()
    assert row.description is None
    row.save()
    assert DatabaseSource(default_step=99, database=alias).fetch("a").step == 10


def test_eight_who_migrate_at_once(server_alias: str) -> None:
    """All of them come through, and each column is there."""
    make_leaf(server_alias)

    def job(_: int) -> None:
        try:
            add_missing_columns(connections[server_alias])
        finally:
            connections[server_alias].close()

    at_once(8, job)
    assert missing_columns(connections[server_alias], ["LeafAlloc"]) == []


def test_a_first_use_alters_no_table_of_leafs(server_alias: str) -> None:
    """Without ``migrate`` it says so, names what is missing, and touches nothing."""
    make_leaf(server_alias)
    execute(server_alias, INSERT)
    with pytest.raises(SegmentUnavailable, match=r"Leaf's own.*leaf_alloc\.delta.*migrate"):
        ServerSource(alias=server_alias).fetch(TAG)
    assert set(columns(server_alias)) == LEAFS_COLUMNS
    assert [list(row) for row in execute(server_alias, "SELECT max_id FROM leaf_alloc")] == [[1]]


def test_leaf_and_we_allocate_from_one_table_at_once(server_alias: str) -> None:
    """I1: four Leafs, four threads and two processes of ours on one row, and no id twice."""
    migrated_leaf(server_alias)
    execute(server_alias, INSERT.replace("2000", "7"))
    code = f"""
from django_idgen.sources.server import ServerSource
from tests.server_tools import at_once
source = ServerSource(alias={server_alias!r}, timeout=60)
print(*at_once(2, lambda _: " ".join(str(source.fetch({TAG!r}).start) for _ in range(40))))
"""
    processes = [python(server_alias, code) for _ in range(2)]

    def job(number: int) -> list[int]:
        if number % 2:
            own = OwnConnection(server_alias)
            source = ServerSource(alias=server_alias, timeout=60, own=own)
            return [source.fetch(TAG).start for _ in range(40)]
        with closing(connections.create_connection(server_alias)) as leaf:
            return [leaf_fetch(leaf, TAG).start for _ in range(40)]

    starts = [start for some in at_once(8, job) for start in some]
    starts += [int(word) for p in processes for word in p.communicate(timeout=120)[0].split()]
    assert len(starts) == 8 * 40 + 2 * 2 * 40
    assert all(after - before == 7 for before, after in pairwise(sorted(starts)))
    assert LeafAlloc.objects.using(server_alias).get().max_id == 1 + 7 * len(starts)

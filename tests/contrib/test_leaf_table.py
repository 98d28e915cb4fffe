"""Leaf's own table, shared with a Leaf that goes on running."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.db.connection import OwnConnection, home_connection
from django_idgen.db.tables import (
    add_missing_columns,
    make_missing_tables,
    missing_columns,
    missing_tables,
    unfit_columns,
)
from django_idgen.models import LeafAlloc
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.server import ServerSource
from django_idgen.testing.contracts.lenders import at_once
from tests.contrib.adopt.old_servers import make as make_old
from tests.leaf import INSERT, fetch_again, leaf_fetch, make_leaf, migrated_leaf
from tests.ops.doctor.asking import findings
from tests.places import idgen_on
from tests.server_tools import execute, python

TAG = "leaf-segment-test"
LEAFS_COLUMNS = {"biz_tag", "max_id", "step", "description", "update_time"}


def columns(alias: str) -> dict[str, Any]:
    connection = connections[alias]
    with connection.cursor() as cursor:
        found = connection.introspection.get_table_description(cursor, "leaf_alloc")
    return {column.name: column for column in found}


def test_migrate_adds_our_columns_and_nothing_else(server_alias: str) -> None:
    """Leaf's columns stay what they were, with their rows; a second run finds nothing to do."""
    make_leaf(server_alias)
    execute(server_alias, INSERT)
    before = columns(server_alias)
    call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
    after = columns(server_alias)
    assert {name: after[name] for name in LEAFS_COLUMNS} == before
    assert missing_columns(home_connection(server_alias)) == []
    row = LeafAlloc.objects.using(server_alias).get()
    assert (row.biz_tag, row.max_id, row.step, row.delta, row.remainder) == (TAG, 1, 2000, 1, 0)
    assert add_missing_columns(home_connection(server_alias)) == []


@pytest.mark.parametrize("kind", ["leaf", "go-leaf"])
def test_migrations_of_other_apps_leave_the_table_as_it_is(server_alias: str, kind: str) -> None:
    """Only ours alter it; one that ours refuse is none of theirs: they may be what changes it."""
    make_old(kind, server_alias, TAG, 501, 40, (1, 0))
    before = columns(server_alias)
    if kind == "go-leaf":  # Leaf's own gets our columns by that
        make_missing_tables(home_connection(server_alias), only=("Installation",))
    call_command("migrate", "contenttypes", database=server_alias, verbosity=0)
    assert columns(server_alias) == before


def test_leafs_insert_still_works(server_alias: str) -> None:
    """Each of our columns has a default in the database; a description of NULL is kept.

    Leaf's column allows it, and ours doesn't.
    """
    migrated_leaf(server_alias)
    execute(server_alias, INSERT)
    source = DatabaseSource(default_step=99, database=server_alias)
    assert len(source.fetch(TAG).ids()) == 2000
    execute(server_alias, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a', 1, 10)")
    row = LeafAlloc.objects.using(server_alias).get(pk="a")
    assert row.description is None
    row.save()
    assert source.fetch("a").step == 10


def test_eight_who_migrate_at_once(server_alias: str) -> None:
    """All of them come through, and each column is there."""
    make_leaf(server_alias)

    def job(_: int) -> None:
        try:
            add_missing_columns(home_connection(server_alias))
        finally:
            connections[server_alias].close()

    at_once(8, job)
    assert missing_columns(home_connection(server_alias), ["LeafAlloc"]) == []


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
from django_idgen.testing.contracts.lenders import at_once
from tests.leaf import fetch_again
source = ServerSource(alias={server_alias!r}, timeout=60)
print(*at_once(2, lambda _: " ".join(str(fetch_again(source, {TAG!r}).start) for _ in range(40))))
"""
    processes = [python(server_alias, code) for _ in range(2)]

    def job(number: int) -> list[int]:
        if number % 2:
            own = OwnConnection(server_alias)
            source = ServerSource(alias=server_alias, timeout=60, own=own)
            return [fetch_again(source, TAG).start for _ in range(40)]
        with closing(connections.create_connection(server_alias)) as leaf:
            return [leaf_fetch(leaf, TAG).start for _ in range(40)]

    starts = [start for some in at_once(8, job) for start in some]
    starts += [int(word) for p in processes for word in p.communicate(timeout=120)[0].split()]
    assert len(starts) == 8 * 40 + 2 * 2 * 40
    assert all(after - before == 7 for before, after in pairwise(sorted(starts)))
    assert LeafAlloc.objects.using(server_alias).get().max_id == 1 + 7 * len(starts)


# --- tables whose columns are of other types ---------------------------------------------

GOOD = {
    "postgresql": {"biz_tag": "text", "step": "bigint", "description": "text"},
    "mysql": {
        "max_id": "bigint unsigned",
        "step": "bigint",
        "description": "text",
        "update_time": "datetime(6)",
    },
}
BAD = {
    "postgresql": [
        ("max_id", "integer"),
        ("max_id", "numeric"),
        ("max_id", "double precision"),
        ("step", "smallint"),
        ("update_time", "bigint"),
        ("update_time", "date"),
        ("update_time", "timestamp"),
        ("update_time", "text"),
    ],
    "mysql": [
        ("max_id", "int"),
        ("max_id", "decimal(20)"),
        ("max_id", "double"),
        ("max_id", "varchar(20)"),
        ("step", "smallint"),
        ("update_time", "bigint"),
        ("update_time", "date"),
        ("update_time", "varchar(30)"),
    ],
}
"""By vendor: types that columns of Leaf's table may have, and some that they may not."""


def make_with(alias: str, types: dict[str, str]) -> None:
    """Leaf's table with columns of other types, and its row."""
    make_leaf(alias)
    for column, kind in types.items():
        default = {"biz_tag": "UNIQUE", "max_id": "DEFAULT 1", "step": "DEFAULT 1"}.get(column, "")
        execute(alias, f"ALTER TABLE leaf_alloc DROP COLUMN {column}")
        execute(alias, f"ALTER TABLE leaf_alloc ADD COLUMN {column} {kind} {default}")
    execute(alias, INSERT)


def test_types_that_hold_the_same_are_taken_over(server_alias: str) -> None:
    """As Leaf's own: ids come out of the table, one range after the other."""
    make_with(server_alias, GOOD[connections[server_alias].vendor])
    call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
    assert unfit_columns(connections[server_alias]) == []
    source = ServerSource(alias=server_alias)
    assert [source.fetch(TAG).start for _ in range(2)] == [1, 2001]


def test_other_types_are_refused_before_anything_is_changed(server_alias: str) -> None:
    """``migrate`` names the column, its type and what it must be (hazard 87)."""
    connection = connections[server_alias]
    for column, kind in BAD[connection.vendor]:
        make_with(server_alias, {column: kind})
        before = columns(server_alias)
        with pytest.raises(CommandError, match=rf"leaf_alloc.*{column} is .*{kind[:6]}.*must be"):
            call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
        assert columns(server_alias) == before
        assert missing_tables(connection, ["Installation"])
        execute(server_alias, "DROP TABLE leaf_alloc")


def test_a_tag_that_may_be_there_twice_is_refused(server_alias: str) -> None:
    """Without a unique index one fetch would move two rows, and read one of them."""
    make_leaf(server_alias)
    if connections[server_alias].vendor == "mysql":
        execute(server_alias, "ALTER TABLE leaf_alloc DROP PRIMARY KEY")
    else:
        execute(server_alias, "ALTER TABLE leaf_alloc DROP CONSTRAINT leaf_alloc_pkey")
    with pytest.raises(CommandError, match="biz_tag must be unique"):
        call_command("migrate", "django_idgen", database=server_alias, verbosity=0)


def test_a_go_leafs_table_is_refused_and_the_way_out_works(server_alias: str) -> None:
    """Its ``update_time`` is a number: once nobody writes to it, the column is made anew.

    Until then the doctor says so, and ``idgen_adopt`` doesn't say that it is shared.
    """
    make_old("go-leaf", server_alias, TAG, 501, 40, (1, 0))
    with pytest.raises(CommandError, match=r"update_time is bigint.*must be.*Stop"):
        call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
    with override_settings(IDGEN=idgen_on(server_alias)):
        found = findings("tables", database=[server_alias])
        assert ["update_time is bigint" in each["what"] for each in found] == [False, True]
        with pytest.raises(CommandError, match="update_time is bigint"):
            call_command("idgen_adopt", server_alias, kind="go-leaf", yes=True)
        execute(server_alias, "ALTER TABLE leaf_alloc DROP COLUMN update_time")
        call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
        assert findings("tables", database=[server_alias]) == []
    assert ServerSource(alias=server_alias).fetch(TAG).start == 501


def test_a_column_that_was_changed_later_is_found_by_the_doctor(server_alias: str) -> None:
    """``migrate`` has nothing to do there any more."""
    migrated_leaf(server_alias)
    kind = "TYPE integer" if connections[server_alias].vendor == "postgresql" else "max_id int"
    verb = "ALTER COLUMN max_id" if kind.startswith("TYPE") else "MODIFY"
    execute(server_alias, f"ALTER TABLE leaf_alloc {verb} {kind}")
    with override_settings(IDGEN=idgen_on(server_alias)):
        found = findings("tables", database=[server_alias])
    assert ["max_id is int" in each["what"] for each in found] == [True]

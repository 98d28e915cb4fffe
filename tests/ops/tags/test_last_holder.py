"""Who was given ids of a tag last: it stands in the tag's row, at no further cost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_idgen import segments
from django_idgen.core.lease import process_label
from django_idgen.core.segment import MAX_ID, Demand
from django_idgen.models import LeafAlloc
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.server import Floor, ServerSource
from tests.places import STEP, make_tables, place

__all__ = ["place"]


def row(alias: str, tag: str = "t") -> LeafAlloc:
    return LeafAlloc.objects.using(alias).get(pk=tag)


def test_a_fetch_says_who_when_and_how_many(place: str) -> None:
    """On each kind of database, in the row of the tag."""
    make_tables(place)
    before = timezone.now() - timedelta(seconds=5)
    source = DatabaseSource(default_step=STEP, database=place)
    for demand, ids in ((Demand(), STEP), (Demand(at_least=50), 50), (Demand(times=4), 4 * STEP)):
        source.fetch("t", demand=demand)
        found = row(place)
        assert (found.holder, found.fetched_ids) == (process_label(), ids)
        assert found.fetched_at is not None
        assert before < found.fetched_at < timezone.now() + timedelta(seconds=5)


def test_the_careful_path_says_it_too(server_alias: str) -> None:
    """At the end of all ids, where a fetch is shorter than its step."""
    source = DatabaseSource(default_step=10, database=server_alias)
    source.fetch("t")
    LeafAlloc.objects.using(server_alias).update(max_id=MAX_ID - 4, holder="")
    segment = source.fetch("t")
    assert (row(server_alias).holder, row(server_alias).fetched_ids) == (process_label(), 4)
    assert len(segment.ids()) == 4


def test_ids_are_counted_not_their_distance(server_alias: str) -> None:
    """Of a tag that comes from several databases."""
    source = DatabaseSource(default_step=10, database=server_alias)
    source.fetch("t")
    LeafAlloc.objects.using(server_alias).update(delta=4, remainder=3, largest_step=10_000)
    assert len(source.fetch("t").ids()) == row(server_alias).fetched_ids == 10


def test_it_costs_no_further_statement(server_alias: str) -> None:
    """A fetch is one UPDATE and one SELECT, as it was."""
    source = DatabaseSource(default_step=10, database=server_alias, measures=False)
    source.fetch("t")
    seen = []

    def note(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        seen.append(sql.split()[0])
        return execute(sql, params, many, context)

    def body(connection):  # type: ignore[no-untyped-def]
        with connection.execute_wrapper(note):
            server._take("t", Floor(1), Demand(), connection)

    server = source.marks("t")
    assert isinstance(server, ServerSource)
    server._transactions.run(body)
    assert seen == ["UPDATE", "SELECT"]


@pytest.mark.parametrize("place", ["journal", "wal"], indirect=True)
def test_on_sqlite_it_costs_the_caller_no_query(place: str) -> None:
    """Inside of a transaction the row follows after it."""
    segments["t"].next_id()
    connection = connections[place]
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        segments["t"].next_ids(3 * STEP)
        assert len(queries) == 0
    segments["t"].next_ids(3 * STEP)
    assert row(place).holder == process_label()


@pytest.mark.django_db(transaction=True)
def test_in_memory_it_is_written_with_the_row() -> None:
    """As on a server."""
    segments["memory.holder"].next_id()
    found = row("default", "memory.holder")
    assert (found.holder, found.fetched_ids) == (process_label(), 1000)
    assert found.fetched_at is not None

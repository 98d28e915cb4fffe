"""Segments out of the table on real database servers."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idgen.core.errors import (
    InvalidTag,
    SegmentExhausted,
    SegmentUnavailable,
)
from django_idgen.core.segment import MAX_ID, MAX_STEP, Demand, Segment
from django_idgen.db.connection import OwnConnection, home_connection
from django_idgen.db.tables import missing_tables
from django_idgen.models import LeafAlloc
from django_idgen.sources.server import ServerSource
from django_idgen.testing.contracts import check_disjoint
from django_idgen.testing.contracts.lenders import at_once
from tests.leaf import migrated_leaf
from tests.segment_tools import LIMIT
from tests.server_tools import execute, make_tables, one_more, python
from tests.tiers import long


def edit(source: ServerSource, **values: object) -> None:
    """Change the row of tag "a" as somebody in the admin would."""
    LeafAlloc.objects.using(source.alias).filter(pk="a").update(**values)


def row_of(source: ServerSource, tag: str = "a") -> LeafAlloc:
    return LeafAlloc.objects.using(source.alias).get(pk=tag)


def test_a_new_tag_starts_at_one(source: ServerSource) -> None:
    """On a database that was never migrated: the table, the row and the first segment."""
    assert source.fetch("a") == Segment("a", 1, 101, 100)
    assert missing_tables(home_connection(source.alias), ["LeafAlloc"]) == []
    assert (row_of(source).max_id, row_of(source).step) == (101, 100)


def test_a_new_tag_takes_one_connection_and_one_transaction(
    source: ServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two where the first tag of all has to record its range first."""
    source.ping()
    make_tables(source.alias)
    done: list[str] = []

    def note(name: str) -> None:
        call = getattr(BaseDatabaseWrapper, name)
        monkeypatch.setattr(
            BaseDatabaseWrapper, name, lambda *args: (done.append(name), call(*args))[1]
        )

    note("connect")
    note("commit")
    commits = []
    for tag in ("a", "b", "c"):
        done.clear()
        source.loader.submit(partial(source.fetch, tag)).result(LIMIT)
        assert done.count("connect") <= 1
        commits.append(done.count("commit"))
    assert commits == [2, 1, 1]


def test_the_time_of_the_last_fetch_is_kept(source: ServerSource) -> None:
    """``update_time`` moves with each fetch."""
    source.fetch("a")
    first = row_of(source).update_time
    source.fetch("a")
    assert row_of(source).update_time > first


def test_the_floor_is_respected(source: ServerSource) -> None:
    """A row that was put back gives nothing below what this process was granted."""
    source.fetch("a")
    assert source.fetch("a", floor=101) == Segment("a", 101, 201, 100)
    edit(source, max_id=1)
    assert source.fetch("a", floor=201) == Segment("a", 10_201, 10_301, 100)
    assert source.fetch("a", floor=17).start == 10_301


@pytest.mark.parametrize("harm", ["deleted", "dropped", "put back", "set back"])
def test_what_others_were_granted_is_not_given_again(source: ServerSource, harm: str) -> None:
    """Whoever finds the loss first goes past a whole fleet's last fetches (hazard 61).

    It knows how far it came itself. The others were each granted segments above.
    """
    held = [source.fetch("a", demand=Demand(times=1 + number % 16)) for number in range(24)]
    if harm == "deleted":
        LeafAlloc.objects.using(source.alias).all().delete()
    elif harm == "dropped":
        execute(source.alias, "DROP TABLE leaf_alloc")
    elif harm == "put back":
        edit(source, max_id=1, largest_step=0)
    else:
        edit(source, max_id=1)
    after = [source.fetch("a", floor=segment.stop) for segment in held]
    check_disjoint([*held, *after])


def test_a_long_range_of_one_tag_moves_no_other(source: ServerSource) -> None:
    """Hazard 105: a row with its record skips by its own ranges; one without may have had any."""
    long_range = 10**9
    source.fetch("ranges", demand=Demand(times=0, at_least=long_range))
    source.fetch("a")
    assert source.fetch("a", floor=1000) == Segment("a", 11_000, 11_100, 100)
    edit(source, max_id=1, largest_step=0)
    assert source.fetch("a", floor=20_000).start > 50 * long_range
    LeafAlloc.objects.using(source.alias).filter(pk="a").delete()
    floor = 2**40
    assert source.fetch("a", floor=floor).start > floor + 50 * long_range


def test_ids_are_positive_whatever_the_row_says(source: ServerSource) -> None:
    """A row edited to zero or below starts at 1."""
    source.fetch("a")
    for max_id in (0, -5, -(2**63)):
        edit(source, max_id=max_id)
        assert source.fetch("a").start == 1


def test_the_last_ids_are_given_and_then_none(source: ServerSource) -> None:
    """The last segment is as short as need be; past it there is an error, no overflow."""
    source.fetch("a")
    edit(source, max_id=MAX_ID - 130)
    assert source.fetch("a") == Segment("a", MAX_ID - 130, MAX_ID - 30, 100)
    assert source.fetch("a") == Segment("a", MAX_ID - 30, MAX_ID, 100)
    for floor in (0, MAX_ID, MAX_ID + 1, 2**70):
        with pytest.raises(SegmentExhausted, match="'a'"):
            source.fetch("a", floor=floor)
    assert row_of(source).max_id == MAX_ID


def test_a_floor_near_the_end_does_not_overflow(source: ServerSource) -> None:
    """Where the row itself stands low, or there is none, so far may others have come, too."""
    source.fetch("a")
    for tag in ("a", "new"):
        with pytest.raises(SegmentExhausted, match=tag):
            source.fetch(tag, floor=MAX_ID - 5)
        assert row_of(source, tag).max_id == MAX_ID


def test_an_impossible_step_is_named(server_alias: str) -> None:
    """With the tag and the step, and the row stays as it is."""
    migrated_leaf(server_alias)
    source = ServerSource(alias=server_alias)
    for step in (0, -1, MAX_STEP + 1):
        execute(server_alias, "DELETE FROM leaf_alloc")
        row = f"INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('a', 41, {step})"
        execute(server_alias, row)
        with pytest.raises(SegmentUnavailable, match=rf"'a' has step {step} "):
            source.fetch("a")
        assert row_of(source).max_id == 41


def test_an_impossible_step_of_a_tag_in_use_is_named(source: ServerSource) -> None:
    """An edit by hand to 0 would otherwise grant the last id once more."""
    source.fetch("a")
    before = row_of(source).max_id
    for step in (0, MAX_STEP + 1):
        edit(source, step=step, largest_step=4 * MAX_STEP)
        with pytest.raises(SegmentUnavailable, match=rf"'a' has step {step} "):
            source.fetch("a")
        assert row_of(source).max_id == before


def test_the_largest_step_works(server_alias: str) -> None:
    """A billion ids at once, twice."""
    source = ServerSource(alias=server_alias, default_step=MAX_STEP)
    assert [source.fetch("a").stop for _ in range(2)] == [MAX_STEP + 1, 2 * MAX_STEP + 1]


def test_impossible_tags_are_refused(source: ServerSource) -> None:
    """Before any table is made for them."""
    tag: Any
    for tag in ("", " a", "a" * 129, "a\n", None):
        with pytest.raises(InvalidTag):
            source.fetch(tag)
    assert missing_tables(home_connection(source.alias), ["LeafAlloc"])


# --- many at once ----------------------------------------------------------------------------


def test_many_threads_on_first_use_make_one_row(server_alias: str) -> None:
    """Each on its own connection, no table yet: one row, and their segments in a row."""

    def job(number: int) -> Segment:
        own = OwnConnection(server_alias)
        source = ServerSource(alias=server_alias, default_step=10, timeout=60, own=own)
        return source.fetch("a")

    segments = at_once(16, job)
    assert sorted(segment.start for segment in segments) == list(range(1, 161, 10))
    assert LeafAlloc.objects.using(server_alias).count() == 1


@pytest.mark.parametrize("server_alias", ["postgres", *long("mariadb")], indirect=True)
def test_processes_never_share_an_id(server_alias: str) -> None:
    """Three processes of four threads each, on the table's first use."""
    code = f"""
from django_idgen.sources.server import ServerSource
from django_idgen.testing.contracts.lenders import at_once
source = ServerSource(alias={server_alias!r}, default_step=5, timeout=60)
print(*at_once(4, lambda _: " ".join(str(source.fetch("a").start) for _ in range(10))))
"""
    processes = [python(server_alias, code) for _ in range(3)]
    starts = [start for p in processes for start in p.communicate(timeout=120)[0].split()]
    assert sorted(map(int, starts)) == list(range(1, 601, 5))


def test_a_flush_under_a_fleet_gives_no_process_what_another_holds(server_alias: str) -> None:
    """``manage.py flush`` empties the project's tables, and leaves ours alone (hazard 61)."""
    call_command("migrate", database=server_alias, verbosity=0)
    one, other = ServerSource(alias=server_alias), ServerSource(alias=server_alias)
    before = [one.fetch("tea"), other.fetch("tea"), other.fetch("tea")]
    call_command("flush", database=server_alias, interactive=False, verbosity=0)
    floor = before[0].stop  # the first process knows of its own segments only
    after = [one.fetch("tea", floor=floor), ServerSource(alias=server_alias).fetch("tea")]
    starts = [segment.start for segment in before + after]
    assert starts == [1, 1001, 2001, 3001, 4001]


def test_a_server_that_is_gone_is_named_in_whole_sentences(server_alias: str) -> None:
    """The driver's words first. psycopg's end with a question, or with what it was asked for."""
    with one_more(server_alias) as gone, pytest.raises(SegmentUnavailable) as raised:
        ServerSource(alias=gone).fetch("a")
    assert isinstance(raised.value.__cause__, DatabaseError)
    text = str(raised.value)
    way_out = "Check that the server can be reached"
    assert re.match(rf"Database 'gone' failed: .*[^.?)]\)?[.?] {way_out}", text)

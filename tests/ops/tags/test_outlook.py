"""How long a tag's ids last, what was taken of it and by whom, as rows, pool and history tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_idgen import segments
from django_idgen.core.errors import ConfigurationError, InvalidTag, SegmentUnavailable
from django_idgen.core.lease import process_label
from django_idgen.core.segment import MAX_ID, Demand
from django_idgen.core.source import POOL
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.tags.edits import make_tag, pause_tag
from django_idgen.ops.tags.outlook import outlook, outlooks, state
from django_idgen.ops.tags.usage import Span, Usage, usage
from django_idgen.process.tags import TagUnknown, known_tag
from django_idgen.sources.database import DatabaseSource
from tests.ops.test_tag_edits import source_of
from tests.places import STEP, empty_sqlite, make_tables, place
from tests.sources.pool.test_project import project

YEAR = 365.25 * 86_400


def change(alias: str, tag: str = "t", **values: Any) -> None:
    assert LeafAlloc.objects.using(alias).filter(pk=tag).update(**values)


@pytest.fixture
def measured(server_alias: str) -> Iterator[str]:
    """A tag that uses 10 ids a second, whose last fetch of 6000 was a minute ago."""
    now = timezone.now()
    with source_of(database=server_alias):
        make_tag("t", step=1000, max_id=9001)
        change(
            server_alias,
            rate=10.0,
            measured_at=now - timedelta(minutes=1),
            measured_used=3001,
            holder="web:7",
            fetched_at=now - timedelta(minutes=1),
            fetched_ids=6000,
        )
        yield server_alias


def test_what_is_known_of_a_tag(measured: str) -> None:
    """Its row, and what follows from it; of a segment that should be used up, not less than 0 s."""
    found = outlook("t")
    assert (found.tag, found.database) == ("t", measured)
    assert (found.max_id, found.step, found.paused, found.rate) == (9001, 1000, False, 10.0)
    assert (found.holder, found.fetched_ids) == ("web:7", 6000)
    assert found.segment_left == pytest.approx(540, abs=30)
    assert found.ids_left == MAX_ID - 9001
    assert found.range_left == pytest.approx(found.ids_left / 10)
    assert found.range_left is not None
    assert found.range_left / YEAR > 1e10
    assert (found.pooled, found.pool_left) == (None, None)
    change(measured, fetched_ids=100)
    assert outlook("t").segment_left == 0.0


def test_a_tag_that_nobody_uses_any_more_slows_down(measured: str) -> None:
    """Its row has the old rate for ever; no faster than what was fetched since is believed."""
    day_ago = timezone.now() - timedelta(days=1)
    change(measured, measured_at=day_ago, fetched_at=day_ago)
    assert outlook("t").rate == pytest.approx(6000 / 86_400, rel=0.1)


def test_without_a_rate_nothing_is_forecast(server_alias: str) -> None:
    """A new tag: what is not known is not said to be 0 seconds. Asking makes none."""
    with source_of(database=server_alias):
        with pytest.raises(TagUnknown):
            outlook("t")
        make_tag("t", step=5)
        found = outlook("t")
        assert (found.rate, found.segment_left, found.range_left) == (0.0, None, None)
        assert (found.holder, found.fetched_at) == ("", None)
        segments["t"].next_id()
        assert outlook("t").fetched_ids == 5
        pause_tag("t")
        assert outlook("t").paused


def test_of_a_shard_each_database_has_its_part(measured: str) -> None:
    """Of the ids that are left, as many as this database can give out."""
    change(measured, delta=3, remainder=1, max_id=MAX_ID - 10)
    assert outlook("t").ids_left == len([n for n in range(MAX_ID - 10, MAX_ID) if n % 3 == 1])
    change(measured, delta=1, remainder=0, max_id=MAX_ID)
    assert outlook("t").ids_left == 0


def test_several_databases_are_one_tag(shards: list[str]) -> None:
    """Their rates and what they have left add up; the latest fetch stands for all."""
    two = shards[:2]
    now = timezone.now()
    with source_of(databases=two):
        make_tag("t", step=5, max_id=1001)
        for number, alias in enumerate(two):
            fetched_at = now - timedelta(seconds=100 * (number + 1))
            change(alias, rate=2.0, fetched_at=fetched_at, fetched_ids=1000, holder=alias)
        change(two[1], paused=True, max_id=2001)
        found = outlook("t")
        assert (found.rate, found.holder, found.max_id) == (4.0, two[0], 2001)
        assert found.paused
        assert found.segment_left == pytest.approx(150, abs=20)
        parts = [outlooks([row], alias)["t"] for alias, row in known_tag("t").rows.items()]
        assert [part.rate for part in parts] == [2.0, 2.0]
        assert found.ids_left == sum(part.ids_left for part in parts)
        assert [part.database for part in parts] == two


def test_many_tags_are_asked_about_at_once(server_alias: str, redis: str) -> None:
    """A page of them takes one call to Redis, and no query."""
    with project(redis, server_alias) as pool:
        pool.fetch("t007")
        others = (number for number in range(100) if number != 7)
        LeafAlloc.objects.using(server_alias).bulk_create(
            LeafAlloc(biz_tag=f"t{number:03}", max_id=1, step=5) for number in others
        )
        pool.refill("t007", 30)
        change(server_alias, "t007", rate=0.5)
        rows = list(LeafAlloc.objects.using(server_alias).all())
        calls: list[str] = []
        asked = pool._scripts._call
        pool._scripts._call = lambda name, *words: (  # type: ignore[method-assign]
            calls.append(name) or asked(name, *words)  # type: ignore[func-returns-value]
        )
        with CaptureQueriesContext(connections[server_alias]) as queries:
            found = outlooks(rows, server_alias)
        assert (calls, len(queries)) == (["stock"], 0)
        assert len(found) == 100
        assert (found["t007"].pooled, found["t007"].pool_left) == (30, 60.0)
        assert found["t008"].pooled == 0


def test_filling_the_pool_is_no_use_of_a_tag(server_alias: str, redis: str) -> None:
    """Its rate was measured long ago, and since then only the pool got ids; then a process did."""
    with project(redis, server_alias) as pool:
        pool.fetch("t")
        a_while_ago = timezone.now() - timedelta(hours=1)
        mark = LeafAlloc.objects.using(server_alias).get().max_id
        change(server_alias, rate=16.0, measured_at=a_while_ago, measured_used=mark)
        pool.refill("t", 2000)
        filled = outlook("t")
        assert (filled.rate, filled.segment_left, filled.pool_left) == (0.0, None, None)
        assert filled.holder == POOL
        assert state(filled) == "idle"
        taken = len(pool.fetch("t").ids())
        used = outlook("t")
        assert used.rate == pytest.approx(taken / 3600, rel=0.1)
        assert (used.holder, used.fetched_ids) == (process_label(), taken)
        assert state(used) == "in use"


def test_rows_that_are_not_this_project_s_are_shown_as_they_are(server_alias: str) -> None:
    """Another site's, in a database that ids don't come from here."""
    with source_of(database=server_alias):
        make_tag("t", step=5)
        change(server_alias, rate=2.0)
        rows = list(LeafAlloc.objects.using(server_alias).all())
    assert outlooks(rows, server_alias)["t"].rate == 2.0
    assert outlooks([], server_alias) == {}


# --- what was taken over time, from the history ---------------------------------------


NOW = datetime(2026, 3, 10, 12, 34, 56, tzinfo=UTC)


@pytest.fixture
def recorded(place: str) -> Iterator[str]:
    """The alias of a database of each kind, with a history."""
    make_tables(place)
    options = {"OPTIONS": {"database": place, "history": True}}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": options}}):
        yield place


def taken(
    alias: str, ago: float, start: int, stop: int, *, tag: str = "t", **values: object
) -> None:
    SegmentHistory.objects.using(alias).create(
        tag=tag,
        start=start,
        stop=stop,
        taken_at=NOW - timedelta(seconds=ago),
        **{"holder": "host:1", **values},
    )


def filled(found: Usage) -> dict[int, int]:
    """The buckets that are not empty, by their number, the last one being -1."""
    length = len(found.buckets)
    return {place - length: each.ids for place, each in enumerate(found.buckets) if each.ids}


def test_a_fetch_counts_now_in_a_project_without_time_zones(recorded: str, settings: Any) -> None:
    """With ``USE_TZ = False``, wherever the project is, it is in the latest bucket of each span."""
    settings.USE_TZ = False
    # MySQL has but its own time then, which should be the project's.
    settings.TIME_ZONE = "UTC" if recorded == "mariadb" else "Asia/Kolkata"
    segments["t"].next_ids(30)
    spans: list[Span] = ["hour", "day", "month"]
    for span in spans:
        assert min(filled(usage("t", span))) >= -2  # it may have just ended
    row = LeafAlloc.objects.using(recorded).get()
    assert row.fetched_at is not None
    assert abs(timezone.now() - row.fetched_at) < timedelta(minutes=2)


def test_a_bucket_has_what_was_taken_in_it(recorded: str) -> None:
    """Of that tag alone, on each kind of database, to the second.

    What goes into the pool counts when it is fetched: nothing says when it is taken out.
    """
    taken(recorded, 0, 1, 101)
    taken(recorded, 56, 101, 201)  # the minute's first second
    taken(recorded, 57, 201, 206)
    taken(recorded, 3000, 206, 213, holder="pool")
    taken(recorded, 0, 1, 1001, tag="other")
    hour = usage("t", "hour", now=NOW)
    assert hour.recorded
    assert filled(hour) == {-1: 200, -2: 5, -51: 7}
    assert filled(usage("t", "day", now=NOW)) == {-1: 205, -5: 7}
    assert filled(usage("t", "month", now=NOW)) == {-1: 212}


def test_the_buckets_follow_each_other_up_to_now(recorded: str) -> None:
    """60 minutes, 96 quarters of an hour, 30 days: without a gap, with now in the last one."""
    lengths: dict[Span, tuple[int, int]]
    lengths = {"hour": (60, 60), "day": (96, 900), "month": (30, 86_400)}
    for span, (number, seconds) in lengths.items():
        buckets = usage("t", span, now=NOW).buckets
        assert len(buckets) == number
        assert {each.seconds for each in buckets} == {seconds}
        for one, following in pairwise(buckets):
            assert following.start - one.start == timedelta(seconds=seconds)
        assert timedelta(0) <= NOW - buckets[-1].start < timedelta(seconds=seconds)


def test_ids_of_a_shard_are_counted_not_their_distance(recorded: str) -> None:
    """Of a range with delta 3 every third one was taken, whatever its end."""
    for start, stop in ((2, 32), (32, 60), (62, 63)):  # 10, 10 and 1 ids
        taken(recorded, 0, start, stop, delta=3)
    taken(recorded, 0, 1, 6)
    assert filled(usage("t", "hour", now=NOW)) == {-1: 26}


def test_days_go_from_midnight_to_midnight_where_people_are(recorded: str) -> None:
    """Also over a change of the clocks: that day has 23 hours."""
    with timezone.override(ZoneInfo("Europe/Berlin")):
        now = datetime(2026, 3, 31, 10, 0, tzinfo=UTC)
        berlin = ZoneInfo("Europe/Berlin")
        for hour, ids in ((0, 10), (23, 100)):
            moment = datetime(2026, 3, 29, hour, 30, tzinfo=berlin)
            taken(recorded, (NOW - moment).total_seconds(), 1, 1 + ids)
        month = usage("t", "month", now=now)
        assert filled(month) == {-3: 110}
        assert month.buckets[-3].seconds == 23 * 3600
        assert [each.start.hour for each in month.buckets] == [0] * 30


def test_real_fetches_show(recorded: str) -> None:
    """What a process has just been given is in the last minutes."""
    segments["t"].next_id()
    assert sum(each.ids for each in usage("t", "hour").buckets) >= 1000


def test_a_month_of_a_busy_tag_is_counted_by_the_database(
    recorded: str, django_assert_max_num_queries: Any
) -> None:
    """However many rows there are: one query for them."""
    rows = [
        SegmentHistory(
            tag="t",
            start=1 + number * 10,
            stop=11 + number * 10,
            holder="host:1",
            taken_at=NOW - timedelta(seconds=number * 100),
        )
        for number in range(1000)
    ]
    SegmentHistory.objects.using(recorded).bulk_create(rows, batch_size=500)
    with django_assert_max_num_queries(1, connection=connections[recorded]):
        month = usage("t", "month", now=NOW)
    assert sum(each.ids for each in month.buckets) == 10_000


def test_without_a_history_the_buckets_are_empty(place: str) -> None:
    """It is said that nothing was recorded; the table need not even be there."""
    segments["t"].next_id()
    found = usage("t", "day")
    assert not found.recorded
    assert filled(found) == {}
    assert len(found.buckets) == 96


def test_what_can_not_be_is_refused(tmp_path: Path, django_db_blocker: Any) -> None:
    """Another span, or no tag; and a database that is away is named, by an error of ours."""
    (tmp_path / "shop.sqlite3-idgen").write_text("not a database")
    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "shop.sqlite3"):
        with pytest.raises(ConfigurationError, match="'year'"):
            usage("t", "year")  # type: ignore[arg-type]
        with pytest.raises(InvalidTag):
            usage("", "hour")
        with pytest.raises(SegmentUnavailable, match="'default'"):
            usage("t", "hour")


# --- who was given ids last: it stands in the row, at no further cost -----------------


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
    """At the end of all ids, where a fetch is shorter than its step.

    Ids are counted, not their distance, of a tag that comes from several databases.
    """
    source = DatabaseSource(default_step=10, database=server_alias)
    source.fetch("t")
    LeafAlloc.objects.using(server_alias).update(max_id=MAX_ID - 4, holder="")
    segment = source.fetch("t")
    assert (row(server_alias).holder, row(server_alias).fetched_ids) == (process_label(), 4)
    assert len(segment.ids()) == 4
    rows = LeafAlloc.objects.using(server_alias)
    rows.update(max_id=101, delta=4, remainder=3, largest_step=10_000)
    assert len(source.fetch("t").ids()) == row(server_alias).fetched_ids == 10


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

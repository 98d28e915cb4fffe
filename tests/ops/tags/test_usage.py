"""What was taken of a tag over time, from the rows of the history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from django_idgen import segments
from django_idgen.core.errors import ConfigurationError, InvalidTag, SegmentUnavailable
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.tags.usage import Span, Usage, usage
from tests.places import empty_sqlite, make_tables

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
    """Of that tag alone, on each kind of database, to the second."""
    taken(recorded, 0, 1, 101)
    taken(recorded, 56, 101, 201)  # the minute's first second
    taken(recorded, 57, 201, 206)
    taken(recorded, 3000, 206, 213)
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


def test_ids_for_the_pool_count_when_they_are_fetched(recorded: str) -> None:
    """Nothing says when they are taken out."""
    taken(recorded, 1200, 1, 1001, holder="pool")
    taken(recorded, 600, 1001, 1301)
    assert filled(usage("t", "hour", now=NOW)) == {-11: 300, -21: 1000}


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


def test_what_can_not_be_is_refused(recorded: str) -> None:
    """Another span, or no tag; and a database that is away is said to be."""
    with pytest.raises(ConfigurationError, match="'year'"):
        usage("t", "year")  # type: ignore[arg-type]
    with pytest.raises(InvalidTag):
        usage("", "hour")


def test_a_database_that_is_away_is_named(tmp_path: Path, django_db_blocker: Any) -> None:
    """It is an error of ours, not a traceback."""
    (tmp_path / "shop.sqlite3-idgen").write_text("not a database")
    with (
        django_db_blocker.unblock(),
        empty_sqlite(tmp_path / "shop.sqlite3"),
        pytest.raises(SegmentUnavailable, match="'default'"),
    ):
        usage("t", "hour")

"""How long the ids of a tag last, as far as its rows, the pool and the history tell."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_idgen import segments
from django_idgen.core.segment import MAX_ID
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import make_tag, pause_tag
from django_idgen.ops.tags.outlook import outlook, outlooks
from django_idgen.process.tags import TagUnknown, known_tag
from tests.ops.test_tag_edits import source_of
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
    """Its row, and what follows from it."""
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


def test_a_segment_that_should_be_used_up_has_nothing_left(measured: str) -> None:
    """Not less than nothing."""
    change(measured, fetched_ids=100)
    assert outlook("t").segment_left == 0.0


def test_a_tag_that_nobody_uses_any_more_slows_down(measured: str) -> None:
    """Its row has the old rate for ever; no faster than what was fetched since is believed."""
    day_ago = timezone.now() - timedelta(days=1)
    change(measured, measured_at=day_ago, fetched_at=day_ago)
    assert outlook("t").rate == pytest.approx(6000 / 86_400, rel=0.1)


def test_without_a_rate_nothing_is_forecast(server_alias: str) -> None:
    """A new tag: what is not known is not said to be 0 seconds."""
    with source_of(database=server_alias):
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


def test_rows_that_are_not_this_project_s_are_shown_as_they_are(server_alias: str) -> None:
    """Another site's, in a database that ids don't come from here."""
    with source_of(database=server_alias):
        make_tag("t", step=5)
        change(server_alias, rate=2.0)
        rows = list(LeafAlloc.objects.using(server_alias).all())
    assert outlooks(rows, server_alias)["t"].rate == 2.0
    assert outlooks([], server_alias) == {}


def test_an_unknown_tag_has_no_outlook(place: str) -> None:
    """It is not made by asking."""
    with pytest.raises(TagUnknown):
        outlook("unknown")

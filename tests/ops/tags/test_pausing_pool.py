"""A paused tag whose ids lie ready in Redis: nobody is given them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import segments
from django_idgen.core.errors import SegmentUnavailable, TagPaused
from django_idgen.core.lease import process_label
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import PoolStillOpen, pause_tag, resume_tag
from django_idgen.ops.tags.outlook import outlook
from django_idgen.ops.upkeep import preload_segments
from django_idgen.process import handlers
from django_idgen.sources.pool.scripts import key_of
from django_idgen.sources.pool.source import PoolSource
from tests.redis_servers import RedisFarm, RedisServer, cache_alias
from tests.segment_tools import Events
from tests.sources.pool.shop import OwnedSource, pool
from tests.sources.pool.test_project import idgen_on, project


@pytest.fixture
def pooled(postgres: str, redis: str) -> Iterator[PoolSource]:
    """This process, in a project with a pool in which 40 ids of "t" lie; none was taken."""
    with project(redis, postgres) as source:
        source.fetch("t")  # makes the tag: 1..20
        source.refill("t", 40)
        yield source


def stock(source: PoolSource) -> int:
    return source.stocks(["t"])["t"].ids


def refused(source: PoolSource) -> None:
    with pytest.raises(TagPaused):
        source.fetch("t")


def test_what_lies_there_is_thrown_away(pooled: PoolSource) -> None:
    """Nobody takes it while the tag is paused, nor afterwards: what comes then is new.

    Whoever fills the pool meanwhile is told, and takes nothing from the database.
    """
    pause_tag("t")
    mark = LeafAlloc.objects.using("postgres").get(pk="t").max_id
    for _ in range(3):
        refused(pooled)
        with pytest.raises(TagPaused):
            pooled.refill("t", 1000)
    assert stock(pooled) == 0
    assert LeafAlloc.objects.using("postgres").get(pk="t").max_id == mark
    resume_tag("t")
    assert pooled.fetch("t").start == 61


def test_what_comes_back_is_a_gap(pooled: PoolSource) -> None:
    """The tail of a process that ends is handed out to nobody."""
    pause_tag("t")
    pooled.give_back("t", [range(11, 21)])
    assert stock(pooled) == 0
    refused(pooled)


def test_what_comes_back_after_the_resume_is_of_use(pooled: PoolSource) -> None:
    """Though its process had it before the pause."""
    pause_tag("t")
    resume_tag("t")
    pooled.give_back("t", [range(11, 21)])
    assert list(pooled.fetch("t").ids()) == list(range(11, 21))


def test_a_preload_that_a_pause_overtakes_puts_nothing_in(
    pooled: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it fetched from the database before is a gap."""
    fetch = pooled.source.fetch

    def overtaken(*asked: Any, **named: Any) -> Any:
        segment = fetch(*asked, **named)
        pause_tag("t")
        return segment

    monkeypatch.setattr(pooled.source, "fetch", overtaken)
    assert pooled.refill("t", 100) == 0
    assert stock(pooled) == 0
    refused(pooled)


def test_a_tail_that_a_pause_overtakes_is_not_put_in(
    pooled: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its process has just asked whether the tag is paused."""
    pooled._own.client.delete(key_of(pooled.source.owner("t"), "t"))
    is_paused = pooled.source.is_paused

    def overtaken(tag: str) -> bool:
        said = is_paused(tag)
        pause_tag("t")
        return said

    monkeypatch.setattr(pooled.source, "is_paused", overtaken)
    pooled.give_back("t", [range(5, 21)])
    assert stock(pooled) == 0
    refused(pooled)


def test_what_was_fetched_above_it_stays_above_it(pooled: PoolSource) -> None:
    """A table that is restored while the tag is paused gives out nothing that was pooled."""
    pause_tag("t")
    LeafAlloc.objects.using("postgres").update(max_id=1)
    resume_tag("t")
    assert pooled.fetch("t").start >= 61


def test_a_tail_is_a_gap_though_redis_forgot_the_pause(pooled: PoolSource) -> None:
    """After a flush the database is asked, before a tail comes in."""
    pause_tag("t")
    pooled._own.client.delete(key_of(pooled.source.owner("t"), "t"))
    for _ in range(2):
        pooled.give_back("t", [range(5, 21)])
        refused(pooled)
    assert stock(pooled) == 0


def test_a_tail_goes_into_a_new_pool_of_a_tag_that_is_known_not_to_be_paused(
    pooled: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, for whoever comes next. Where the database is away, it is a gap, and no error."""

    def away(tag: str) -> bool:
        raise SegmentUnavailable(tag)

    key = key_of(pooled.source.owner("t"), "t")
    pooled._own.client.delete(key)
    pooled.give_back("t", [range(5, 21)])
    assert list(pooled.fetch("t").ids()) == list(range(5, 21))
    pooled._own.client.delete(key)
    monkeypatch.setattr(pooled.source, "is_paused", away)
    pooled.give_back("t", [range(5, 21)])
    assert stock(pooled) == 0


def test_a_row_that_is_resumed_by_hand_counts(pooled: PoolSource) -> None:
    """Redis needs no word of it."""
    pause_tag("t")
    LeafAlloc.objects.using("postgres").update(paused=False)
    assert pooled.fetch("t").start == 61
    pooled.refill("t", 40)
    assert stock(pooled) == 40


# --- Redis is away, or begins anew ------------------------------------------------------


def test_a_pause_survives_a_restart(farm: RedisFarm) -> None:
    """What was pooled before it is thrown away, as always; a tail stays out."""
    server = farm.server(appendonly="yes", appendfsync="always")
    with cache_alias("idgen-own", server.url) as alias:
        source = OwnedSource()
        one = pool(alias, source)
        one.fetch("t")
        one.give_back("t", [range(5, 11)])
        source.set_paused("t", paused=True)
        one.clear(["t"])
        server.kill()
        server.start()
        one.give_back("t", [range(2, 5)])
        two = pool(alias, source)
        assert two.stocks(["t"])["t"].ids == 0
        refused(two)
        one.close()
        two.close()


@pytest.fixture
def away(farm: RedisFarm, postgres: str) -> Iterator[Callable[[], RedisServer]]:
    """A project whose Redis can be asked no more; call it to have it back."""
    server = farm.server(appendonly="yes")
    with ExitStack() as stack:
        alias = stack.enter_context(cache_alias("idgen-away", server.url))
        idgen: dict[str, Any] = idgen_on(alias, postgres)
        idgen["SEGMENTS"]["SOURCE"]["OPTIONS"]["timeout"] = 0.5
        stack.enter_context(override_settings(IDGEN=idgen))
        source: Any = segments.allocator().source
        source.fetch("t")
        source.refill("t", 40)
        server.pause()

        def back() -> RedisServer:
            server.resume()
            source._link.reset()  # as if a minute had passed
            return server

        yield back
        server.resume()
        handlers.reset()


def test_a_pool_that_can_not_be_cleared_is_told_and_cleared_later(
    away: Callable[[], RedisServer],
) -> None:
    """The databases are paused by then; the next preloading sees to the pool."""
    with pytest.raises(
        PoolStillOpen, match=r"'t' is paused, but Redis can't be asked to clear its pool"
    ):
        pause_tag("t")
    assert LeafAlloc.objects.using("postgres").get(pk="t").paused
    source: Any = segments.allocator().source
    refused(source)
    away()
    assert preload_segments()["pool"]
    refused(source)
    assert source.stocks(["t"])["t"].ids == 0


def test_a_resume_does_not_wait_for_the_pool(away: Callable[[], RedisServer]) -> None:
    """Ids come from the database then."""
    with pytest.raises(PoolStillOpen):
        pause_tag("t")
    resume_tag("t")
    assert segments["t"].next_id() >= 61


def test_an_outlook_costs_no_more_than_the_timeout(away: Callable[[], RedisServer]) -> None:
    """A pool that can't be asked is not known, and no error."""
    assert outlook("t").pooled is None
    away()
    assert outlook("t").pooled == 40


# --- preloading -------------------------------------------------------------------------


def test_preloading_passes_a_paused_tag_over_and_says_so(pooled: PoolSource) -> None:
    """The other tags get theirs, and nothing counts as failed."""
    pooled.fetch("u")
    LeafAlloc.objects.using("postgres").update(rate=1.0)
    pause_tag("t")
    mark = LeafAlloc.objects.using("postgres").get(pk="t").max_id
    done = preload_segments(100)
    assert done["tags"]["t"]["paused"] is True
    assert done["tags"]["t"]["after"] == done["tags"]["t"]["before"]
    assert done["tags"]["u"]["after"] >= 100
    assert "paused" not in done["tags"]["u"]
    assert (done["left"], "errors" in done) == (0, False)
    assert LeafAlloc.objects.using("postgres").get(pk="t").max_id == mark
    resume_tag("t")
    done = preload_segments(100)
    assert "paused" not in done["tags"]["t"]
    assert done["tags"]["t"]["after"] >= 100


def test_preloading_passes_one_over_that_is_paused_meanwhile(
    pooled: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it looked: the database says so then."""
    LeafAlloc.objects.using("postgres").update(rate=1.0)
    ordinary = type(pooled).stocks

    def stocks(self: PoolSource, tags: Any) -> Any:
        pause_tag("t")
        return ordinary(self, tags)

    monkeypatch.setattr(type(pooled), "stocks", stocks)
    done = preload_segments(100)
    assert done["tags"]["t"]["paused"] is True
    assert done["left"] == 0


# --- who was given ids last -------------------------------------------------------------


def test_the_last_holder_is_whoever_took_from_the_pool(
    pooled: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one who fetched for it: that is known without a further question."""
    monkeypatch.setattr("django_idgen.sources.pool.scripts.process_label", lambda: "taker 1:7")
    pooled.fetch("t")
    now = outlook("t")
    assert (now.holder, now.fetched_ids, now.pooled) == ("taker 1:7", 20, 20)
    pooled.fetch("t")
    pooled.fetch("t")
    now = outlook("t")
    assert (now.holder, now.fetched_ids, now.pooled) == (process_label(), 20, 0)


def test_events_say_nothing_of_it(redis: str) -> None:
    """Neither a pool that is away, nor ids that were dropped."""
    heard = Events()
    source = OwnedSource()
    one = pool(redis, source, emit=heard)
    one.fetch("t")
    one.give_back("t", [range(5, 11)])
    source.set_paused("t", paused=True)
    one.clear(["t"])
    refused(one)
    source.set_paused("t", paused=False)
    assert one.fetch("t").start == 11
    assert list(heard) == []
    one.close()

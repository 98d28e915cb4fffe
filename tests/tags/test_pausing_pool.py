"""A paused tag whose ids lie ready in Redis: they stay there, and come again for nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import segments
from django_idgen.core.errors import SegmentUnavailable, TagPaused
from django_idgen.models import LeafAlloc
from django_idgen.ops.preloading import preload_segments
from django_idgen.ops.tags.edits import PoolStillOpen, pause_tag, resume_tag
from django_idgen.ops.tags.outlook import outlook
from django_idgen.ops.tags.supply import clear_pool
from django_idgen.process import handlers
from django_idgen.sources.history import holder
from django_idgen.sources.pool.scripts import key_of
from django_idgen.sources.pool.source import PoolSource
from tests.redis_pool.shop import OwnedSource, pool
from tests.redis_pool.test_project import idgen_on, project
from tests.redis_servers import RedisFarm, RedisServer, cache_alias, redis_farm
from tests.segment_tools import Events


@pytest.fixture
def pooled(postgres: str, redis: str) -> Iterator[PoolSource]:
    """This process, in a project with a pool in which 40 ids of "t" lie; none was taken."""
    with project(redis, postgres) as source:
        source.fetch("t")  # makes the tag: 1..20
        source.refill("t", 40)
        yield source


@pytest.fixture
def farm() -> Iterator[RedisFarm]:
    with redis_farm() as made:
        yield made


def stock(source: PoolSource) -> int:
    return source.stock(["t"])["t"]


def refused(source: PoolSource) -> None:
    with pytest.raises(TagPaused):
        source.fetch("t")


def test_what_lies_there_is_kept_for_later(pooled: PoolSource) -> None:
    """Nobody takes it while the tag is paused; then it comes next, and once."""
    pause_tag("t")
    for _ in range(3):
        refused(pooled)
    assert stock(pooled) == 40
    resume_tag("t")
    ids = [number for _ in range(3) for number in pooled.fetch("t").ids()]
    assert ids == list(range(21, 81))


def test_what_comes_back_is_kept_as_well(pooled: PoolSource) -> None:
    """The tail of a process that ends is handed out to nobody before the resume."""
    pause_tag("t")
    pooled.give_back("t", [range(11, 21)])
    assert stock(pooled) == 50
    refused(pooled)
    resume_tag("t")
    assert list(pooled.fetch("t").ids()) == list(range(11, 31))
    assert stock(pooled) == 30


def test_no_refill_reaches_a_paused_tag(pooled: PoolSource) -> None:
    """Whoever fills the pool is told, and takes nothing from the database."""
    pause_tag("t")
    mark = LeafAlloc.objects.using("postgres").get(pk="t").max_id
    with pytest.raises(TagPaused):
        pooled.refill("t", 1000)
    assert LeafAlloc.objects.using("postgres").get(pk="t").max_id == mark


def test_an_emptied_pool_stays_shut(pooled: PoolSource) -> None:
    """As after a skip: what comes back later is not handed out either."""
    pause_tag("t")
    assert clear_pool("t")
    assert stock(pooled) == 0
    pooled.give_back("t", [range(5, 21)])
    refused(pooled)
    assert stock(pooled) == 16


def test_who_finds_the_tag_paused_shuts_a_pool_that_forgot(pooled: PoolSource) -> None:
    """A flush takes the mark away; the next fetch puts it back, before a tail comes in."""
    pause_tag("t")
    pooled._own.client.delete(key_of(pooled.source.owner("t"), "t"))
    refused(pooled)
    pooled.give_back("t", [range(5, 21)])
    refused(pooled)
    assert stock(pooled) == 16


def test_a_tail_does_not_open_a_pool_that_forgot(pooled: PoolSource) -> None:
    """It lies there shut in, as if Redis had kept its word; and comes after the resume."""
    pause_tag("t")
    key = key_of(pooled.source.owner("t"), "t")
    pooled._own.client.delete(key)
    pooled.give_back("t", [range(5, 21)])
    assert stock(pooled) == 16
    refused(pooled)
    resume_tag("t")
    assert list(pooled.fetch("t").ids()) == list(range(5, 21))


def test_a_tail_goes_into_a_new_pool_of_a_tag_that_is_not_paused(pooled: PoolSource) -> None:
    """At once, for whoever comes next."""
    pooled._own.client.delete(key_of(pooled.source.owner("t"), "t"))
    pooled.give_back("t", [range(5, 21)])
    assert pooled.stocks(["t"])["t"].shut == ""
    assert list(pooled.fetch("t").ids()) == list(range(5, 21))


def test_a_tail_is_a_gap_where_nobody_knows_whether_the_tag_is_paused(
    pooled: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database is away, and Redis has just lost the pool: nothing is put in, or raised."""

    def away(tag: str) -> bool:
        raise SegmentUnavailable(tag)

    pooled._own.client.delete(key_of(pooled.source.owner("t"), "t"))
    monkeypatch.setattr(pooled.source, "is_paused", away)
    pooled.give_back("t", [range(5, 21)])
    assert stock(pooled) == 0


def test_who_finds_the_tag_resumed_opens_a_pool_that_was_not_told(pooled: PoolSource) -> None:
    """Redis was away at the resume: the first fetch gets ids of the database, then the pool's."""
    pause_tag("t")
    LeafAlloc.objects.using("postgres").update(paused=False)
    assert pooled.fetch("t").start == 61
    assert pooled.stocks(["t"])["t"].shut == ""
    assert stock(pooled) == 40


def test_a_later_pause_is_not_opened_by_an_earlier_resume(pooled: PoolSource) -> None:
    """Each pause has a word of its own, which a resume must name."""
    pause_tag("t")
    earlier = pooled.stocks(["t"])["t"].shut
    pause_tag("t")
    pooled.open({"t": earlier})
    assert pooled.stocks(["t"])["t"].shut not in ("", earlier)
    refused(pooled)


# --- Redis is away, or begins anew ------------------------------------------------------


def test_a_pause_survives_a_restart_that_loses_nothing(farm: RedisFarm) -> None:
    """What was pooled before it is thrown away, as always; the door stays shut."""
    server = farm.server(appendonly="yes", appendfsync="always")
    with cache_alias("idgen-own", server.url) as alias:
        source = OwnedSource()
        one = pool(alias, source)
        one.fetch("t")
        one.give_back("t", [range(5, 11)])
        one.shut(["t"])
        server.kill()
        server.start()
        two = pool(alias, source)
        two._push(source.whose, "t", [range(2, 5)], step=10, max_ids=100)
        found = two.stocks(["t"])["t"]
        assert (found.ids, bool(found.shut)) == (3, True)
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


def test_a_pool_that_can_not_be_shut_is_told_and_shut_later(
    away: Callable[[], RedisServer],
) -> None:
    """The databases are paused by then; the next preloading sees to the pool."""
    with pytest.raises(PoolStillOpen, match=r"'t' is paused, but its pool"):
        pause_tag("t")
    assert LeafAlloc.objects.using("postgres").get(pk="t").paused
    source: Any = segments.allocator().source
    refused(source)
    away()
    assert preload_segments()["pool"]
    refused(source)
    assert source.stock(["t"]) == {"t": 40}


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
    monkeypatch.setattr("django_idgen.sources.pool.scripts.holder", lambda: "taker 1:7")
    pooled.fetch("t")
    now = outlook("t")
    assert (now.holder, now.fetched_ids, now.pooled) == ("taker 1:7", 20, 20)
    pooled.fetch("t")
    pooled.fetch("t")
    now = outlook("t")
    assert (now.holder, now.fetched_ids, now.pooled) == (holder(), 20, 0)


def test_events_say_nothing_of_it(redis: str) -> None:
    """Neither a pool that is away, nor ids that were dropped."""
    heard = Events()
    source = OwnedSource()
    one = pool(redis, source, emit=heard)
    one.fetch("t")
    one.give_back("t", [range(5, 11)])
    one.shut(["t"])
    source.set_paused("t", paused=True)
    refused(one)
    source.set_paused("t", paused=False)
    assert one.fetch("t").start == 11
    assert list(heard) == []
    one.close()

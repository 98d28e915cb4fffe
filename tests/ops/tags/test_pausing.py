"""A paused tag: nobody is given more of its ids, by any way, until it is resumed."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_idgen import segments, signals
from django_idgen.contrib.sharding.growth import Growth
from django_idgen.core.errors import SegmentUnavailable, TagPaused
from django_idgen.core.lease import process_label
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import PoolStillOpen, make_tag, pause_tag, resume_tag, skip_tag
from django_idgen.ops.tags.outlook import outlook
from django_idgen.ops.upkeep import preload_segments
from django_idgen.process import maps
from django_idgen.process.tags import find_tag
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.pool.scripts import key_of
from django_idgen.sources.pool.source import PoolSource
from tests.ops.test_tag_edits import locked, source_of
from tests.places import STEP, idgen_on, make_tables
from tests.redis_servers import RedisFarm, RedisServer, cache_alias
from tests.segment_tools import Events
from tests.server_tools import execute
from tests.sources.pool import test_project as pools
from tests.sources.pool.shop import OwnedSource, pool

PATIENCE = 60.0
ENDLESS = 400.0
"""Seconds, longer than a test may take: who waits for an id instead of being told fails it."""


@pytest.fixture
def patient(place: str) -> Iterator[str]:
    """The alias of a database of each kind; callers would wait for ids for long."""
    entry = {
        "SOURCE": {"OPTIONS": {"database": place}},
        "OPTIONS": {"default_step": STEP, "timeout": ENDLESS},
    }
    with override_settings(IDGEN={"SEGMENTS": entry}):
        yield place
        maps.reset()


@pytest.fixture
def shop(file: str) -> Iterator[str]:
    """A SQLite file with our tables, which ids come from."""
    make_tables(file)
    with override_settings(IDGEN=idgen_on(file)):
        yield file


def row(alias: str, tag: str = "t") -> LeafAlloc:
    return LeafAlloc.objects.using(alias).get(pk=tag)


def mark_of(alias: str, tag: str = "t") -> int:
    """How far the tag has come; on SQLite the row may be behind."""
    source: Any = segments.allocator().source
    return max(row(alias, tag).max_id, source.marks(tag).max_id(tag))


def held_by(generator: Any) -> list[int]:
    """What it gives out until it is refused."""
    ids: list[int] = []
    for _ in range(10_000):
        try:
            ids.append(generator.next_id())
        except TagPaused:
            return ids
    raise AssertionError("it gives out ids on and on")


# --- what a process sees ----------------------------------------------------------------


def test_what_is_held_is_used_up_and_nothing_more_is_given(patient: str) -> None:
    """Then whoever asks is told at once, and not when the deadline is past.

    The next call after a resume has ids at once, above all before; both may be said twice.
    """
    first = segments["t"].next_id()
    for _ in range(2):
        assert pause_tag("t").paused
    mark = row(patient).max_id
    ids = [first, *held_by(segments["t"])]
    assert ids == list(range(1, len(ids) + 1))
    assert len(ids) >= STEP
    for _ in range(3):
        with pytest.raises(TagPaused, match=r"'t' is paused.*Resume it"):
            segments["t"].next_ids(5)
    assert row(patient).max_id == mark
    for _ in range(2):
        assert not resume_tag("t").paused
    assert segments["t"].next_id() == len(ids) + 1
    assert not row(patient).paused


def test_nothing_is_granted_once_the_pause_has_returned(patient: str) -> None:
    """Whoever fetches in that very moment either was before it, or gets nothing."""
    make_tag("t", step=1)
    over = threading.Event()
    failures: list[BaseException] = []

    def fetch_on() -> None:
        source = DatabaseSource(default_step=1, database=patient)
        try:
            while not over.is_set():
                try:
                    source.fetch("t")
                except TagPaused:
                    time.sleep(0.001)
        except BaseException as error:
            failures.append(error)
        finally:
            source.close()
            connections.close_all()

    threads = [threading.Thread(target=fetch_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            pause_tag("t")
            mark = mark_of(patient)
            time.sleep(0.05)
            assert mark_of(patient) == mark
            resume_tag("t")
            deadline = time.monotonic() + PATIENCE
            while mark_of(patient) == mark and time.monotonic() < deadline:
                time.sleep(0.005)
            assert mark_of(patient) > mark
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []


def test_it_is_no_failure_and_told_once(patient: str) -> None:
    """Nobody is warned of what somebody wants; the log says once that it is so."""
    heard: list[str] = []

    def failed(**_values: object) -> None:
        heard.append("failed")

    def paused(**_values: object) -> None:
        heard.append("paused")

    signals.segment_load_failed.connect(failed)
    signals.segment_paused.connect(paused)
    try:
        segments["t"].next_id()
        pause_tag("t")
        held_by(segments["t"])
        for _ in range(5):
            with pytest.raises(TagPaused):
                segments["t"].next_id()
        resume_tag("t")
        segments["t"].next_id()
    finally:
        signals.segment_load_failed.disconnect(failed)
        signals.segment_paused.disconnect(paused)
    assert heard == ["paused"]
    assert segments["t"].stats().failures == 0


def test_a_skip_of_a_paused_tag_leaves_it_paused(patient: str) -> None:
    """And it goes on there once it is resumed."""
    segments["t"].next_id()
    pause_tag("t")
    skip_tag("t", most=10_000, to=5000)
    segments["t"].clear()
    with pytest.raises(TagPaused):
        segments["t"].next_id()
    resume_tag("t")
    assert segments["t"].next_id() == 5000


def test_a_tag_that_nobody_used_yet_can_be_paused(patient: str) -> None:
    """Made by hand, it gives out nothing until it is resumed, and other tags go on meanwhile.

    An UPDATE in a database shell counts as well: what the row says is believed.
    """
    make_tag("t", step=5, max_id=100)
    by_hand = LeafAlloc.objects.using(patient).filter(pk="t")
    for pause in (lambda: pause_tag("t"), lambda: by_hand.update(paused=True)):
        pause()
        with pytest.raises(TagPaused):
            segments["t"].next_id()
        assert segments["u"].next_id()
        resume_tag("t")
    assert segments["t"].next_id() == 100


def test_the_error_can_be_pickled() -> None:
    """A task's exception goes from a worker to its parent; callers of old are served, too."""
    error = TagPaused("orders")
    copied = pickle.loads(pickle.dumps(error))
    assert isinstance(copied, SegmentUnavailable)
    assert (copied.tag, str(copied)) == ("orders", str(error))


# --- servers ----------------------------------------------------------------------------


def test_the_careful_path_keeps_to_it(server_alias: str) -> None:
    """One that finds another server, or a longer demand than ever, is refused as well."""
    with source_of(database=server_alias):
        segments["t"].next_id()
        pause_tag("t")
        LeafAlloc.objects.using(server_alias).update(server="other", largest_step=0)
        mark = row(server_alias).max_id
        source = DatabaseSource(default_step=10, database=server_alias)
        for floor in (0, mark + 100):
            with pytest.raises(TagPaused):
                source.fetch("t", floor=floor)
        assert row(server_alias).max_id == mark


def test_a_tag_over_several_databases_is_paused_in_all(shards: list[str]) -> None:
    """Also in one that has no row of it yet, where a fetch would have made it."""
    two = shards[:2]
    with source_of(databases=two):
        make_tag("t", step=5)
        LeafAlloc.objects.using(two[1]).filter(pk="t").delete()
        pause_tag("t")
        assert [row(alias).paused for alias in two] == [True, True]
        for _ in range(4):
            with pytest.raises(TagPaused):
                segments["t"].next_id()
        resume_tag("t")
        ids = segments["t"].next_ids(30)
        assert len(set(ids)) == 30


def test_a_paused_tag_stays_so_when_databases_are_added(shards: list[str]) -> None:
    """Also in those that are new: the pause is the tag's, wherever its ids come from."""
    with source_of(databases=shards[:2]):
        for tag in ("t", "u"):
            make_tag(tag, step=5)
            segments[tag].next_ids(20)
        pause_tag("t")
    Growth(shards[:4]).run()
    assert [row(alias).paused for alias in shards[:4]] == [True] * 4
    assert [row(alias, "u").paused for alias in shards[:4]] == [False] * 4
    with source_of(databases=shards[:4]):
        for _ in range(6):
            with pytest.raises(TagPaused):
                segments["t"].next_id()
        assert segments["u"].next_id()


def test_a_half_migrated_database_names_the_way_out(server_alias: str) -> None:
    """Whether ids are taken, or a tag is looked at or paused."""
    with source_of(database=server_alias):
        make_tag("t", step=5)
        execute(server_alias, "ALTER TABLE leaf_alloc DROP COLUMN paused")
        for call in (
            lambda: DatabaseSource(default_step=5, database=server_alias).fetch("t"),
            lambda: find_tag("t"),
            lambda: pause_tag("t"),
        ):
            with pytest.raises(SegmentUnavailable, match=r"leaf_alloc\.paused.*migrate"):
                call()


# --- SQLite -----------------------------------------------------------------------------


def test_a_pause_holds_though_the_row_can_t_be_read(shop: str) -> None:
    """On SQLite the marks know of it."""
    make_tag("t", step=5)
    pause_tag("t")
    with locked(shop), pytest.raises(TagPaused):
        segments["t"].next_id()
    resume_tag("t")
    with locked(shop):
        assert segments["t"].next_id() == 1


def test_on_sqlite_a_pause_counts_at_once(shop: str) -> None:
    """Whatever becomes of the caller's transaction, which is another file's."""
    make_tag("t", step=5)
    with transaction.atomic():
        pause_tag("t")
        with pytest.raises(TagPaused):
            segments["t"].next_id()
        transaction.set_rollback(True)
    with pytest.raises(TagPaused):
        segments["t"].next_id()
    with transaction.atomic():
        resume_tag("t")
        assert segments["t"].next_id() == 1


def test_before_the_migration_it_names_the_way_out(shop: str) -> None:
    """The file follows our migrations as a server's tables do."""
    make_tag("t", step=5)
    allocator: Any = segments.allocator()
    allocator.timeout = allocator.first_timeout = 1.0  # tests are patient otherwise
    for column in ("paused", "holder"):
        execute(shop, f"ALTER TABLE leaf_alloc DROP COLUMN {column}")
    for call in (lambda: segments["t"].next_id(), lambda: pause_tag("t")):
        with pytest.raises(SegmentUnavailable, match=r"leaf_alloc\.paused.*migrate"):
            call()
    make_tables(shop)
    assert segments["t"].next_ids(5) == [1, 2, 3, 4, 5]


@pytest.mark.django_db
def test_in_memory_a_pause_ends_with_the_test() -> None:
    """As in a user's own tests: it counts inside their transaction, and is rolled back with it."""
    with transaction.atomic():
        make_tag("memory.paused", step=3)
        pause_tag("memory.paused")
        with pytest.raises(TagPaused):
            segments["memory.paused"].next_id()
        transaction.set_rollback(True)
    assert segments["memory.paused"].next_id() == 1


@pytest.mark.django_db(transaction=True)
def test_in_memory_a_committed_pause_holds_in_other_threads() -> None:
    """Which can't look at the rows."""
    make_tag("memory.held", step=3)
    pause_tag("memory.held")
    caught: list[BaseException] = []

    def take() -> None:
        try:
            segments["memory.held"].next_id()
        except TagPaused as error:
            caught.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert len(caught) == 1
    resume_tag("memory.held")
    assert segments["memory.held"].next_id() == 1


# --- ids that lie ready in Redis ------------------------------------------------------


@pytest.fixture
def pooled(postgres: str, redis: str) -> Iterator[PoolSource]:
    """This process, in a project with a pool in which 40 ids of "t" lie; none was taken."""
    with pools.project(redis, postgres) as source:
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
    mark = row("postgres").max_id
    for _ in range(3):
        refused(pooled)
        with pytest.raises(TagPaused):
            pooled.refill("t", 1000)
    assert stock(pooled) == 0
    assert row("postgres").max_id == mark
    resume_tag("t")
    assert pooled.fetch("t").start == 61


def test_what_comes_back_is_a_gap(pooled: PoolSource) -> None:
    """The tail of a process that ends is handed out to nobody.

    Though Redis forgot the pause: after a flush the database is asked, before a tail comes in.
    """
    pause_tag("t")
    for _ in range(3):
        pooled.give_back("t", [range(11, 21)])
        assert stock(pooled) == 0
        refused(pooled)
        pooled._own.client.delete(key_of(pooled.source.owner("t"), "t"))


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
        idgen: dict[str, Any] = pools.idgen_on(alias, postgres)
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
        maps.reset()


def test_a_pool_that_can_not_be_cleared_is_told_and_cleared_later(
    away: Callable[[], RedisServer],
) -> None:
    """The databases are paused by then; the next preloading sees to the pool."""
    with pytest.raises(
        PoolStillOpen, match=r"'t' is paused, but Redis can't be asked to clear its pool"
    ):
        pause_tag("t")
    assert row("postgres").paused
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
    mark = row("postgres").max_id
    done = preload_segments(100)
    assert done["tags"]["t"]["paused"] is True
    assert done["tags"]["t"]["after"] == done["tags"]["t"]["before"]
    assert done["tags"]["u"]["after"] >= 100
    assert "paused" not in done["tags"]["u"]
    assert (done["left"], "errors" in done) == (0, False)
    assert row("postgres").max_id == mark
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

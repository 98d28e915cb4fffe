"""Generators whose ids are those of a tag: serial ones, Flickr's ticket servers, Redis INCR."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from itertools import pairwise
from operator import length_hint
from pathlib import Path
from typing import Any, NoReturn

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import generators, segments
from django_idgen.checks import check_settings
from django_idgen.core.errors import GeneratorClosed, SegmentExhausted
from django_idgen.core.files import NumberFile
from django_idgen.core.segment import MAX_ID
from django_idgen.core.segment_generator import SegmentAllocator, SegmentGenerator
from django_idgen.core.tag_generator import TagGenerator
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import HeldInRedis, pause_tag, skip_tag
from django_idgen.process import maps
from django_idgen.settings.config import SettingsError
from django_idgen.sources.memory import MemorySource
from django_idgen.testing import FixedIds
from django_idgen.testing.contracts.lenders import at_once
from tests import warm
from tests.app.models import Invoice
from tests.contrib.sharding.conftest import _shards, shards, unhurried
from tests.places import make_tables, sqlite
from tests.redis_servers import RedisFarm, RedisServer, cache_alias
from tests.segment_tools import in_child

__all__ = ["_shards", "shards", "unhurried"]

ROOT = Path(__file__).parents[2]
SERIAL = "django_idgen.core.tag_generator.SerialGenerator"
TAG = "django_idgen.core.tag_generator.TagGenerator"
TICKETS = "django_idgen.contrib.sharding.TicketGenerator"
REDIS_INCR = "django_idgen.sources.redis_incr.RedisIncrGenerator"


def entry(backend: str, source: Any = None, **options: Any) -> dict[str, Any]:
    return {"BACKEND": backend, "SOURCE": {"OPTIONS": source or {}}, "OPTIONS": options}


def serial(directory: Path | str, **options: Any) -> dict[str, Any]:
    return entry(SERIAL, {"directory": str(directory)}, **{"default_step": 10, **options})


@contextmanager
def project(**entries: Any) -> Iterator[None]:
    with override_settings(IDGEN={"GENERATORS": entries}):
        yield
        maps.reset()


# --- serial ----------------------------------------------------------------------------


def test_serial_ids_have_the_worker_on_top_and_count_below(tmp_path: Path) -> None:
    """Bee's layout: 10 bits and 53; each worker of a table, and each table, counts for itself."""
    with project(
        a=serial(tmp_path, worker=3), b=serial(tmp_path, worker=4), c=serial(tmp_path, worker=3)
    ):
        assert generators["a"].next_ids(3) == [(3 << 53) + n for n in (1, 2, 3)]
        assert generators["b"].next_id() == (4 << 53) + 1
        assert generators["c"].next_id() == (3 << 53) + 1
        assert list(generators) == ["default", "a", "b", "c"]
        assert "a" in generators
        assert check_settings() == []


def test_serial_ids_are_taken_up_at_a_restart(tmp_path: Path) -> None:
    """Behind what was promised to the last process: no repeat, and a gap below a segment."""
    with project(a=serial(tmp_path)):
        first = generators["a"].next_ids(25)
    with project(a=serial(tmp_path)):
        second = generators["a"].next_ids(5)
    assert second[0] > first[-1]
    assert second[0] - first[-1] < 100


NO_SETTINGS = {key: value for key, value in os.environ.items() if not key.startswith("DJANGO")}
KILLED = """
import django, os, signal, sys
from django.conf import settings
settings.configure(INSTALLED_APPS=["django_idgen"], IDGEN={"GENERATORS": {"a": %r}})
django.setup()
from django_idgen import generators
print(*generators["a"].next_ids(137), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_repeats_nothing_and_no_clock_matters(tmp_path: Path) -> None:
    """L9 of the counters: what was given out lies below the mark on the disk."""
    ids: list[int] = []
    for _ in range(3):
        done = warm.run(["-c", KILLED % serial(tmp_path, worker=1)], cwd=ROOT, env=NO_SETTINGS)
        assert done.returncode == -signal.SIGKILL, done.stderr
        ids += map(int, done.stdout.split())
    assert len(ids) == 3 * 137
    assert all(a < b for a, b in pairwise(ids))


def test_a_forked_child_takes_a_segment_of_its_own(tmp_path: Path) -> None:
    """I5: neither gives the other's ids."""
    with project(a=serial(tmp_path)):
        own = generators["a"].next_ids(5)
        child = in_child(lambda: generators["a"].next_ids(50))
        own += generators["a"].next_ids(50)
    assert len(child) == 50
    assert len({*own, *child}) == 105


def what_it_gives(generator: Any) -> list[int]:
    """Three ids; none of a closed one."""
    try:
        return [generator.next_id() for _ in range(3)]
    except GeneratorClosed:
        return []


def test_a_fork_finds_a_generator_that_a_test_replaces(tmp_path: Path) -> None:
    """I5: in the block of an override, and after a close in it."""
    with project(a=serial(tmp_path)):
        own = generators["a"]
        ids = own.next_ids(5)
        with generators.override("a", FixedIds([7])):
            child = in_child(lambda: own.next_ids(50))
            assert generators["a"].next_id() == 7
        assert generators["a"] is own
        ids += own.next_ids(50)
        assert len({*ids, *child}) == 105
        with generators.override("a", FixedIds([7])):
            generators.close()
        with pytest.raises(GeneratorClosed):
            own.next_id()
        assert generators["a"].next_id() > max(ids)


@pytest.mark.parametrize("of_tags", [False, True])
def test_a_fork_finds_what_is_being_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_tags: bool
) -> None:
    """I5: after a close that was interrupted, as while another thread closes."""
    owner: Any = segments if of_tags else generators
    with project(a=serial(tmp_path), b=serial(tmp_path)):
        first, second = owner["a"], owner["b"]
        first.next_id()
        ids = [second.next_id()]
        while length_hint(second._ids) < 3:  # what it gives without another look
            ids.append(second.next_id())

        def interrupted(*_args: object) -> NoReturn:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(SegmentGenerator, "leave", interrupted)
            with pytest.raises(KeyboardInterrupt):
                owner.close()
        child = in_child(lambda: [0, *what_it_gives(second)])
        ids += what_it_gives(second)
        assert len({*ids, *child}) == len(ids) + len(child) > 3
        owner.close()
        with pytest.raises(GeneratorClosed):
            second.next_id()


def test_one_that_can_not_forget_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: an error in the child is printed, and the others drop what they inherited, too."""
    with project(a=serial(tmp_path), b=serial(tmp_path)):
        first, second = generators["a"], generators["b"]
        first.next_id()
        ids = second.next_ids(5)
        forget = TagGenerator.forget

        def failing(self: TagGenerator) -> None:
            if self is first:
                raise RuntimeError("a source of the user's")
            forget(self)

        with monkeypatch.context() as patch:
            patch.setattr(TagGenerator, "forget", failing)
            child = in_child(lambda: second.next_ids(50))
        ids += second.next_ids(50)
        assert len({*ids, *child}) == 105


def test_a_tag_that_a_test_replaces_is_not_put_back_closed() -> None:
    """The settings changed in the block: the next look-up makes it anew."""
    with project():
        segments["c"].next_id()
        with segments.override("c", FixedIds([7])):
            segments.close()
        assert segments["c"].next_id()


def test_a_generator_has_no_copy(tmp_path: Path) -> None:
    """I1: both would give the same ids."""
    with project(a=serial(tmp_path)):
        for each in (generators["a"], segments["b"], generators["default"]):
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="can't be copied or pickled"):
                    make(each)


@pytest.mark.parametrize("worker", [3, 1023])
def test_a_counter_ends_where_the_next_workers_begins(tmp_path: Path, worker: int) -> None:
    """I7: no other worker's ids come, and after the last worker's, 2**63-1, none."""
    with project(a=serial(tmp_path, worker=worker)):
        file = NumberFile(tmp_path / f"a.{worker}.ids", 2)
        assert file.lock()
        file.write(2**53 - 3, 10)
        file.unlock()
        end = (worker + 1) << 53
        assert generators["a"].next_ids(3) == [end - 3, end - 2, end - 1]
        with pytest.raises(SegmentExhausted, match=rf"worker {worker}.*another 'worker'"):
            generators["a"].next_id()


REFUSED = [
    (entry(SERIAL, {"directory": "/tmp"}, worker=1024), "worker must be .* 0 to 1023, not 1024"),
    (entry(SERIAL, {"directory": "/tmp"}, worker="1"), "worker must be .*, not '1'"),
    (entry(SERIAL), "lacks 'directory'"),
    (entry(SERIAL, {"directory": "/tmp"}, tag=""), "must not be empty"),
    (entry(TAG, colour=1), "unknown key 'colour'. Known: default_step, .*, tag"),
    (entry(TAG, longest_chain=8), "'longest_chain'. It was removed: .* Leave it out"),
    (entry(TAG, default_step=0), "'default_step'.*not 0"),
    ({**entry(TAG), "LEASES": {}}, "unknown key 'LEASES'. Known: BACKEND, SOURCE, OPTIONS"),
    (entry(TICKETS, {"databases": []}), "'databases'"),
    (entry(REDIS_INCR), "lacks 'alias'"),
]


def test_what_cannot_work_is_refused_by_the_check() -> None:
    """With the place, the value and what is allowed."""
    for setting, said in REFUSED:
        with override_settings(IDGEN={"GENERATORS": {"a": setting}}):
            (error,) = check_settings()
        assert error.id == "django_idgen.E001"
        assert "['a']" in error.msg
        assert re.search(said, error.msg), error.msg


def test_a_closed_generator_gives_nothing(tmp_path: Path) -> None:
    """As any other one. Where a layout is asked for by the alias, there is none."""
    with project(a=serial(tmp_path)):
        generator = generators["a"]
        generator.next_id()
        generator.close()
        generator.close()
        with pytest.raises(GeneratorClosed):
            generator.next_id()
        with pytest.raises(SettingsError, match="neither a time nor a worker id"):
            maps.generator_settings("a")


# --- ranges ----------------------------------------------------------------------------


def made(step: int, **options: Any) -> Any:
    source = MemorySource(step)
    return SegmentAllocator(source, source.loader, **options).generator("t")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=20), st.integers(1, 30))
def test_ranges_are_the_ids_that_would_have_come(calls: list[tuple[bool, int]], step: int) -> None:
    """Mixed with ids taken singly: together they are 1, 2, 3 and so on, each once."""
    generator = made(step)
    ids: list[int] = []
    for in_ranges, count in calls:
        taken = (
            [value for part in generator.next_ranges(count) for value in part]
            if in_ranges
            else generator.next_ids(count)
        )
        assert len(taken) == count
        ids += taken
    assert ids == list(range(1, len(ids) + 1))
    assert generator.stats().issued == len(ids)


def test_ranges_and_ids_of_many_threads_never_meet() -> None:
    """I1, under the same iterator."""
    generator = made(1000)
    stop = threading.Event()
    singles: list[list[int]] = [[] for _ in range(4)]

    def take(number: int) -> list[int]:
        if number < 4:
            while not stop.is_set():
                singles[number].append(generator.next_id())
            return []
        parts = [part for _ in range(200) for part in generator.next_ranges(700)]
        if number == 4:
            stop.set()
        return [value for part in parts for value in part]

    ids = [value for taken in at_once(6, take) for value in taken]
    ids += [value for taken in singles for value in taken]
    assert len(set(ids)) == len(ids)


def test_many_ids_are_a_few_ranges(tmp_path: Path) -> None:
    """What is missing is asked for at once, so that no list of ids is made."""
    with project(a=serial(tmp_path, default_step=1000)):
        generator: Any = generators["a"]
        parts = generator.next_ranges(5_000_000)
        assert sum(map(len, parts)) == 5_000_000
        assert len(parts) < 5


# --- databases, and Redis -----------------------------------------------------------------


@pytest.mark.usefixtures("unhurried")
def test_ticket_servers_share_the_ids_of_an_alias(shards: list[str]) -> None:
    """Flickr's: a step of one, each database with its own remainder, and no id twice."""
    options = {"default_step": 1, "longest_step": 1, "timeout": 30}
    with project(tickets=entry(TICKETS, {"databases": shards[:2]}, **options)):
        ids = [generators["tickets"].next_id() for _ in range(40)]
        assert len(set(ids)) == 40
        assert all(a < b for a, b in pairwise(ids))
        rows = [LeafAlloc.objects.using(alias).get(pk="tickets") for alias in shards[:2]]
        assert [(row.delta, row.remainder, row.step) for row in rows] == [(2, 0, 1), (2, 1, 1)]
        assert not segments.made()


def test_the_marks_of_serial_ids_may_be_in_the_database(postgres: str) -> None:
    """Then hosts with the same worker id by mistake share its counter, also after a restart."""
    make_tables(postgres)
    alike = entry(SERIAL, {"database": postgres}, tag="t", worker=7, timeout=30)
    alike["SOURCE"]["BACKEND"] = "django_idgen.sources.database.DatabaseSource"
    with project(a=alike, b=alike):
        ids = [*generators["a"].next_ids(5), *generators["b"].next_ids(5)]
    with project(a=alike):
        ids += generators["a"].next_ids(5)
    assert all(a < b for a, b in pairwise(ids))
    assert {value >> 53 for value in ids} == {7}
    assert LeafAlloc.objects.using(postgres).get().pk == "t.7"


@pytest.fixture
def own_redis(farm: RedisFarm) -> RedisServer:
    return farm.server()


def incr(database: str, **options: Any) -> dict[str, Any]:
    source = {"alias": "own", "source": {"OPTIONS": {"database": database}}, "timeout": 30}
    return entry(REDIS_INCR, {**source, **options}, default_step=5, timeout=30, longest_step=1)


def test_ids_in_redis_are_not_paused_and_not_skipped(postgres: str, own_redis: RedisServer) -> None:
    """What is granted to Redis would come all the same; who asks is told what to do by hand."""
    make_tables(postgres)
    shared = {"SOURCE": {"OPTIONS": {"database": postgres}}}
    with (
        cache_alias("own", own_redis.url),
        override_settings(
            IDGEN={"GENERATORS": {"orders": incr(postgres, block=1000)}, "SEGMENTS": shared}
        ),
    ):
        generators["orders"].next_id()
        segments["others"].next_id()
        for change in (
            partial(skip_tag, "orders", most=MAX_ID, by=5),
            partial(pause_tag, "orders"),
        ):
            with pytest.raises(HeldInRedis, match="idgen_skip orders' says what to do"):
                change()
        row = LeafAlloc.objects.using(postgres).get(pk="orders")
        assert (row.paused, row.max_id) == (False, 1001)
        with pytest.raises(CommandError, match="keys that match 'django_idgen:pool"):
            call_command("idgen_skip", "orders", by=5)
        with pytest.raises(CommandError, match="'orders' were NOT skipped"):
            call_command("idgen_skip", all=True, by=5, yes=True, stdout=StringIO())
        assert LeafAlloc.objects.using(postgres).get(pk="orders").max_id == 1001
        assert LeafAlloc.objects.using(postgres).get(pk="others").max_id > 1005
        maps.reset()


def test_a_tag_of_the_same_name_in_another_database_is_another_one(
    postgres: str, own_redis: RedisServer, tmp_path: Path
) -> None:
    """It is paused and skipped like any, also by ``--all``; the generator's is named."""
    make_tables(postgres)
    with (
        sqlite(tmp_path) as alias,
        cache_alias("own", own_redis.url),
        override_settings(IDGEN={"GENERATORS": {"orders": incr(postgres, block=1000)}}),
    ):
        make_tables(alias)
        generators["orders"].next_id()
        segments["orders"].next_id()
        rows = LeafAlloc.objects.using(alias).filter(pk="orders")
        with pytest.raises(CommandError, match="'orders' were NOT skipped"):
            call_command("idgen_skip", all=True, by=50_000, yes=True, stdout=StringIO())
        assert rows.get().max_id > 50_000
        pause_tag("orders")
        assert rows.get().paused
        maps.reset()


@pytest.mark.parametrize("harm", [RedisServer.restart_empty, lambda redis: redis.run("FLUSHALL")])
def test_a_redis_that_lost_its_counter_repeats_nothing(
    postgres: str, own_redis: RedisServer, harm: Callable[[RedisServer], object]
) -> None:
    """Blocks come out of Redis, one after the other; after a loss from a new one."""
    make_tables(postgres)
    with cache_alias("own", own_redis.url), project(tickets=incr(postgres, block=1000)):
        ids = generators["tickets"].next_ids(100)
        assert ids == list(range(1, 101))
        fetched = LeafAlloc.objects.using(postgres).get(pk="tickets").max_id
        assert fetched == 1001
        harm(own_redis)
        ids += generators["tickets"].next_ids(2000)
        assert len(set(ids)) == len(ids)
        assert all(a < b for a, b in pairwise(ids))


def test_without_redis_ids_come_from_the_database(postgres: str, own_redis: RedisServer) -> None:
    """In steps, until it is there again."""
    make_tables(postgres)
    with cache_alias("own", own_redis.url), project(tickets=incr(postgres)):
        own_redis.kill()
        assert generators["tickets"].next_ids(20) == list(range(1, 21))


def test_a_block_larger_than_the_pool_is_refused() -> None:
    """By both values."""
    with (
        cache_alias("own", "redis://127.0.0.1:1/1"),
        override_settings(IDGEN={"GENERATORS": {"a": incr("default", block=2000, max_ids=1000)}}),
    ):
        (error,) = check_settings()
        assert "'block' is 2000, more than 'max_ids' (1000)" in error.msg


# --- in a model -----------------------------------------------------------------------------


def test_a_field_may_name_such_a_generator(tmp_path: Path) -> None:
    """``SnowflakeField(generator=...)`` takes any alias; its check knows it."""
    from django_idgen.fields import SnowflakeField

    with project(a=serial(tmp_path)):
        field = SnowflakeField(generator="a", unique=True)
        field.set_attributes_from_name("number")
        field.model = Invoice
        assert [each.id for each in field.check()] == []
        unknown = SnowflakeField(generator="b", unique=True)
        unknown.set_attributes_from_name("number")
        unknown.model = Invoice
        assert "django_idgen.E002" in [each.id for each in unknown.check()]

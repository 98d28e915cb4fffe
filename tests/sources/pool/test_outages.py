"""A Redis that is away, slow, or whose answers are lost: ids go on, and none comes twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.core.segment import STEP, Demand
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.sources.pool.source import RETRY_AFTER, PoolSource
from tests.own_servers import eventually
from tests.redis_servers import RedisFarm, RedisServer, cache_alias
from tests.segment_tools import Time
from tests.wires import SCRIPT, LossyWire

from .shop import PATIENT, Claims, OwnedSource, events_of

On = Callable[..., PoolSource]
SHORT = 0.2


@pytest.fixture
def server(farm: RedisFarm) -> RedisServer:
    return farm.server()


def warm(process: PoolSource) -> None:
    """Have the server know all scripts, so that what is sent next is applied at once."""
    process.fetch("warm")
    process.give_back("warm", [range(1, 2)])
    process.stocks(["warm"])


@pytest.fixture
def wire(server: RedisServer) -> Iterator[LossyWire]:
    made = LossyWire(("127.0.0.1", server.port), SCRIPT)
    yield made
    made.close()


def test_a_pop_whose_answer_was_lost_is_a_gap(wire: LossyWire, on: On, server: RedisServer) -> None:
    """It was applied, and is not sent again: one script, and the next range (hazard 53)."""
    process, claims = on(wire.port), Claims()
    warm(process)
    process.refill("t", 100)
    sent, wire.losing = wire.sent, True
    claims.use(process.fetch("t").ids())
    assert wire.sent == sent + 1
    assert claims.ids == list(range(101, 111))
    wire.losing = False
    other = on(server)
    assert other.stocks(["t"])["t"].ids == 90
    while other.stocks(["t"])["t"].ids:
        claims.use(other.fetch("t").ids())
    assert not set(range(1, 11)) & set(claims.ids)
    claims.check()


def test_a_push_whose_answer_was_lost_is_not_sent_again(
    wire: LossyWire, on: On, server: RedisServer
) -> None:
    """The range is there once, and the process that pushed it never uses it."""
    process, claims = on(wire.port), Claims()
    warm(process)
    held = process.fetch("t").ids()
    claims.use(held[:4])
    process.give_back("t", [held[9:]])  # so that there is a pool
    sent, wire.losing = wire.sent, True
    process.give_back("t", [held[4:9]])
    process.give_back("t", [held[4:9]])  # even if asked to: Redis is left alone by now
    assert wire.sent == sent + 1
    assert events_of(process) == ["pool_unavailable"]
    other = on(server)
    claims.use(other.fetch("t").ids())
    claims.use(other.fetch("t").ids())
    assert sorted(claims.ids) == list(range(1, 21))
    claims.check()


def test_a_refill_whose_answer_was_lost_is_given_up(
    wire: LossyWire, on: On, server: RedisServer
) -> None:
    """What was fetched for it is not pushed again."""
    process = on(wire.port)
    warm(process)
    assert process.refill("t", 20) == 20
    process.source.fetches.clear()  # type: ignore[attr-defined]
    on(server).fetch("t", demand=Demand(at_least=20))
    wire.losing = True
    with pytest.raises(SegmentUnavailable, match="does not answer"):
        process.refill("t", 50)
    with pytest.raises(SegmentUnavailable, match="does not answer"):
        process.stocks(["t"])
    assert process.source.fetches == []  # type: ignore[attr-defined]


def test_a_stopped_redis_costs_one_timeout_a_minute(server: RedisServer, on: On) -> None:
    """Who comes after the first goes straight to the source, until the minute is over."""
    time = Time()
    process, claims = on(server, clock=time.clock), Claims()
    process.refill("t", 50)
    asked = Asked(process)
    wait_for(process, SHORT)
    server.pause()
    for minute in range(3):
        for _ in range(20):
            claims.use(process.fetch("t").ids())
            process.give_back("t", [range(45, 46)])
            time.now += RETRY_AFTER / 20
        assert asked.count == minute + 1
    assert events_of(process) == ["pool_unavailable"] * 3
    assert min(claims.ids) == 51
    server.resume()
    # The pops that were given up may be done by now: what they took is a gap.
    eventually(server.answers, "the server goes on")
    wait_for(process, PATIENT)
    time.now += RETRY_AFTER
    while process.stocks(["t"])["t"].ids:
        claims.use(process.fetch("t").ids())
    assert events_of(process)[-1] == "pool_available"
    claims.check()


def wait_for(process: PoolSource, seconds: float) -> None:
    """Have it wait so long for an answer from now on, on a new connection."""
    process._own.close()
    process._own.timeout = seconds


class Asked:
    """Counts the scripts that a process sends."""

    def __init__(self, process: PoolSource) -> None:
        self.count = 0
        self._call = process._scripts._call
        process._scripts._call = self._counted  # type: ignore[method-assign]

    def _counted(self, name, keys, *words):
        self.count += 1
        return self._call(name, keys, *words)


def test_of_many_threads_one_finds_out(server: RedisServer, on: On) -> None:
    """32 threads at once, and a Redis that is stopped: one timeout, and all get their ids."""
    process, claims = on(server, timeout=SHORT), Claims()
    asked = Asked(process)
    server.pause()
    gate = threading.Barrier(32)

    def fetch(_: int) -> None:
        gate.wait()
        claims.use(process.fetch("t").ids())

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(fetch, range(32)))
    assert asked.count == 1
    assert events_of(process) == ["pool_unavailable"]
    assert sorted(claims.ids) == list(range(1, 321))


def test_a_dead_redis_is_used_again_when_it_is_back(server: RedisServer, on: On) -> None:
    """Killed, then started: after a minute what is left over goes there again."""
    time = Time()
    process = on(server, clock=time.clock)
    process.fetch("t")
    server.kill()
    assert process.fetch("t").start == 11
    server.start()
    assert process.fetch("t").start == 21
    time.now += RETRY_AFTER
    process.give_back("t", [range(25, 31)])
    assert process.fetch("t").ids() == range(25, 31)
    assert events_of(process) == ["pool_unavailable", "pool_available"]


def test_answers_that_come_late_are_not_mistaken(server: RedisServer, on: On) -> None:
    """What was asked before the pause is not taken for the answer of a later question."""
    time, claims = Time(), Claims()
    process = on(server, clock=time.clock)
    process.refill("t", 100)
    wait_for(process, SHORT)
    for _ in range(5):
        server.pause()
        claims.use(process.fetch("t").ids())
        server.resume()
        eventually(server.answers, "the server goes on")
        time.now += RETRY_AFTER
        claims.use(process.fetch("t").ids())
        process.give_back("t", [range(1, 1)])
    claims.check()


def test_a_forked_child_asks_for_itself(server: RedisServer, on: On) -> None:
    """What the parent found out about Redis, and its connection, are its own."""
    process = on(server)
    process.fetch("t")
    server.pause()
    broken = on(server, timeout=SHORT)
    broken.fetch("t")
    server.resume()
    eventually(server.answers, "the server goes on")
    broken.abandon()
    wait_for(broken, PATIENT)
    broken.give_back("t", [range(15, 21)])
    assert process.fetch("t").ids() == range(15, 21)


def test_starving_tags_hold_up_no_others(server: RedisServer, stack: ExitStack) -> None:
    """With the database hanging, tags that have a stock get it while others wait in vain."""
    alias = stack.enter_context(cache_alias("idgen", server.url))
    source = Hanging()
    process = PoolSource(alias=alias, source=source, timeout=PATIENT)
    stack.callback(process.close)
    process.refill("stocked", 1000)
    source.gate.clear()
    allocator = SegmentAllocator(process, process.loader, timeout=0.05)
    for number in range(10):
        with pytest.raises(SegmentUnavailable):
            allocator.generator(f"starving {number}").next_id()
    patient = SegmentAllocator(process, process.loader, timeout=PATIENT)
    assert patient.generator("stocked").next_ids(100) == list(range(1, 101))
    source.gate.set()
    allocator.close()
    patient.close()


class Hanging(OwnedSource):
    """A source on a server, which doesn't answer while the gate is closed."""

    class loader:  # noqa: N801
        background = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self, tag, *, floor=0, demand=STEP):
        assert self.gate.wait(60)
        return super().fetch(tag, floor=floor, demand=demand)

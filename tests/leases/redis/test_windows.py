"""The scripts' windows are those of core.lease, to the tick; and ticks are exact."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_idgen.core.book import SubLease
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import TimeExhausted, TooFarAhead
from django_idgen.core.lease import (
    Lease,
    Mark,
    Namespace,
    extend_window,
    final_mark,
    grant_window,
    is_free,
)
from django_idgen.db.redis_client import OwnRedis
from django_idgen.leases.redis.registry import LAST, LeaseScripts, Reply, key_of
from tests.leases.redis.fleet import SHOP

WHOSE = secrets.token_hex(16)
TICKS = st.one_of(st.integers(0, 5000), st.integers(2**41, 2**41 + 5000))
FAR = 2**52 - 9000
"""No clock stands there, but marks may."""
STEPS = st.integers(0, 3000)
EXAMPLES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Bench:
    """One hash in a Redis, put into any state, and its scripts on any clock."""

    own: OwnRedis
    namespace: Namespace
    now_us: int = 0

    @property
    def scripts(self) -> LeaseScripts:
        return LeaseScripts(
            self.own, self.namespace, clock=SYSTEM_CLOCK, read_now_us=lambda: self.now_us
        )

    def at(self, now: int) -> None:
        self.now_us = self.namespace.epoch_us + now * self.namespace.tick_us

    def state(self, charter: SubLease, mark: Mark | None) -> None:
        """The hash holds this charter, and this mark of worker id 0."""
        key = key_of(WHOSE, self.namespace.name)
        self.own.client.delete(key)
        incarnation = self.acquire().words[2]
        assert self.scripts.install(replace(charter, incarnation=incarnation)).status == "ok"
        if mark is not None:
            stored = f"{mark.token}:{mark.start}:{mark.until}:{mark.generation}:0:"
            self.own.client.hset(key, "w:0", stored)
            self.own.client.hincrby(key, "fields", 1)
            self.own.client.hset(key, "highest", mark.until)

    def acquire(self, not_before: int = 0) -> Reply:
        return self.scripts.acquire(
            WHOSE,
            holder="",
            token="ab",
            not_before=not_before,
            avoid=None,
            preferred=None,
            short=True,
            waiting=False,
        )


@pytest.fixture
def bench(redis: str) -> Iterator[Bench]:
    own = OwnRedis(redis, timeout=20)
    name = f"windows-{secrets.token_hex(4)}"
    made = Bench(own, replace(SHOP, name=name, workers=range(1), max_ticks=2**52))
    yield made
    own.client.delete(key_of(WHOSE, name))
    own.close()


@EXAMPLES
@example(3000, 3000, 2000, 0, 0, "never lent", 1000, False, False)  # only the fence holds it back
@given(
    now=TICKS,
    fence=STEPS,
    room=STEPS,
    ahead=st.integers(-3000, 3000),
    until=st.integers(-3000, 3000),
    known=st.sampled_from(["held", "released", "never lent"]),
    window=st.integers(1, 2000),
    shorter=st.booleans(),
    far=st.booleans(),
)
def test_a_grant_is_that_of_the_rule(
    bench: Bench,
    now: int,
    fence: int,
    room: int,
    ahead: int,
    until: int,
    known: str,
    window: int,
    shorter: bool,
    far: bool,
) -> None:
    """L1: the same window as grant_window gives, or none where there is none."""
    bench.at(now)
    base = FAR if far else now
    top = base + 2500 if shorter else 2**52
    bench.namespace = replace(bench.namespace, window_ticks=window, max_ticks=top)
    charter = SubLease(WHOSE, 1, max(0, base + fence - 1500), base + fence + room)
    held = max(charter.fence, base + until - 500), max(charter.fence + 1, base + until)
    # Only where no mark is known is it the fence that holds a window back.
    mark = None if known == "never lent" else Mark(0, "cd" if known == "held" else "", *held, 1)
    bench.state(charter, mark)
    reply = bench.acquire(not_before=max(0, base + ahead))
    if reply.status != "ahead" and not is_free(mark, now):
        assert reply.status == "none"
        return
    try:
        expected = grant_window(
            bench.namespace,
            mark,
            now=now,
            fence=charter.fence,
            highest=mark.until if mark else 0,
            not_before=max(0, base + ahead),
            ceiling=charter.ceiling,
        )
    except TooFarAhead as error:
        refused = error.tick, error.latest
        assert (reply.status, *map(int, reply.words)) == ("ahead", *refused)
        return
    except TimeExhausted:
        assert reply.status == "exhausted"
        return
    if expected[1] <= expected[0]:  # nothing of it lies below the ceiling
        assert (reply.status, reply.wanted) == ("raise", expected[0])
    else:
        assert (reply.status, *reply.window) == ("ok", 0, *expected)


@EXAMPLES
@given(
    now=TICKS,
    start=STEPS,
    length=st.integers(1, 3000),
    room=STEPS,
    last=st.integers(-3000, 6000),
    window=st.integers(1, 2000),
)
def test_a_renewal_is_that_of_the_rule(
    bench: Bench, now: int, start: int, length: int, room: int, last: int, window: int
) -> None:
    """L2: the same end as extend_window gives; refused where that would be of no use."""
    bench.namespace = replace(bench.namespace, window_ticks=window, max_ticks=2**52)
    begin = max(0, now + start - 1500)
    mark = Mark(0, "cd", begin, begin + length, 1)
    charter = SubLease(WHOSE, 1, begin, mark.until + room)
    bench.at(now)
    bench.state(charter, mark)
    latest = max(0, now + last)
    reply = bench.scripts.renew(
        WHOSE, Lease("", 0, "cd", mark.start, mark.until, 1), last_tick=latest, short=True
    )
    expected = extend_window(
        bench.namespace, mark, now=now, last_tick=latest, ceiling=charter.ceiling
    )
    free = extend_window(bench.namespace, mark, now=now, last_tick=latest)
    reached = max(now, min(latest, mark.until))
    useful = expected > mark.until and expected > reached
    if expected == free or useful:
        assert (reply.status, *reply.window) == ("ok", 0, mark.start, expected)
    else:
        assert (reply.status, reply.wanted) == ("raise", reached)


@EXAMPLES
@given(
    now=TICKS,
    start=STEPS,
    length=st.integers(1, 3000),
    room=STEPS,
    window=st.integers(1, 2000),
    shorter=st.booleans(),
)
def test_a_renewal_by_a_scheduler_is_that_of_the_rule(
    bench: Bench, now: int, start: int, length: int, room: int, window: int, shorter: bool
) -> None:
    """L2: the same end as extend_window gives, never a lower one; what has expired stays so."""
    begin = max(0, now + start - 1500)
    mark = Mark(0, "cd", begin, begin + length, 1)
    top = mark.until + 500 if shorter else 2**52
    bench.namespace = replace(bench.namespace, window_ticks=window, max_ticks=top)
    charter = SubLease(WHOSE, 1, begin, mark.until + room)
    bench.at(now)
    bench.state(charter, mark)
    reply = bench.scripts.renew_seen(WHOSE, idle_us=10**18, short=True)
    expected = mark.until
    if now < mark.until:
        expected = extend_window(
            bench.namespace, mark, now=now, last_tick=mark.start, ceiling=charter.ceiling
        )
    assert (reply.status, reply.window[0], reply.cursor) == ("ok", int(now < mark.until), LAST)
    stored = bench.own.client.hget(key_of(WHOSE, bench.namespace.name), "w:0")
    assert stored == f"cd:{mark.start}:{expected}:1:0:".encode()


@EXAMPLES
@given(start=TICKS | st.just(FAR), last=st.none() | st.integers(-5, 5000))
def test_a_release_is_that_of_the_rule(bench: Bench, start: int, last: int | None) -> None:
    """L3: the mark that is left is final_mark's."""
    mark = Mark(0, "cd", start, start + 3000, 1)
    bench.at(1000)
    bench.state(SubLease(WHOSE, 1, start, start + 9000), mark)
    last_tick = None if last is None else max(0, start + last)
    lease = Lease("", 0, "cd", start, mark.until, 1)
    assert bench.scripts.release(WHOSE, lease, last_tick=last_tick).status == "ok"
    stored = bench.own.client.hget(key_of(WHOSE, bench.namespace.name), "w:0")
    assert stored is not None
    assert int(stored.split(b":")[2]) == final_mark(mark, last_tick)


@EXAMPLES
@given(
    now_us=st.integers(1_500_000_000_000_000, 4_000_000_000_000_000),
    epoch_us=st.integers(0, 1_700_000_000_000_000),
    tick_us=st.sampled_from([1000, 1001, 10_000, 999_983, 1_000_000, 10_000_000, 86_400_000_000]),
    edge=st.sampled_from([None, -1, 0, 1]),
)
def test_a_tick_is_that_of_the_namespace(
    bench: Bench, now_us: int, epoch_us: int, tick_us: int, edge: int | None
) -> None:
    """Rounded down as Python does it, also a microsecond before the next tick."""
    if edge is not None:
        now_us = epoch_us + (now_us - epoch_us) // tick_us * tick_us + edge
    bench.namespace = replace(bench.namespace, epoch_us=epoch_us, tick_us=tick_us)
    bench.now_us = now_us
    bench.own.client.delete(key_of(WHOSE, bench.namespace.name))
    reply = bench.acquire()
    assert (reply.status, reply.now) == ("open", bench.namespace.tick_at(now_us))


def test_what_began_below_the_fence_is_void(bench: Bench) -> None:
    """Also under the number of the present generation, as after a loss of the database."""
    bench.at(1000)
    for mark in (Mark(0, "cd", 899, 1500, 2), Mark(0, "cd", 900, 1500, 1)):
        bench.state(SubLease(WHOSE, 2, 900, 3000), mark)
        lease = Lease("", 0, "cd", mark.start, mark.until, 2)
        assert bench.scripts.renew(WHOSE, lease, last_tick=1000, short=True).status == "lost"
        assert bench.scripts.release(WHOSE, lease, last_tick=1000).status == "lost"
        assert bench.scripts.renew_seen(WHOSE, idle_us=10**18, short=True).window[0] == 0
        assert bench.acquire().window == (0, 1500, 2500)


def test_an_earlier_charter_does_not_replace_a_later_one(bench: Bench) -> None:
    """Whoever comes late with the one it was given finds the later one, and leaves it."""
    bench.at(1000)
    later = SubLease(WHOSE, 2, 900, 3000)
    bench.state(later, None)
    (incarnation,) = bench.own.client.hmget(key_of(WHOSE, bench.namespace.name), "incarnation")
    assert incarnation is not None
    later = replace(later, incarnation=incarnation.decode())
    for earlier in (
        replace(later, generation=1, fence=500, ceiling=9000),
        replace(later, generation=1, ceiling=9000),
        replace(later, incarnation="another", fence=2000, ceiling=9000),
    ):
        assert bench.scripts.install(earlier).status == "lost"
    assert bench.acquire().sub_lease(WHOSE) == later
    assert bench.scripts.install(replace(later, ceiling=2000)).status == "ok"
    assert bench.own.client.hget(key_of(WHOSE, bench.namespace.name), "ceiling") == b"3000"
    assert bench.scripts.install(replace(later, ceiling=4000)).status == "ok"
    assert bench.acquire().status == "none"
    bench.at(3000)
    assert bench.acquire().sub_lease(WHOSE) == replace(later, ceiling=4000)


def test_the_clock_is_that_of_redis(bench: Bench) -> None:
    """Without a clock given, the time is the server's TIME."""
    scripts = LeaseScripts(bench.own, bench.namespace, clock=SYSTEM_CLOCK)

    def server_us() -> int:
        seconds, micros = bench.own.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    before = server_us()
    reply = scripts.restart(WHOSE, "x")
    assert reply.status == "lost"
    assert before <= int(reply.words[0]) <= server_us()

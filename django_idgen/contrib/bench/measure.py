"""What is measured, and how long it takes, in one process.

Throughput is timed over whole passes, in which only the calls are made and their results
kept. Latency is sampled in a pass of its own, which times each call alone, so that
reading the clock twice a call does not count as the cost of an id.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import random
import threading
import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import chain, repeat
from statistics import median
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from ...core.errors import ConfigurationError

__all__ = [
    "PEERS",
    "IdSource",
    "Opener",
    "PeerMissing",
    "Taken",
    "Target",
    "call_ns",
    "id_ns",
    "in_threads",
    "interleaved",
    "peer",
    "quiet_gc",
    "shares",
    "take",
    "target_of",
    "time_calls",
    "timer_ns",
]

T = TypeVar("T")
Taken = list[list[Any]]
"""The ids of one pass of one thread, in pieces as they came."""

# --- targets -----------------------------------------------------------------

Opener = Callable[[str], "Target"]
"""Makes the target of a name in the process that will measure it."""


class IdSource(Protocol):
    """What every generator of this package offers."""

    def next_id(self) -> int: ...
    def next_ids(self, count: int, /) -> list[int]: ...
    def stats(self) -> Any: ...


class PeerMissing(Exception):
    """The package that a peer comes from is not installed."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        super().__init__(f"{package} is not installed")


@dataclass(frozen=True, slots=True)
class Target:
    """One way to get ids. As safe to share between threads as what it wraps."""

    name: str
    source: Any
    """What has ``next_id``: an attribute that may be another one after each id."""
    next_ids: Callable[[int], list[Any]]
    ours: bool = False
    """Whether it is of this package: its ids are integers that must rise and never repeat."""
    stats: Callable[[], Mapping[str, Any]] = dict


def target_of(name: str, generator: IdSource) -> Target:
    """``generator``, of this package, as a target: its ids will be proven unique."""
    return Target(
        name,
        generator,
        generator.next_ids,
        ours=True,
        stats=lambda: _fields(generator.stats()),
    )


def peer(name: str) -> Target:
    """The peer of that name, one of :data:`PEERS`, made anew.

    Raises :class:`ConfigurationError` for an unknown name and
    :class:`PeerMissing` for one whose package is not installed.
    """
    try:
        package, make = PEERS[name]
    except KeyError:
        raise ConfigurationError(
            f"There is no peer {name!r} to measure against. Known are: {', '.join(PEERS)}."
        ) from None
    try:
        next_id = make()
    except (ImportError, AttributeError):
        raise PeerMissing(name, package) from None
    source = SimpleNamespace(next_id=next_id)
    return Target(name, source, lambda count: [next_id() for _ in repeat(None, count)])


def _uuid7() -> Callable[[], Any]:
    # The fastest there is: the one in Rust before the standard library's (3.14).
    try:
        found: Callable[[], Any] = _from("uuid_utils", "uuid7")
    except ImportError:
        found = _from("uuid", "uuid7")
    return found


def _from(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


PEERS: Mapping[str, tuple[str, Callable[[], Callable[[], Any]]]] = {
    "uuid4": ("the standard library", lambda: uuid.uuid4),
    "uuid7": ("uuid-utils", _uuid7),
    "uuid6": ("uuid6", lambda: _from("uuid6", "uuid6")),
    "snowflake-id": ("snowflake-id", lambda: _from("snowflake", "SnowflakeGenerator")(1).__next__),
    "auto-increment": (
        "Django",
        lambda: _from(f"{__package__}.auto_increment", "AutoIncrement")().next_id,
    ),
    "count": ("the standard library", lambda: itertools.count(1).__next__),
    "getrandbits": ("the standard library", lambda: partial(random.getrandbits, 63)),
}
"""By name: the package it comes from, and what makes its ``next_id``."""


def _fields(value: Any) -> Any:
    """``value`` as JSON has it; a lease's token, which would let others renew it, left out."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _fields(item) for key, item in value.items() if key != "token"}
    return value


# --- timing ------------------------------------------------------------------


def take(target: Target, count: int, batch: int) -> Taken:
    """Take ``count`` ids by ``next_id()``, or by ``next_ids(batch)`` if that is over 1."""
    if batch == 1:
        source = target.source
        return [[source.next_id() for _ in repeat(None, count)]]
    whole, rest = divmod(count, batch)
    next_ids = target.next_ids
    taken = [next_ids(batch) for _ in repeat(None, whole)]
    if rest:
        taken.append(next_ids(rest))
    return taken


def time_calls(target: Target, count: int) -> tuple[array[int], Taken]:
    """Call ``next_id()`` ``count`` times: nanoseconds of each call, and the ids.

    Reading the clock is part of each figure: see :func:`timer_ns`.
    """
    clock, source = perf_counter_ns, target.source
    spans = array("q", bytes(8 * count))
    ids: list[Any] = []
    for index in range(count):
        begun = clock()
        value = source.next_id()
        ended = clock()
        spans[index] = ended - begun
        ids.append(value)
    return spans, [ids]


def timer_ns(samples: int = 1001) -> int:
    """What timing nothing costs, in nanoseconds: it is in every latency figure."""
    clock = perf_counter_ns
    return int(median(-(clock() - clock()) for _ in range(samples)))


def in_threads(job: Callable[[int], T], threads: int) -> tuple[int, list[T]]:
    """Run ``job(0)`` to ``job(threads - 1)`` at once, each in a thread of its own.

    Returns the nanoseconds from the first one's start to the last one's end, and
    what they returned. Raises what the first failing job raised.
    """
    if threads == 1:
        begun = perf_counter_ns()
        result = job(0)
        return perf_counter_ns() - begun, [result]
    gate = threading.Barrier(threads)
    runs = [_Thread(job, index, gate) for index in range(threads)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    for run in runs:
        if run.error is not None:
            raise run.error
    elapsed = max(run.ended for run in runs) - min(run.begun for run in runs)
    return elapsed, [run.result for run in runs]


class _Thread(threading.Thread):
    def __init__(self, job: Callable[[int], Any], index: int, gate: threading.Barrier) -> None:
        super().__init__(name=f"bench-{index}", daemon=True)
        self.job, self.index, self.gate = job, index, gate
        self.begun = self.ended = 0
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        self.gate.wait()
        self.begun = perf_counter_ns()
        try:
            self.result = self.job(self.index)
        except BaseException as error:  # noqa: BLE001  It is raised again in the caller's thread.
            self.error = error
        self.ended = perf_counter_ns()


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Collect garbage now and not again within the block: every target is treated alike."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def shares(total: int, parts: int) -> list[int]:
    """``total`` split into ``parts`` that differ by one at most."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def call_ns(call: Callable[[], object], calls: int) -> float:
    """Nanoseconds a call, the results thrown away, as :mod:`timeit` measures."""
    times = repeat(None, calls)
    begun = perf_counter_ns()
    for _ in times:
        call()
    return (perf_counter_ns() - begun) / calls


def id_ns(source: Any, calls: int) -> float:
    """Nanoseconds of ``source.next_id()``, the attribute looked up each time."""
    times = repeat(None, calls)
    begun = perf_counter_ns()
    for _ in times:
        source.next_id()
    return (perf_counter_ns() - begun) / calls


def interleaved(jobs: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Run each job once a round and return the figures of each job, round by round.

    The order turns from round to round, so that none is always first.
    """
    figures: list[list[float]] = [[] for _ in jobs]
    for turn in range(rounds):
        for index in _turned(len(jobs), turn):
            with quiet_gc():
                figures[index].append(jobs[index]())
    return figures


def _turned(length: int, turn: int) -> Iterator[int]:
    start = turn % length
    return chain(range(start, length), range(start))

"""How cost grows: with processes, with tags, with holders of worker ids.

Costs are statements, and time of a processor, of ours and of the server's process: the time of
day of one machine says little of another. ``python -m tests.benchmarks.scale --json FILE`` writes
what docs/scale.py draws. Server time is read from Linux' ``/proc``, so servers have to run here.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from secrets import token_hex
from typing import Any

from django_idgen.core.layout import BitLayout
from django_idgen.core.lease import Lease, Namespace
from django_idgen.core.loader import inline_loader
from django_idgen.core.registry import Registry
from tests import servers

from .bars import Row, Skipped, at_least, at_most
from .generators import allocator
from .project import REDIS, own_database
from .timing import quiet_gc

PROCESSES = (1, 2, 4, 8, 16)
IDS = 1_000_000
"""Ids that each process takes, of each kind."""
TAGS = (1, 10, 100, 1000, 10_000, 100_000)
HOLDERS = (1, 4, 16, 64, 256, 1024, 8192)
CALLS = 40
ROUNDS = 3
LAYOUT = BitLayout(
    (("time", 41), ("worker", 14), ("sequence", 8)), tick_us=1000, epoch_us=1_735_689_600_000_000
)
"""Twice as many worker ids as the most holders."""


@dataclass(frozen=True, slots=True)
class Series:
    """One cost, by the number of what it may grow with."""

    group: str
    what: str
    unit: str
    points: dict[int, float]

    @property
    def growth(self) -> float:
        """The last point, as a multiple of the first."""
        values = list(self.points.values())
        return values[-1] / values[0]


def rows() -> Iterator[Row]:
    for each in measured():
        first, last = next(iter(each.points)), list(each.points)[-1]
        note = ", ".join(f"{n:,}: {value:,.4g}" for n, value in each.points.items())
        what = f"{each.group}: {each.what}, {last:,} against {first:,}"
        sense = at_least if each.what in RISES else at_most
        yield sense(what, _bar(each), each.growth, note=note)


RISES = ("ids a second of processor time",)
BARS = {
    RISES[0]: 0.7,
    # Some of its statements look at all rows of the namespace.
    "server, acquire and release": 4.0,
    # The caches of the processor don't hold 100,000 tags.
    "look-up": 8.0,
}
ALL = ("renew_worker_leases", "inspection")
"""Calls that look at every holder, so they may grow in proportion."""


def _bar(series: Series) -> float:
    return HOLDERS[-1] if series.what.endswith(ALL) else BARS.get(series.what, 1.5)


def measured() -> Iterator[Series]:
    """Every series. Raises :class:`Skipped` where something is missing."""
    if not Path("/proc/self/schedstat").exists():
        raise Skipped("no /proc of Linux")
    with own_database():
        yield from _of_processes()
        yield from _of_tags()
        yield from _of_rows()
        yield from _of_holders("PostgreSQL", OnPostgres())
        if servers.is_open("redis"):
            yield from _of_holders("Redis", OnRedis())


def processor_us(process: int) -> float:
    """Processor time that ``process`` has used, in µs."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e3


# --- processes ----------------------------------------------------------------------


def _of_processes() -> Iterator[Series]:
    from django_idgen import segments
    from django_idgen.process.maps import reset

    segments["bench"].next_id()  # its row is there
    reset()
    list(_in_children(1))  # the tables, too
    found: dict[str, dict[int, float]] = {}
    for count in PROCESSES:
        done = list(_in_children(count))
        total: Counter[str] = sum((Counter(each) for each in done), Counter())
        for kind in ("snowflake", "segment"):
            name = f"statements, {kind} ids, each process"
            found.setdefault(name, {})[count] = total[f"{kind} statements"] / count
        found.setdefault(RISES[0], {})[count] = 2 * IDS * count / (total["ns"] / 1e9)
    for what, points in found.items():
        yield Series("processes", what, "", points)


def _in_children(count: int) -> Iterator[dict[str, int]]:
    from django.db import connection

    connection.close()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    ends = [context.Pipe(duplex=False) for _ in range(count)]
    children = [context.Process(target=_child, args=(barrier, end)) for _, end in ends]
    for child in children:
        child.start()
    yield from (end.recv() for end, _ in ends)
    for child in children:
        child.join()


def _child(barrier: Any, end: Connection) -> None:
    from django.conf import settings
    from django.db.backends.signals import connection_created

    from django_idgen import generators, segments
    from django_idgen.process.maps import reset

    # There are more of them than processors, so some wait long.
    settings.IDGEN = {"SEGMENTS": {"OPTIONS": {"timeout": 60}}}
    reset()
    seen = Statements()
    connection_created.connect(seen.watch)
    barrier.wait()
    begun, done = time.process_time_ns(), {}
    for kind, source in (("snowflake", generators["default"]), ("segment", segments["bench"])):
        for _ in range(IDS // 1000):
            source.next_ids(1000)
        if kind == "snowflake":
            source.close()
        done[f"{kind} statements"] = seen.count - sum(done.values())
    done["ns"] = time.process_time_ns() - begun
    reset()
    end.send(done)


class Statements:
    """Counts the statements of all connections that are opened while it watches."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, connection: Any, **_: object) -> None:
        connection.execute_wrappers.append(self)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        self.count += not sql.startswith(("SAVEPOINT", "RELEASE", "SET"))
        return execute(sql, params, many, context)


# --- tags ---------------------------------------------------------------------------


def _of_tags() -> Iterator[Series]:
    from django_idgen.process.maps import SegmentMap

    memory, look_up, first = {}, {}, {}
    for count in TAGS:
        names = [f"shop.tag_{number}" for number in range(count)]
        tracemalloc.start()
        tags = SegmentMap()
        tags._allocator = allocator(1000, inline_loader())
        tags["warm"].next_id()
        before = tracemalloc.get_traced_memory()[0]
        for name in names:
            tags[name].next_id()
        memory[count] = (tracemalloc.get_traced_memory()[0] - before) / count
        tracemalloc.stop()
        tags.close()
        tags = SegmentMap()
        tags._allocator = allocator(1000, inline_loader())
        for number in range(200):
            tags[f"warm-{number}"].next_id()
        with quiet_gc():
            first[count] = _ns_each(lambda tag, tags=tags: tags[tag].next_id(), names) / 1e3
            look_up[count] = min(_ns_each(tags.__getitem__, names * (100_000 // count))
                                 for _ in range(3 * ROUNDS))  # fmt: skip
        tags.close()
    yield Series("tags", "memory, each tag", "B", memory)
    yield Series("tags", "first id of a tag, without the fetch", "µs", first)
    yield Series("tags", "look-up", "ns", look_up)


def _ns_each(call: Callable[[str], object], names: list[str]) -> float:
    begun = time.thread_time_ns()
    for name in names:
        call(name)
    return (time.thread_time_ns() - begun) / len(names)


def _of_rows() -> Iterator[Series]:
    """The database's time of a fetch, by the rows of ``leaf_alloc``."""
    from django.db import connection

    from django_idgen.db.connection import OwnConnection
    from django_idgen.sources.server import ServerSource

    own = OwnConnection("default")
    source = ServerSource(alias="default", own=own, measures=False)
    source.fetch("row-0")
    costs: dict[str, dict[int, float]] = {}
    for count in TAGS:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO leaf_alloc (biz_tag, max_id, step) SELECT 'row-' || n, 1, 1000 "
                "FROM generate_series(0, %s) AS n ON CONFLICT DO NOTHING",
                [count - 1],
            )
            cursor.execute("ANALYZE leaf_alloc")
        middle = f"row-{count // 2}"
        source.fetch(middle)
        for name, cost in _cost(own, lambda tag=middle: source.fetch(tag), CALLS).items():
            costs.setdefault(name, {})[count] = cost
    yield from _series("rows of leaf_alloc", "fetch", costs)


# --- holders ------------------------------------------------------------------------


def _cost(own: Any, call: Callable[[], object], calls: int) -> dict[str, float]:
    """What one ``call`` costs on the connection ``own``: the least of some rounds."""
    seen = Statements()

    def job(connection: Any) -> tuple[float, float]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            (server,) = cursor.fetchone()
        with connection.execute_wrapper(seen):
            return _round(call, calls, lambda: processor_us(server))

    # A job for each round: one that takes too long counts as hung.
    rounds = [own.run(job, timeout=600) for _ in range(ROUNDS)]
    return _least("statements", seen.count / calls / ROUNDS, rounds)


def _least(name: str, count: float, rounds: list[tuple[float, float]]) -> dict[str, float]:
    server, ours = (min(each) for each in zip(*rounds, strict=True))
    return {name: count, "server": server, "process": ours}


def _round(
    call: Callable[[], object], calls: int, server_us: Callable[[], float]
) -> tuple[float, float]:
    server, ours = server_us(), time.thread_time_ns()
    for _ in range(calls):
        call()
    return (server_us() - server) / calls, (time.thread_time_ns() - ours) / 1e3 / calls


def _series(group: str, call: str, costs: dict[str, dict[int, float]]) -> Iterator[Series]:
    for name, points in costs.items():
        yield Series(
            group, f"{name}, {call}", "µs" if name in ("server", "process") else "", points
        )


def _namespace(name: str) -> Namespace:
    second = 1_000_000 // LAYOUT.tick_us
    return Namespace(
        name=name,
        epoch_us=LAYOUT.epoch_us,
        tick_us=LAYOUT.tick_us,
        max_ticks=LAYOUT.max_ticks,
        workers=LAYOUT.workers,
        window_ticks=180 * second,
        skew_ticks=10 * second,
        fingerprint=LAYOUT.fingerprint(),
    )


class OnPostgres:
    """A namespace for each number of holders, on a connection that stays open."""

    def __init__(self) -> None:
        from django_idgen.db.connection import OwnConnection

        self._own = OwnConnection("default")

    def registry(self, name: str) -> Registry:
        from tests.leases.server.shop import ServerLeases

        return ServerLeases(_namespace(name), alias="default", own=self._own)

    def fill(self, registry: Registry, holders: int) -> None:
        """Copies of the first holder's row."""
        from django.db import connection

        from django_idgen.models import NamespaceRecord

        table, name = "django_idgen_workerlease", registry.namespace.name
        with connection.cursor() as cursor:
            cursor.execute(
                f'INSERT INTO {table} (id, namespace, worker, token, start, "until", generation, '
                f"holder, acquired_at, seen_at, protocol) SELECT namespace || '/' || n, namespace, "
                f"n, md5(n::text), start, \"until\", generation, 'web-' || n || ':1 gunicorn', "
                f"acquired_at, seen_at, protocol FROM {table}, generate_series(0, %s) AS n "
                f"WHERE namespace = %s AND worker <> n ON CONFLICT DO NOTHING",
                [holders - 1, name],
            )
            cursor.execute(f"SELECT count(*) FROM {table} WHERE namespace = %s", [name])
            (count,) = cursor.fetchone()
            cursor.execute(f"ANALYZE {table}")
        NamespaceRecord.objects.filter(pk=name).update(workers_made=count)

    def cost(self, call: Callable[[], object], calls: int) -> dict[str, float]:
        return _cost(self._own, call, calls)

    def clear(self, registry: Registry) -> None:
        """The database goes as a whole."""


class OnRedis:
    """A namespace for each number of holders, in the Redis of the tests."""

    def __init__(self) -> None:
        from django_redis import get_redis_connection

        self._redis = get_redis_connection(REDIS)
        self._server = int(self._redis.info("server")["process_id"])

    def registry(self, name: str) -> Registry:
        from django_idgen.leases.redis import RedisLeases

        return RedisLeases(_namespace(name), alias=REDIS, database="default")

    def fill(self, registry: Registry, holders: int) -> None:
        for number in range(1, holders):
            registry.acquire(holder=f"web-{number}:1 gunicorn")

    def cost(self, call: Callable[[], object], calls: int) -> dict[str, float]:
        call()  # the script is loaded
        before = self._scripts()
        rounds = [_round(call, calls, lambda: processor_us(self._server)) for _ in range(ROUNDS)]
        return _least("scripts", (self._scripts() - before) / calls / ROUNDS, rounds)

    def _scripts(self) -> int:
        found = self._redis.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))

    def clear(self, registry: Registry) -> None:
        for key in self._redis.scan_iter(match=f"*{registry.namespace.name}*", count=10_000):
            self._redis.delete(key)


def _of_holders(group: str, place: OnPostgres | OnRedis) -> Iterator[Series]:
    costs: dict[str, dict[str, dict[int, float]]] = {}
    for count in HOLDERS:
        registry = place.registry(f"scale-{token_hex(4)}")
        try:
            first = registry.acquire(holder="web-0:1 gunicorn").lease
            place.fill(registry, count)
            for name, cost in _costs(place, registry, first):
                for part, value in cost.items():
                    costs.setdefault(name, {}).setdefault(part, {})[count] = value
        finally:
            place.clear(registry)
    for name, found in costs.items():
        yield from _series(group, name, found)


def _costs(
    place: OnPostgres | OnRedis, registry: Registry, lease: Lease
) -> Iterator[tuple[str, dict[str, float]]]:
    def renew() -> object:
        return registry.renew(lease, last_tick=lease.start)

    def begin_and_end() -> object:
        number = next(numbers)
        taken = registry.acquire(holder=f"new-{number}:1 gunicorn").lease
        return registry.release(taken, last_tick=None)

    numbers = iter(range(10**9))
    yield "renew", place.cost(renew, CALLS)
    yield "acquire and release", place.cost(begin_and_end, CALLS)
    yield (
        "renew_worker_leases",
        place.cost(lambda: registry.renew_seen(idle_after=900), CALLS // 10),
    )
    yield "inspection", place.cost(lambda: list(registry.inspect().marks), CALLS // 10)


def main(argv: Iterable[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args([*argv])
    found = []
    for each in measured():
        print(f"{each.group}: {each.what} ({each.unit}): {each.points}", flush=True)
        points = {number: float(f"{value:.4g}") for number, value in each.points.items()}
        found.append(asdict(replace(each, points=points)))
    options.json.write_text(json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    main(sys.argv[1:])

"""The figures of a benchmark, as values, as a table and as JSON."""

from __future__ import annotations

import os
import platform
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import django
from django.db import connections

from ...core.generator import HAS_GIL
from .measure import Measured, Plan, timer_ns
from .proof import prove
from .targets import Target

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "max": 1.0}
SHOWN = ("p50", "p99", "p99.9")
LIMITS_NS = tuple(10**power for power in range(3, 8))


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one target, all threads and processes together."""

    name: str
    what: str
    """What it is, for people."""
    ns_per_id: float
    """Median of the rounds: elapsed time divided by the ids of all threads and processes."""
    ratio: float
    """``ns_per_id``, as a multiple of that of the first target; less is faster."""
    rounds_ns: tuple[float, ...]
    latency_ns: Mapping[str, int]
    """Percentiles of single ``next_id()`` calls. Reading the clock is included."""
    latency_calls: int
    slower: Mapping[str, float]
    """The part of the calls that took longer than 1 µs, 10 µs and so on."""
    compared: int | None
    """Ids that rose in each thread, none of which repeats. None for a peer: nothing is proven."""
    workers: tuple[int, ...]
    """The worker id of each process, if the generator has them."""

    @property
    def ids_per_second(self) -> float:
        return 1e9 / self.ns_per_id


def figures_of(
    targets: Sequence[Target], measured: Sequence[Sequence[Measured]], folder: Path
) -> list[Figures]:
    """Combine the results of all processes, and prove the ids unique.

    Raises :class:`Fault` if one repeats, and :class:`OSError`.
    """
    by_target = list(zip(*measured, strict=True))
    first = median(_rounds_ns(by_target[0]))
    return [
        _figures(target, parts, first, sorted(folder.glob(f"{number}/*")))
        for number, (target, parts) in enumerate(zip(targets, by_target, strict=True))
    ]


def _figures(
    target: Target, parts: Sequence[Measured], first: float, files: Sequence[Path]
) -> Figures:
    rounds = _rounds_ns(parts)
    ns_per_id = median(rounds)
    spans = sorted(chain.from_iterable(part.latency_ns for part in parts))
    return Figures(
        name=target.name,
        what=target.what,
        ns_per_id=ns_per_id,
        ratio=ns_per_id / first,
        rounds_ns=tuple(rounds),
        latency_ns={
            name: spans[min(len(spans) - 1, int(len(spans) * share))]
            for name, share in PERCENTILES.items()
        },
        latency_calls=len(spans),
        slower={_span(limit): 1 - bisect_right(spans, limit) / len(spans) for limit in LIMITS_NS},
        compared=prove(target.name, files) if target.ours else None,
        workers=tuple(part.worker for part in parts if part.worker is not None),
    )


def _rounds_ns(parts: Sequence[Measured]) -> list[float]:
    return [
        max(1, *(part.elapsed_ns[turn] for part in parts)) / sum(part.ids[turn] for part in parts)
        for turn in range(len(parts[0].ids))
    ]


# --- table -------------------------------------------------------------------


def table(figures: Sequence[Figures], plan: Plan, *, latency: bool = False) -> Iterator[str]:
    """The lines to print."""
    width = max(17 if latency else 6, *(len(row.name) for row in figures))
    names = tuple(PERCENTILES) if latency else SHOWN
    head = "".join(f" {name:>9}" for name in names)
    yield f"ratio: the time per id, as a multiple of that of {figures[0].name}; less is faster."
    yield f"{'target':<{width}} {'ids/s':>13} {'ns an id':>9} {'ratio':>7}{head}"
    for row in figures:
        spans = "".join(f" {_span(row.latency_ns[name]):>9}" for name in names)
        yield (
            f"{row.name:<{width}} {row.ids_per_second:>13,.0f} {row.ns_per_id:>9.1f} "
            f"{row.ratio:>6.2f}x{spans}"
        )
    yield ""
    if latency:
        yield f"{'calls longer than':<{width}}" + "".join(
            f" {each:>9}" for each in figures[0].slower
        )
        for row in figures:
            parts = "".join(f" {part:>8.3%}" for part in row.slower.values())
            yield f"{row.name:<{width}}{parts}"
        yield ""
    yield from _notes(figures, plan)
    for row in figures:
        yield f"{row.name}: {row.what}"
    for row in figures:
        if row.compared is not None:
            yield _verdict(row, plan)


def _notes(figures: Sequence[Figures], plan: Plan) -> Iterator[str]:
    how = "next_id()" if plan.batch == 1 else f"next_ids({plan.batch})"
    yield (
        f"{plan.count:,} ids of each by {how}, {plan.threads} thread(s) in each of "
        f"{plan.processes} process(es); medians of {plan.rounds} interleaved rounds."
    )
    yield (
        f"Latency: {figures[0].latency_calls:,} calls of next_id() of each, timed one by one in "
        f"separate passes. The times include {timer_ns()} ns for reading the clock. These ids, "
        f"and the first one of each process, are compared, too."
    )


def _verdict(row: Figures, plan: Plan) -> str:
    held = f" (worker ids {', '.join(map(str, row.workers))})" if row.workers else ""
    return (
        f"{row.name}: {row.compared:,} ids of {plan.threads} thread(s) of {plan.processes} "
        f"process(es){held} compared: all of a thread rose, and none repeats."
    )


def _span(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"


# --- JSON --------------------------------------------------------------------


def environment() -> dict[str, Any]:
    """What figures depend on."""
    return {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": HAS_GIL,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "django": django.get_version(),
        "databases": {alias: connections[alias].vendor for alias in connections},
    }


def as_json(figures: Sequence[Figures], plan: Plan) -> dict[str, Any]:
    """All figures, for JSON."""
    return {
        "settings": {**asdict(plan), "rounds": plan.rounds},
        "timer_ns": timer_ns(),
        "targets": [{**asdict(row), "ids_per_second": row.ids_per_second} for row in figures],
    }

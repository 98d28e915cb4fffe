"""The figures of a benchmark, as values, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from ...core.generator import HAS_GIL
from .measure import timer_ns
from .proof import Proof, prove
from .run import Measured, Plan

__all__ = [
    "Figures",
    "ProgressBar",
    "as_json",
    "environment",
    "faults",
    "figures_of",
    "table",
]

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found out about one target, all threads and processes together."""

    name: str
    ns_per_id: float
    """Median of the rounds: time passed, by the ids that all threads and processes got."""
    ratio: float
    """Median of the rounds' ratios to the first target; lower is faster."""
    rounds_ns: tuple[float, ...]
    latency_ns: Mapping[str, int]
    """Percentiles of single ``next_id()`` calls, reading the clock included."""
    latency_calls: int
    proof: Proof | None
    """None for a peer: its ids are measured, not proven."""
    processes: tuple[Measured, ...]

    @property
    def ids_per_second(self) -> float:
        return 1e9 / self.ns_per_id


def figures_of(measured: Sequence[Sequence[Measured]]) -> list[Figures]:
    """Put the figures of all processes together, and prove the ids unique."""
    by_target = list(zip(*measured, strict=True))
    first = _rounds_ns(by_target[0])
    return [_figures(parts, first) for parts in by_target]


def _figures(parts: Sequence[Measured], first: Sequence[float]) -> Figures:
    rounds = _rounds_ns(parts)
    spans = array("q")
    for part in parts:
        spans.extend(part.latency_ns)
    return Figures(
        name=parts[0].name,
        ns_per_id=median(rounds),
        ratio=median(own / other for own, other in zip(rounds, first, strict=True)),
        rounds_ns=tuple(rounds),
        latency_ns=_percentiles(spans),
        latency_calls=len(spans),
        proof=_proof(parts) if parts[0].ours else None,
        processes=tuple(parts),
    )


def _rounds_ns(parts: Sequence[Measured]) -> list[float]:
    rounds = range(len(parts[0].ids))
    return [
        max(1, *(part.elapsed_ns[turn] for part in parts)) / sum(part.ids[turn] for part in parts)
        for turn in rounds
    ]


def _percentiles(spans: array[int]) -> dict[str, int]:
    ordered = sorted(spans)
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * share))]
        for name, share in PERCENTILES.items()
    }


def _proof(parts: Sequence[Measured]) -> Proof:
    return prove(
        [run for part in parts for run in part.runs],
        [fall for part in parts for fall in part.falls],
    )


# --- table -------------------------------------------------------------------


def table(figures: Sequence[Figures], plan: Plan) -> Iterator[str]:
    """The lines to print."""
    width = max(6, *(len(row.name) for row in figures))
    yield (
        f"{'target':<{width}} {'ids/s':>13} {'ns an id':>9} {'ratio':>7} "
        f"{'p50':>9} {'p99':>9} {'p99.9':>9}"
    )
    for row in figures:
        spans = " ".join(f"{_span(row.latency_ns[name]):>9}" for name in PERCENTILES)
        yield (
            f"{row.name:<{width}} {row.ids_per_second:>13,.0f} {row.ns_per_id:>9.1f} "
            f"{row.ratio:>6.2f}x {spans}"
        )
    yield ""
    yield from _notes(figures, plan)
    for row in figures:
        if row.proof is not None:
            yield from _verdict(row.name, row.proof, row.processes, plan)


def _notes(figures: Sequence[Figures], plan: Plan) -> Iterator[str]:
    how = "next_id()" if plan.batch == 1 else f"next_ids({plan.batch})"
    yield (
        f"{plan.count:,} ids of each by {how}, {plan.threads} thread(s) in each of "
        f"{plan.processes} process(es); medians of {plan.rounds} interleaved rounds; "
        f"ratio of the time an id to that of {figures[0].name}."
    )
    yield (
        f"Latency: {figures[0].latency_calls:,} calls of next_id() of each, timed one by one in "
        f"passes of their own; reading the clock ({timer_ns()} ns) is included."
    )


def _verdict(name: str, proof: Proof, processes: Sequence[Measured], plan: Plan) -> Iterator[str]:
    workers = [str(each.worker) for each in processes if each.worker is not None]
    held = f" (worker ids {', '.join(workers)})" if workers else ""
    who = f"{plan.threads} thread(s) of {plan.processes} process(es){held}"
    unique = f"{proof.compared:,} ids of {who} compared: none repeats."
    yield f"{name}: {proof.repeated or unique}"
    yield f"{name}: {proof.fell or 'the ids of each thread rose strictly.'}"


def faults(figures: Iterable[Figures]) -> Iterator[str]:
    """What is wrong with the ids, a sentence each; nothing if all is well."""
    for row in figures:
        if row.proof is not None:
            yield from (
                f"{row.name}: {each}" for each in (row.proof.repeated, row.proof.fell) if each
            )


def _span(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"


# --- JSON --------------------------------------------------------------------


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": HAS_GIL,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.platform(),
    }


def as_json(
    figures: Sequence[Figures],
    plan: Plan,
    skipped: Mapping[str, str],
    surroundings: Mapping[str, Any],
) -> str:
    """Everything that was measured, for other programs."""
    report = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": dict(surroundings),
        "settings": {**asdict(plan), "rounds": plan.rounds},
        "timer_ns": timer_ns(),
        "targets": [_row(row) for row in figures],
        "skipped": dict(skipped),
    }
    return json.dumps(report, indent=2, default=str) + "\n"


def _row(row: Figures) -> dict[str, Any]:
    return {
        "name": row.name,
        "ids_per_second": row.ids_per_second,
        "ns_per_id": row.ns_per_id,
        "ratio": row.ratio,
        "rounds_ns": row.rounds_ns,
        "latency_ns": dict(row.latency_ns),
        "latency_calls": row.latency_calls,
        "proof": None if row.proof is None else {**asdict(row.proof), "holds": row.proof.holds},
        "processes": [
            {"pid": each.pid, "worker": each.worker, "stats": dict(each.stats)}
            for each in row.processes
        ],
    }


# --- progress ----------------------------------------------------------------


class ProgressBar:
    """A bar that fills step by step, drawn by ``write``; nothing at all without that."""

    WIDTH = 40

    def __init__(self, steps: int, write: Callable[[str], object] | None) -> None:
        self.steps = steps
        self.done = 0
        self.write = write

    def step(self) -> None:
        self.done += 1
        full = self.WIDTH * self.done // self.steps
        bar = "#" * full + "." * (self.WIDTH - full)
        self._draw(f"[{bar}] {100 * self.done // self.steps:>3} %")

    def clear(self) -> None:
        self._draw(" " * (self.WIDTH + 8) + "\r")

    def _draw(self, text: str) -> None:
        if self.write is not None:
            self.write(f"\r{text}")

"""The figures of a benchmark, as values, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import django
from django.db import connections

from ...core.errors import ConfigurationError
from ...core.generator import HAS_GIL
from .measure import Measured, Plan, timer_ns
from .proof import Proof, prove

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
    proof: Proof | None
    """None for a peer: its ids are measured, not proven."""
    processes: tuple[Measured, ...]

    @property
    def ids_per_second(self) -> float:
        return 1e9 / self.ns_per_id


def figures_of(measured: Sequence[Sequence[Measured]]) -> list[Figures]:
    """Combine the results of all processes, and prove the ids unique."""
    by_target = list(zip(*measured, strict=True))
    first = median(_rounds_ns(by_target[0]))
    return [_figures(parts, first) for parts in by_target]


def _figures(parts: Sequence[Measured], first: float) -> Figures:
    rounds = _rounds_ns(parts)
    ns_per_id = median(rounds)
    spans = sorted(chain.from_iterable(part.latency_ns for part in parts))
    proof = None
    if parts[0].ours:
        falls = [fall for part in parts if part.rises for fall in part.falls]
        proof = prove([run for part in parts for run in part.runs], falls)
    return Figures(
        name=parts[0].name,
        what=parts[0].what,
        ns_per_id=ns_per_id,
        ratio=ns_per_id / first,
        rounds_ns=tuple(rounds),
        latency_ns={
            name: spans[min(len(spans) - 1, int(len(spans) * share))]
            for name, share in PERCENTILES.items()
        },
        latency_calls=len(spans),
        slower={_span(limit): 1 - bisect_right(spans, limit) / len(spans) for limit in LIMITS_NS},
        proof=proof,
        processes=tuple(parts),
    )


def _rounds_ns(parts: Sequence[Measured]) -> list[float]:
    return [
        max(1, *(part.elapsed_ns[turn] for part in parts)) / sum(part.ids[turn] for part in parts)
        for turn in range(len(parts[0].ids))
    ]


# --- table -------------------------------------------------------------------


def table(
    figures: Sequence[Figures],
    plan: Plan,
    *,
    earlier: Mapping[str, float] | None = None,
    latency: bool = False,
) -> Iterator[str]:
    """The lines to print. ``earlier``: what :func:`read_json` read, to compare with."""
    width = max(17 if latency else 6, *(len(row.name) for row in figures))
    names = tuple(PERCENTILES) if latency else SHOWN
    head = "".join(f" {name:>9}" for name in names) + (f" {'earlier':>9}" if earlier else "")
    yield f"ratio: the time per id, as a multiple of that of {figures[0].name}; less is faster."
    yield f"{'target':<{width}} {'ids/s':>13} {'ns an id':>9} {'ratio':>7}{head}"
    for row in figures:
        spans = "".join(f" {_span(row.latency_ns[name]):>9}" for name in names)
        then = (earlier or {}).get(row.name)
        change = f" {row.ns_per_id / then:>8.2f}x" if then else ""
        yield (
            f"{row.name:<{width}} {row.ids_per_second:>13,.0f} {row.ns_per_id:>9.1f} "
            f"{row.ratio:>6.2f}x{spans}{change}"
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
    if earlier:
        yield "Earlier: the time per id, as a multiple of that in the file of --compare."
    for row in figures:
        yield f"{row.name}: {row.what}"
    for row in figures:
        if row.proof is not None:
            yield from _verdict(row.name, row.proof, row.processes, plan)


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


def _verdict(name: str, proof: Proof, processes: Sequence[Measured], plan: Plan) -> Iterator[str]:
    workers = [str(each.worker) for each in processes if each.worker is not None]
    held = f" (worker ids {', '.join(workers)})" if workers else ""
    who = f"{plan.threads} thread(s) of {plan.processes} process(es){held}"
    if not proof.repeats:
        yield f"{name}: {proof.compared:,} ids of {who} compared: none repeats."
    if proof.fall is None and processes[0].rises:
        yield f"{name}: the ids of each thread rose strictly."
    for fault in proof.faults():
        yield f"{name}: {fault}"


def faults(figures: Iterable[Figures]) -> list[str]:
    """A sentence for each fault of the ids; none if all is well."""
    proven = ((row.name, row.proof) for row in figures if row.proof is not None)
    return [f"{name}: {fault}" for name, proof in proven for fault in proof.faults()]


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


def as_json(figures: Sequence[Figures], plan: Plan, skipped: Mapping[str, str]) -> str:
    """All figures, and what they depend on."""
    report = {
        "environment": environment(),
        "settings": {**asdict(plan), "rounds": plan.rounds},
        "timer_ns": timer_ns(),
        "targets": [_row(row) for row in figures],
        "skipped": dict(skipped),
    }
    return json.dumps(report, indent=2, default=str) + "\n"


def read_json(path: str) -> dict[str, float]:
    """The ns an id of each target in a file that :func:`as_json` wrote.

    Raises :class:`ConfigurationError` for any other file.
    """
    try:
        targets = json.loads(Path(path).read_text(encoding="utf-8"))["targets"]
        return {row["name"]: float(row["ns_per_id"]) for row in targets}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"--compare {path} is not a report of idgen_bench --json: {error}"
        ) from error


def _row(row: Figures) -> dict[str, Any]:
    return {
        "name": row.name,
        "what": row.what,
        "ids_per_second": row.ids_per_second,
        "ns_per_id": row.ns_per_id,
        "ratio": row.ratio,
        "rounds_ns": row.rounds_ns,
        "latency_ns": dict(row.latency_ns),
        "latency_calls": row.latency_calls,
        "slower": dict(row.slower),
        "proof": None if row.proof is None else {**asdict(row.proof), "holds": row.proof.holds},
        "processes": [
            {"pid": each.pid, "worker": each.worker, "stats": dict(each.stats)}
            for each in row.processes
        ],
    }


# --- progress ----------------------------------------------------------------


class ProgressBar:
    """A bar that ``write`` draws; without ``write`` it draws nothing."""

    WIDTH = 40

    def __init__(self, steps: int, write: Callable[[str], object] | None) -> None:
        self.steps = steps
        self.done = 0
        self.write = write or (lambda _text: None)

    def step(self) -> None:
        self.done += 1
        full = self.WIDTH * self.done // self.steps
        bar = "#" * full + "." * (self.WIDTH - full)
        self.write(f"\r[{bar}] {100 * self.done // self.steps:>3} %")

    def clear(self) -> None:
        self.write("\r" + " " * (self.WIDTH + 8) + "\r")

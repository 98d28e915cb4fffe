"""The figures of a benchmark: as dictionaries, which are its JSON, as tables and as a picture.

matplotlib draws the picture. The extra ``plot`` installs it.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns as clock
from typing import Any

import django
from django.db import connections

from ...core.errors import ConfigurationError
from ...core.generator import HAS_GIL
from .measure import Measured, Plan
from .proof import prove
from .targets import PEER

Row = dict[str, Any]
"""All figures of one target, or of one kind of key."""
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999, "max": 1.0}
SHOWN = ("p50", "p99", "p99.9")
TIMES = ((1e9, " s"), (1e6, " ms"), (1e3, " µs"), (0, " ns"))
RATES = ((1e6, " M"), (1e3, " k"), (0, ""))


def spread(rounds: Sequence[float]) -> Row:
    """The median of some rounds and the range of the middle half of them, in three digits."""
    values = [float(f"{each:.3g}") for each in quantiles(rounds, n=4)]
    return dict(zip(("low", "median", "high"), values, strict=True))


def ratio(figure: Row, base: Row) -> float | None:
    """The median of ``figure`` as a multiple of that of ``base``; None where the ranges overlap."""
    overlap = figure["low"] <= base["high"] and base["low"] <= figure["high"]
    return None if overlap else figure["median"] / base["median"]


def rows_of_ids(plan: Plan, measured: Sequence[Sequence[Measured]], folder: Path) -> list[Row]:
    """Combine the results of all processes, and prove the ids unique.

    Raises :class:`Fault` if one repeats, and :class:`OSError`.
    """
    rows: list[Row] = []
    for place, (name, *parts) in enumerate(zip(plan.targets, *measured, strict=True)):
        is_peer = plan.targets[name].startswith(PEER)
        ids = plan.ids(name) * plan.threads * plan.processes
        # The processes run each round at the same time.
        slowest = map(max, [1] * plan.rounds, *(elapsed for elapsed, _ in parts))
        calls = sorted(chain.from_iterable(calls for _, calls in parts))
        row = {
            "name": name,
            "is_peer": is_peer,
            "ids": ids * plan.rounds,
            "ns_per_id": spread([elapsed / ids for elapsed in slowest]),
            "latency_ns": {
                label: calls[min(len(calls) - 1, int(len(calls) * share))]
                for label, share in PERCENTILES.items()
            },
            "compared": None if is_peer else prove(name, sorted(folder.glob(f"{place}/*"))),
        }
        rows.append(row)
        row["ratio"] = ratio(row["ns_per_id"], rows[0]["ns_per_id"])
    return rows


def environment() -> Row:
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
        "timer_ns": timer_ns(),
    }


def timer_ns(samples: int = 1001) -> int:
    """Nanoseconds that reading the clock adds to each latency."""
    return int(median(-(clock() - clock()) for _ in range(samples)))


# --- for people --------------------------------------------------------------------


def shown(value: float, units: Sequence[tuple[float, str]] = TIMES) -> str:
    """``value`` in one of ``units``, in two digits: rounds differ by more than a third one."""
    size, unit = next(each for each in units if value >= each[0])
    return f"{float(f'{value / (size or 1):.2g}'):g}{unit}"


def cells(figure: Row, base: Row) -> list[str]:
    """Of nanoseconds: how many a second, the median, the range, the ratio to ``base``."""
    multiple = ratio(figure, base)
    return [
        shown(1e9 / figure["median"], RATES),
        shown(figure["median"]),
        f"{shown(figure['low'])} to {shown(figure['high'])}",
        "1x"
        if figure is base
        else shown(multiple, [(0, "x")])
        if multiple
        else "not distinguishable",
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for first, *rest in (head, *rows):
        yield "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])])


def lines_of_ids(rows: Sequence[Row], plan: Plan) -> Iterator[str]:
    """The lines to print."""
    yield from table(
        ["target", "ids/s", "an id", "half of the rounds", "ratio", *SHOWN],
        [
            [row["name"], *cells(row["ns_per_id"], rows[0]["ns_per_id"])]
            + [shown(row["latency_ns"][label]) for label in SHOWN]
            for row in rows
        ],
    )
    how = "next_id()" if plan.batch == 1 else f"next_ids({plan.batch})"
    yield (
        f"\nMedians of {plan.rounds} interleaved rounds of {how}, in {plan.threads} thread(s) of "
        f"each of {plan.processes} process(es). Ratio: the time of an id, as a multiple of that "
        f"of {rows[0]['name']}; less is faster. Not distinguishable: the middle halves of the "
        f"rounds overlap.\np50, p99, p99.9: of single calls of next_id(), which include "
        f"{timer_ns()} ns for reading the clock."
    )
    for row in rows:
        if row["compared"]:
            yield (
                f"{row['name']}: {row['compared']:,} ids of {plan.threads} thread(s) of "
                f"{plan.processes} process(es) compared: all of a thread rose, and none repeats."
            )
        elif row["ids"] < plan.count:
            yield f"{row['name']} is slow: {row['ids']:,} ids."


# --- the picture -------------------------------------------------------------------


OURS, OTHERS, LINE = "#205fa6", "#b9c0cb", "#5d6675"
DOTS = {
    "p50": ("half of the calls take longer", OURS),
    "p99": ("1 of 100 takes longer", "#2c9c8f"),
    "p99.9": ("1 of 1000 takes longer", "#d0812d"),
}
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(.9) hue-rotate(180deg) } }"
"""Turns a picture dark, and keeps its hues."""


def check_drawing(path: Path) -> None:
    """Raise :class:`ConfigurationError` if ``--plot`` can't draw into ``path``."""
    if path.suffix not in {".svg", ".png"}:
        raise ConfigurationError(f"--plot {path} must end in .svg or .png.")
    if find_spec("matplotlib") is None:
        raise ConfigurationError('matplotlib is not installed: pip install "django-idgen[plot]".')


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the figures of targets, or of keys, as SVG or PNG. Raises :class:`OSError`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.2 + 0.42 * len(rows)), layout="constrained")
    left, right = axes = figure.subplots(1, 2, sharey=True)
    if "latency_ns" in rows[0]:
        _bars(left, "Ids a second", "ns_per_id", rows)
        _dots(right, rows)
    else:
        _bars(left, "create(): rows a second", "ns_per_create", rows)
        _bars(right, "bulk_create(): rows a second", "ns_per_bulk_row", rows)
    left.set_yticks(range(len(rows)), [row["name"] for row in rows])
    left.set_ylim(len(rows) - 0.5, -0.5)
    for axis in axes:
        axis.spines[:].set_visible(False)
        axis.tick_params(left=False)
        axis.legend(loc="upper left", bbox_to_anchor=(0, -0.08), frameon=False)
    figure.savefig(path, dpi=150)
    if path.suffix == ".svg":
        styled = rf"\g<0><style>{DARK}</style>"
        path.write_text(re.sub("<svg[^>]*>", styled, path.read_text("utf-8"), count=1), "utf-8")


def _bars(axis: Any, title: str, figure: str, rows: Sequence[Row]) -> None:
    """How many a second: the median of the rounds, with the range of the middle half of them."""
    rates, low, high = (
        [1e9 / row[figure][part] for row in rows] for part in ("median", "high", "low")
    )
    bars = axis.barh(
        range(len(rows)),
        rates,
        color=[OTHERS if row["is_peer"] else OURS for row in rows],
        xerr=[
            [rate - least for rate, least in zip(rates, low, strict=True)],
            [most - rate for rate, most in zip(rates, high, strict=True)],
        ],
        error_kw={"ecolor": LINE, "label": "the middle half of the rounds"},
    )
    axis.bar_label(bars, [shown(rate, RATES) for rate in rates], padding=4)
    for colour, name in (OURS, "django_idgen"), (OTHERS, "others"):
        axis.barh(0, 0, color=colour, label=name)
    axis.set_title(f"{title} (longer is faster)", loc="left")
    axis.tick_params(bottom=False, labelbottom=False)


def _dots(axis: Any, rows: Sequence[Row]) -> None:
    """Percentiles of single calls, on a log scale of 100 ns, 1 µs and so on."""
    from matplotlib.ticker import EngFormatter, NullFormatter

    for label, (meaning, colour) in DOTS.items():
        seconds = [max(row["latency_ns"][label], 1) / 1e9 for row in rows]
        axis.plot(seconds, range(len(rows)), "o", color=colour, label=f"{label}: {meaning}")
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 9e-8), max(high, 1.1e-6))
    axis.xaxis.set_major_formatter(EngFormatter("s"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="x", color="#e3e6eb")
    axis.set_title("Time of a single call", loc="left")

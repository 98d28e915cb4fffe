"""``--plot``: the figures as a picture, drawn by matplotlib, which the extra ``plot`` installs."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...core.errors import ConfigurationError
from .inserts import Inserted
from .report import PERCENTILES, Figures

OURS, PEER_COLOUR, FAINT = "#205fa6", "#b9c0cb", "#5d6675"
KINDS = (".svg", ".png")
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(.9) hue-rotate(180deg) } }"
"""Turns a picture dark, and keeps its hues."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Charts that stand side by side, with a line of each for each target."""

    lines: int
    charts: tuple[Callable[[Any], None], ...]
    """Each draws itself onto an axis."""


def check_drawing(path: str) -> None:
    """Raise :class:`ConfigurationError` if ``--plot`` can't draw into ``path``."""
    if Path(path).suffix not in KINDS:
        raise ConfigurationError(f"--plot {path} must end in {' or '.join(KINDS)}.")
    if find_spec("matplotlib") is None:
        raise ConfigurationError('matplotlib is not installed: pip install "django-idgen[plot]".')


def _bars(
    axis: Any, *, title: str, names: Sequence[str], values: Sequence[float], ours: Sequence[bool]
) -> None:
    places = range(len(names))
    axis.barh(places, values, color=[OURS if own else PEER_COLOUR for own in ours])
    axis.set_yticks(places, names)
    # Not invert_yaxis(): charts that share the axis would turn it back and forth.
    axis.set_ylim(len(names) - 0.5, -0.5)
    for place, value in zip(places, values, strict=True):
        axis.annotate(
            _short(value), (value, place), (4, 0), textcoords="offset points", va="center", size=9
        )
    axis.margins(x=0.18)
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.tick_params(left=False, bottom=False, labelbottom=False)
    axis.set_title(title, loc="left", size=11)


def _short(value: float) -> str:
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _spans(axis: Any, *, names: Sequence[str], figures: Sequence[Figures]) -> None:
    for place, row in enumerate(figures):
        colour = OURS if row.compared is not None else FAINT
        spans = [row.latency_ns[name] / 1e3 for name in PERCENTILES]
        axis.plot(spans, [place] * len(spans), "-o", color=colour, linewidth=1.2, markersize=4)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xscale("log")
    axis.grid(axis="x", color="#e3e6eb")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False)
    title = f"µs of a single call, log scale:\n{', '.join(PERCENTILES)}"
    axis.set_title(title, loc="left", size=11)


def picture(figures: Sequence[Figures]) -> Picture:
    """Ids a second of each target, and the percentiles of single calls."""
    names = [row.name.removeprefix("peer:") for row in figures]
    speed = partial(
        _bars,
        title="ids a second (longer is faster)",
        names=names,
        values=[row.ids_per_second for row in figures],
        ours=[row.compared is not None for row in figures],
    )
    return Picture(len(figures), (speed, partial(_spans, names=names, figures=figures)))


def insert_picture(found: Sequence[Inserted]) -> Picture:
    """Rows a second of each kind of key, one by one and in batches, and the size of the key."""
    values = {
        "create(), rows a second": [1e9 / each.single_ns for each in found],
        "bulk_create(), rows a second": [1e9 / each.batch_ns for each in found],
        "bytes a row": [each.index_bytes / each.rows for each in found if each.index_bytes],
    }
    names, ours = [each.name for each in found], [not each.is_peer for each in found]
    charts = tuple(
        partial(_bars, title=title, names=names, values=known, ours=ours)
        for title, known in values.items()
        if known  # SQLite does not tell the size
    )
    return Picture(len(found), charts)


def save_picture(drawing: Picture, path: str) -> None:
    """Write ``drawing`` as SVG or PNG, as the path ends. Raises :class:`OSError`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.6 + 0.42 * drawing.lines), layout="constrained")
    axes = figure.subplots(1, len(drawing.charts), sharey=True, squeeze=False)[0]
    for axis, chart in zip(axes, drawing.charts, strict=True):
        chart(axis)
    if Path(path).suffix == ".svg":
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg")
        svg = re.sub(r"(<svg[^>]*>)", rf"\1<style>{DARK}</style>", drawn.getvalue(), count=1)
        Path(path).write_text(svg, encoding="utf-8")
    else:
        figure.savefig(path, dpi=150)

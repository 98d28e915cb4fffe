"""``--plot`` and ``--html``: the figures as a picture, and as a page to look at.

Drawn by matplotlib, which the extra ``plot`` installs.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from ...core.errors import ConfigurationError
from .inserts import Inserted
from .report import PERCENTILES, Figures

OURS, PEER_COLOUR, FAINT = "#205fa6", "#b9c0cb", "#5d6675"
KINDS = (".svg", ".png")
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(.9) hue-rotate(180deg) } }"
"""Turns a picture dark, and keeps its hues."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root {{ --text: #1c2430; --page: #fff; --soft: #f5f7fa; --faint: #5d6675; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e6e9ee; --page: #14181f; --soft: #1d232d; --faint: #9aa3b0; }}
}}
{dark}
body {{ font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 64rem; margin: 0 auto; padding: 2rem 1rem 4rem; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.6rem; margin-bottom: 0; }} h2 {{ font-size: 1.15rem; margin-top: 2.5rem; }}
.charts {{ display: flex; flex-wrap: wrap; gap: 1.5rem 1rem; margin-top: 1.5rem; }}
.charts svg {{ flex: 1 1 20rem; height: auto; max-width: 34rem; min-width: 0; }}
pre {{ background: var(--soft); padding: 1rem; border-radius: .5rem; font-size: .85rem; }}
.table {{ overflow-x: auto; overflow-wrap: normal; }}
.command {{ white-space: pre-wrap; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; }}
dt, .faint {{ color: var(--faint); }} dd {{ margin: 0; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="faint">{made_at}</p>
<div class="charts">{charts}</div>
<h2>The figures</h2>
{lines}
<h2>Where they were measured</h2>
<dl>{environment}</dl>
<h2>How to measure them again</h2>
<pre class="command">{command}</pre>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """Charts that stand side by side, with a line of each for each target."""

    lines: int
    charts: tuple[Callable[[Any], None], ...]
    """Each draws itself onto an axis."""


def check_drawing(plot: str | None, page: str | None) -> None:
    """Raise :class:`ConfigurationError` if ``--plot`` or ``--html`` can't be drawn."""
    if plot and Path(plot).suffix not in KINDS:
        raise ConfigurationError(f"--plot {plot} must end in {' or '.join(KINDS)}.")
    if (plot or page) and find_spec("matplotlib") is None:
        raise ConfigurationError('matplotlib is not installed: pip install "django-idgen[plot]".')


def _drawn(width: float, lines: int, charts: Sequence[Callable[[Any], None]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 1.6 + 0.42 * lines), layout="constrained")
    axes = figure.subplots(1, len(charts), sharey=True, squeeze=False)[0]
    for axis, chart in zip(axes, charts, strict=True):
        chart(axis)
    return figure


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
        colour = OURS if row.proof is not None else FAINT
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
        ours=[row.proof is not None for row in figures],
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
    figure = _drawn(11, drawing.lines, drawing.charts)
    if Path(path).suffix == ".svg":
        Path(path).write_text(_svg(figure, style=f"<style>{DARK}</style>"), encoding="utf-8")
    else:
        figure.savefig(path, dpi=150)


def _svg(figure: Any, *, style: str = "", **options: Any) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", **options)
    return re.sub(r"(<svg[^>]*>)", lambda tag: tag[0] + style, drawn.getvalue(), count=1)


def html_page(
    drawing: Picture, lines: Sequence[str], environment: Mapping[str, Any], command: str
) -> str:
    """A page that needs no other file and no network."""
    # One picture a chart, so that they can stand one below the other on a phone.
    charts = (
        _svg(_drawn(4.6, drawing.lines, [chart]), transparent=True) for chart in drawing.charts
    )
    terms = "".join(
        f"<dt>{name}</dt><dd>{html.escape(value)}</dd>" for name, value in _facts(environment)
    )
    return PAGE.format(
        title="What ids cost",
        dark=DARK,
        made_at=html.escape(str(environment["made_at"])),
        charts="".join(re.sub(r"^.*?(?=<svg)", "", each, flags=re.DOTALL) for each in charts),
        lines="\n".join(_paragraphs(lines)),
        environment=terms,
        command=html.escape(command),
    )


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Lines with columns together as they are; each other line as a paragraph."""
    for has_columns, group in groupby(filter(None, lines), key=lambda line: "  " in line):
        texts = [html.escape(line) for line in group]
        if has_columns:
            joined = "\n".join(texts)
            yield f'<pre class="table">{joined}</pre>'
        else:
            yield from (f"<p>{text}</p>" for text in texts)


def _facts(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = environment
    gil = "with the GIL" if known["gil"] else "without the GIL"
    yield "Python", f"{known['python']} ({known['implementation']}, {gil})"
    yield "Django", known["django"]
    databases = known["databases"].items()
    yield "Databases", ", ".join(f"{alias} ({vendor})" for alias, vendor in databases)
    yield "Processors", f"{known['cpus']} ({known['machine']})"
    yield "System", known["system"]

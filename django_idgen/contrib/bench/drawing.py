"""``--plot`` and ``--html``: the figures as a picture, and as a page to look at.

Drawn by matplotlib, which the extra ``plot`` installs.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import ConfigurationError
from .inserts import Inserted
from .report import PERCENTILES, Figures

__all__ = ["html_page", "insert_picture", "picture", "save_picture"]

OURS, PEER_COLOUR, FAINT = "#205fa6", "#b9c0cb", "#5d6675"
KINDS = (".svg", ".png")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.55 system-ui, sans-serif; color: #1c2430; background: #fff; max-width: 64rem;
  margin: 0 auto; padding: 2rem 1rem 4rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: 0; }} h2 {{ font-size: 1.15rem; margin-top: 2.5rem; }}
svg {{ width: 100%; height: auto; }}
pre {{ background: #f5f7fa; padding: 1rem; border-radius: .5rem; overflow-x: auto;
  font-size: .85rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; }}
dt {{ color: #5d6675; }} dd {{ margin: 0; }} .faint {{ color: #5d6675; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="faint">{made_at}</p>
{picture}
<h2>The figures</h2>
<pre>{lines}</pre>
<h2>Where they were measured</h2>
<dl>{environment}</dl>
<h2>How to measure them again</h2>
<pre>{command}</pre>
</body>
</html>
"""


def _figure(rows: int, columns: int) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigurationError(
            'matplotlib is not installed: pip install "django-idgen[plot]".'
        ) from None
    figure = Figure(figsize=(11, 1.6 + 0.42 * rows), layout="constrained")
    return figure, figure.subplots(1, columns, sharey=True, squeeze=False)[0]


def _bars(axis: Any, names: Sequence[str], values: Sequence[float], ours: Sequence[bool]) -> None:
    places = range(len(names))
    axis.barh(places, values, color=[OURS if own else PEER_COLOUR for own in ours])
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    for place, value in zip(places, values, strict=True):
        axis.annotate(
            _short(value), (value, place), (4, 0), textcoords="offset points", va="center", size=9
        )
    axis.margins(x=0.18)
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.tick_params(left=False, bottom=False, labelbottom=False)


def _short(value: float) -> str:
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def picture(figures: Sequence[Figures]) -> Any:
    """Ids a second of each target, and the percentiles of single calls."""
    figure, (speed, latency) = _figure(len(figures), 2)
    names = [row.name.removeprefix("peer:") for row in figures]
    _bars(
        speed,
        names,
        [row.ids_per_second for row in figures],
        [row.proof is not None for row in figures],
    )
    speed.set_title("ids a second (longer is faster)", loc="left", size=11)
    for place, row in enumerate(figures):
        colour = OURS if row.proof is not None else FAINT
        spans = [row.latency_ns[name] / 1e3 for name in PERCENTILES]
        latency.plot(spans, [place] * len(spans), "-o", color=colour, linewidth=1.2, markersize=4)
    latency.set_xscale("log")
    latency.grid(axis="x", color="#e3e6eb")
    latency.spines[["top", "right", "left"]].set_visible(False)
    latency.tick_params(left=False)
    latency.set_title(
        f"µs of a single call: {', '.join(PERCENTILES)} (log scale)", loc="left", size=11
    )
    return figure


def insert_picture(found: Sequence[Inserted]) -> Any:
    """Rows a second of each kind of key, one by one and in batches, and the size of the key."""
    figure, axes = _figure(len(found), 3)
    names, ours = [each.name for each in found], [not each.is_peer for each in found]
    for axis, title, values in zip(
        axes,
        ("create(), rows a second", "bulk_create(), rows a second", "bytes a row"),
        (
            [1e9 / each.single_ns for each in found],
            [1e9 / each.batch_ns for each in found],
            [(each.index_bytes or 0) / each.rows for each in found],
        ),
        strict=True,
    ):
        _bars(axis, names, values, ours)
        axis.set_title(title, loc="left", size=11)
    return figure


def save_picture(figure: Any, path: str) -> None:
    """Write ``figure`` as SVG or PNG. Raises :class:`ConfigurationError` and :class:`OSError`."""
    if Path(path).suffix not in KINDS:
        raise ConfigurationError(f"--plot {path} must end in {' or '.join(KINDS)}.")
    figure.savefig(path, dpi=150)


def html_page(
    figure: Any, lines: Sequence[str], environment: Mapping[str, Any], command: str
) -> str:
    """A page that needs no other file and no network."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    terms = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>"
        for name, value in environment.items()
    )
    return PAGE.format(
        title="What ids cost",
        made_at=html.escape(str(environment["made_at"])),
        picture=re.sub(r"^.*?(?=<svg)", "", drawn.getvalue(), flags=re.DOTALL),
        lines=html.escape("\n".join(lines)),
        environment=terms,
        command=html.escape(command),
    )

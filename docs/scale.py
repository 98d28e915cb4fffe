"""Draw the plots of docs/scale.md: ``python docs/scale.py`` writes them into docs/scale/.

It reads what two other commands measured there:

    python -m tests.simulation.fleet --json docs/scale/fleet.json
    python -m tests.benchmarks.scale --json docs/scale/measured.json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "scale"
sys.path.insert(0, str(Path(__file__).parent))

import drawings  # noqa: E402

KINDS = ("p", "q", "r", "s")
STYLE = (
    drawings.STYLE
    + """
.p, .q, .r, .s { fill: none; stroke-width: 2 }
.p { stroke: #00796b } .q { stroke: #3f51b5; stroke-dasharray: 8 3 }
.r { stroke: #b45309; stroke-dasharray: 3 3 } .s { stroke: #ad1457; stroke-dasharray: 10 3 2 3 }
.grid { stroke: #d9dee4; fill: none }
.down { fill: #c62828; opacity: .12 }
@media (prefers-color-scheme: dark) {
  .p { stroke: #4db6ac } .q { stroke: #9fa8da } .r { stroke: #ffb74d } .s { stroke: #f48fb1 }
  .grid { stroke: #3a404b } .down { fill: #ff8a80; opacity: .2 }
}
"""
)
LEFT, RIGHT = 74, 44
Points = Sequence[tuple[float, float]]


class Panel:
    """A plot in a drawing: axes, their numbers, and lines with a legend above them."""

    def __init__(
        self,
        drawing: drawings.Drawing,
        *,
        x: float,
        y: float,
        width: float,
        height: float,
        title: str,
        x_name: str,
        x_ticks: Sequence[float],
        y_ticks: Sequence[float],
        relative: bool = False,
    ) -> None:
        self._drawing, self._legend_x = drawing, x
        self._x, self._y, self._width, self._height = x, y, width, height
        self._scale: Callable[[float], float] = math.log if relative else float
        self._x_ticks, self._y_ticks = x_ticks, y_ticks
        drawing.text(x - 50, y - 46, title, "bold")
        for value in y_ticks:
            at = self._at(x_ticks[0], value)[1]
            drawing.line((x, at), (x + width, at), kind="grid")
            drawing.text(x - 8, at + 4, _number(value) + "×" * relative, "small end")
        for value in x_ticks:
            at = self._at(value, y_ticks[0])[0]
            drawing.line((at, y + height), (at, y + height + 4))
            drawing.text(at, y + height + 18, _number(value), "small mid")
        drawing.line((x, y + height), (x + width, y + height))
        drawing.text(x + width, y + height + 36, x_name, "small end")

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return (
            self._x + self._width * self._part(x, self._x_ticks),
            self._y + self._height * (1 - self._part(y, self._y_ticks)),
        )

    def _part(self, value: float, ticks: Sequence[float]) -> float:
        low, high, at = (self._scale(each) for each in (ticks[0], ticks[-1], value))
        return (at - low) / (high - low)

    def span(self, begin: float, end: float, words: str) -> None:
        """Shade a stretch of the x axis."""
        left, right = (self._at(each, self._y_ticks[0])[0] for each in (begin, end))
        self._drawing.box(left, self._y, right - left, self._height, "down")
        self._drawing.text((left + right) / 2, self._y + 16, words, "small mid")

    def line(self, kind: str, name: str, points: Points) -> None:
        """Draw ``points``, with ``name`` in the legend."""
        low, high = self._y_ticks[0], self._y_ticks[-1]
        inside = [(x, min(max(y, low), high)) for x, y in points]
        self._drawing.line(*(self._at(*point) for point in inside), kind=kind)
        at = self._y - 22
        self._drawing.line((self._legend_x, at), (self._legend_x + 26, at), kind=kind)
        self._drawing.text(self._legend_x + 32, at + 4, name, "small")
        self._legend_x += 48 + 6.6 * len(name)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or not value else f"{value:g}"


# --- what was measured ----------------------------------------------------------------


class Measured:
    """The series of ``measured.json``, as multiples of their first points."""

    def __init__(self, folder: Path) -> None:
        found = json.loads((folder / "measured.json").read_text("utf-8"))
        self._points = {(each["group"], each["what"]): each["points"] for each in found}

    def growth(self, group: str, what: str, *, begin: int = 1) -> Points:
        points = [(int(x), y) for x, y in self._points[group, what].items() if int(x) >= begin]
        return [(x, y / points[0][1]) for x, y in points]


def holders(measured: Measured) -> drawings.Drawing:
    """Draw the servers' time of each call, by the worker ids that are lent."""
    drawing = drawings.Drawing("What a call costs the server, by holders", 812, STYLE)
    about = "Processor time of the server for one call, as a multiple of that with 1 holder"
    drawing.text(24, 34, about, "bold")
    for number, (group, calls) in enumerate(
        {
            "PostgreSQL": ("renew", "acquire and release", "renew_worker_leases", "inspection"),
            "Redis": ("renew", "acquire and release", "renew_worker_leases", "inspection"),
        }.items()
    ):
        panel = Panel(
            drawing, x=LEFT, y=120 + 380 * number, width=drawings.WIDTH - LEFT - RIGHT, height=240,
            title=group, x_name="holders of worker ids", relative=True,
            x_ticks=(1, 4, 16, 64, 256, 1024, 8192), y_ticks=(0.5, 1, 10, 100, 1000, 10_000),
        )  # fmt: skip
        for kind, call in zip(KINDS, calls, strict=True):
            panel.line(kind, call, measured.growth(group, f"server, {call}"))
    return drawing


def tags(measured: Measured) -> drawings.Drawing:
    """Draw costs by tags, and by processes."""
    drawing = drawings.Drawing("What tags and processes cost", 762, STYLE)
    drawing.text(24, 34, "Costs as multiples of the first point", "bold")
    panel = Panel(
        drawing, x=LEFT, y=120, width=drawings.WIDTH - LEFT - RIGHT, height=230, title="Tags",
        x_name="tags in one process; rows of leaf_alloc", relative=True,
        x_ticks=(1, 10, 100, 1000, 10_000, 100_000), y_ticks=(0.5, 1, 2, 4, 8),
    )  # fmt: skip
    panel.line("p", "memory of a tag", measured.growth("tags", "memory, each tag"))
    panel.line("q", "look-up of a tag", measured.growth("tags", "look-up"))
    panel.line(
        "r", "a fetch, on the server", measured.growth("rows of leaf_alloc", "server, fetch")
    )
    panel = Panel(
        drawing, x=LEFT, y=480, width=drawings.WIDTH - LEFT - RIGHT, height=210, title="Processes",
        x_name="processes", relative=True, x_ticks=(1, 2, 4, 8, 16), y_ticks=(0.5, 1, 2),
    )  # fmt: skip
    for kind, what, name in (
        ("p", "ids a second of processor time", "ids a second of processor time"),
        ("q", "statements, segment ids, each process", "statements a process, segments"),
        ("r", "statements, snowflake ids, each process", "snowflakes"),
    ):
        panel.line(kind, name, measured.growth("processes", what))
    return drawing


# --- what was simulated ---------------------------------------------------------------


class Told:
    """The stories of ``fleet.json``."""

    def __init__(self, folder: Path) -> None:
        found = json.loads((folder / "fleet.json").read_text("utf-8"))
        self._bin = found["bin"] / 60
        self._stories = {each["name"]: each for each in found["stories"]}

    def points(self, story: str, series: str) -> Points:
        """By minutes."""
        values: list[float] = self._stories[story]["points"][series]
        return [(number * self._bin, value) for number, value in enumerate(values)]


def outages(told: Told) -> drawings.Drawing:
    """Draw the calls a second of 10,000 processes around two outages."""
    drawing = drawings.Drawing("10,000 processes while the registry is down", 1116, STYLE)
    drawing.text(24, 34, "10,000 simulated processes on one registry", "bold")
    whole: dict[str, Any] = {"x": LEFT, "width": drawings.WIDTH - LEFT - RIGHT, "x_name": "minutes"}
    panel = Panel(
        drawing, y=120, height=190, title="All start at once: calls a second, by 10 s",
        x_ticks=range(6), y_ticks=(0, 500, 1000, 1500), **whole,
    )  # fmt: skip
    panel.line("p", "calls", told.points("all start at once", "calls"))
    panel.line("r", "of these: acquires", told.points("all start at once", "acquires"))
    panel = Panel(
        drawing, y=450, height=190, title="Down for a minute: calls a second, by 10 s",
        x_ticks=range(7), y_ticks=(0, 250, 500, 750), **whole,
    )  # fmt: skip
    panel.span(1, 2, "down")
    panel.line("p", "calls", told.points("down for 60 s", "calls"))
    panel = Panel(
        drawing, y=780, height=270, title="Down for ten minutes",
        x_ticks=range(0, 17, 2), y_ticks=(0, 2500, 5000, 7500, 10_000), **whole,
    )  # fmt: skip
    panel.span(1, 11, "down")
    panel.line("p", "calls a second", told.points("down for 600 s", "calls"))
    panel.line("q", "processes that stopped", told.points("down for 600 s", "stopped"))
    return drawing


def deployments(told: Told) -> drawings.Drawing:
    """Draw the worker ids in use while all processes are replaced."""
    drawing = drawings.Drawing("Worker ids during a rolling deployment", 436, STYLE)
    drawing.text(
        24, 34, "10,000 simulated processes are replaced in half an hour: worker ids in use", "bold"
    )
    panel = Panel(
        drawing, x=LEFT, y=100, width=drawings.WIDTH - LEFT - RIGHT, height=270, title="",
        x_name="minutes", x_ticks=range(0, 51, 5), y_ticks=range(8000, 18_001, 2000),
    )  # fmt: skip
    for kind, name, words in (
        ("s", "rolling, killed, with a scheduler", "killed, with a scheduler"),
        ("q", "rolling, killed", "killed"),
        ("p", "rolling, exits", "exit cleanly"),
    ):
        panel.line(kind, words, told.points(name, "held"))
    return drawing


def made(folder: Path = FOLDER) -> dict[str, str]:
    """Return the content of each file by its name."""
    measured, told = Measured(folder), Told(folder)
    return {
        "holders.svg": holders(measured).svg(),
        "tags.svg": tags(measured).svg(),
        "outages.svg": outages(told).svg(),
        "deployments.svg": deployments(told).svg(),
    }


if __name__ == "__main__":
    for name, content in made().items():
        (FOLDER / name).write_text(content, encoding="utf-8")

"""A bar chart as the places and sizes of what an inline SVG draws; no script, no style.

Numbers of the drawing are texts with a point, whatever the language of the page writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from .tag_words import count_words, number_words, short_number

__all__ = ["Bar", "Chart", "Tick", "draw"]

WIDTH, HEIGHT = 720.0, 240.0
TOP, BOTTOM, RIGHT = 12.0, 30.0, 16.0
LETTER = 7.5
"""How wide a character of a label is, about."""
GAP = 0.2
"""Of a bar's room, what is left empty."""
LABELS = 6
LEAST = 1.5
"""How high a bar is at least that stands for any ids at all."""

FORMATS = {"hour": "TIME_FORMAT", "day": "TIME_FORMAT", "month": "MONTH_DAY_FORMAT"}
CELLS = {"hour": "TIME_FORMAT", "day": "DATETIME_FORMAT", "month": "DATE_FORMAT"}


class Bucket(Protocol):
    """What was fetched from ``start`` on, for ``seconds``."""

    @property
    def start(self) -> datetime: ...
    @property
    def seconds(self) -> float: ...
    @property
    def ids(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket: where its bar is, and what it says."""

    x: str
    y: str
    width: str
    height: str
    when: str
    ids: str
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at an axis."""

    place: str
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """All that a template needs to draw it."""

    view: str
    left: str
    right: str
    label: str
    """Where the labels of the lines end."""
    baseline: str
    bars: Sequence[Bar]
    across: Sequence[Tick]
    up: Sequence[Tick]
    summary: str
    is_empty: bool


def draw(span: str, buckets: Sequence[Bucket]) -> Chart:
    """The chart of ``buckets``, which follow one another, over ``span``: hour, day or month."""
    most = max((bucket.ids for bucket in buckets), default=0)
    step = _step(most)
    lines = max(1, -(-most // step))
    labels = [short_number(step * line) for line in range(lines + 1)]
    left = 14.0 + LETTER * max(map(len, labels))
    bottom = HEIGHT - BOTTOM
    room = (WIDTH - RIGHT - left) / max(1, len(buckets))
    scale = (bottom - TOP) / (step * lines)
    return Chart(
        view=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        left=f"{left:.1f}",
        right=f"{WIDTH - RIGHT:.1f}",
        label=f"{left - 8:.1f}",
        baseline=f"{bottom + 20:.1f}",
        bars=[
            _bar(span, bucket, left + number * room, room, bottom, scale)
            for number, bucket in enumerate(buckets)
        ],
        across=_across(span, buckets, left, room),
        up=[
            Tick(f"{bottom - step * line * scale:.1f}", label) for line, label in enumerate(labels)
        ],
        summary=_summary(span, buckets),
        is_empty=most == 0,
    )


def _bar(span: str, bucket: Bucket, x: float, room: float, bottom: float, scale: float) -> Bar:
    height = max(LEAST, bucket.ids * scale) if bucket.ids else 0.0
    return Bar(
        x=f"{x + room * GAP / 2:.2f}",
        y=f"{bottom - height:.2f}",
        width=f"{room * (1 - GAP):.2f}",
        height=f"{height:.2f}",
        when=_when(bucket.start, CELLS[span]),
        ids=number_words(bucket.ids),
        is_empty=not bucket.ids,
    )


def _across(span: str, buckets: Sequence[Bucket], left: float, room: float) -> list[Tick]:
    every = max(1, -(-len(buckets) // LABELS))
    return [
        Tick(f"{left + (number + 0.5) * room:.1f}", _when(bucket.start, FORMATS[span]))
        for number, bucket in enumerate(buckets)
        # Not the last one, whose label would stand out of the picture.
        if number % every == every // 2 and number < len(buckets) - every // 3
    ]


def _summary(span: str, buckets: Sequence[Bucket]) -> str:
    """The chart for those who don't see it."""
    highest = max(buckets, key=lambda bucket: bucket.ids, default=None)
    if highest is None or not highest.ids:
        return _("No process was given any ids in this time.")
    text = _("In all %(total)s; the most at %(when)s: %(ids)s.")
    return text % {
        "total": count_words(sum(bucket.ids for bucket in buckets)),
        "when": _when(highest.start, CELLS[span]),
        "ids": count_words(highest.ids),
    }


def _step(most: int) -> int:
    """A round number of which at most five reach ``most``."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if size * factor * 5 >= most:
                return size * factor
        size *= 10


def _when(moment: datetime, form: str) -> str:
    return date_format(timezone.localtime(moment) if timezone.is_aware(moment) else moment, form)

"""What the page of a tag shows besides its form: figures, the last grants, and a chart.

The chart is the places and sizes of what an inline SVG draws, without script or style. Its
numbers are texts with a point, in whatever language the page is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...core.errors import IdgenError
from ...db.connection import home_connection
from ...db.tables import missing_tables
from ...models import LeafAlloc, SegmentHistory
from ...ops.tags.outlook import TagOutlook, outlook, outlooks
from ...ops.tags.usage import SPANS, Bucket, usage
from ...process.tags import Tag, find_tag, is_fetched_from
from ..base import database_of
from ..words import (
    count_words,
    duration_words,
    error_words,
    number_words,
    pool_words,
    rate_words,
    short_number,
)

__all__ = ["Bar", "Chart", "Tick", "draw", "tag_context"]

GRANTS = 10
TITLES = {
    "hour": gettext_lazy("Last hour"),
    "day": gettext_lazy("Last day"),
    "month": gettext_lazy("Last month"),
}
EACH = {
    "hour": gettext_lazy("Ids taken in each minute"),
    "day": gettext_lazy("Ids taken in each quarter of an hour"),
    "month": gettext_lazy("Ids taken on each day"),
}

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


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the summary."""

    label: str
    value: str
    hint: str = ""


def tag_context(request: HttpRequest, row: LeafAlloc) -> dict[str, Any]:
    """What the template of the tag's page shows besides its form. Raises nothing."""
    span = request.GET.get("span", "")
    span = span if span in SPANS else "day"
    found, troubles = None, []
    try:
        tag = find_tag(row.pk) if is_fetched_from(row.pk, database_of(LeafAlloc)) else None
        found = _outlook_of(row, tag)
    except (IdgenError, DatabaseError) as error:
        tag = None
        troubles.append(error_words(error))
    return {
        "figures": _figures(found) if found else [],
        "outlook": found,
        "last_fetch": count_words(found.fetched_ids) if found else "",
        "paused": found.paused if found else row.paused,
        "troubles": troubles,
        "databases": list(tag.rows.items()) if tag and len(tag.rows) > 1 else [],
        "grants": _grants(row.pk, tag),
        "spans": [
            {"name": name, "title": TITLES[name], "is_shown": name == span} for name in SPANS
        ],
        "chart_title": EACH[span],
        **_chart(row.pk, span),
    }


def _outlook_of(row: LeafAlloc, tag: Tag | None) -> TagOutlook | None:
    if tag is None:
        return outlooks([row], database_of(LeafAlloc)).get(row.pk)
    return outlook(row.pk)


def _figures(found: TagOutlook) -> list[Figure]:
    figures = [
        Figure(
            _("Fetch rate"),
            rate_words(found.rate),
            _("of all processes; some of what they fetched they still hold") if found.rate else "",
        ),
        Figure(
            _("Last segment lasts"),
            duration_words(found.segment_left),
            count_words(found.fetched_ids) if found.fetched_ids else "",
        ),
    ]
    if found.pooled is not None:
        lasts = _("lasts %(time)s") % {"time": duration_words(found.pool_left)}
        figures.append(
            Figure(_("In the pool"), pool_words(found.pooled), lasts if found.pooled else "")
        )
    left = _("%(ids)s are left") % {"ids": count_words(found.ids_left)}
    figures.append(Figure(_("All ids last"), duration_words(found.range_left), left))
    return figures


def _chart(tag: str, span: str) -> dict[str, Any]:
    try:
        if _has_no_history(database_of(SegmentHistory)):
            return {"chart": None, "chart_trouble": ""}
        found = usage(tag, span)  # type: ignore[arg-type]
    except (IdgenError, DatabaseError) as error:
        return {"chart": None, "chart_trouble": error_words(error)}
    chart: Chart | None = draw(span, found.buckets) if found.recorded else None
    return {"chart": chart, "chart_trouble": ""}


@dataclass(frozen=True, slots=True)
class Grant:
    """A range that was given out; its ids as people copy them."""

    taken_at: datetime
    first: str
    last: str
    holder: str


def _grants(tag: str, known: Tag | None) -> list[Grant]:
    aliases = list(known.rows) if known else [database_of(SegmentHistory)]
    found: list[SegmentHistory] = []
    for alias in aliases:
        # By the range, which there is an index of; later ones are higher, but for a pool's.
        rows = SegmentHistory.objects.using(alias).filter(tag=tag).order_by("-start")
        with suppress(DatabaseError):  # it does not answer: the summary says so
            found += [] if _has_no_history(alias) else rows[:GRANTS]
    latest = sorted(found, key=lambda row: (row.taken_at, row.pk), reverse=True)[:GRANTS]
    return [_grant(row) for row in latest]


def _grant(row: SegmentHistory) -> Grant:
    ids = range(row.start, row.stop, row.delta)
    return Grant(row.taken_at, str(row.start), str(ids[-1] if ids else row.start), row.holder)


def _has_no_history(alias: str) -> bool:
    # Asked first: a query that fails would break off a request that is one transaction.
    return bool(missing_tables(home_connection(alias), ["SegmentHistory"]))


# --- the chart --------------------------------------------------------------------------


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

"""The page of one tag: how it stands, how it is used, and who was given its ids lately."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DatabaseError, connections
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError
from ..db.tables import missing_tables
from ..models import LeafAlloc, SegmentHistory
from ..ops.tags.outlook import TagOutlook, outlook, outlooks
from ..ops.tags.rows import Tag, find_tag, is_fetched_from
from ..ops.tags.usage import SPANS, usage
from .base import database_of
from .error_words import error_words
from .tag_chart import Chart, draw
from .tag_words import count_words, duration_words, pool_words, rate_words

__all__ = ["tag_context"]

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
    """A range that somebody was given; its ids as people copy them."""

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
        with suppress(DatabaseError):  # it is away: the summary says so
            found += [] if _has_no_history(alias) else rows[:GRANTS]
    latest = sorted(found, key=lambda row: (row.taken_at, row.pk), reverse=True)[:GRANTS]
    return [_grant(row) for row in latest]


def _grant(row: SegmentHistory) -> Grant:
    ids = range(row.start, row.stop, row.delta)
    return Grant(row.taken_at, str(row.start), str(ids[-1] if ids else row.start), row.holder)


def _has_no_history(alias: str) -> bool:
    # Asked first: a query that fails would break off a request that is one transaction.
    return bool(missing_tables(connections[alias], ["SegmentHistory"]))

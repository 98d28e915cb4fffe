"""What the page of a tag shows besides its form: figures, a chart, and who got its ids.

The chart is an inline SVG of bars without script or style. A bar is one unit wide and as high
as its ids; the SVG is stretched to the page. Its labels are text beside it, so they stay
readable on a phone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError
from ..db.tables import is_missing
from ..models import LeafAlloc, SegmentHistory
from ..ops.tags.outlook import TagOutlook, outlook, outlooks
from ..ops.tags.usage import SPANS, Bucket, usage
from ..process.tags import Tag, find_tag, is_fetched_from, source_behind_pool, source_in_use
from .base import database_of
from .text import (
    YEAR,
    count_text,
    duration_text,
    error_text,
    next_fetch_text,
    number_text,
    pool_text,
    rate_text,
    short_number,
)

GRANTS = 10
SPAN_NAMES = {
    "hour": gettext_lazy("Last hour"),
    "day": gettext_lazy("Last day"),
    "month": gettext_lazy("Last month"),
}
CHART_TITLES = {
    "hour": gettext_lazy("Ids fetched in each minute"),
    "day": gettext_lazy("Ids fetched in each quarter of an hour"),
    "month": gettext_lazy("Ids fetched on each day"),
}
LABELS = {"hour": 4, "day": 4, "month": 3}
"""Labels below the chart; each stands for as many bars as the others."""
LABEL_FORMATS = {"hour": "TIME_FORMAT", "day": "TIME_FORMAT", "month": "MONTH_DAY_FORMAT"}
MOMENT_FORMATS = {"hour": "TIME_FORMAT", "day": "DATETIME_FORMAT", "month": "DATE_FORMAT"}
HEIGHT = 1000
"""Of the chart, in its own units."""
GAP = 0.1
"""Of a bar's width, what is left empty at each side."""
LEAST = 8
"""How high a bar of any ids is at least."""
HISTORY = '"SOURCE": {"OPTIONS": {"history": True}}'
POOLED_HISTORY = '"source": {"OPTIONS": {"history": True}}'
"""Where the option belongs: without a pool, and within the OPTIONS of a pool."""
SHORT = 100 * YEAR
"""How long all ids have to last, or the pages warn."""


def outlooks_of(rows: Sequence[LeafAlloc]) -> Mapping[str, TagOutlook]:
    """The forecasts of ``rows``; none if the settings are wrong or a database does not answer."""
    try:
        return outlooks(rows, database_of(LeafAlloc))
    except (IdgenError, DatabaseError):
        return {}


def last_ids_text(found: TagOutlook | None) -> str:
    """How long all ids of a tag last, if that is less than a century; else ""."""
    if found is None or found.range_left is None or found.range_left > SHORT:
        return ""
    return _("ends in %(time)s") % {"time": duration_text(found.range_left)}


def ago_text(moment: datetime | None) -> str:
    if moment is None:
        return "–"
    if timezone.now() - moment < timedelta(minutes=1):
        return _("just now")
    return _("%(age)s ago") % {"age": timesince(moment, depth=1)}


def moment_text(at: datetime) -> str:
    return date_format(timezone.localtime(at) if timezone.is_aware(at) else at, "Y-m-d H:i:s")


def ids_text(row: SegmentHistory) -> str:
    """The first and the last id of a range, in digits only, as people copy them."""
    ids = range(row.start, row.stop, max(row.delta, 1))
    return f"{row.start} – {ids[-1] if ids else row.start}"


def tag_context(request: HttpRequest, row: LeafAlloc) -> dict[str, Any]:
    """What the template of the tag's page shows besides its form. Raises nothing."""
    span = request.GET.get("span", "")
    span = span if span in SPANS else "day"
    tag, found, troubles = None, None, []
    try:
        tag = find_tag(row.pk) if is_fetched_from(row.pk, database_of(LeafAlloc)) else None
        found = outlook(row.pk) if tag else outlooks([row], database_of(LeafAlloc))[row.pk]
    except (IdgenError, DatabaseError) as error:
        tag = None
        troubles.append(error_text(error))
    if found and last_ids_text(found):
        text = _("At this rate the tag has no ids left in %(time)s. Use another tag.")
        troubles.append(text % {"time": duration_text(found.range_left)})
    return {
        "figures": _figures(found) if found else [],
        "paused": found.paused if found else row.paused,
        "troubles": troubles,
        "databases": list(tag.rows.items()) if tag and len(tag.rows) > 1 else [],
        "grants": _grants(row.pk, tag),
        "keeps_history": keeps_history(),
        "history_setting": POOLED_HISTORY if has_pool() else HISTORY,
        "spans": [(name, title, name == span) for name, title in SPAN_NAMES.items()],
        **_chart_context(row.pk, span),
    }


def has_pool() -> bool:
    """Whether the segments in use come from a pool, which may be down."""
    try:
        return source_in_use().is_pool
    except IdgenError:
        return False


def keeps_history() -> bool:
    """Whether fetches are written to the history, as far as this process is told."""
    try:
        source = source_behind_pool()
        return source.history or not source.keeps_rows
    except IdgenError:
        return True  # the checks say what is wrong with the settings


def _figures(found: TagOutlook) -> list[tuple[str, str, str]]:
    """A name, a value and a remark each."""
    figures = [
        (
            _("Fetch rate"),
            rate_text(found.rate),
            _("all processes together") if found.rate else _("known after a few fetches"),
        ),
        (_("Last fetch"), ago_text(found.fetched_at), _last_fetch(found)),
        (_("Next fetch"), next_fetch_text(found.segment_left), ""),
    ]
    if found.pooled is not None:
        lasts = _("enough for %(time)s") % {"time": duration_text(found.pool_left)}
        figures.append((_("Pool"), pool_text(found.pooled), lasts if found.pool_left else ""))
    return figures


def _last_fetch(found: TagOutlook) -> str:
    if not found.holder:
        return ""
    values = {"ids": count_text(found.fetched_ids), "holder": found.holder}
    return _("%(ids)s for %(holder)s") % values


def _grants(tag: str, known: Tag | None) -> list[tuple[str, str, str]]:
    """The ranges that the databases granted last: when, ids, holder."""
    aliases = list(known.rows) if known else [database_of(SegmentHistory)]
    found: list[SegmentHistory] = []
    for alias in aliases:
        # By the range, which has an index. Later ranges are higher.
        rows = SegmentHistory.objects.using(alias).filter(tag=tag)
        with suppress(DatabaseError):  # the figures say that it does not answer
            # Asked first: a query that fails would end the transaction of the request.
            found += [] if is_missing("SegmentHistory", alias) else rows.order_by("-start")[:GRANTS]
    found.sort(key=lambda row: (row.taken_at, row.pk), reverse=True)
    return [(moment_text(row.taken_at), ids_text(row), row.holder) for row in found[:GRANTS]]


# --- the chart --------------------------------------------------------------------------


def _chart_context(tag: str, span: str) -> dict[str, Any]:
    try:
        if is_missing("SegmentHistory", database_of(SegmentHistory)):
            return {}
        found = usage(tag, span)  # type: ignore[arg-type]
    except (IdgenError, DatabaseError) as error:
        return {"chart_trouble": error_text(error)}
    return {"chart": chart_of(span, found.buckets) if found.recorded else None}


def chart_of(span: str, buckets: Sequence[Bucket]) -> dict[str, Any]:
    """The chart of ``buckets``, which follow one another, over ``span``: hour, day or month."""
    step = _step(max(bucket.ids for bucket in buckets))
    lines = max(1, *(-(-bucket.ids // step) for bucket in buckets))
    every = len(buckets) // LABELS[span] or 1
    return {
        "title": CHART_TITLES[span],
        "summary": _summary(span, buckets),
        "view": f"0 0 {len(buckets)} {HEIGHT}",
        "width": len(buckets),
        "bars": [
            _bar(span, place, bucket, HEIGHT / (step * lines))
            for place, bucket in enumerate(buckets)
            if bucket.ids
        ],
        "lines": [f"{HEIGHT * line / lines:.1f}" for line in range(lines + 1)],
        "numbers": [short_number(step * line) for line in range(lines, -1, -1)],
        "moments": [_when(bucket, LABEL_FORMATS[span]) for bucket in buckets[::every]],
    }


def _bar(span: str, place: int, bucket: Bucket, scale: float) -> dict[str, str]:
    # Numbers with a point, in every language.
    height = max(LEAST, bucket.ids * scale)
    return {
        "x": f"{place + GAP:.1f}",
        "y": f"{HEIGHT - height:.1f}",
        "width": f"{1 - 2 * GAP:.1f}",
        "height": f"{height:.1f}",
        "when": _when(bucket, MOMENT_FORMATS[span]),
        "ids": number_text(bucket.ids),
    }


def _summary(span: str, buckets: Sequence[Bucket]) -> str:
    """The chart in a sentence."""
    highest = max(buckets, key=lambda bucket: bucket.ids)
    if not highest.ids:
        return _("No process fetched ids in this time.")
    text = _("Total: %(total)s. Most at %(when)s: %(ids)s.")
    return text % {
        "total": count_text(sum(bucket.ids for bucket in buckets)),
        "when": _when(highest, MOMENT_FORMATS[span]),
        "ids": count_text(highest.ids),
    }


def _step(most: int) -> int:
    """A round number; at most five of it reach ``most``."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if size * factor * 5 >= most:
                return size * factor
        size *= 10


def _when(bucket: Bucket, form: str) -> str:
    at = bucket.start
    return date_format(timezone.localtime(at) if timezone.is_aware(at) else at, form)

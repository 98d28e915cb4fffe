"""The chart of a tag's use: an SVG of bars without script or style, stretched to the page.

Its labels are text beside it, so they stay readable on a phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError, one_line
from ..db.tables import is_missing
from ..models import SegmentHistory
from ..ops.tags.usage import SPANS, Bucket, usage
from ..process.tags import source_behind_pool
from .base import database_of
from .text import moment_text

SPAN_NAMES = {
    "hour": gettext_lazy("Last hour, by the minute"),
    "day": gettext_lazy("Last day, by the quarter of an hour"),
    "month": gettext_lazy("Last month, by the day"),
}
HEIGHT = 100
"""Of the chart, in its own units; a bar is one unit wide."""


def chart(tag: str, span: str) -> str:
    """The chart of the ids that were fetched in ``span``, with links to the other spans.

    Says why it is empty, or what is wrong. Raises nothing.
    """
    span = span if span in SPANS else "day"
    spans = [(name, title, name == span) for name, title in SPAN_NAMES.items()]
    context: dict[str, Any] = {"spans": spans, "keeps_history": keeps_history()}
    try:
        # Asked first: on PostgreSQL a query that fails ends the transaction of the page.
        if not is_missing("SegmentHistory", database_of(SegmentHistory)):
            found = usage(tag, span)  # type: ignore[arg-type]
            context |= drawn(found.buckets) if found.recorded else {}
    except (IdgenError, DatabaseError) as error:
        context["trouble"] = one_line(error)
    return render_to_string("admin/django_idgen/leafalloc/chart.html", context)


def keeps_history() -> bool:
    """Whether fetches are written to the history, as far as this process knows."""
    try:
        source = source_behind_pool()
        return source.history or not source.keeps_rows
    except IdgenError:
        return True  # the checks say what is wrong with the settings


def drawn(buckets: Sequence[Bucket]) -> dict[str, Any]:
    """``buckets``, which follow one another, as bars below a round number."""
    most = max(bucket.ids for bucket in buckets)
    unit = 10 ** (len(str(most)) - 1)
    top = -(-most // unit) * unit or 1
    highest = next(bucket for bucket in buckets if bucket.ids == most)
    values = {
        "total": sum(bucket.ids for bucket in buckets),
        "most": most,
        "moment": moment_text(highest.start),
    }
    text = _("%(total)s ids in all; most at %(moment)s: %(most)s")
    return {
        "summary": text % values if most else "",
        "top": top,
        "width": len(buckets),
        "bars": [
            {
                "x": place,
                # With a point in every language, and never too low to be seen.
                "height": f"{max(HEIGHT * bucket.ids / top, 1):.1f}",
                "title": f"{moment_text(bucket.start)}: {bucket.ids}",
            }
            for place, bucket in enumerate(buckets)
            if bucket.ids
        ],
        "first": moment_text(buckets[0].start),
        "last": moment_text(buckets[-1].start),
    }

"""Rates, durations and moments as text.

Numbers have no thousand separators on any page: people copy ids.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext_lazy

from ..core.clock import brief_date, in_zone
from ..db.dialects import aware_moment

if TYPE_CHECKING:
    from ..core.layout import BitLayout

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 31_557_600.0
UNKNOWN = "–"
MOMENT = "Y-m-d H:i:s O"
"""The one format of moments. Templates write it, too: ``|localtime|date:"Y-m-d H:i:s O"``."""


def moment_text(at: datetime | None) -> str:
    """``at`` in the current time zone, with its offset from UTC; a dash for None."""
    if at is None:
        return UNKNOWN
    return date_format(in_zone(aware_moment(at), timezone.get_current_timezone()), MOMENT)


def rate_text(rate: float) -> str:
    """``rate`` (ids a second) as “12.3 / s”, “840 / h” or “3 / day”; a dash if it is unknown."""
    if not rate > 0 or math.isinf(rate):
        return UNKNOWN
    if rate >= 1:
        return _("%(number)s / s") % {"number": f"{rate:.{int(rate < 100)}f}"}
    if rate * HOUR >= 1:
        return _("%(number)s / h") % {"number": f"{rate * HOUR:.0f}"}
    if rate * DAY >= 1:
        return _("%(number)s / day") % {"number": f"{rate * DAY:.0f}"}
    return _("less than 1 / day")


def duration_text(seconds: float | None) -> str:
    """``seconds`` as “4 min” or “13 years”; a dash if it is unknown or endless."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    for limit, unit, text in (
        (MINUTE, 1.0, _("%(number)s s")),
        (HOUR, MINUTE, _("%(number)s min")),
        (2 * DAY, HOUR, _("%(number)s h")),
    ):
        if round(seconds / unit) < limit / unit:
            return text % {"number": round(seconds / unit)}
    if seconds < 2 * YEAR:
        days = round(seconds / DAY)
        return ngettext("%(number)s day", "%(number)s days", days) % {"number": days}
    if seconds > 1000 * YEAR:
        return _("over 1000 years")
    return _("%(number)s years") % {"number": round(seconds / YEAR)}


def ago_text(seconds: float | None) -> str:
    """How long ago something was; a dash if it is unknown."""
    if seconds is None:
        return UNKNOWN
    return _("%(time)s ago") % {"time": duration_text(max(seconds, 0.0))}


def next_fetch_text(seconds: float | None) -> str:
    """When the next fetch is expected: “in 4 min”; “any moment” if it is overdue."""
    if seconds is not None and seconds <= 0:
        return _("any moment")
    text = duration_text(seconds)
    return text if text == UNKNOWN else _("in %(time)s") % {"time": text}


FIELD_NAMES = {
    "time": pgettext_lazy("field of an id", "time"),
    "worker": pgettext_lazy("field of an id", "worker"),
    "sequence": pgettext_lazy("field of an id", "sequence"),
    "batch": pgettext_lazy("field of an id", "batch"),
}
"""The fields of a layout. The template that draws an id needs these messages, too."""


def layout_text(layout: BitLayout) -> str:
    """The fields of ``layout`` with their bits, its tick and its epoch."""
    values = {
        "fields": " / ".join(f"{FIELD_NAMES[name]} {bits}" for name, bits in layout.fields),
        "tick": layout.tick_us / 1000,
        "epoch": brief_date(layout.epoch_us),
    }
    return _("bits: %(fields)s; tick: %(tick)g ms; epoch: %(epoch)s") % values

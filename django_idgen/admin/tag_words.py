"""Rates, durations and counts in words for people, in the language of the page."""

from __future__ import annotations

import math

from django.utils.formats import get_format, number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

__all__ = [
    "count_words",
    "duration_words",
    "number_words",
    "pool_words",
    "rate_words",
    "short_number",
]

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 31_557_600.0
MONTH = YEAR / 12


def number_words(number: float, places: int = 0) -> str:
    """``number`` with its thousands apart; not for ids, which people copy."""
    return str(number_format(number, places, force_grouping=True))


def count_words(count: int) -> str:
    """“1 id”, “12,000 ids”."""
    text = ngettext("%(number)s id", "%(number)s ids", count)
    return text % {"number": number_words(count)}


def pool_words(count: int | None) -> str:
    """What lies in a pool; a dash if there is none, or nobody knows."""
    if count is None:
        return "–"
    return count_words(count) if count else _("empty")


def rate_words(rate: float) -> str:
    """``rate`` (ids a second) as “12.3 / s”, “840 / h” or “3 / day”; a dash if it is not known."""
    if not rate > 0 or math.isinf(rate):
        return "–"
    if rate >= 1:
        return _("%(number)s / s") % {"number": number_words(rate, 1 if rate < 100 else 0)}
    if rate * HOUR >= 1:
        return _("%(number)s / h") % {"number": _figure(rate * HOUR)}
    if rate * DAY >= 1:
        return _("%(number)s / day") % {"number": _figure(rate * DAY)}
    return _("less than 1 / day")


def duration_words(seconds: float | None) -> str:
    """``seconds`` as “~4 min” or “292 million years”; a dash if it is not known, or no end is.

    “due” for what is over by now.
    """
    if seconds is None or math.isinf(seconds) or math.isnan(seconds):
        return "–"
    if seconds < 1:
        return _("due") if seconds <= 0 else _("less than 1 s")
    return _short(seconds) if seconds < 2 * DAY else _long(seconds)


def short_number(number: float) -> str:
    """``number`` for the edge of a chart: “250”, “1.5 k”, “20 M”."""
    for size, text in ((1e12, "%s T"), (1e9, "%s G"), (1e6, "%s M"), (1e3, "%s k")):
        if number >= size:
            return text % _trimmed(number / size)
    return _trimmed(number)


def _short(seconds: float) -> str:
    if round(seconds) < MINUTE:
        return _("~%(number)s s") % {"number": number_words(round(seconds))}
    if round(seconds / MINUTE) < 60:
        return _("~%(number)s min") % {"number": number_words(round(seconds / MINUTE))}
    return _("~%(number)s h") % {"number": number_words(round(seconds / HOUR))}


def _long(seconds: float) -> str:
    if seconds < 2 * MONTH:
        days = round(seconds / DAY)
        return ngettext("~%(number)s day", "~%(number)s days", days) % {"number": days}
    if seconds < 2 * YEAR:
        months = round(seconds / MONTH)
        return ngettext("~%(number)s month", "~%(number)s months", months) % {"number": months}
    return _years(seconds / YEAR)


def _years(years: float) -> str:
    if round(years) < 1_000_000:
        text = ngettext("%(number)s year", "%(number)s years", round(years))
        return text % {"number": number_words(round(years))}
    if get_format("NUMBER_GROUPING") == 4:
        return _years_by_myriads(years)
    if round(years / 1e6) < 1000:
        text = ngettext("%(number)s million years", "%(number)s million years", round(years / 1e6))
        return text % {"number": number_words(round(years / 1e6))}
    text = ngettext("%(number)s billion years", "%(number)s billion years", round(years / 1e9))
    return text % {"number": number_words(round(years / 1e9))}


def _years_by_myriads(years: float) -> str:
    """As Chinese counts: 10,000 has a word of its own, and so has its square."""
    if round(years / 1e4) < 10_000:
        return _("%(number)s × 10,000 years") % {"number": number_words(round(years / 1e4))}
    return _("%(number)s × 100 million years") % {"number": _figure(years / 1e8)}


def _figure(number: float) -> str:
    return number_words(number, 1 if number < 10 and round(number, 1) != round(number) else 0)


def _trimmed(number: float) -> str:
    places = 0 if number >= 100 or abs(number - round(number)) < 0.05 else 1
    return number_words(number, places)

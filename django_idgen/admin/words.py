"""What the pages say in the language of the reader: errors, counts, rates and durations.

Errors speak English: they go to logs, and the core knows no Django. The usual ones are said
anew here, from their values. The others name hosts and settings: a page in another language
says what they mean for it, and then their own words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from django.db import DatabaseError
from django.utils.formats import get_format, number_format
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

from ..core.errors import (
    ClockError,
    ConfigurationError,
    InvalidId,
    InvalidTag,
    LeaseError,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    SegmentError,
    SegmentExhausted,
    TagPaused,
    WorkerOutOfRange,
)
from ..core.segment import MAX_ID
from ..ops.decoding.spellings import LONGEST_TEXT
from ..ops.tags.edits import PoolStillOpen, SkipRefused, StepOvertaken, TagExists, Unstorable
from ..process.tags import TagsElsewhere, TagUnknown

__all__ = [
    "count_words",
    "duration_words",
    "error_words",
    "number_words",
    "pool_words",
    "rate_words",
    "short_number",
]

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 31_557_600.0
MONTH = YEAR / 12


# --- errors -----------------------------------------------------------------------------


def error_words(error: Exception) -> str:
    """What ``error`` says on one line, in the active language."""
    if (get_language() or "en").partition("-")[0] == "en":
        return _own(error)
    for kind in type(error).__mro__:
        if kind in WORDS:
            return WORDS[kind](error)
    return _own(error)


def _own(error: Exception) -> str:
    return " ".join(str(error).split())


def _skip_refused(error: SkipRefused) -> str:
    text = (
        _("“%(tag)s” stands at %(stands)d, and can't go as far as %(target)d.")
        if error.is_too_far
        else _("“%(tag)s” stands at %(stands)d already, and never goes back to %(target)d.")
    )
    return text % {"tag": error.tag, "stands": error.max_id, "target": error.wanted}


def _overtaken(error: StepOvertaken) -> str:
    if error.stored is None:
        return _("There is no tag “%(tag)s”.") % {"tag": error.tag}
    text = _(
        "Somebody else changed the step of “%(tag)s” from %(seen)d to %(stored)d meanwhile; it "
        "was left so."
    )
    return text % {"tag": error.tag, "seen": error.seen, "stored": error.stored}


def _invalid_id(error: InvalidId) -> str:
    text = error.value.strip() if isinstance(error.value, str) else ""
    if len(text) > LONGEST_TEXT:
        words = _("It has %(length)d characters; at most %(most)d are read.")
        return words % {"length": len(text), "most": LONGEST_TEXT}
    if not any(char.isalpha() for char in text):
        return _("Ids are whole numbers of 1 to %(end)d.") % {"end": MAX_ID}
    return _(
        "It is neither a number nor an id in base36, base62 or Crockford's base32, with or without "
        "a prefix of this project."
    )


def _no_lease(error: Exception) -> str:
    return _("No worker id can be used just now: %(error)s") % {"error": _own(error)}


WORDS: Mapping[type, Callable[[Any], str]] = {
    # Tags.
    TagUnknown: lambda error: _("There is no tag “%(tag)s”.") % {"tag": error.tag},
    TagExists: lambda error: _("There is a tag “%(tag)s” already.") % {"tag": error.tag},
    TagsElsewhere: lambda _error: _(
        "The tags of this project are kept elsewhere. Change them there."
    ),
    InvalidTag: lambda error: (
        _("“%(tag)s” can't be a tag: it needs 1 to 128 printable characters.")
        % {"tag": str(error.tag)[:150]}
    ),
    SkipRefused: _skip_refused,
    StepOvertaken: _overtaken,
    TagPaused: lambda error: (
        _("“%(tag)s” is paused: no process is given more of its ids until it is resumed.")
        % {"tag": error.tag}
    ),
    PoolStillOpen: lambda error: (
        _(
            "“%(tag)s” is paused, but its pool in Redis can't be asked just now: what lies there "
            "may be given out yet. Pause it again when Redis answers."
        )
        % {"tag": error.tag}
    ),
    SegmentExhausted: lambda _error: (
        _("It has come to the end of all ids (%(end)d). Use another tag.") % {"end": MAX_ID}
    ),
    Unstorable: lambda error: (
        _("The database can't store that: %(error)s") % {"error": _own(error)}
    ),
    SegmentError: lambda error: (
        _("The tags can't be asked just now: %(error)s") % {"error": _own(error)}
    ),
    # Worker ids.
    NoFreeWorker: lambda error: (
        _(
            "All %(count)d worker ids of namespace “%(namespace)s” are held. Stop processes that "
            "are idle, or wait until a window has expired."
        )
        % {"count": len(error.workers), "namespace": error.namespace}
    ),
    WorkerOutOfRange: lambda error: (
        _("Worker id %(worker)s is none of %(first)d to %(last)d.")
        % {
            "worker": str(error.worker)[:40],
            "first": error.workers.start,
            "last": error.workers.stop - 1,
        }
    ),
    RegistryUnavailable: lambda error: (
        _("The registry can't be asked just now: %(error)s") % {"error": _own(error)}
    ),
    LeaseError: _no_lease,
    ClockError: _no_lease,
    # Settings, databases, ids.
    NamespaceMismatch: lambda error: (
        _(
            "Namespace “%(namespace)s” was opened with other settings (%(setting)s): going on "
            "would repeat ids. Restore them, or have “idgen_doctor --fix” move it."
        )
        % {"namespace": error.namespace, "setting": error.setting}
    ),
    ConfigurationError: lambda error: (
        _("The settings can't work: %(error)s") % {"error": _own(error)}
    ),
    DatabaseError: lambda error: (
        _("The database can't be asked just now: %(error)s") % {"error": _own(error)}
    ),
    InvalidId: _invalid_id,
}
"""By the class of an error; the nearest one above it counts, too."""


# --- numbers ----------------------------------------------------------------------------


def number_words(number: float, places: int = 0) -> str:
    """``number`` with its thousands apart; not for ids, which people copy."""
    return str(number_format(number, places, force_grouping=True))


def count_words(count: int) -> str:
    """“1 id”, “12,000 ids”."""
    text = ngettext("%(number)s id", "%(number)s ids", count)
    return text % {"number": number_words(count)}


def pool_words(count: int | None) -> str:
    """What lies in a pool; a dash if there is none, or it is not known."""
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

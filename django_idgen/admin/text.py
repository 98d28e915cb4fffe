"""Errors, counts, rates and durations as text in the language of the reader.

An error is in English: it goes to logs, and the core knows no Django. This module says the
usual ones again in the active language. The others name hosts and settings: a page in another
language introduces them, then shows the English text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError
from django.utils.formats import number_format
from django.utils.translation import get_language, gettext_lazy, ngettext, pgettext_lazy
from django.utils.translation import gettext as _

from ..core.clock import brief_date
from ..core.encoding import LONGEST_TEXT
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
    one_line,
)
from ..core.segment import MAX_ID
from ..ops.tags.edits import PoolStillOpen, SkipRefused, StepOvertaken, TagExists, Unstorable
from ..process.tags import TagsElsewhere, TagUnknown

if TYPE_CHECKING:
    from ..core.layout import BitLayout


MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 31_557_600.0
MONTH = YEAR / 12
FOREVER = 1000 * YEAR


# --- errors -----------------------------------------------------------------------------


def error_text(error: Exception) -> str:
    """``error`` on one line, in the active language."""
    if (get_language() or "en").partition("-")[0] == "en":
        return _english(error)
    for kind in type(error).__mro__:
        if kind in TEXTS:
            return TEXTS[kind](error)
    return _english(error)


def _english(error: Exception) -> str:
    return one_line(error)


def _skip_refused(error: SkipRefused) -> str:
    text = (
        _("“%(tag)s” is at %(max_id)d and can't skip as far as %(target)d.")
        if error.is_too_far
        else _("“%(tag)s” is already at %(max_id)d and can't go back to %(target)d.")
    )
    return text % {"tag": error.tag, "max_id": error.max_id, "target": error.wanted}


def _overtaken(error: StepOvertaken) -> str:
    if error.stored is None:
        return _("There is no tag “%(tag)s”.") % {"tag": error.tag}
    text = _(
        "Somebody else has changed the step of “%(tag)s” from %(seen)d to %(stored)d. It was "
        "not changed."
    )
    return text % {"tag": error.tag, "seen": error.seen, "stored": error.stored}


def _invalid_id(error: InvalidId) -> str:
    text = error.value.strip() if isinstance(error.value, str) else ""
    if len(text) > LONGEST_TEXT:
        text = _("It has %(length)d characters. The limit is %(most)d.")
        return text % {"length": len(str(error.value).strip()), "most": LONGEST_TEXT}
    if not any(char.isalpha() for char in text):
        return _("An id is a whole number from 1 to %(end)d.") % {"end": MAX_ID}
    return _(
        "It is neither a number nor an id in base36, base62 or Crockford's base32, with or without "
        "a prefix of this project."
    )


def _introduced(text: Any) -> Callable[[Exception], str]:
    return lambda error: text % {"error": _english(error)}


_no_lease = _introduced(gettext_lazy("No worker id is available: %(error)s"))

TEXTS: Mapping[type, Callable[[Any], str]] = {
    # Tags.
    TagUnknown: lambda error: _("There is no tag “%(tag)s”.") % {"tag": error.tag},
    TagExists: lambda error: _("Tag “%(tag)s” exists already.") % {"tag": error.tag},
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
        _("“%(tag)s” is paused. No process gets more of its ids until it is resumed.")
        % {"tag": error.tag}
    ),
    PoolStillOpen: lambda error: (
        _(
            "“%(tag)s” is paused, but Redis does not answer: ids in its pool may still be given "
            "out. Pause the tag again when Redis is back."
        )
        % {"tag": error.tag}
    ),
    SegmentExhausted: lambda _error: (
        _("The tag has used all ids up to %(end)d. Use another tag.") % {"end": MAX_ID}
    ),
    Unstorable: _introduced(gettext_lazy("The database can't store that: %(error)s")),
    SegmentError: _introduced(gettext_lazy("The database of the tags does not answer: %(error)s")),
    # Worker ids.
    NoFreeWorker: lambda error: (
        _(
            "All %(count)d worker ids of namespace “%(namespace)s” are held. Stop idle processes, "
            "or wait until a lease expires."
        )
        % {"count": len(error.workers), "namespace": error.namespace}
    ),
    WorkerOutOfRange: lambda error: (
        _("Worker id %(worker)s is not between %(first)d and %(last)d.")
        % {
            "worker": str(error.worker)[:40],
            "first": error.workers.start,
            "last": error.workers.stop - 1,
        }
    ),
    RegistryUnavailable: _introduced(gettext_lazy("The registry does not answer: %(error)s")),
    LeaseError: _no_lease,
    ClockError: _no_lease,
    # Settings, databases, ids.
    NamespaceMismatch: lambda error: (
        _(
            "Namespace “%(namespace)s” was opened with other settings (%(setting)s). With these "
            "settings, ids would repeat. Restore the old ones, or run “idgen_doctor --fix”."
        )
        % {"namespace": error.namespace, "setting": error.setting}
    ),
    ConfigurationError: _introduced(gettext_lazy("The settings are wrong: %(error)s")),
    DatabaseError: _introduced(gettext_lazy("The database does not answer: %(error)s")),
    InvalidId: _invalid_id,
}
"""By the class of an error; its nearest base class counts, too."""


# --- numbers ----------------------------------------------------------------------------


def number_text(number: float, places: int = 0) -> str:
    """``number`` with thousand separators; not for ids, which people copy."""
    return str(number_format(number, places, force_grouping=True))


def count_text(count: int) -> str:
    """“1 id”, “12,000 ids”."""
    text = ngettext("%(number)s id", "%(number)s ids", count)
    return text % {"number": number_text(count)}


def pool_text(count: int | None) -> str:
    """How many ids are in a pool; a dash if there is no pool, or it does not answer."""
    if count is None:
        return "–"
    return count_text(count) if count else _("empty")


def rate_text(rate: float) -> str:
    """``rate`` (ids a second) as “12.3 / s”, “840 / h” or “3 / day”; a dash if it is unknown."""
    if not rate > 0 or math.isinf(rate):
        return "–"
    if rate >= 1:
        return _("%(number)s / s") % {"number": number_text(rate, 1 if rate < 100 else 0)}
    if rate * HOUR >= 1:
        return _("%(number)s / h") % {"number": _rounded(rate * HOUR, below=10)}
    if rate * DAY >= 1:
        return _("%(number)s / day") % {"number": _rounded(rate * DAY, below=10)}
    return _("less than 1 / day")


def duration_text(seconds: float | None) -> str:
    """A forecast of ``seconds`` as “4 min” or “13 years”; a dash if it is unknown or endless."""
    if seconds is None or math.isinf(seconds) or math.isnan(seconds):
        return "–"
    if seconds < 1:
        return _("less than 1 s")
    for limit, unit, text in (
        (MINUTE, 1.0, _("%(number)s s")),
        (HOUR, MINUTE, _("%(number)s min")),
        (2 * DAY, HOUR, _("%(number)s h")),
    ):
        if round(seconds / unit) < limit / unit:
            return text % {"number": number_text(round(seconds / unit))}
    if seconds < 2 * MONTH:
        days = round(seconds / DAY)
        return ngettext("%(number)s day", "%(number)s days", days) % {"number": days}
    if seconds < 2 * YEAR:
        months = round(seconds / MONTH)
        return ngettext("%(number)s month", "%(number)s months", months) % {"number": months}
    if seconds >= FOREVER:
        return _("over 1,000 years")
    years = round(seconds / YEAR)
    return ngettext("%(number)s year", "%(number)s years", years) % {"number": years}


def next_fetch_text(seconds: float | None) -> str:
    """When the next fetch is expected: “in 4 min”; “any moment” if it is overdue."""
    if seconds is not None and seconds <= 0:
        return _("any moment")
    text = duration_text(seconds)
    return text if text == "–" else _("in %(time)s") % {"time": text}


def seconds_text(seconds: float | None) -> str:
    """``2 min 5 s``; empty if it is unknown."""
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    if minutes >= 60:
        return duration_text(seconds)
    if minutes:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": minutes, "seconds": rest}
    return _("%(number)s s") % {"number": rest}


def clock_offset_text(seconds: float | None) -> str:
    """``+12 ms`` if a holder's clock is ahead; empty if it is unknown."""
    if seconds is None:
        return ""
    if abs(seconds) < 1:
        return _("%(milliseconds)+d ms") % {"milliseconds": round(seconds * 1000)}
    return _("%(seconds)+.1f s") % {"seconds": seconds}


def short_number(number: float) -> str:
    """``number`` for the edge of a chart: “250”, “1.5 k”, “20 M”."""
    for size, text in ((1e12, "%s T"), (1e9, "%s G"), (1e6, "%s M"), (1e3, "%s k")):
        if number >= size:
            return text % _rounded(number / size, below=100)
    return _rounded(number, below=100)


def _rounded(number: float, *, below: int) -> str:
    """With one decimal place if it is needed and the number is ``below`` that."""
    is_whole = abs(number - round(number)) < 0.05
    return number_text(number, 0 if number >= below or is_whole else 1)


# --- layouts ----------------------------------------------------------------------------

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

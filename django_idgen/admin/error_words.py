"""What errors of ours say to people, in the language of the page.

Errors speak English: they go to logs, and the core knows no Django. The usual ones are said
anew here, from their values. Of the others, whose words name hosts and settings, a page in
another language says what they mean for it, and then their own words.
"""

from __future__ import annotations

from functools import singledispatch

from django.db import DatabaseError
from django.utils.translation import get_language, gettext

from ..core.errors import (
    ClockError,
    ConfigurationError,
    IdgenError,
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
from ..ops.tags.edits import (
    PoolStillOpen,
    SkipRefused,
    TagExists,
    TagsElsewhere,
    TagUnknown,
    Unstorable,
)
from ..ops.tags.steps import StepOvertaken

__all__ = ["error_words"]


def error_words(error: Exception) -> str:
    """What ``error`` (of ours, or a database's) says, on one line, in the active language."""
    if (get_language() or "en").partition("-")[0] == "en":
        return _own(error)
    return str(_words(error))


def _own(error: Exception) -> str:
    return " ".join(str(error).split())


@singledispatch
def _words(error: Exception) -> str:
    """By the error's class, or the nearest one above it."""
    return _own(error)


# --- tags -------------------------------------------------------------------------------


@_words.register
def _unknown(error: TagUnknown) -> str:
    return gettext("There is no tag “%(tag)s”.") % {"tag": error.tag}


@_words.register
def _exists(error: TagExists) -> str:
    return gettext("There is a tag “%(tag)s” already.") % {"tag": error.tag}


@_words.register
def _elsewhere(_error: TagsElsewhere) -> str:
    return gettext("The tags of this project are kept elsewhere. Change them there.")


@_words.register
def _invalid_tag(error: InvalidTag) -> str:
    text = gettext("“%(tag)s” can't be a tag: it needs 1 to 128 printable characters.")
    return text % {"tag": str(error.tag)[:150]}


@_words.register
def _refused(error: SkipRefused) -> str:
    if error.is_too_far:
        text = gettext("“%(tag)s” stands at %(stands)d, and can't go as far as %(target)d.")
    else:
        text = gettext("“%(tag)s” stands at %(stands)d already, and never goes back to %(target)d.")
    return text % {"tag": error.tag, "stands": error.max_id, "target": error.wanted}


@_words.register
def _overtaken(error: StepOvertaken) -> str:
    if error.stored is None:
        return gettext("There is no tag “%(tag)s”.") % {"tag": error.tag}
    text = gettext(
        "Somebody else changed the step of “%(tag)s” from %(seen)d to %(stored)d meanwhile; it "
        "was left so."
    )
    return text % {"tag": error.tag, "seen": error.seen, "stored": error.stored}


@_words.register
def _paused(error: TagPaused) -> str:
    text = gettext("“%(tag)s” is paused: no process is given more of its ids until it is resumed.")
    return text % {"tag": error.tag}


@_words.register
def _pool_open(error: PoolStillOpen) -> str:
    text = gettext(
        "“%(tag)s” is paused, but its pool in Redis can't be asked just now: what lies there may "
        "be given out yet. Pause it again when Redis answers."
    )
    return text % {"tag": error.tag}


@_words.register
def _exhausted(_error: SegmentExhausted) -> str:
    text = gettext("It has come to the end of all ids (%(end)d). Use another tag.")
    return text % {"end": MAX_ID}


@_words.register
def _unstorable(error: Unstorable) -> str:
    return gettext("The database can't store that: %(error)s") % {"error": _own(error)}


@_words.register
def _unavailable(error: SegmentError) -> str:
    return gettext("The tags can't be asked just now: %(error)s") % {"error": _own(error)}


# --- worker ids ---------------------------------------------------------------------------


@_words.register
def _none_free(error: NoFreeWorker) -> str:
    text = gettext(
        "All %(count)d worker ids of namespace “%(namespace)s” are held. Stop processes that "
        "are idle, or wait until a window has lapsed."
    )
    return text % {"count": len(error.workers), "namespace": error.namespace}


@_words.register
def _out_of_range(error: WorkerOutOfRange) -> str:
    text = gettext("Worker id %(worker)s is none of %(first)d to %(last)d.")
    workers = error.workers
    return text % {
        "worker": str(error.worker)[:40],
        "first": workers.start,
        "last": workers.stop - 1,
    }


@_words.register
def _away(error: RegistryUnavailable) -> str:
    return gettext("The registry can't be asked just now: %(error)s") % {"error": _own(error)}


@_words.register(LeaseError)
@_words.register(ClockError)
def _no_lease(error: IdgenError) -> str:
    return gettext("No worker id can be used just now: %(error)s") % {"error": _own(error)}


# --- settings, databases, ids -------------------------------------------------------------


@_words.register
def _mismatch(error: NamespaceMismatch) -> str:
    text = gettext(
        "Namespace “%(namespace)s” was opened with other settings (%(setting)s): going on would "
        "repeat ids. Restore them, or have “idgen_doctor --fix” move it."
    )
    return text % {"namespace": error.namespace, "setting": error.setting}


@_words.register
def _misconfigured(error: ConfigurationError) -> str:
    return gettext("The settings can't work: %(error)s") % {"error": _own(error)}


@_words.register
def _database(error: DatabaseError) -> str:
    return gettext("The database can't be asked just now: %(error)s") % {"error": _own(error)}


@_words.register
def _invalid_id(error: InvalidId) -> str:
    text = error.value.strip() if isinstance(error.value, str) else ""
    if len(text) > LONGEST_TEXT:
        words = gettext("It has %(length)d characters; at most %(most)d are read.")
        return words % {"length": len(text), "most": LONGEST_TEXT}
    if not any(char.isalpha() for char in text):
        return gettext("Ids are whole numbers of 1 to %(end)d.") % {"end": MAX_ID}
    return gettext(
        "It is neither a number nor an id in base36, base62 or Crockford's base32, with or without "
        "a prefix of this project."
    )

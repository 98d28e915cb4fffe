"""All errors of the package.

Each message names the wrong value and the way out. The values are also attributes, so that code
need not parse the message. No failure is reported by returning 0, -1 or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class IdgenError(Exception):
    """Base of all errors of django_idgen."""


# --- configuration ----------------------------------------------------------


class ConfigurationError(IdgenError, ValueError):
    """A layout, a window, a worker range or another setting is impossible."""


class LayoutError(ConfigurationError):
    """A bit layout that can't make unique, positive, rising 64-bit ids."""


class InvalidTag(IdgenError, ValueError):
    """A tag that is empty, too long, or can't be stored."""

    def __init__(self, tag: object, reason: str) -> None:
        self.tag = tag
        super().__init__(f"Segment tag {_short(tag)} can't be used: {reason}.")


class InvalidId(IdgenError, ValueError):
    """A value that is not an id, or not an id of this layout."""

    def __init__(self, value: object, reason: str) -> None:
        self.value = value
        super().__init__(f"{_short(value)} is not an id: {reason}.")


class TimeOutOfRange(IdgenError, ValueError):
    """A moment that the layout can't express (before its epoch, or past its end)."""


CLOSED = "closed"
"""The setting that is stored with a namespace that no longer lends."""


class NamespaceMismatch(ConfigurationError):
    """The settings of this process differ from those of the namespace.

    Another layout, epoch, worker range or kind of registry under a running namespace would
    repeat ids. ``by_service``: a service over HTTP refuses the process.
    """

    def __init__(
        self,
        namespace: str,
        setting: str,
        stored: object,
        configured: object,
        *,
        by_service: bool = False,
    ) -> None:
        self.namespace = namespace
        self.setting = setting
        self.stored = stored
        self.configured = configured
        if setting == CLOSED:
            super().__init__(
                f"Namespace {namespace!r} lends nothing here any more: 'manage.py idgen_doctor' "
                f"has moved it to another registry. Ids from here could repeat those from there. "
                f"Give this process the settings that the other processes have now."
            )
            return
        if by_service:
            super().__init__(
                f"The service lends namespace {namespace!r} with {setting}={stored!r}, but this "
                f"process is configured with {setting}={configured!r}. Going on would repeat ids. "
                f"Give this process the setting of the service."
            )
            return
        super().__init__(
            f"Namespace {namespace!r} was opened with {setting}={stored!r}, but this process "
            f"is configured with {setting}={configured!r}. Going on would repeat ids. "
            f"Restore the old setting, or have 'manage.py idgen_doctor --fix' move the "
            f"namespace to the new one, or use a NAMESPACE of another name whose ids go to "
            f"tables of their own."
        )


# --- leases -----------------------------------------------------------------


class LeaseError(IdgenError):
    """Base of all errors of leases."""


class RegistryUnavailable(LeaseError):
    """The registry did not answer, or its answer was lost.

    A lost answer is a lost grant: no call is sent again.
    """


class NotSeenFromHere(LeaseError):
    """Another process or host lends these worker ids: inspect and free them there."""


class NoFreeWorker(LeaseError):
    """All worker ids of the range are held, or used where each is lent only once."""

    def __init__(self, namespace: str, workers: range, *, used: bool = False) -> None:
        self.namespace = namespace
        self.workers = workers
        state, way = (
            (
                "were used, each by one process",
                "Set 'recycle' to lend those of ended processes again",
            )
            if used
            else ("are held", "Stop idle processes, wait until a lease expires")
        )
        super().__init__(
            f"All {len(workers)} worker ids of namespace {namespace!r} "
            f"({_span(workers)}) {state}. {way}, or choose a layout with more worker bits."
        )


class WorkerOutOfRange(LeaseError, ValueError):
    """A worker id that does not fit the layout's worker bits or the range given."""

    def __init__(self, worker: object, workers: range) -> None:
        self.worker = worker
        self.workers = workers
        super().__init__(
            f"Worker id {_short(worker)} is outside {_span(workers)}. A larger one would change "
            "the neighbouring bits, and so repeat ids of another worker."
        )


class TooFarAhead(LeaseError):
    """A process says that it has stamped ticks that the registry can't have granted.

    Nothing was lent, and nothing stored has changed.
    """

    def __init__(self, namespace: str, tick: int, latest: int, seconds: float) -> None:
        self.namespace = namespace
        self.tick = tick
        self.latest = latest
        """The latest tick that a window may be asked from."""
        # All of them, for pickle: Celery sends a task's exception to the worker's parent.
        super().__init__(namespace, tick, latest, seconds)

    def __str__(self) -> str:
        seconds: float = self.args[3]
        span = f"{seconds:.0f} s" if seconds < 1e9 else "many years"
        return (
            f"A process needs a window of namespace {self.namespace!r} from tick "
            f"{_short(self.tick)} on, but the registry has lent none past tick {self.latest}. "
            "Check whether the registry's clock is behind, or its database was restored to an "
            "earlier state; then run 'manage.py idgen_skip'. Or restart the process: it then "
            f"begins at the registry's time. Without that, ids continue in {span}."
        )


class LeaseLost(LeaseError):
    """The registry no longer knows this lease: it expired, or the registry lost it.

    What is left of the window still belongs to this process; after that it needs a new lease.
    """


class LeaseExpired(LeaseError):
    """The window is used up, and neither renewing nor acquiring a lease succeeded."""


class LeaseTaken(LeaseError):
    """Another process of this host holds the worker id, as a local lock shows."""


# --- time -------------------------------------------------------------------


class ClockError(IdgenError):
    """Base of all errors of time."""


class ClockBeforeEpoch(ClockError):
    """The clock is before the layout's epoch, so a stamp would be negative."""


class ClockMovedBackwards(ClockError):
    """Time went back further than a caller may wait, and no other worker id was free."""


class ClockSkewed(ClockError):
    """This host's wall clock is further off than the limit allows, by ``offset_us``."""

    def __init__(self, message: str = "", offset_us: int = 0) -> None:
        super().__init__(message)
        self.offset_us = offset_us


class TimeExhausted(ClockError):
    """The time bits of the layout are used up."""


# --- segments ---------------------------------------------------------------


class SegmentError(IdgenError):
    """Base of all errors of segments."""


class SegmentUnavailable(SegmentError):
    """No segment came before the deadline; the cause is chained."""


class SegmentRefused(SegmentUnavailable):
    """The source refuses to grant ids of the tag: it does not exist, or the caller has no right.

    Raised at once, because waiting does not help. The next call asks again.
    """


class TagPaused(SegmentUnavailable):
    """The tag is paused: no process gets more of its ids until it is resumed.

    Raised at once, without waiting for a deadline. The next call asks again.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        # Alone, so that it can be pickled: a task's exception goes to the worker's parent.
        super().__init__(tag)

    def __str__(self) -> str:
        return (
            f"Tag {self.tag!r} is paused: no process gets more of its ids. Resume it in the "
            f"admin, or with 'POST tags/<tag>/resume' of the API; the next call then works."
        )


class SegmentExhausted(SegmentError):
    """The tag has reached 2**63 - 1, the highest id."""


# --- upkeep -----------------------------------------------------------------


class UpkeepFailed(IdgenError):
    """A part of a periodic job failed; the rest is done. The cause is chained."""

    def __init__(self, what: str, done: Mapping[str, Any]) -> None:
        self.what = what
        self.done = done
        """What the job would have returned, with an ``error`` in each failed part."""
        # Both, so that it can be pickled: a task's exception goes to the worker's parent.
        super().__init__(what, done)

    def __str__(self) -> str:
        return f"{self.what}: {self.done}"


# --- generators -------------------------------------------------------------


class GeneratorClosed(IdgenError):
    """The generator is closed and issues no more ids."""


def _span(workers: range) -> str:
    return f"{workers.start}..{workers.stop - 1}"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "?"
    return text if len(text) <= 80 else f"{text[:77]}..."


def one_line(error: object) -> str:
    """The text of ``error`` on one line; its class if it has no text."""
    return printable(" ".join(str(error).split())) or type(error).__name__


def printable(text: str) -> str:
    """``text`` without what a terminal obeys or shows as something else: escaped as in ``repr``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def sentence(error: object) -> str:
    """The text of ``error`` on one line, with a full stop unless it ends with a mark of its own."""
    text = one_line(error)
    return text if text.endswith((".", "?", "!")) else f"{text}."

"""What happens to generators, as Django signals.

The sender of every signal is the string ``"django_idgen"``. Receivers get the values
named below as keyword arguments, and are called without a lock. Their exceptions
are logged, never raised into the code that asked for an id. They run in the
thread of the event, a caller's or one of this app, but never in a
loader's thread, which has the database connection of all tags. So they may be slow,
and save rows that need ids of this app.

The log receivers that come with the app (see :data:`LEVELS`) write to the logger
``django_idgen``.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.dispatch import Signal

from .core.clock import SYSTEM_CLOCK
from .core.errors import IdgenError, printable
from .core.lease import Lease
from .core.loader import Loader
from .core.segment import Segment
from .db.connection import close_after_jobs, is_own_thread

__all__ = ["LEVELS", "SIGNALS", "emit", "log_event"]

logger = logging.getLogger("django_idgen")


class _Event(Signal):
    """Signal whose receivers may be any callables, and may fail."""

    def _log_robust_failure(self, receiver: object, err: Exception) -> None:
        # Django reads the receiver's __qualname__, which a partial() lacks: the error would stop
        # the other receivers. _send() logs failures.
        pass


lease_acquired = _Event()
"""``lease``; ``holder``: who has it; ``ahead_ticks``: how far its window starts ahead of real
time. The log has it, too, for each lease that this process lends to a client."""
lease_renewed = _Event()
"""``lease``, with its new end."""
lease_lost = _Event()
"""``lease``, ``error``: the registry no longer knows it; what is left of its window is used up."""
lease_released = _Event()
"""``lease``; ``known``: whether the registry still knew it."""
release_failed = _Event()
"""``lease``, ``error``: the lease ends with its window."""
renewal_failed = _Event()
"""``lease``, ``error``: it is tried again until the window is over."""
lease_quota_near = _Event()
"""``generator``, ``client``, ``held``, ``most``: a client over HTTP has more than 80 % of the
worker ids that it may have, or all of them."""
clock_skewed = _Event()
"""``offset_us``; ``source``: "wall", "registry", or "holders" (the mean of their clocks)."""
clock_moved_backwards = _Event()
"""``behind_ticks``: how far time is behind the last id."""
worker_changed = _Event()
"""``lease``, ``behind_seconds``: the clock stayed behind for too long."""
ids_degraded = _Event()
"""``namespace``, ``worker``, ``ids``, ``error``: so many ids were given without a lease, under the
``degraded_worker``: they may repeat."""
segment_loaded = _Event()
"""``tag``, ``segment``, ``seconds``."""
segment_load_failed = _Event()
"""``tag``, ``error``: it is tried again."""
segment_paused = _Event()
"""``tag``: it is paused; sent once, when this process needs more of its ids."""
segment_waited = _Event()
"""``tag``, ``seconds``: a caller had nothing left and waited."""
segment_given_back = _Event()
"""``tag``, ``ids``: how many ids that were left over went back to the source."""
segment_skipped = _Event()
"""``tag``, ``database``, ``start``, ``stop``, ``why``: the ids from start up to stop are
given to no process: they may have been issued before another server took over, or a table was
restored."""
pool_unavailable = _Event()
"""``alias``, ``error``: the Redis of the pool; ids come from the database for a minute."""
pool_available = _Event()
"""``alias``: it answers again."""
pool_dropped = _Event()
"""``tag``, ``ids``: how many were thrown away, since the Redis was restarted or replaced."""

SIGNALS: Mapping[str, Signal] = {
    name: value for name, value in globals().items() if isinstance(value, Signal)
}

LEVELS: Mapping[str, int] = {
    "lease_acquired": logging.INFO,
    "lease_renewed": logging.DEBUG,
    "lease_lost": logging.ERROR,
    "lease_released": logging.INFO,
    "release_failed": logging.WARNING,
    "renewal_failed": logging.WARNING,
    "lease_quota_near": logging.WARNING,
    "clock_skewed": logging.WARNING,
    "clock_moved_backwards": logging.WARNING,
    "worker_changed": logging.WARNING,
    "ids_degraded": logging.ERROR,
    "segment_loaded": logging.DEBUG,
    "segment_load_failed": logging.WARNING,
    "segment_paused": logging.INFO,
    "segment_waited": logging.DEBUG,
    "segment_given_back": logging.DEBUG,
    "segment_skipped": logging.WARNING,
    "pool_unavailable": logging.WARNING,
    "pool_available": logging.INFO,
    "pool_dropped": logging.INFO,
}


# Closes its connections when idle: an open one would keep a test database from being dropped.
_apart = Loader("idgen-signals", on_idle=close_after_jobs)


def emit(name: str, /, **values: object) -> None:
    """Send the signal ``name``. Generators and sources call it."""
    others = len(SIGNALS[name].receivers) > len(_quick[name])
    if others and is_own_thread():
        _apart.submit(partial(_send, name, **values))
    else:
        _send(name, **values)


def forget() -> None:
    """Replace the parent's thread and lock in the child of a fork."""
    global _quiet_lock
    _quiet_lock = threading.Lock()
    _apart.forget()


def _send(name: str, /, **values: object) -> None:
    for receiver, result in SIGNALS[name].send_robust("django_idgen", **values):
        if isinstance(result, Exception):
            logger.error("Receiver %r of %s failed.", receiver, name, exc_info=result)


def log_event(signal: Signal, **values: object) -> None:
    """The log receiver: one line an event, with its values in the message.

    They are also fields of the log record: see ``docs/monitoring.md``.

    A source that does not answer fails for every tag several times a second. Of equal
    warnings, one is written every :data:`QUIET_SECONDS`, with the number of those left out.
    """
    name = _NAMES[id(signal)]
    values = {key: value for key, value in values.items() if key != "sender"}
    left_out = _left_out(name, values)
    if left_out is None:
        return
    words = [f"{key}={printable(' '.join(str(value).split()))}" for key, value in values.items()]
    if left_out:
        words.append(f"(and {left_out} more like it)")
    error: Any = values.get("error")
    is_expected = LEVELS[name] < logging.ERROR or isinstance(error, IdgenError)
    logger.log(
        LEVELS[name],
        "%s %s",
        name,
        " ".join(words),
        exc_info=None if is_expected else error,
        extra=_fields(name, {**values, "left_out": left_out or None}),
    )


def _fields(name: str, values: Mapping[str, object]) -> dict[str, Any]:
    """The values of an event as flat fields, which JSON can hold."""
    fields: dict[str, Any] = {"event": name}
    for key, value in values.items():
        if isinstance(value, Lease):
            # Without the token, with which a reader could renew the lease.
            fields |= {
                "namespace": value.namespace,
                "worker": value.worker,
                "lease_start": value.start,
                "lease_until": value.until,
                "lease_generation": value.generation,
            }
        elif isinstance(value, Segment):
            fields |= {
                "tag": value.tag,
                "segment_start": value.start,
                "segment_stop": value.stop,
                "segment_step": value.step,
            }
        elif isinstance(value, BaseException):
            fields |= {key: type(value).__name__, f"{key}_message": " ".join(str(value).split())}
        elif isinstance(value, float) and not math.isfinite(value):
            fields[key] = str(value)  # JSON has no such number
        elif isinstance(value, (str, int, float)):
            fields[key] = value
        elif value is not None:
            fields[key] = " ".join(str(value).split())
    return {f"idgen_{key}": value for key, value in fields.items()}


def _left_out(name: str, values: Mapping[str, object]) -> int | None:
    """How many like it were left out since the last one; ``None`` to leave out this one."""
    if LEVELS[name] < logging.WARNING:
        return 0
    lease, names = values.get("lease"), map(values.get, ("tag", "namespace", "generator"))
    whose = next(filter(None, names), getattr(lease, "namespace", ""))
    key = (name, whose, type(values.get("error")))
    now = SYSTEM_CLOCK.stopwatch()
    with _quiet_lock:
        since, left_out = _quiet.get(key, (float("-inf"), 0))
        if now - since < QUIET_SECONDS:
            _quiet[key] = (since, left_out + 1)
            return None
        if len(_quiet) > 10_000:
            _quiet.clear()
        _quiet[key] = (now, 0)
    return left_out


QUIET_SECONDS = 10.0
_quiet: dict[tuple[object, ...], tuple[float, int]] = {}
_quiet_lock = threading.Lock()
_NAMES = {id(signal): name for name, signal in SIGNALS.items()}


_quick: dict[str, set[Callable[..., None]]] = {name: set() for name in SIGNALS}
"""The receivers of each signal that are quick and do no I/O."""


def connect_quick(name: str, receiver: Callable[..., None]) -> None:
    """Connect a receiver of this app, which runs in the thread of the event."""
    SIGNALS[name].connect(receiver, weak=False)
    _quick[name].add(receiver)


def connect_logging() -> None:
    """Connect :func:`log_event` to every signal. Called when the app is ready."""
    for name in SIGNALS:
        connect_quick(name, log_event)

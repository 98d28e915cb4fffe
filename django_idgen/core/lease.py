"""Leases of worker ids: the values and the rules.

A lease says: *worker* ``w`` *may stamp the ticks of* ``[start, until)``. For each worker id a
registry keeps the high-water mark ``until``: the first tick that it has promised to no holder.
The mark only grows while the lease is held, and each window starts at or after the end of the
last one. So no clock, time-to-live or pause decides whether two processes stamp one tick with
one worker id; clocks only decide how near a stamp is to real time.

The rules (:func:`grant_window`, :func:`extend_window`, :func:`final_mark`) are pure functions,
so that every registry applies the same ones.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from .clock import Reading
from .errors import (
    ClockBeforeEpoch,
    ConfigurationError,
    TimeExhausted,
    TooFarAhead,
    WorkerOutOfRange,
)

PROTOCOL_VERSION = 1
"""Stored with every record, so that a fleet can be upgraded one process at a time."""


def of_another_version(what: str, protocol: object) -> str:
    """The message for ``what``, which is stored in a form that this version does not know."""
    return (
        f"{what} was written by another version of django_idgen, with protocol {protocol}; this "
        f"one knows {PROTOCOL_VERSION}. Run the version that wrote it, in all processes."
    )


OLD_CLIENTS = "cosid "
"""Begins the labels of CosId's instances, which are known by their name alone.

Such an instance keeps its worker id by asking for it. No scheduler renews it.
"""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The settings that all holders of one namespace share. Frozen.

    Marks are kept in ticks of ``tick_us`` microseconds since ``epoch_us``
    (microseconds since 1970); ``max_ticks`` is ``2**time_bits``: no tick at or
    past it exists. ``workers`` is the range of worker ids that it may lend.
    ``fingerprint`` holds all settings whose change would repeat ids.

    Raises :class:`ConfigurationError` or :class:`WorkerOutOfRange`.
    """

    name: str
    epoch_us: int
    tick_us: int
    max_ticks: int
    workers: range
    window_ticks: int
    skew_ticks: int
    """How far two clocks of the installation may differ."""
    fingerprint: Mapping[str, object] = field(default_factory=dict)
    ahead_ticks: int = 0
    """How far past now a holder may stamp (``max_ahead``)."""
    unused: Literal["", "first", "only"] = ""
    """Whether to lend worker ids that were never lent first, or only those."""
    preferred: int | None = None
    """The worker id that this process gets if it is free."""

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 128:
            raise ConfigurationError(
                f"A namespace's name needs 1 to 128 characters, not {self.name!r}."
            )
        if self.window_ticks < 1:
            raise ConfigurationError(
                f"A window needs at least one tick, not {self.window_ticks}. Raise 'window'."
            )
        if self.skew_ticks < 0:
            raise ConfigurationError(f"A skew limit can't be negative: {self.skew_ticks} ticks.")
        if self.ahead_ticks < 0:
            raise ConfigurationError(f"'max_ahead' can't be negative: {self.ahead_ticks} ticks.")
        if not len(self.workers) or self.workers.start < 0 or self.workers.step != 1:
            raise ConfigurationError(
                f"The worker ids must be a range from 0 up, not {self.workers!r}."
            )

    @property
    def reach_ticks(self) -> int:
        """How far past now a window may end."""
        return self.window_ticks + self.ahead_ticks

    @property
    def lead_ticks(self) -> int:
        """How far past now a holder may have come, by a clock that is ahead."""
        return self.reach_ticks + self.skew_ticks

    def tick_at(self, unix_us: int) -> int:
        """The tick of a moment (µs since 1970); negative before the epoch."""
        return (unix_us - self.epoch_us) // self.tick_us

    def check_worker(self, worker: int) -> int:
        """Return ``worker``, or raise :class:`WorkerOutOfRange`."""
        if worker not in self.workers:
            raise WorkerOutOfRange(worker, self.workers)
        return worker


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to stamp the ticks ``[start, until)`` with ``worker``."""

    namespace: str
    worker: int
    token: str = field(repr=False)
    """New for every acquire, so that two leases never share one. A secret: it allows renewal."""
    start: int
    until: int
    generation: int = 0
    """The generation of the namespace that granted it; void in any other."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A registry's answer: the lease as it is now, and the registry's time."""

    lease: Lease
    reading: Reading


@dataclass(frozen=True, slots=True)
class Mark:
    """What a registry stores of one worker id; ``token`` is empty once released."""

    worker: int
    token: str
    start: int
    until: int
    generation: int = 0
    holder: str = ""


def new_token() -> str:
    """128 random bits, which differ even in processes started from one image."""
    return secrets.token_hex(16)


def is_free(mark: Mark | None, now: int) -> bool:
    """L1: free when never lent, released, or when the window is over."""
    return mark is None or not mark.token or now >= mark.until


def is_free_in(mark: Mark, now: int, generation: int) -> bool:
    """As :func:`is_free`; a mark of an earlier generation is void: the fence is past its window."""
    return is_free(mark, now) or mark.generation != generation


def grant_window(
    namespace: Namespace,
    mark: Mark | None,
    *,
    now: int,
    fence: int = 0,
    highest: int = 0,
    not_before: int = 0,
    ceiling: int | None = None,
) -> tuple[int, int]:
    """L1: the window ``(start, until)`` of a new lease on a free worker id.

    All in ticks. The caller has checked :func:`is_free`. ``highest`` is the end of the latest
    window of the namespace. No holder has come further, so a ``not_before`` past it is refused.
    ``ceiling`` is the first tick that this registry may not lend (the end of its sub-lease).

    Raises :class:`ClockBeforeEpoch`, :class:`TooFarAhead` or :class:`TimeExhausted`.
    """
    if now < 0:
        raise ClockBeforeEpoch(
            f"The registry's clock is {-now} ticks of {namespace.tick_us} µs before the epoch of "
            f"namespace {namespace.name!r}. Correct the clock, or choose an earlier EPOCH."
        )
    latest = max(now + namespace.lead_ticks, fence, highest)
    if not_before > latest:
        raise too_far_ahead(namespace, not_before, latest)
    start = max(now, mark.until if mark else 0, fence, not_before)
    top = namespace.max_ticks if ceiling is None else min(ceiling, namespace.max_ticks)
    if start >= namespace.max_ticks:
        raise TimeExhausted(
            f"Tick {start} does not fit the time bits of namespace {namespace.name!r}: they "
            f"end at {namespace.max_ticks}. Move to a layout with more time bits or a later epoch."
        )
    return start, min(start + namespace.window_ticks, top)


def soon(namespace: Namespace, *, now: int, fence: int, not_before: int) -> int:
    """The latest start of a window that is near enough to now; later ones are lent last.

    The mark of a released worker id may lie a window ahead, and its next holder would stamp as
    far ahead of the time.
    """
    return min(max(now, fence, not_before) + namespace.skew_ticks, namespace.max_ticks)


def too_far_ahead(namespace: Namespace, tick: int, latest: int) -> TooFarAhead:
    """The error for a ``not_before`` of ``tick`` where it may be ``latest`` at most."""
    seconds = min(tick - latest, 2**62) * namespace.tick_us / 1e6
    return TooFarAhead(namespace.name, tick, latest, seconds)


def extend_window(
    namespace: Namespace, mark: Mark, *, now: int, last_tick: int, ceiling: int | None = None
) -> int:
    """L2: the new ``until`` of a held lease. Never lower than the old one.

    No holder has stamped past the stored end, whatever ``last_tick`` says.
    """
    top = namespace.max_ticks if ceiling is None else min(ceiling, namespace.max_ticks)
    latest = max(now, min(last_tick, mark.until))
    return max(mark.until, min(latest + namespace.window_ticks, top))


def final_mark(mark: Mark, last_tick: int | None) -> int:
    """L3: the ``until`` that a released lease leaves: past the last tick that was loaded.

    It lies inside the stored window: a ``last_tick`` past its end leaves the end as it is.
    """
    return min(mark.until, mark.start if last_tick is None else max(mark.start, last_tick + 1))


def loss_fence(namespace: Namespace, *, now: int, fence: int, largest_window: int) -> int:
    """L7: the first tick that is certainly past every window of a lost record."""
    window = max(largest_window, namespace.reach_ticks)
    return max(fence, now + namespace.skew_ticks) + window


# --- holders --------------------------------------------------------------------------

LONGEST_HOLDER = 200
"""Characters of a label that the registries keep."""
# No quote behind it: a service writes the name of a token before the label, as JSON.
_MADE_HERE = re.compile(r'(.+):[0-9]+ [^:"]+', re.DOTALL)


def process_label() -> str:
    """``host:pid name`` of this process; another one in the child of a fork. Thread-safe."""
    return _label(os.getpid())


def identity_of(holder: str) -> str:
    """The part of a label that survives a restart: the host, or a label that a user chose."""
    made = None if holder.startswith(OLD_CLIENTS) else _MADE_HERE.fullmatch(holder)
    return holder if made is None else made[1]


@lru_cache(maxsize=1)
def _label(pid: int) -> str:
    # One text for all that keep it: there may be one for each of many tags.
    program = _program().translate({ord(":"): "?", ord('"'): "?"})
    words = f"{socket.gethostname()}:{pid} {program}"
    return "".join(char if char.isprintable() else "?" for char in words)[:LONGEST_HOLDER]


def _program() -> str:
    """The name of what runs: ``gunicorn``, ``celery``, ``manage.py``."""
    path = Path(sys.argv[0] if getattr(sys, "argv", None) else "")
    # ``python -m celery`` runs celery/__main__.py.
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name if name.strip("-") not in ("", "c", "m") else "python"

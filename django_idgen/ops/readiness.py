"""Whether this process can give out ids: for load balancers and orchestrators.

Nothing here takes an id or a worker id. What is shared (databases, Redis) is asked in
separate threads, every few seconds at most, and waited for briefly: one that hangs costs
a thread and a caller's moment, however many ask.

========================  ==========================================================
``segments``              no database (or pool) of the segment source answers
``generator:<alias>``     its registry doesn't answer; it lost its lease; its window is
                          nearly over and can't be renewed; it was refused (clock,
                          settings, no free worker id)
``settings``              ``IDGEN`` can't work
========================  ==========================================================

A generator that no id was ever asked of is not looked at.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import ConfigurationError, IdgenError, RegistryUnavailable
from ..core.errors import LeaseExpired as Expired
from ..core.keeper import LeaseKeeper
from ..core.loader import BackgroundThread
from ..process import handlers

__all__ = ["Ask", "Outcome", "Part", "Probes", "Readiness", "readiness"]

ASK_EVERY = 3.0
"""Seconds that an answer counts."""
WITHIN = 0.8
"""Seconds until an answer is not waited for any more: an orchestrator waits one itself."""
REMEMBERED = 60.0
"""Seconds that a refusal counts. Then a caller may try again: without one it would last."""

Ask = Callable[[], Any]
"""Raises unless what it asks answers; may return a value."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that has to be well. Frozen."""

    name: str
    ready: bool
    detail: str
    """For people who may know: it names hosts and settings."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether this process can give out ids, and what says so. Frozen."""

    parts: tuple[Part, ...]
    answered: bool = True
    """Whether all that was asked gave an answer, be it a bad one."""

    @property
    def ready(self) -> bool:
        return all(part.ready for part in self.parts)

    @property
    def failing(self) -> tuple[str, ...]:
        """The names of the parts that are not well."""
        return tuple(part.name for part in self.parts if not part.ready)


def readiness(*, max_age: float = ASK_EVERY, within: float = WITHIN) -> Readiness:
    """How this process stands. Thread-safe; never raises.

    What is shared is asked if it was not in the last ``max_age`` seconds, and waited for
    ``within`` seconds in all; an answer that comes later counts for who asks next.
    """
    try:
        asked = _to_ask()
    except (ConfigurationError, ImportError) as error:
        return Readiness((Part("settings", False, str(error)),))
    wanted = {name: ask for probes in asked.values() for name, ask in probes.items()}
    outcomes = _probes.outcomes(wanted, max_age=max_age, within=within)
    found = [_of_source(asked[SOURCE], outcomes)]
    for alias, keeper in _in_use().items():
        found.append(_of_generator(alias, keeper, asked.get(alias, {}), outcomes))
    answered = all(outcome.answered for outcome in outcomes.values())
    return Readiness(tuple(found), answered)


# --- what there is ------------------------------------------------------------------

SOURCE = ""
"""Stands for the segment source among the aliases of generators."""


def _to_ask() -> dict[str, Mapping[str, Ask]]:
    """What can be asked, by the alias of the generator that needs it."""
    asked = {SOURCE: handlers.segments.allocator().source.probes()}
    for alias, keeper in _in_use().items():
        asked[alias] = keeper.registry.probes()
    return asked


def _in_use() -> dict[str, LeaseKeeper]:
    """The keepers of the generators that ids were asked of."""
    return {
        alias: made.keeper
        for alias, made in handlers.generators.made().items()
        if made.keeper and (made.keeper.lease or made.keeper.trouble)
    }


# --- judging ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of asking. Frozen."""

    error: str | None = None
    """Why it can't be used; None if it answers."""
    answered: bool = True
    value: Any = None


def _of_source(probes: Iterable[str], outcomes: Mapping[str, Outcome]) -> Part:
    failure = _failure(probes, outcomes)
    return Part("segments", failure is None, failure or "The source answers.")


def _of_generator(
    alias: str, keeper: LeaseKeeper, probes: Mapping[str, Ask], outcomes: Mapping[str, Outcome]
) -> Part:
    why = _failure(probes, outcomes) or _refusal(keeper, bool(probes)) or _shortage(keeper, probes)
    left = keeper.seconds_left
    lease = keeper.lease
    held = "no lease" if lease is None else f"worker {lease.worker}, {left:.0f} s left"
    return Part(f"generator:{alias}", why is None, f"{why} ({held})" if why else held)


def _failure(probes: Iterable[str], outcomes: Mapping[str, Outcome]) -> str | None:
    """Why none of ``probes`` can be used; None if one can, or there is nothing to ask."""
    found = [outcomes[name] for name in probes]
    if not found or any(outcome.error is None for outcome in found):
        return None
    return " ".join(str(outcome.error) for outcome in found)


def _refusal(keeper: LeaseKeeper, asked: bool) -> str | None:
    """Why the process has taken itself out."""
    if keeper.lost and keeper.seconds_left > 0:
        return "The lease is lost; a new one is taken when its window is over."
    trouble = keeper.trouble
    if trouble is None or keeper.seconds_left > 0:
        return None
    passes = isinstance(trouble, (RegistryUnavailable, Expired)) and asked
    lasts = isinstance(trouble, ConfigurationError)
    if lasts or (not passes and keeper.seconds_since_trouble < REMEMBERED):
        return str(trouble)
    return None  # the registry answers by now, or it is time to try again


def _shortage(keeper: LeaseKeeper, probes: Mapping[str, Ask]) -> str | None:
    """Why the window may be over before it is renewed."""
    space = keeper.namespace
    third = space.window_ticks * space.tick_us / 3e6
    # A holder that renews nothing, or whose registry answers, gets the next one when it asks.
    if keeper.seconds_left > third or not keeper.renewal_failed or keeper.lost:
        return None
    if probes and keeper.seconds_left == 0:
        return None
    return "The window is nearly over, and the last attempt to renew it failed."


# --- asking -------------------------------------------------------------------------


class Probes:
    """Asks what is shared, each in a thread of its own. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.stopwatch
        self._start_over()

    def _start_over(self) -> None:
        self._known: dict[str, _Probe] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def outcomes(
        self, wanted: Mapping[str, Ask], *, max_age: float, within: float
    ) -> dict[str, Outcome]:
        """What is known of each of ``wanted``, once it has been asked."""
        if self._pid != os.getpid():  # the threads that ask are the parent's
            self._start_over()
        deadline = self._now() + within
        probes = {name: self._begun(name, ask, max_age) for name, ask in wanted.items()}
        return {name: probe.outcome(deadline, within) for name, probe in probes.items()}

    def _begun(self, name: str, ask: Ask, max_age: float) -> _Probe:
        with self._lock:
            known = self._known.get(name)
            if known is None or known.is_stale(max_age):
                known = self._known[name] = _Probe(ask, self._now)
                known.start()
            return known


class _Probe:
    """One question, and its answer when it comes."""

    def __init__(self, ask: Ask, now: Callable[[], float]) -> None:
        self._ask = ask
        self._now = now
        self._began = now()
        self._done = threading.Event()
        self._ended = 0.0
        self._error: str | None = "The question was broken off."
        self._value: Any = None

    def start(self) -> None:
        try:
            BackgroundThread("idgen-readiness", self._run).start()
        except RuntimeError as error:  # the next one may find room for a thread again
            self._end(f"It can't be asked: {error}.")

    def is_stale(self, max_age: float) -> bool:
        # One that hangs is not asked again beside it: there would be more and more.
        return self._done.is_set() and self._now() >= self._ended + max_age

    def outcome(self, deadline: float, within: float) -> Outcome:
        """Waits until ``deadline``; not at all for one that has had its time."""
        left = min(deadline, self._began + within) - self._now()
        if self._done.wait(max(left, 0.0)):
            return Outcome(self._error, value=self._value)
        return Outcome(f"No answer for {self._now() - self._began:.1f} s.", answered=False)

    def _run(self) -> None:
        outcome = self._error
        try:
            self._value = self._ask()
            outcome = None
        except IdgenError as error:
            outcome = str(error)
        except Exception as error:  # noqa: BLE001 - an adapter of somebody else's
            outcome = repr(error)
        finally:
            self._end(outcome)

    def _end(self, error: str | None) -> None:
        self._error = error
        self._ended = self._now()
        self._done.set()


_probes = Probes()

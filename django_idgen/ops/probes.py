"""Probes: calls to databases, Redis and services, each in a thread of its own, with a deadline.

A call that hangs costs one thread and its callers a moment, however many callers there are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import IdgenError, sentence
from ..core.loader import BackgroundThread, PerProcess

Probe = Callable[[], Any]
"""Raises if what it calls does not answer; may return a value."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a probe."""

    error: str | None = None
    """Why it failed; None if it succeeded."""
    answered: bool = True
    """False if it did not end in time."""
    value: Any = None


class Probes(PerProcess):
    """Runs probes and remembers their outcomes. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.stopwatch
        self.forget()

    def forget(self) -> None:
        """After a fork: the calls, and the threads that make them, are the parent's."""
        self._known: dict[str, _Call] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def outcomes(
        self, wanted: Mapping[str, Probe], *, max_age: float, within: float
    ) -> dict[str, Outcome]:
        """The outcome of each probe, at most ``max_age`` seconds old.

        Waits ``within`` seconds in all; an outcome that comes later counts for the next caller.
        """
        self.check_process()
        deadline = self._now() + within
        calls = {name: self._call(name, probe, max_age) for name, probe in wanted.items()}
        return {name: call.outcome(deadline, within) for name, call in calls.items()}

    def _call(self, name: str, probe: Probe, max_age: float) -> _Call:
        with self._lock:
            known = self._known.get(name)
            if known is None or known.is_stale(max_age):
                known = self._known[name] = _Call(probe, self._now)
                known.start()
            return known


class _Call:
    """One call of a probe."""

    def __init__(self, probe: Probe, now: Callable[[], float]) -> None:
        self._probe = probe
        self._now = now
        self._began = now()
        self._done = threading.Event()
        self._ended = 0.0
        self._error: str | None = "The call was interrupted."
        self._value: Any = None

    def start(self) -> None:
        try:
            BackgroundThread("idgen-readiness", self._run).start()
        except RuntimeError as error:  # no thread can be started now; the next call may succeed
            self._end(f"It can't be queried: {sentence(error)}")

    def is_stale(self, max_age: float) -> bool:
        # A hanging call is not repeated beside it: they would pile up.
        return self._done.is_set() and self._now() >= self._ended + max_age

    def outcome(self, deadline: float, within: float) -> Outcome:
        """Wait until ``deadline``, but no longer than ``within`` since the call began."""
        left = min(deadline, self._began + within) - self._now()
        if self._done.wait(max(left, 0.0)):
            return Outcome(self._error, value=self._value)
        return Outcome(f"No answer for {self._now() - self._began:.1f} s.", answered=False)

    def _run(self) -> None:
        error = self._error
        try:
            self._value = self._probe()
            error = None
        except IdgenError as failure:
            error = str(failure)
        except Exception as failure:  # noqa: BLE001 - a user's adapter may raise anything
            error = repr(failure)
        finally:
            self._end(error)

    def _end(self, error: str | None) -> None:
        self._error = error
        self._ended = self._now()
        self._done.set()

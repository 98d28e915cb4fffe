"""Our background threads, and the forks of the process that they run in.

A child that is forked beside a busy thread inherits whatever that held, but not the thread,
and Python 3.12 and newer warn of each fork beside any. So a fork waits for ours to end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from .clock import SYSTEM_CLOCK

__all__ = ["BackgroundThread"]

PATIENCE = 1.0
"""Seconds that a fork waits for our threads, at most and in all."""


class BackgroundThread(threading.Thread):
    """A daemon thread that a fork of the process waits for, after it called ``before_fork``.

    The fork does not start it again: its owner does at the next use. Python up to 3.13
    counts the threads that a fork's own hooks start, and would warn of them.
    """

    def __init__(
        self,
        name: str,
        target: Callable[[], object],
        *,
        before_fork: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.before_fork = before_fork
        _watch_forks()

    def start_if_possible(self) -> bool:
        """Start it; ``False`` if the interpreter is ending, or the system is out of threads."""
        try:
            self.start()
        except RuntimeError:
            return False
        return True

    def wait_for_end(self, deadline: float) -> None:
        """Come back when it has ended, or at ``deadline`` of the stopwatch."""
        with suppress(RuntimeError):  # it is just being started
            self.join(max(0.0, deadline - SYSTEM_CLOCK.stopwatch()))
        while self._is_counted() and SYSTEM_CLOCK.stopwatch() < deadline:
            SYSTEM_CLOCK.sleep(0.0001)

    def _is_counted(self) -> bool:
        """Whether Linux still has the thread, as it does for a moment after :meth:`join`."""
        # gevent's threads have the number of the thread that they all run in.
        other = self.native_id != threading.get_native_id()
        return other and os.path.exists(f"/proc/self/task/{self.native_id}")


_watching: list[bool] = []


def _watch_forks() -> None:
    # Not at import: such hooks run in reverse order, and ours must not come after those
    # that take locks for the fork, which a thread may need to end.
    if not _watching and hasattr(os, "register_at_fork"):
        _watching.append(True)
        os.register_at_fork(before=_before_fork)


def _before_fork() -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    # Again, since the turn of one may have had another start.
    while (threads := _running()) and SYSTEM_CLOCK.stopwatch() < deadline:
        for thread in threads:
            thread.before_fork()
        for thread in threads:
            thread.wait_for_end(deadline)


def _running() -> list[BackgroundThread]:
    own = threading.current_thread()
    return [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, BackgroundThread) and thread is not own
    ]

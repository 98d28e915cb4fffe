"""Holding a fork off while a library of C has locks of its own in hand.

SQLite locks its state in the process for short moments of opening and closing a
file. A child forked by another thread at such a moment inherits the lock, but
not the thread that would give it back, and waits for ever at its first use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_fork"]

PATIENCE = 5.0
"""Seconds that a fork is held off, at most."""


class _Uses:
    """How many threads are inside. Its lock is held only to count, and during a fork."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.count = 0
        self.forking = False
        self.mine = threading.local()
        """``depth``: how often the calling thread is inside."""

    def enter(self) -> None:
        depth = getattr(self.mine, "depth", 0)
        if depth == 0:
            with self.changed:
                # A busy thread that went straight in again would hold the fork off for ever.
                self.changed.wait_for(lambda: not self.forking, PATIENCE)
                self.count += 1
        self.mine.depth = depth + 1

    def leave(self) -> None:
        self.mine.depth -= 1
        if self.mine.depth == 0:
            with self.changed:
                self.count -= 1
                self.changed.notify_all()


_uses = _Uses()


@contextmanager
def no_fork() -> Iterator[None]:
    """Let no thread fork this process in a block, which is to be short. Thread-safe."""
    uses = _uses
    uses.enter()
    try:
        yield
    finally:
        uses.leave()


def _before_fork() -> None:
    _uses.changed.acquire()
    _uses.forking = True
    own = 1 if getattr(_uses.mine, "depth", 0) else 0
    _uses.changed.wait_for(lambda: _uses.count == own, PATIENCE)


def _after_fork_in_parent() -> None:
    _uses.forking = False
    _uses.changed.notify_all()
    _uses.changed.release()


def _after_fork_in_child() -> None:
    global _uses
    _uses = _Uses()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )

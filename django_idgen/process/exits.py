"""Hooks for a process's clean end and for forked children. Works without Django."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from multiprocessing import util as multiprocessing_util

__all__ = ["on_exit", "on_fork", "on_multiprocessing_exit"]


def on_exit(close: Callable[[], None]) -> None:
    """Call ``close`` when the interpreter ends."""
    atexit.register(close)


def on_fork(forget: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
    """Call ``forget`` in the child of each fork, and ``before`` in the parent.

    uWSGI forks without Python's hooks.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=forget)


def on_multiprocessing_exit(close: Callable[[], None]) -> None:
    """Call ``close`` when a child of multiprocessing ends, which uses ``os._exit()``."""
    finalizer = _Finalizer(close)
    _finalizers.append(finalizer)  # multiprocessing has a weak reference only
    finalizer.arm()
    multiprocessing_util.register_after_fork(finalizer, _Finalizer.arm)


class _Finalizer:
    """Our entry in multiprocessing's finalizers, which a child clears when it starts."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def arm(self) -> None:
        multiprocessing_util.Finalize(None, self._close, exitpriority=0)


_finalizers: list[_Finalizer] = []

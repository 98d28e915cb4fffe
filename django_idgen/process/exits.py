"""A process' clean end, and a fork's child: for what holds grants, with Django or without."""

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
    """Call ``forget`` in the child of each fork, if Python hears of it (uWSGI's it doesn't).

    ``before`` is called in the parent.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=forget)


def on_multiprocessing_exit(close: Callable[[], None]) -> None:
    """Call ``close`` when a child of multiprocessing ends, which leaves by ``os._exit()``."""
    finalizer = _Finalizer(close)
    _finalizers.append(finalizer)  # multiprocessing itself holds it weakly
    finalizer.arm()
    multiprocessing_util.register_after_fork(finalizer, _Finalizer.arm)


class _Finalizer:
    """Our entry among multiprocessing's finalizers, which a child begins by clearing."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def arm(self) -> None:
        multiprocessing_util.Finalize(None, self._close, exitpriority=0)


_finalizers: list[_Finalizer] = []

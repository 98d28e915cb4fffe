"""Hooks for a process's clean end and for forked children. Works without Django."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from multiprocessing import util as multiprocessing_util


def on_fork(forget: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
    """Call ``forget`` in the child of each fork, and ``before`` in the parent.

    uWSGI forks without Python's hooks.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=forget)


def call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Call each of ``functions``, also if one before it raised; then raises the last error."""
    with ExitStack() as stack:
        for function in reversed(list(functions)):
            stack.callback(function)


_closing: list[Callable[[], None]] = []


def on_multiprocessing_exit(close: Callable[[], None]) -> None:
    """Call ``close``, a module's function, when a child of multiprocessing ends.

    It ends by ``os._exit()``, and clears multiprocessing's finalizers when it starts.
    """
    _closing.append(close)

    def arm(close: Callable[[], None]) -> None:
        multiprocessing_util.Finalize(None, close, exitpriority=0)

    arm(close)
    multiprocessing_util.register_after_fork(close, arm)  # which has a weak reference to it only


def end_now(status: int) -> None:
    """End this child of multiprocessing with exit code ``status``, giving back what it holds.

    For any thread. Does not return.
    """
    try:
        for close in _closing:
            close()
    finally:
        os._exit(status)

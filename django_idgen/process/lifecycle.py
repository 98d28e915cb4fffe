"""What happens to a process's grants at a fork and at its end.

A forked child drops its parent's grants, by Python's fork hooks.
uWSGI forks without running them: see :mod:`..core.generator`.

A process that ends cleanly gives its worker ids back: ``atexit`` calls us in most,
:class:`multiprocessing.util.Finalize` in multiprocessing's children (which skip ``atexit``),
Celery's signal in its prefork children (which skip both). The lease of a killed process expires.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ..db import connection
from . import exits

_close: list[Callable[[], None]] = []
_before_fork: list[Callable[[], None]] = []
_forget: list[Callable[[], None]] = []
_watching: set[str] = set()


def register(
    *,
    close: Callable[[], None] | None = None,
    forget: Callable[[], None],
    before_fork: Callable[[], None] | None = None,
) -> None:
    """Register functions to call at a clean end, in the child of a fork, and before the fork."""
    if close is not None:
        _close.append(close)
    _forget.append(forget)
    if before_fork is not None:
        _before_fork.append(before_fork)


def close_all(*_args: object, **_kwargs: object) -> None:
    """Give back what this process holds. May be called twice. Never raises."""
    for close in _close:
        close()


def before_fork() -> None:
    """Prepare this process for a fork. Called in the parent."""
    for prepare in _before_fork:
        prepare()


def forget_all() -> None:
    """Drop what a child inherited. Called in the child, while it has one thread."""
    exits.call_all([connection.reset_after_fork, *_forget])


def watch() -> None:
    """Install the hooks for forks and the end. Called when a generator is made."""
    _watch_once("exit", partial(atexit.register, close_all))
    _watch_once("fork", partial(exits.on_fork, forget_all, before=before_fork))
    _watch_once("multiprocessing", partial(exits.on_multiprocessing_exit, close_all))
    # None in sys.modules says that it must not be imported.
    if sys.modules.get("celery") is not None:
        _watch_once("celery", _watch_celery)
    if sys.modules.get("gevent") is not None:
        _watch_once("gevent", _watch_gevent)


def _watch_once(name: str, start: Callable[[], object]) -> None:
    if name not in _watching:
        _watching.add(name)
        start()


def _watch_celery() -> None:
    signals: Any = importlib.import_module("celery.signals")
    signals.worker_process_shutdown.connect(close_all, weak=False, dispatch_uid="django_idgen")


def _watch_gevent() -> None:
    """Start over when gevent patches locks, as gunicorn's worker does after its fork.

    An older lock blocks all greenlets of the thread, including the one that holds it.
    """
    events: Any = importlib.import_module("gevent.events")

    def on_event(event: object) -> None:
        if isinstance(event, events.GeventDidPatchAllEvent):
            connection.renew_locks()
            forget_all()

    events.subscribers.append(on_event)

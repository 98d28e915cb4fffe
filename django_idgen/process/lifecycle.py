"""Forking and leaving: the two moments at which a process' grants must not linger.

A child of a fork issues nothing of its parent's. Python's fork hooks see to it.
uWSGI forks without running them: see :mod:`..core.generator`.

A process that ends in order gives its worker ids back, whichever way it ends:
``atexit`` for most, :class:`multiprocessing.util.Finalize` for multiprocessing's
children (which skip ``atexit``), Celery's signal for its prefork children (which
skip both). One that is killed lets its lease expire.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ..db import connection
from . import exits

__all__ = ["close_all", "forget_all", "register", "watch"]

_close: list[Callable[[], None]] = []
_before_fork: list[Callable[[], None]] = []
_forget: list[Callable[[], None]] = []
_watching: set[str] = set()


def register(
    *,
    close: Callable[[], None],
    forget: Callable[[], None],
    before_fork: Callable[[], None] | None = None,
) -> None:
    """Name what is called at a clean end, in the child of a fork, and before the fork."""
    _close.append(close)
    _forget.append(forget)
    if before_fork is not None:
        _before_fork.append(before_fork)


def close_all(*_args: object, **_kwargs: object) -> None:
    """Give back what this process holds. May be called twice, and never raises."""
    for close in _close:
        close()


def before_fork() -> None:
    """Come to where a fork harms no thread; called in the parent."""
    for prepare in _before_fork:
        prepare()


def forget_all() -> None:
    """Drop what a child inherited; called in the child, while it has one thread."""
    connection.reset_after_fork()
    for forget in _forget:
        forget()


def watch() -> None:
    """See to it that this process' end is noticed; called when a generator is made."""
    _watch_once("exit", partial(exits.on_exit, close_all))
    _watch_once("fork", partial(exits.on_fork, forget_all, before=before_fork))
    _watch_once("multiprocessing", partial(exits.on_multiprocessing_exit, close_all))
    # None there says that it must not be imported.
    if sys.modules.get("celery") is not None:  # an app without it must not load it
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
    """Start afresh when gevent changes what a lock is, as gunicorn's worker does after its fork.

    A lock made before blocks all greenlets of the thread, the one that holds it included.
    """
    events: Any = importlib.import_module("gevent.events")

    def on_event(event: object) -> None:
        if isinstance(event, events.GeventDidPatchAllEvent):
            connection.renew_locks()
            forget_all()

    events.subscribers.append(on_event)

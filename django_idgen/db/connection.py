"""Database connections of our own, so that no grant rides in a caller's transaction.

A grant that was taken inside the caller's transaction would be given back by a
rollback while its ids are in use, and would keep its row locked until the
caller commits. So all registry and source I/O on a database server runs on a
thread of ours, one per alias, whose connection belongs to nobody else. Both the
thread and the connection go away as soon as there is nothing left to do: an
open connection would block ``DROP DATABASE`` for a test runner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from enum import Enum
from types import MethodType
from typing import Any, TypeVar

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend

from ..core.loader import InlineLoader, Loader
from ..core.prefork import is_prefork
from .sqlite.file_name import file_of
from .watchdog import SilenceGuard

__all__ = ["OwnConnection", "Place", "is_own_thread", "own_connection", "place_of"]

T = TypeVar("T")

CONNECT_TIMEOUT = 3
"""Seconds until a dead server is given up."""
SOCKET_TIMEOUT = 10
"""Seconds that a server may be silent: else it would hold the alias' thread for ever."""
_POSTGRES = {"connect_timeout": CONNECT_TIMEOUT, "tcp_user_timeout": SOCKET_TIMEOUT * 1000}
_MYSQL = {
    "connect_timeout": CONNECT_TIMEOUT,
    "read_timeout": SOCKET_TIMEOUT,
    "write_timeout": SOCKET_TIMEOUT,
}
SOCKET_OPTIONS = {"postgresql": _POSTGRES, "postgis": _POSTGRES, "mysql": _MYSQL}
LOCK_TIMEOUT = 2
"""Seconds that a row may stay locked by somebody else before we give up on it."""


_BLOCKED = "_blocking_wrapper"
# Taken before pytest-django puts its own in: a load that is under way when a test
# ends may come to its end.
_ensure_connection = BaseDatabaseWrapper.ensure_connection


class Place(Enum):
    """Where the marks of a database alias are kept."""

    SERVER = "server"
    """In tables of that database, written on a connection of our own."""
    FILE = "file"
    """In a file beside a SQLite database, since SQLite has a single writer."""
    MEMORY = "memory"
    """In this process: an in-memory database has no other."""
    FORBIDDEN = "forbidden"
    """In this process, as long as a test forbids the alias."""

    @property
    def in_process(self) -> bool:
        """Whether nothing outside of this process knows of the marks."""
        return self in (Place.MEMORY, Place.FORBIDDEN)


def place_of(alias: str) -> Place:
    """Where the marks of ``alias`` are kept, as seen by the calling thread."""
    connection = connections[alias]
    if _forbidden(connection):
        return Place.FORBIDDEN
    if connection.vendor != "sqlite":
        return Place.SERVER
    return Place.MEMORY if file_of(connection.settings_dict["NAME"]) is None else Place.FILE


def _forbidden(connection: BaseDatabaseWrapper) -> bool:
    # Told by name: production code must not import the test frameworks.
    django_test = type(connection.connect).__name__ == "_DatabaseFailure"
    return django_test or connection.ensure_connection.__name__ == _BLOCKED


class _OwnLoader(Loader):
    """A loader that can tell whether it is one of its own jobs who asks."""

    def __init__(self, name: str, *, on_idle: Callable[[], None]) -> None:
        self._running = threading.local()
        self._inline = InlineLoader(on_idle=on_idle)
        super().__init__(name, on_idle=on_idle)

    @property
    def inside(self) -> bool:
        """Whether the calling thread is running one of our jobs."""
        return getattr(self._running, "depth", 0) > 0

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        if is_prefork():
            # uWSGI forks whatever other threads do: one that had the GIL just then would
            # leave the worker waiting for it for ever.
            return self._inline.submit(lambda: self._marked(fn), urgent=urgent)
        return super().submit(lambda: self._marked(fn), urgent=urgent)

    def reset_if_forked(self) -> None:
        """As :meth:`reset`, but a child that has begun its own jobs keeps them."""
        self._check_process()

    def _marked(self, fn: Callable[[], T]) -> T:
        self._running.depth = getattr(self._running, "depth", 0) + 1
        try:
            return fn()
        finally:
            self._running.depth -= 1


class _Job:
    """What runs on a connection, with all that it has run there in its midst."""

    failed = False

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.failed = True
            raise


class OwnConnection:
    """Runs jobs of one alias, one after the other, on a connection of its own.

    Thread-safe. Use :func:`own_connection` to get the one of an alias.
    """

    def __init__(self, alias: str, purpose: str = "") -> None:
        self.alias = alias
        name = f"idgen-{alias}-{purpose}" if purpose else f"idgen-{alias}"
        self.loader = _OwnLoader(name, on_idle=self._close)

    def run(self, job: Callable[[BaseDatabaseWrapper], T], *, timeout: float) -> T:
        """Run ``job(connection)`` ahead of preloads and return what it returns.

        Raises what the job raises, or :class:`TimeoutError` after ``timeout``
        seconds. The job may then still be running: its answer counts as lost.
        From within a job of this loader it runs at once, and as long as it takes.
        """
        if self.loader.inside:
            return self.call(job)
        future = self.loader.submit(lambda: self.call(job), urgent=True)
        try:
            return future.result(timeout)
        except FutureTimeout:
            future.cancel()
            raise

    def call(self, job: Callable[[BaseDatabaseWrapper], T]) -> T:
        """Run ``job`` in the calling thread, which must be the loader's."""
        connection = self._open()
        outer: _Job | None = getattr(connection, "idgen_job", None)
        if outer is not None:
            with outer.noting_failure():
                return job(connection)
        guard: SilenceGuard | None = getattr(connection, "idgen_guard", None)
        connection.idgen_job = this = _Job()  # type: ignore[attr-defined]
        if guard is not None:
            guard.job_began()
        try:
            with this.noting_failure():
                return job(connection)
        finally:
            connection.idgen_job = None  # type: ignore[attr-defined]
            if guard is not None:
                guard.job_ended()
            if this.failed:
                # It may be broken, or hold half a transaction: the next job gets a new one.
                self._close()

    def reset(self) -> None:
        """After a fork: the parent's thread and socket are not ours. May be called late."""
        self.loader.reset_if_forked()

    def _open(self) -> BaseDatabaseWrapper:
        # ``connections`` is local to the thread, so this is seen by nobody else;
        # going through it lets the ORM's ``using(alias)`` find our connection.
        current = connections[self.alias]
        if not isinstance(getattr(current, "idgen_displaced", None), BaseDatabaseWrapper):
            own = _new_wrapper(self.alias)
            # Where no thread can be started (interpreter shutdown) the job runs in
            # the caller's, whose own connection must come through untouched.
            own.idgen_displaced = current  # type: ignore[attr-defined]
            if own.vendor == "postgresql" and not is_prefork():
                own.idgen_guard = SilenceGuard(own, SOCKET_TIMEOUT)  # type: ignore[attr-defined]
            connections[self.alias] = own
            return own
        return current

    def _close(self) -> None:
        own = connections[self.alias]
        displaced = getattr(own, "idgen_displaced", None)
        if isinstance(displaced, BaseDatabaseWrapper):
            if hasattr(own, "idgen_guard"):
                own.idgen_guard.stop()
            try:
                own.close()
            finally:
                connections[self.alias] = displaced


def _new_wrapper(alias: str) -> BaseDatabaseWrapper:
    configured: dict[str, Any] = connections.settings[alias]
    options: dict[str, Any] = dict(configured.get("OPTIONS") or {})
    # A pool of a bounded size may be used up by the very callers who wait for us.
    options.pop("pool", None)
    options.pop("isolation_level", None)
    for option, value in SOCKET_OPTIONS.get(configured["ENGINE"].rpartition(".")[2], {}).items():
        options.setdefault(option, value)
    own: dict[str, Any] = {
        **configured,
        "OPTIONS": options,
        "AUTOCOMMIT": True,
        "ATOMIC_REQUESTS": False,
        "CONN_MAX_AGE": 0,
    }
    wrapper: BaseDatabaseWrapper = load_backend(own["ENGINE"]).DatabaseWrapper(own, alias)
    if type(wrapper).ensure_connection.__name__ == _BLOCKED != _ensure_connection.__name__:
        wrapper.ensure_connection = MethodType(_ensure_connection, wrapper)  # type: ignore[method-assign]
    return wrapper


_owned: dict[tuple[str, str], OwnConnection] = {}
_owned_lock = threading.Lock()


def own_connection(alias: str, purpose: str = "") -> OwnConnection:
    """The :class:`OwnConnection` of ``alias``, made on first use.

    One more for each ``purpose``, for jobs that no grant may have to wait for.
    """
    found = _owned.get((alias, purpose))
    if found is None:
        with _owned_lock:
            found = _owned.setdefault((alias, purpose), OwnConnection(alias, purpose))
    return found


def is_own_thread() -> bool:
    """Whether the calling thread runs a job on one of our connections."""
    return any(owned.loader.inside for owned in list(_owned.values()))


def reset_after_fork() -> None:
    """Forget the parent's threads and sockets (called by :mod:`..process.lifecycle`)."""
    global _owned_lock
    _owned_lock = threading.Lock()
    for owned in _owned.values():
        owned.reset()


def renew_locks() -> None:
    """Drop all jobs, and make the locks anew of what ``threading`` calls a lock by now."""
    for owned in _owned.values():
        owned.loader.reset()

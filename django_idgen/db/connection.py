"""Database connections of our own, so that no grant rides in a caller's transaction.

A grant that was taken inside the caller's transaction would be given back by a
rollback while its ids are in use, and would keep its row locked until the
caller commits. So all registry and source I/O on a database server runs on a
thread of this app, one per alias, whose connection no caller uses. Both the
thread and the connection go away as soon as there is nothing left to do: an
open connection would block ``DROP DATABASE`` for a test runner.

The tables of a SQLite database stand in a file beside it (see :mod:`.sqlite`). Our own
connection opens that file; callers read and write its rows through :func:`home_of`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, nullcontext
from enum import Enum
from functools import partial
from types import MethodType
from typing import Any, TypeVar

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend
from django.utils.connection import ConnectionDoesNotExist

from ..core.generator import is_prefork
from ..core.loader import InlineLoader, Loader
from .forking import no_fork
from .sqlite import FileConnection, database_of, file_of
from .watchdog import SilenceGuard

__all__ = [
    "OwnConnection",
    "Place",
    "configured_alias",
    "home_connection",
    "home_of",
    "is_own_thread",
    "is_there",
    "own_connection",
    "place_of",
]

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


_HOME = " (idgen)"
_BLOCKED = "_blocking_wrapper"
# Taken before pytest-django puts its own in: a load that is under way when a test
# ends may come to its end.
_ensure_connection = BaseDatabaseWrapper.ensure_connection


class Place(Enum):
    """Where the marks of a database alias are kept."""

    SERVER = "server"
    """In tables, written on a connection of our own: a server's, or a SQLite file's."""
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
    return Place.MEMORY if file_of(connection.settings_dict["NAME"]) is None else Place.SERVER


def home_of(alias: str) -> str:
    """The alias under which the calling thread finds our tables of the database ``alias``.

    Another one for a SQLite database in a file alone. Only the calling thread's ``connections``
    has it: test runners and ``connections.all()`` see no alias more.
    """
    connection = connections[alias]
    if isinstance(connection, FileConnection) or place_of(alias) is not Place.SERVER:
        return alias
    database = database_of(alias)
    if database is None:
        return alias
    name = f"{alias}{_HOME}"
    try:
        home = connections[name]
    except ConnectionDoesNotExist:
        home = None
    if not isinstance(home, FileConnection) or home.database != database or home.pid != os.getpid():
        if isinstance(home, FileConnection):
            home.drop()
        connections[name] = FileConnection(name, connections.settings[alias], database)
    elif not home.in_atomic_block:
        home.refresh()
    return name


def home_connection(alias: str) -> BaseDatabaseWrapper:
    """The calling thread's connection to our tables of the database ``alias``."""
    return connections[home_of(alias)]


def is_there(alias: str) -> bool:
    """Whether anything can be looked up: to connect would make the file beside a database."""
    home = home_connection(alias)
    return not isinstance(home, FileConnection) or home.is_made()


def configured_alias(alias: str) -> str:
    """The alias of ``DATABASES`` that :func:`home_of` made ``alias`` of."""
    return alias.removesuffix(_HOME)


def _forbidden(connection: BaseDatabaseWrapper) -> bool:
    # Told by name: production code must not import the test frameworks.
    django_test = type(connection.connect).__name__ == "_DatabaseFailure"
    return django_test or connection.ensure_connection.__name__ == _BLOCKED


class _OwnLoader(Loader):
    """A loader that can tell whether it is one of its own jobs who asks, and of which database."""

    def __init__(self, name: str, alias: str, *, on_idle: Callable[[], None]) -> None:
        self._alias = alias
        self._running = threading.local()
        self._inline = InlineLoader(on_idle=on_idle)
        super().__init__(name, on_idle=on_idle)

    @property
    def inside(self) -> bool:
        """Whether the calling thread is running one of our jobs."""
        return getattr(self._running, "depth", 0) > 0

    @property
    def meant(self) -> str:
        """The NAME that the alias had when the running job was submitted."""
        name: str = self._running.meant
        return name

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        job = partial(self._marked, fn, str(connections.settings[self._alias]["NAME"]))
        if is_prefork():
            # uWSGI forks whatever other threads do: one that had the GIL just then would
            # leave the worker waiting for it for ever.
            return self._inline.submit(job, urgent=urgent)
        return super().submit(job, urgent=urgent)

    def reset_if_forked(self) -> None:
        """As :meth:`reset`, but a child that has begun its own jobs keeps them."""
        self._check_process()

    def _marked(self, fn: Callable[[], T], name: str) -> T:
        self._running.depth = getattr(self._running, "depth", 0) + 1
        self._running.meant = name
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
        self.loader = _OwnLoader(name, alias, on_idle=self._close)

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
        with no_fork() if isinstance(connection, FileConnection) else nullcontext():
            return self._call(job, connection)

    def _call(self, job: Callable[[BaseDatabaseWrapper], T], connection: BaseDatabaseWrapper) -> T:
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
        # ``connections`` is local to the thread, so no other thread sees this;
        # going through it lets the ORM's ``using(alias)`` find our connection.
        current = connections[self.alias]
        if isinstance(current, FileConnection) and current.database != database_of(self.alias):
            self._close()  # a test runner has put another database in its place
            current = connections[self.alias]
        if not isinstance(getattr(current, "idgen_displaced", None), BaseDatabaseWrapper):
            configured = dict(connections.settings[self.alias])
            if str(configured["NAME"]) != self.loader.meant:
                # At the end of a test run: a preload for the tests is none for the real database.
                raise OperationalError(f"it is another database than {self.loader.meant!r} by now")
            own = _new_wrapper(self.alias, configured)
            # Where no thread can be started (interpreter shutdown) the job runs in
            # the caller's, whose own connection must come through untouched.
            own.idgen_displaced = current  # type: ignore[attr-defined]
            if own.vendor == "postgresql" and not is_prefork():
                own.idgen_guard = SilenceGuard(own, SOCKET_TIMEOUT)  # type: ignore[attr-defined]
            connections[self.alias] = own
            return own
        if isinstance(current, FileConnection) and not current.in_atomic_block:
            current.refresh()
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


def _new_wrapper(alias: str, configured: dict[str, Any]) -> BaseDatabaseWrapper:
    database = file_of(configured["NAME"]) if connections[alias].vendor == "sqlite" else None
    if database is not None:
        return _unblocked(FileConnection(alias, configured, database))
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
    return _unblocked(load_backend(own["ENGINE"]).DatabaseWrapper(own, alias))


def _unblocked(wrapper: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
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

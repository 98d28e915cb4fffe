"""Our own database connections, so that no caller's transaction holds a grant.

A rollback would return a grant that was taken inside the caller's transaction, while its ids
are in use; and the grant would keep its row locked until the caller commits. So all registry and
source I/O on a database server runs in a thread of this app, one per alias, on a connection
that no caller uses. The thread ends and closes the connection when nothing is left to do: an
open connection would block a test runner's ``DROP DATABASE``.

The tables of a SQLite database are in a file beside it (see :mod:`.sqlite`). Our own
connection opens that file. Callers read and write its rows through :func:`home_of`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from types import MethodType
from typing import Any, Generic, TypeVar

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend
from django.utils.connection import ConnectionDoesNotExist

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import ConfigurationError
from ..core.loader import BackgroundThread, Loader
from .sqlite import FileConnection, database_of, file_of, no_fork

T = TypeVar("T")
S = TypeVar("S")

CONNECT_TIMEOUT = 3
"""Seconds to wait for a connection."""
SOCKET_TIMEOUT = 10
"""Seconds to wait for an answer: a silent server must not hold the alias's thread for ever."""
_POSTGRES = {"connect_timeout": CONNECT_TIMEOUT, "tcp_user_timeout": SOCKET_TIMEOUT * 1000}
_MYSQL = {
    "connect_timeout": CONNECT_TIMEOUT,
    "read_timeout": SOCKET_TIMEOUT,
    "write_timeout": SOCKET_TIMEOUT,
}
SOCKET_OPTIONS = {"postgresql": _POSTGRES, "postgis": _POSTGRES, "mysql": _MYSQL}
LOCK_TIMEOUT = 2
"""Seconds to wait for a row that another process has locked."""


_HOME = " (idgen)"
_BLOCKED = "_blocking_wrapper"
# Saved before pytest-django replaces it: a load that is under way when a test ends may finish.
_ensure_connection = BaseDatabaseWrapper.ensure_connection


class Place(Enum):
    """Where the marks of a database alias are kept."""

    SERVER = "server"
    """In tables of a server or a SQLite file, written on our own connection."""
    MEMORY = "memory"
    """In this process, which is the only one that an in-memory database has."""
    FORBIDDEN = "forbidden"
    """In this process, while a test forbids the alias."""

    @property
    def in_process(self) -> bool:
        """Whether only this process knows the marks."""
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

    It differs from ``alias`` for a SQLite file. Only the calling thread's ``connections`` has it:
    test runners and ``connections.all()`` don't see it.
    """
    connection = connections[alias]
    if connection.vendor != "sqlite" or isinstance(connection, FileConnection):
        return alias
    database = database_of(alias)
    if database is None or place_of(alias) is not Place.SERVER:
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
    """Whether the tables can be read without making the file beside a SQLite database."""
    home = home_connection(alias)
    return not isinstance(home, FileConnection) or home.is_made()


def configured_alias(alias: str) -> str:
    """The alias of ``DATABASES`` for an alias that :func:`home_of` returned."""
    return alias.removesuffix(_HOME)


def _forbidden(connection: BaseDatabaseWrapper) -> bool:
    # Recognised by name: production code must not import the test frameworks.
    django_test = type(connection.connect).__name__ == "_DatabaseFailure"
    return django_test or connection.ensure_connection.__name__ == _BLOCKED


class _OwnLoader(Loader):
    """A loader that knows whether the calling thread runs one of its jobs."""

    def __init__(self, name: str, alias: str, *, on_idle: Callable[[], None]) -> None:
        self._alias = alias
        self._running = threading.local()
        super().__init__(name, inline=self._is_in_process, on_idle=on_idle)

    @property
    def inside(self) -> bool:
        """Whether the calling thread is running one of its jobs."""
        return getattr(self._running, "depth", 0) > 0

    @property
    def meant(self) -> str:
        """The NAME that the alias had when the running job was submitted."""
        name: str = self._running.meant
        return name

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        if self._is_in_process():
            return super().submit(fn, urgent=urgent)
        job = partial(self._marked, fn, str(connections.settings[self._alias]["NAME"]))
        return super().submit(job, urgent=urgent)

    def _is_in_process(self) -> bool:
        # Another thread would find another database in memory.
        return place_of(self._alias).in_process

    def _marked(self, fn: Callable[[], T], name: str) -> T:
        self._running.depth = getattr(self._running, "depth", 0) + 1
        self._running.meant = name
        try:
            return fn()
        finally:
            self._running.depth -= 1


@dataclass(slots=True)
class _Use:
    """How a thread uses one of our connections."""

    displaced: BaseDatabaseWrapper
    """The connection whose place it has taken in the thread's ``connections``."""
    guard: SilenceGuard | None
    busy: bool = False
    failed: bool = False


class OwnConnection:
    """Runs jobs of one alias, one after the other, on a connection of its own.

    Thread-safe. Use :func:`own_connection` to get the one of an alias.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.loader = _OwnLoader(f"idgen-{alias}", alias, on_idle=self._close)

    def run(self, job: Callable[[BaseDatabaseWrapper], T], *, timeout: float) -> T:
        """Run ``job(connection)`` ahead of preloads and return what it returns.

        Raises what the job raises, or :class:`TimeoutError` after ``timeout``
        seconds. The job may then still be running: its answer counts as lost.
        Inside a job of this loader ``job`` runs at once, without a timeout.
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
        use: _Use = connection.idgen_use  # type: ignore[attr-defined]
        outermost, use.busy = not use.busy, True
        if outermost and use.guard is not None:
            use.guard.began = SYSTEM_CLOCK.stopwatch()
        try:
            return job(connection)
        except BaseException:
            use.failed = True
            raise
        finally:
            if outermost:
                use.busy = False
                if use.guard is not None:
                    use.guard.began = None
                if use.failed:
                    # It may be broken, or inside a transaction: the next job gets a new one.
                    self._close()

    def reset(self) -> None:
        """After a fork, forget the parent's thread and socket. May be called late."""
        self.loader.check_process()

    def _open(self) -> BaseDatabaseWrapper:
        # ``connections`` is local to the thread, so no other thread sees the change. The ORM's
        # ``using(alias)`` finds our connection there.
        own = connections[self.alias]
        if isinstance(own, FileConnection) and own.database != database_of(self.alias):
            self._close()  # a test runner has put another database in its place
        elif _use_of(own) is not None:
            if isinstance(own, FileConnection) and not own.in_atomic_block:
                own.refresh()
            return own
        return self._displace(connections[self.alias])

    def _displace(self, displaced: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
        """Put our own new connection in the place of the thread's."""
        configured = dict(connections.settings[self.alias])
        if str(configured["NAME"]) != self.loader.meant:
            # At the end of a test run: no preload for the tests reaches the real database.
            raise OperationalError(f"the alias no longer means {self.loader.meant!r}")
        own = _new_wrapper(self.alias, configured)
        guard = SilenceGuard(own, SOCKET_TIMEOUT) if own.vendor == "postgresql" else None
        # Where no thread can be started (interpreter shutdown) the job runs in
        # the caller's thread, and the caller gets its own connection back.
        own.idgen_use = _Use(displaced, guard)  # type: ignore[attr-defined]
        connections[self.alias] = own
        return own

    def _close(self) -> None:
        own = connections[self.alias]
        use = _use_of(own)
        if use is not None:
            if use.guard is not None:
                use.guard.stop()
            try:
                own.close()
            finally:
                connections[self.alias] = use.displaced


def _use_of(connection: BaseDatabaseWrapper) -> _Use | None:
    use = getattr(connection, "idgen_use", None)
    return use if isinstance(use, _Use) else None


def _new_wrapper(alias: str, configured: dict[str, Any]) -> BaseDatabaseWrapper:
    database = file_of(configured["NAME"]) if connections[alias].vendor == "sqlite" else None
    if database is not None:
        return _unblocked(FileConnection(alias, configured, database))
    return _plain_wrapper(alias, configured)


def connection_apart(alias: str) -> BaseDatabaseWrapper:
    """A new connection to the project's database, which sees only what is committed. Close it.

    It waits for long statements.
    """
    return _plain_wrapper(alias, dict(connections.settings[alias]), patient=True)


def _plain_wrapper(
    alias: str, configured: dict[str, Any], *, patient: bool = False
) -> BaseDatabaseWrapper:
    kind = load_backend(configured["ENGINE"]).DatabaseWrapper
    unpooled = _unpooled(kind)
    options: dict[str, Any] = dict(configured.get("OPTIONS") or {})
    options.pop("pool", None)
    options.pop("isolation_level", None)
    if unpooled is not kind:
        # Those of its pool: no driver has an option in capitals.
        options = {name: value for name, value in options.items() if not name.isupper()}
    for option, value in SOCKET_OPTIONS.get(configured["ENGINE"].rpartition(".")[2], {}).items():
        if not (patient and option.endswith("_timeout") and option != "connect_timeout"):
            options.setdefault(option, value)
    own: dict[str, Any] = {
        **configured,
        "OPTIONS": options,
        "AUTOCOMMIT": True,
        "ATOMIC_REQUESTS": False,
        "CONN_MAX_AGE": 0,
    }
    return _unblocked(unpooled(own, alias))


_LIFE = (
    "_close",
    "_set_autocommit",
    "close",
    "close_if_unusable_or_obsolete",
    "get_new_connection",
    "is_usable",
)
"""The methods by which an engine makes and ends connections."""


@cache
def _unpooled(engine: Any) -> Any:
    """``engine``, but for a pool of its own: callers who wait for us may hold all that is in it.

    An engine has one if it both makes and ends connections in another way than Django's.
    """
    parent = next(kind for kind in engine.__mro__ if kind.__module__.startswith("django."))
    own = {name for name in _LIFE if getattr(engine, name) is not getattr(parent, name)}
    if parent is BaseDatabaseWrapper or not (
        "get_new_connection" in own and own & {"_close", "close"}
    ):
        return engine
    return type(engine.__name__, (engine,), {name: getattr(parent, name) for name in own})


def _unblocked(wrapper: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    if type(wrapper).ensure_connection.__name__ == _BLOCKED != _ensure_connection.__name__:
        wrapper.ensure_connection = MethodType(_ensure_connection, wrapper)  # type: ignore[method-assign]
    return wrapper


_owned: dict[str, OwnConnection] = {}
_owned_lock = threading.Lock()


def own_connection(alias: str) -> OwnConnection:
    """The :class:`OwnConnection` of ``alias``, made on first use."""
    found = _owned.get(alias)
    if found is None:
        with _owned_lock:
            found = _owned.setdefault(alias, OwnConnection(alias))
    return found


def is_own_thread() -> bool:
    """Whether the calling thread runs a job on one of our connections."""
    return any(owned.loader.inside for owned in list(_owned.values()))


def close_after_jobs() -> None:
    """Close what jobs have opened in a thread of a loader. A caller keeps its connections."""
    if isinstance(threading.current_thread(), BackgroundThread):
        connections.close_all()


def reset_after_fork() -> None:
    """Forget the parent's threads and sockets. Called by :mod:`..process.lifecycle`."""
    global _owned_lock
    _owned_lock = threading.Lock()
    for owned in _owned.values():
        owned.reset()


def renew_locks() -> None:
    """Drop all jobs and make new locks, after gevent has replaced the classes of ``threading``."""
    for owned in _owned.values():
        owned.loader.forget()


class SilenceGuard:
    """Ends a PostgreSQL ``connection`` when one job on it takes longer than ``limit`` seconds.

    PostgreSQL's driver waits for as long as the server's kernel is alive, even if the server
    process is stopped or its disk hangs. All later jobs of the alias would wait behind that job.
    (MySQL's drivers have a read timeout.) The job's thread gets the error of a broken connection.
    The guard's own thread lives from the first job to :meth:`stop`.
    """

    def __init__(self, connection: BaseDatabaseWrapper, limit: float) -> None:
        self._connection = connection
        self._limit = limit
        self.began: float | None = None
        """When the job under way began."""
        self._stopped = threading.Event()
        self._thread = BackgroundThread(f"idgen-guard-{connection.alias}", self._watch)
        self._thread.start_if_possible()

    def stop(self) -> None:
        """Stop before the connection is closed: its socket's number may be reused."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._limit / 4):
            began = self.began
            if began is not None and SYSTEM_CLOCK.stopwatch() - began > self._limit:
                self._end()
                return

    def _end(self) -> None:
        driver_error = self._connection.Database.Error  # type: ignore[attr-defined]
        with suppress(driver_error, OSError, AttributeError):  # not open
            number = os.dup(self._connection.connection.fileno())
            with socket.socket(fileno=number) as ours:
                ours.shutdown(socket.SHUT_RDWR)


# --- where the marks of an alias are kept -------------------------------------------------


class Stores(Generic[S]):
    """The stores of one alias by place and database name, made on first use. Thread-safe.

    Each call looks the place up, since test runners change databases under a running process.
    Raises :class:`ConfigurationError` for an alias that is not configured.
    """

    def __init__(self, alias: str, make: Callable[[Place], S]) -> None:
        if alias not in connections.settings:
            raise ConfigurationError(
                f"'database' is {alias!r}, which is not in DATABASES. Known: "
                f"{', '.join(map(repr, connections.settings))}."
            )
        self.alias = alias
        self._make = make
        self._made: dict[tuple[Place, str], S] = {}
        self._lock = threading.Lock()

    def current(self) -> S:
        """The store of the database that the alias now means to the calling thread."""
        key = self._key()
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key) or self._made.setdefault(key, self._make(key[0]))
        return found

    def is_current(self, store: S) -> bool:
        """Whether the alias means the database that ``store`` was made for."""
        return self._made.get(self._key()) is store

    def _key(self) -> tuple[Place, str]:
        # A link may lead to another file now.
        name = database_of(self.alias) or connections.settings[self.alias]["NAME"]
        return place_of(self.alias), str(name)

    def all(self) -> list[S]:
        """Every store that was made."""
        return list(self._made.values())

    def reset(self) -> None:
        """After a fork: the lock is the parent's."""
        self._lock = threading.Lock()


_in_process: dict[tuple[object, ...], Any] = {}


def kept_in_process(alias: str, place: Place, *what: object, make: Callable[[], T]) -> T:
    """What this process keeps for an in-memory database, made on first use.

    It outlives a change of settings (a test's ``override_settings``), as rows do.
    """
    key = (alias, place, str(connections.settings[alias]["NAME"]), *what)
    found: T = _in_process.get(key) or _in_process.setdefault(key, make())
    return found


def forget_in_process() -> None:
    """Forget all of it: the databases in this process are empty or gone."""
    _in_process.clear()

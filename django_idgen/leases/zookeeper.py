"""Worker ids lent by ZooKeeper, which the database has lent the ticks to (rule L6).

All of a namespace is one node, JSON that people can read. It is read, changed by the rules of
:mod:`..core.book`, and written back under the version that was read: of two that change it at
once, one begins again. About once a minute one of the holders has the database raise the
ceiling that ZooKeeper may lend up to, and notes how far the two clocks are apart: the
database's clock counts, and ZooKeeper's carries it on while the database is down.

An ensemble that elects a new leader may have lost its last writes, if its disks were set back.
So each election, like a node that is gone, begins a new *life*: the database opens a new
generation, past all that the old one can have lent.

Beside it stand Leaf's nodes, for people: ``leaf_forever`` keeps who had which worker id last,
``leaf_temporary`` who is connected, both with the time that the holder reported.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import SystemRandom
from typing import Any, TypeVar
from urllib.parse import quote

try:
    from kazoo import exceptions
    from kazoo.client import KazooClient
    from kazoo.security import make_digest_acl
except ImportError as error:
    from ..core.errors import ConfigurationError

    raise ConfigurationError(
        "ZooKeeperLeases need kazoo. Install it with: pip install 'django-idgen[zookeeper]'"
    ) from error

from ..core import book as rules
from ..core.book import Book, CeilingReached, Record, SubLease
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import ConfigurationError, IdgenError, RegistryUnavailable
from ..core.inspection import InspectedMark
from ..core.lease import PROTOCOL_VERSION, Grant, Lease, Mark, Namespace, new_token
from ..core.options import checked_flag, checked_seconds
from ..core.stored import StoredBook
from .book_registry import BookRegistry, Store
from .memory import MemoryBook, MemoryLeases, MemoryMarks
from .root import (
    Kept,
    Root,
    RootedBook,
    SubLessee,
    TakenOver,
    checked_after_loss,
    stride_ticks,
)

__all__ = ["ZooKeeperLeases"]

T = TypeVar("T")

DEFAULT_TIMEOUT = 10.0
MOST_BYTES = 1_000_000
"""Of a node: a server takes no request of more than 1 MiB unless its settings say so."""
LIVES = 6
"""Losses that are followed up in one operation: each costs a generation, a stride ahead."""
_ANSWERS = (exceptions.NoNodeError, exceptions.BadVersionError, exceptions.NodeExistsError)
_CONNECTION_LOST = (exceptions.ConnectionLoss, exceptions.SessionExpiredError)
# Processes that began at once must not go on meeting each other.
_random = SystemRandom()


class ZooKeeperLeases(BookRegistry):
    """A registry in the ZooKeeper at ``hosts``, below ``path`` (kazoo). Thread-safe.

    ``auth`` (``"user:password"``) logs in, and nodes made then are this user's alone.
    ``connection`` holds more keyword arguments of ``kazoo.client.KazooClient``, such as those
    for TLS. ``database`` is the alias of the database that remembers what ZooKeeper may forget.
    ``timeout`` (seconds) bounds each call to either. ``stride`` (seconds, at least a window;
    two windows by default) is how far ahead the database lends: as long it may be down, and so
    far ids may run ahead after a loss or an election; with ``after_loss="wait"`` none is lent
    until the time has come up to it. For ``server_identity`` see :class:`DatabaseLeases`.
    ``read_now_us`` gives the time in µs since 1970 instead of the servers' clocks.

    Raises :class:`ConfigurationError` for options that can't work; connects at the first use.
    """

    kind = "zookeeper"
    uses_database = True
    store: _NodeStore
    database: str

    def __init__(
        self,
        namespace: Namespace,
        *,
        hosts: str = "127.0.0.1:2181",
        path: str = "/django_idgen",
        auth: str | None = None,
        connection: Mapping[str, Any] | None = None,
        database: str = "default",
        timeout: float = DEFAULT_TIMEOUT,
        stride: float | None = None,
        after_loss: str = "ahead",
        server_identity: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.database = database
        limit = checked_seconds("timeout", timeout, most=60)
        node = _Node(
            _session(hosts, auth, connection or {}), _checked_path(path), namespace, limit, clock
        )
        root = Root(
            node,
            database,
            stride=stride_ticks(namespace, stride),
            timeout=limit,
            server_identity=checked_flag("server_identity", server_identity),
            clock=clock,
            read_now_us=read_now_us,
        )
        waits = checked_after_loss(after_loss) == "wait"
        super().__init__(
            namespace, _NodeStore(node, root, waits=waits, clock=clock, read_now_us=read_now_us)
        )

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`Registry.acquire`."""
        grant = super().acquire(holder=holder, not_before=not_before, avoid=avoid)
        self.store.report(grant.lease, holder)
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`Registry.renew`."""
        grant = super().renew(lease, last_tick=last_tick)
        self.store.report(lease)
        return grant

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`Registry.release`."""
        known = super().release(lease, last_tick=last_tick)
        self.store.withdraw(lease)
        return known

    def books(self) -> tuple[StoredBook, ...]:
        """See :meth:`Registry.books`."""
        return self.store.books()

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """What raises unless ZooKeeper answers, by its name."""
        return {f"zookeeper {self.store.node.session.hosts}": self.ping}

    def close(self) -> None:
        """End the session with ZooKeeper, which all registries of the process share.

        May be called twice; the next use begins another.
        """
        self.store.node.session.close()


# --- the session ------------------------------------------------------------------------


class _Session:
    """One connection of this process to ZooKeeper, made at the first use. Thread-safe."""

    def __init__(self, hosts: str, auth: str | None, connection: Mapping[str, Any]) -> None:
        self.hosts = hosts
        self._auth = auth
        self._connection = connection
        self.start_over()

    def start_over(self) -> None:
        """Drop what a forked child inherited; its parent goes on with it."""
        self._lock = threading.Lock()
        self._client: Any = None
        self._live: Any = None
        self._pid = os.getpid()

    def ask(self, request: Callable[[Any], Any], timeout: float) -> Any:
        """What ``request`` of a connected client answers: an asynchronous result of kazoo's.

        It is sent once. Raises :class:`RegistryUnavailable` where no answer came in ``timeout``
        seconds (it may be done), :class:`ConfigurationError` where the login is refused.
        """
        client = self._connected(timeout)
        try:
            return request(client).get(timeout=timeout)
        except (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError):
            raise ConfigurationError(
                f"The ZooKeeper at {self.hosts!r} refuses access to the nodes. Give 'auth', "
                f"'user:password', the login that has made them."
            ) from None
        except _ANSWERS:
            raise
        except (exceptions.KazooException, client.handler.timeout_exception) as error:
            raise self._unavailable(error) from error

    @property
    def id(self) -> int:
        """The id of the session; 0 without one."""
        known = None if self._client is None else self._client.client_id
        return known[0] if known else 0

    def close(self) -> None:
        """End the session; what it has made that is ephemeral goes."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.stop()
            client.close()

    def _connected(self, timeout: float) -> Any:
        if self._pid != os.getpid():
            self.start_over()  # not every fork runs Python's hooks
        for _ in range(2):
            with self._lock:
                if self._client is None:
                    self._client = self._made()
                    self._live = self._client.start_async()
                client, live = self._client, self._live
            # A request to a client without a connection would be sent whenever it has one again.
            if live.wait(timeout / 2) and client.connected:
                return client
            # Servers that have lost something turn away a client that has seen it; not a new one.
            self.close()
        raise self._unavailable(None)

    def _made(self) -> Any:
        options = dict(self._connection)
        if self._auth is not None:
            user, _, password = self._auth.partition(":")
            options["auth_data"] = [("digest", self._auth)]
            options["default_acl"] = [make_digest_acl(user, password, all=True)]
        try:
            return KazooClient(hosts=self.hosts, **options)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"kazoo does not take the options of ZooKeeperLeases (hosts={self.hosts!r}, "
                f"connection={dict(self._connection)!r}): {error}"
            ) from error

    def _unavailable(self, error: Exception | None) -> RegistryUnavailable:
        why = type(error).__name__ if error else "no connection"
        return RegistryUnavailable(f"The ZooKeeper at {self.hosts!r} does not answer ({why}).")


_sessions: dict[str, _Session] = {}


def _session(hosts: object, auth: object, connection: object) -> _Session:
    if not isinstance(hosts, str) or not hosts.strip():
        raise ConfigurationError(
            f"hosts must name ZooKeeper's servers, such as 'zk-1:2181,zk-2:2181', not {hosts!r}."
        )
    if auth is not None and (not isinstance(auth, str) or ":" not in auth):
        raise ConfigurationError("auth must be 'user:password' or None.")
    if not isinstance(connection, Mapping):
        raise ConfigurationError(
            f"connection must be a dict of arguments for KazooClient, not {connection!r}."
        )
    made = _Session(hosts, auth, connection)
    return _sessions.setdefault(repr((hosts, auth, sorted(connection.items()))), made)


def _checked_path(path: object) -> str:
    if not isinstance(path, str) or not path.startswith("/") or "//" in path:
        raise ConfigurationError(f"path must begin with a '/', such as '/shop', not {path!r}.")
    return path.rstrip("/")


# --- the node ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stamp:
    """When it is, by ZooKeeper, and which election its leader has won."""

    reading: Reading
    leader: int


@dataclass(frozen=True, slots=True)
class _Header:
    """What the node says of itself, but for what the book knows."""

    installation: str
    life: str = ""
    leader: int = 0
    generation: int = 0
    """0: the database has not opened this life yet."""
    fence: int = 0
    ceiling: int = 0
    offset_us: int = 0
    """How far the database's clock was ahead of ZooKeeper's."""

    @property
    def sub_lease(self) -> SubLease:
        return SubLease(
            self.installation, self.generation, self.fence, self.ceiling, incarnation=self.life
        )


class NodeBook(MemoryBook):
    """The book of a namespace, as one node holds it."""

    server = ""

    def __init__(self, header: _Header, record: Record) -> None:
        marks = MemoryMarks()
        marks.identity = header.installation
        super().__init__(marks)
        self.header = header
        self.wall_us: int | None = None
        """What the holder's clock says."""
        self.offsets: dict[int, int | None] = {}
        self.furthest = 0
        """The end of the latest window that was saved."""
        self.refusal: IdgenError | None = None
        """Why nothing is lent just now."""
        self.stored = record

    def record(self) -> Record:
        return self.stored

    def save_record(self, record: Record) -> None:
        self.stored = record

    def save_lent(self, mark: Mark, *, is_new: bool) -> None:
        if self.refusal is not None:
            raise self.refusal
        super().save_lent(mark, is_new=is_new)

    def _save_seen(self, mark: Mark) -> None:
        super()._save_seen(mark)
        self.furthest = max(self.furthest, mark.until)
        wall_us = self.wall_us
        self.offsets[mark.worker] = None if wall_us is None else wall_us - self.reading.registry_us

    def save_end(self, mark: Mark) -> None:
        super().save_end(mark)
        self.furthest = max(self.furthest, mark.until)

    def inspected(
        self, workers: Collection[int] | None = None, *, generation: int | None = None
    ) -> list[InspectedMark]:
        found = super().inspected(workers, generation=generation)
        return [replace(each, offset_us=self.offsets.get(each.mark.worker)) for each in found]

    @property
    def is_whole(self) -> bool:
        """Whether all worker ids that were ever lent have their marks."""
        return self.count() >= self.stored.workers_made

    def dumped(self) -> bytes:
        """The node's words."""
        words = {
            "protocol": PROTOCOL_VERSION,
            "installation": self.header.installation,
            "fingerprint": json.loads(self.stored.fingerprint),
            "life": self.header.life,
            "leader": self.header.leader,
            "generation": self.header.generation,
            "fence": self.header.fence,
            "ceiling": self.header.ceiling,
            "offset_us": self.header.offset_us,
            "highest": self.stored.highest_until,
            "made": self.stored.workers_made,
            "workers": {
                str(mark.worker): [
                    *(mark.token, mark.start, mark.until, mark.generation, mark.holder),
                    self.seen_us.get(mark.worker, 0),
                    self.lent_us.get(mark.worker, 0),
                    self.offsets.get(mark.worker),
                ]
                for mark in self.by_worker.values()
            },
        }
        return json.dumps(words, separators=(",", ":")).encode()


def _parsed(data: bytes, namespace: Namespace) -> NodeBook | None:
    """The book that a node's ``data`` say; None if they can't be read: then they are lost.

    Raises :class:`ConfigurationError` for what a later version of django_idgen wrote.
    """
    try:
        words = json.loads(data)
        protocol = int(words["protocol"])
    except (ValueError, KeyError, TypeError):
        return None
    if protocol > PROTOCOL_VERSION:
        raise ConfigurationError(
            f"Namespace {namespace.name!r} was written to ZooKeeper with protocol {protocol}, but "
            f"this version of django_idgen knows {PROTOCOL_VERSION}. Upgrade django_idgen in this "
            f"process."
        )
    try:
        header = _Header(
            str(words["installation"]),
            str(words["life"]),
            int(words["leader"]),
            int(words["generation"]),
            int(words["fence"]),
            int(words["ceiling"]),
            int(words["offset_us"]),
        )
        record = Record(
            rules.fingerprint_text(words["fingerprint"]),
            header.generation,
            header.fence,
            namespace.reach_ticks,
            int(words["made"]),
            int(words["highest"]),
            installation=header.installation,
        )
        book = NodeBook(header, record)
        for worker, (token, start, until, generation, holder, seen, lent, off) in words[
            "workers"
        ].items():
            mark = Mark(int(worker), str(token), int(start), int(until), int(generation), holder)
            book.by_worker[mark.worker] = mark
            book.seen_us[mark.worker], book.lent_us[mark.worker] = int(seen), int(lent)
            book.offsets[mark.worker] = None if off is None else int(off)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return book


class _Changed(Exception):
    """Another process has changed the node since it was read: nothing was written."""


class _Node(SubLessee):
    """The node of ``namespace``, in which the root enters what the database has lent."""

    def __init__(
        self, session: _Session, path: str, namespace: Namespace, timeout: float, clock: Clock
    ) -> None:
        self.session = session
        self.namespace = namespace
        self.described = f"ZooKeeper at {session.hosts!r}"
        self.timeout = timeout
        self.root_now_us: Callable[[], int] | None = None
        """The database's clock (µs since 1970); None where ZooKeeper's own is enough."""
        self._top = path
        self._clock = clock

    def path_of(self, installation: str) -> str:
        """Two projects on one ZooKeeper have different ones."""
        name = quote(self.namespace.name, safe=" :@+~,;=!$&'()")
        return f"{self._top}/{installation}/{'%2E' if name in ('.', '..') else ''}{name}"

    def ask(self, request: Callable[[Any], Any]) -> Any:
        """See :meth:`_Session.ask`."""
        return self.session.ask(request, self.timeout)

    def stamp(self, installation: str) -> _Stamp:
        """The server's time. It has come to know all that was written before."""
        path = f"{self.path_of(installation)}/clock"
        sent = self._clock.elapsed_ns()
        written = self._written(path)
        if written is None:
            self.ask(lambda client: client.ensure_path_async(path))
            sent = self._clock.elapsed_ns()
            written = self._written(path)
        if written is None:
            raise RegistryUnavailable(f"Node {path!r} of the {self.described} is deleted at once.")
        reading = Reading(written.mtime * 1000, sent, self._clock.elapsed_ns())
        return _Stamp(reading, written.mzxid >> 32)

    def _measured(self, installation: str) -> int:
        """How far the database's clock is ahead of ZooKeeper's, in µs."""
        if self.root_now_us is None:
            return 0
        reading = self.stamp(installation).reading
        now_us = self.root_now_us()
        since_us = (self._clock.elapsed_ns() - reading.received_ns) // 1000
        return now_us - since_us - reading.registry_us

    def _written(self, path: str) -> Any:
        try:
            try:
                return self.ask(lambda client: client.set_async(path, b""))
            except RegistryUnavailable as error:
                if not isinstance(error.__cause__, _CONNECTION_LOST):
                    raise
                # It grants nothing, so that it may be sent again, on a new connection.
                return self.ask(lambda client: client.set_async(path, b""))
        except exceptions.NoNodeError:
            return None

    def load(self, installation: str) -> tuple[NodeBook | None, int]:
        """The book, if there is one that can be read, and the version of the node."""
        path = self.path_of(installation)
        try:
            data, stat = self.ask(lambda client: client.get_async(path))
        except exceptions.NoNodeError:
            return None, -1
        return _parsed(data, self.namespace), stat.version

    def save(self, book: NodeBook, version: int) -> None:
        """Write ``book`` in place of that ``version``. Raises :class:`_Changed`."""
        data = book.dumped()
        if len(data) > MOST_BYTES:
            raise ConfigurationError(
                f"Namespace {self.namespace.name!r} needs {len(data)} bytes in ZooKeeper, which "
                f"takes {MOST_BYTES} in a node. Lend fewer worker ids ('workers'), or use the "
                f"registry in the database."
            )
        path = self.path_of(book.header.installation)
        try:
            self.ask(lambda client: client.set_async(path, data, version=version))
        except (exceptions.BadVersionError, exceptions.NoNodeError):
            raise _Changed from None

    def begin(self, installation: str, known: NodeBook | None, version: int, leader: int) -> None:
        """Begin a new life, in which nothing is lent until the database has opened it.

        Marks of ``known`` stay, void: they say who had which worker id. Raises
        :class:`_Changed`.
        """
        if known is None:
            fingerprint = rules.fingerprint_text(self.namespace.fingerprint)
            reach = self.namespace.reach_ticks
            record = Record(fingerprint, 0, 0, reach, 0, 0, installation=installation)
            known = NodeBook(_Header(installation), record)
        offset_us = self._measured(installation)
        known.header = _Header(installation, new_token(), leader, offset_us=offset_us)
        self.save(known, version)

    # --- for the root ---------------------------------------------------------------

    def install(self, sub_lease: SubLease) -> None:
        """See :meth:`SubLessee.install`."""
        offset_us = self._measured(sub_lease.installation)
        self._change(sub_lease.installation, partial(self._installed, sub_lease, offset_us))

    def _installed(
        self, sub_lease: SubLease, offset_us: int, book: NodeBook | None, version: int
    ) -> None:
        if book is None or book.header.life != sub_lease.incarnation:
            return
        header, given = book.header, (sub_lease.generation, sub_lease.fence)
        ceiling = sub_lease.ceiling
        # Fences only rise: one that is not past ours is of a generation before ours.
        if header.generation and sub_lease.fence <= header.fence:
            if given != (header.generation, header.fence):
                return
            ceiling = max(ceiling, header.ceiling)
        book.header = replace(
            header,
            generation=sub_lease.generation,
            fence=sub_lease.fence,
            ceiling=ceiling,
            offset_us=offset_us,
        )
        book.stored = replace(book.stored, generation=sub_lease.generation, fence=sub_lease.fence)
        self.save(book, version)

    def restart(self, installation: str, incarnation: str) -> None:
        """See :meth:`SubLessee.restart`."""

        def change(book: NodeBook | None, version: int) -> None:
            if book is not None and book.header.life == incarnation:
                self.begin(installation, book, version, book.header.leader)

        self._change(installation, change)

    def kept(self, installation: str) -> Kept | None:
        """See :meth:`SubLessee.kept`."""
        book, _ = self.load(installation)
        if book is None:
            return None
        return Kept(rules.parsed_fingerprint(book.stored.fingerprint), book.header.ceiling)

    def enter(self, installation: str, generation: int) -> None:
        """See :meth:`SubLessee.enter`."""
        leader = self.stamp(installation).leader

        def change(book: NodeBook | None, version: int) -> None:
            ours = rules.fingerprint_text(self.namespace.fingerprint)
            is_ours = book is not None and book.stored.fingerprint == ours
            opened = book.header.generation if book is not None and is_ours else -1
            if opened != 0 and opened < generation:
                self.begin(installation, None, version, leader)

        self._change(installation, change)

    def _change(self, installation: str, change: Callable[[NodeBook | None, int], None]) -> None:
        turns = _Turns(self)
        while True:
            try:
                return change(*self.load(installation))
            except _Changed:
                turns.wait()


class _Turns:
    """How long a process begins again where others are quicker."""

    def __init__(self, node: _Node) -> None:
        self._node = node
        self._until_ns = SYSTEM_CLOCK.elapsed_ns() + int(node.timeout * 1e9)
        self._pause = 0.001

    def wait(self) -> None:
        """Wait a random moment, longer each time. Raises :class:`RegistryUnavailable`."""
        if SYSTEM_CLOCK.elapsed_ns() > self._until_ns:
            raise RegistryUnavailable(
                f"Others change namespace {self._node.namespace.name!r} in the "
                f"{self._node.described} all the time: {self._node.timeout:g} s were not enough "
                f"for a turn. Raise 'timeout', or start fewer processes at once."
            )
        SYSTEM_CLOCK.sleep(_random.uniform(0, self._pause))
        self._pause = min(self._pause * 2, 0.25)


# --- the store --------------------------------------------------------------------------


class _NodeStore(Store):
    """Runs the rules over the node, within what the database has lent to it."""

    def __init__(
        self,
        node: _Node,
        root: Root,
        *,
        waits: bool,
        clock: Clock,
        read_now_us: Callable[[], int] | None,
    ) -> None:
        self.node = node
        self.place = f"{node.session.hosts} of database {root.database}"
        self.described = f"the {node.described}"
        self._root = root
        if read_now_us is None:
            node.root_now_us = lambda: root.current().store.now_us()
        self._waits = waits
        self._clock = clock
        self._read_now_us = read_now_us
        self._lends_on = False
        self._holders: dict[int, str] = {}
        """By worker id, for Leaf's nodes."""
        self._memory = MemoryLeases(node.namespace, clock=clock, read_now_us=read_now_us).store
        """Where a test forbids the database."""
        self._last: Reading | None = None
        self._lock = threading.Lock()

    def run(self, job: Callable[[Book], T]) -> T:
        """See :meth:`Store.run`."""
        if self._root.is_forbidden():
            return self._memory.run(job)
        # The threads of a process would only be in each other's way.
        with self._lock:
            return self._run(job)

    def _run(self, job: Callable[[Book], T]) -> T:
        database = self._root.current()
        installation = self._root.installation_of(database)
        failure: RegistryUnavailable | None = None
        lives, turns = 0, _Turns(self.node)
        while True:
            stamp = self.node.stamp(installation)
            book, version = self.node.load(installation)
            try:
                self._check(book)
                if book is None or not book.is_whole or book.header.leader != stamp.leader:
                    lives += 1
                    self._check_lives(lives)
                    whole = book if book is not None and book.is_whole else None
                    self.node.begin(installation, whole, version, stamp.leader)
                    continue
                self._read(book, stamp)
                if not book.header.generation:
                    lives += 1
                    self._check_lives(lives)
                    self._root.open(database, book.header.life, self._tick(book))
                    continue
                book.refusal = self._refusal_to_lend(book)
                book.cuts = failure is not None
                before = book.dumped()
                result = job(book)
                if book.dumped() != before:
                    self.node.save(book, version)
            except CeilingReached as reached:
                if failure is not None or book is None:
                    raise self._refusal(failure) from failure
                failure = self._lifted(database, book, reached.tick)
            except _Changed:
                turns.wait()
            else:
                if book.furthest:
                    now, seen = self._tick(book), book.header.sub_lease
                    self._root.lift_in_time(database, seen, now=now, start=0, until=book.furthest)
                return result

    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        """See :meth:`Store.run_if_there`: makes no node, opens no generation."""
        if self._root.is_forbidden():
            return self._memory.run_if_there(job)
        with self._lock:
            installation = self._root.installation_to_look()
            if installation is None:
                return None
            turns = _Turns(self.node)
            while True:
                book, version = self.node.load(installation)
                if book is None:
                    return None
                self._check(book)
                now = self._clock.elapsed_ns()
                book.read_at = Reading(self.now_us(), now, now)
                before = book.dumped()
                result = job(book)
                if book.dumped() == before:
                    return result
                try:
                    self.node.save(book, version)
                except _Changed:
                    turns.wait()
                else:
                    return result

    def now_us(self) -> int:
        """See :meth:`Store.now_us`: the time of the last round trip, carried on."""
        if self._read_now_us is not None:
            return self._read_now_us()
        if self._last is None:
            return self._clock.wall_ns() // 1000
        return self._last.registry_us + (self._clock.elapsed_ns() - self._last.received_ns) // 1000

    def lend_on(self) -> None:
        """See :meth:`Store.lend_on`."""
        self._lends_on = True

    def ping(self) -> None:
        """See :meth:`Store.ping`."""
        self.node.ask(lambda client: client.exists_async("/"))

    def abandon(self) -> None:
        """See :meth:`Store.abandon`."""
        self._lock = threading.Lock()
        self._holders = {}
        self._memory.abandon()
        self.node.session.start_over()
        self._root.abandon()

    def books(self) -> tuple[StoredBook, ...]:
        """See :meth:`Registry.books`; none in a test that forbids the database."""
        if self._root.is_forbidden():
            return ()
        return tuple(RootedBook(each, self.node) for each in self._root.current().books())

    # --- what the database lends ------------------------------------------------------

    def _check(self, book: NodeBook | None) -> None:
        if book is not None:
            rules.check_fingerprint(self.node.namespace, book.stored.fingerprint)

    def _read(self, book: NodeBook, stamp: _Stamp) -> None:
        now_us = stamp.reading.registry_us + book.header.offset_us
        if self._read_now_us is not None:
            now_us = self._read_now_us()
        self._last = book.read_at = replace(stamp.reading, registry_us=now_us)
        book.ceiling = book.header.ceiling
        book.wall_us = None if self._lends_on else self._clock.wall_ns() // 1000

    def _tick(self, book: NodeBook) -> int:
        return self.node.namespace.tick_at(book.reading.registry_us)

    def _lifted(
        self, database: BookRegistry, book: NodeBook, tick: int
    ) -> RegistryUnavailable | None:
        """Why the ceiling could not be raised; what is left below it can still be lent."""
        try:
            self._root.lift(database, book.header.sub_lease, now=self._tick(book), wanted=tick)
        except RegistryUnavailable as error:
            return error
        return None

    def _refusal_to_lend(self, book: NodeBook) -> RegistryUnavailable | None:
        ticks = book.header.fence - self._tick(book)
        if not self._waits or ticks <= 0:
            return None
        space = self.node.namespace
        return RegistryUnavailable(
            f"The {self.node.described} lost what it had lent for namespace {space.name!r}. With "
            f"after_loss='wait' it lends again in {ticks * space.tick_us / 1e6:.1f} s; 'ahead' "
            f"would go on at once, with ids stamped ahead of the time."
        )

    def _check_lives(self, lives: int) -> None:
        if lives > LIVES:
            raise RegistryUnavailable(
                f"What the {self.node.described} knows of namespace "
                f"{self.node.namespace.name!r} is lost again and again. See what deletes it, or "
                f"whether several servers answer at its address."
            )

    def _refusal(self, failure: RegistryUnavailable | None) -> RegistryUnavailable:
        if isinstance(failure, TakenOver):
            return failure
        return RegistryUnavailable(
            f"The {self.node.described} has lent all ticks that it may for namespace "
            f"{self.node.namespace.name!r}, and the database has not lent it more: {failure} (A "
            f"longer 'stride' survives a longer outage of the database.)"
        )

    # --- Leaf's nodes -----------------------------------------------------------------

    def report(self, lease: Lease, holder: str = "") -> None:
        """Tell people who holds ``lease``, and what time its holder has. Never fails."""
        if self._root.is_forbidden():
            return
        holder = holder or self._holders.get(lease.worker, "")
        self._holders[lease.worker] = holder
        words = {"holder": holder, "timestamp": self._clock.wall_ns() // 1_000_000}
        self._try(lambda: self._report(lease, json.dumps(words).encode()))

    def _report(self, lease: Lease, data: bytes) -> None:
        lasting, passing = self._leaf_paths(lease)
        if self.node.ask(lambda client: client.exists_async(lasting)):
            self.node.ask(lambda client: client.set_async(lasting, data))
        else:
            self.node.ask(lambda client: client.create_async(lasting, data, makepath=True))
        stat = self.node.ask(lambda client: client.exists_async(passing))
        if stat is not None and stat.ephemeralOwner == self.node.session.id:
            self.node.ask(lambda client: client.set_async(passing, data))
            return
        if stat is not None:
            self.node.ask(lambda client: client.delete_async(passing))
        self.node.ask(
            lambda client: client.create_async(passing, data, ephemeral=True, makepath=True)
        )

    def withdraw(self, lease: Lease) -> None:
        """Tell people that ``lease`` was given back. Never fails."""
        if self._holders.pop(lease.worker, None) is not None:
            _, passing = self._leaf_paths(lease)
            self._try(lambda: self.node.ask(lambda client: client.delete_async(passing)))

    def _leaf_paths(self, lease: Lease) -> tuple[str, str]:
        top = self.node.path_of(self._root.known_installation() or "")
        return (
            f"{top}/leaf_forever/{lease.worker:010d}",
            f"{top}/leaf_temporary/{lease.worker:010d}",
        )

    @staticmethod
    def _try(job: Callable[[], Any]) -> None:
        try:
            job()
        except (exceptions.KazooException, IdgenError):
            return  # only people look at it, and the next renewal tries again

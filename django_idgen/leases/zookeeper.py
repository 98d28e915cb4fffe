"""Worker ids lent by ZooKeeper, which the database has lent the ticks to (rule L6).

A namespace is one node of readable JSON. A process reads it, applies a rule of
:mod:`..core.book`, and writes it back if the version is still the one that it read; else it
begins again. About once a minute one of the holders asks the database to raise the ceiling, and
notes how far the two clocks are apart: the database's clock counts, and ZooKeeper's continues
it while the database is down.

An ensemble that elects a new leader may have lost its last writes, if its disks were set back.
So after each election, as after the loss of the node, a new *life* begins: the database opens a
new generation, past all that the old one can have lent.

Two nodes as Leaf has them are for people only: ``leaf_forever`` shows who had which worker id
last, ``leaf_temporary`` who is connected, both with the time that the holder reported.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
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
from ..core.options import check_flag, check_seconds
from ..core.store import Store, StoredBook
from .book_registry import BookRegistry
from .memory import MemoryBook, MemoryMarks
from .root import (
    Kept,
    Root,
    SubLessee,
    checked_after_loss,
    stride_ticks,
)

T = TypeVar("T")

DEFAULT_TIMEOUT = 10.0
MOST_BYTES = 1_000_000
"""Of a node: a server takes no request of more than 1 MiB unless its settings say so."""
LIVES = 6
"""Losses that are followed up in one operation: each costs a generation, a stride ahead."""
_ANSWERS = (exceptions.NoNodeError, exceptions.BadVersionError, exceptions.NodeExistsError)
# What the other steps of a transaction fail with.
_UNDONE = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
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
        limit = check_seconds("timeout", timeout, most=60)
        node = _Node(
            _session(hosts, auth, connection or {}), _checked_path(path), namespace, limit, clock
        )
        root = Root(
            node,
            database,
            stride=stride_ticks(namespace, stride),
            timeout=limit,
            server_identity=check_flag("server_identity", server_identity),
            clock=clock,
            read_now_us=read_now_us,
        )
        waits = checked_after_loss(after_loss) == "wait"
        super().__init__(
            namespace, _NodeStore(node, root, waits=waits, clock=clock, read_now_us=read_now_us)
        )

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        grant = super().acquire(holder=holder, not_before=not_before, avoid=avoid)
        self.store.report(grant.lease, holder)
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        grant = super().renew(lease, last_tick=last_tick)
        self.store.report(lease)
        return grant

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        known = super().release(lease, last_tick=last_tick)
        self.store.withdraw(lease)
        return known

    def stored_book(self) -> StoredBook | None:
        return self.store.root.stored_book()

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return {f"zookeeper {self.store.node.session.hosts}": self.ping}

    def close(self) -> None:
        """End the session with ZooKeeper, which all registries of the process share.

        May be called twice; the next use begins another.
        """
        self.store.node.session.close()


# --- the session ------------------------------------------------------------------------

_CLOSE_WAIT = 10.0


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
            answer = request(client).get(timeout=timeout)
            for step in answer if isinstance(answer, list) else ():
                if isinstance(step, Exception) and not isinstance(step, _UNDONE):
                    raise step  # a transaction answers with its errors
            return answer
        except (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError):
            raise ConfigurationError(
                f"The ZooKeeper at {self.hosts!r} refuses access to the nodes. Set 'auth' to the "
                "'user:password' that made them."
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

    def close(self, wait: float = _CLOSE_WAIT) -> None:
        """End the session; what it has made that is ephemeral goes.

        ``wait``: seconds to wait for the end, which kazoo delays while no server answers.
        """
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            ending = threading.Thread(target=_end, args=(client,), name="idgen-end", daemon=True)
            ending.start()
            ending.join(wait)

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
            self.close(wait=0)
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


def _end(client: Any) -> None:
    client.stop()
    client.close()


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
    """ZooKeeper's time, and which election its leader has won."""

    reading: Reading
    leader: int


class NodeBook(MemoryBook):
    """The book of a namespace, as one node holds it."""

    server = ""

    def __init__(
        self,
        sub_lease: SubLease,
        fingerprint: str,
        *,
        reach: int,
        made: int = 0,
        highest: int = 0,
        leader: int = 0,
        offset_us: int = 0,
    ) -> None:
        marks = MemoryMarks()
        marks.identity = sub_lease.installation
        super().__init__(marks)
        self.sub_lease = sub_lease
        """What the database has lent; generation 0: it has not opened this life yet."""
        self.leader = leader
        self.offset_us = offset_us
        """How far the database's clock was ahead of ZooKeeper's."""
        self.stored = Record(
            fingerprint,
            sub_lease.generation,
            sub_lease.fence,
            reach,
            made,
            highest,
            installation=sub_lease.installation,
        )
        self.wall_us: int | None = None
        """The holder's clock."""
        self.offsets: dict[int, int | None] = {}
        self.furthest = 0
        """The end of the latest window that was saved."""
        self.refusal: IdgenError | None = None
        """Why it lends nothing now."""

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

    def to_json(self) -> bytes:
        content = {
            "protocol": PROTOCOL_VERSION,
            "installation": self.sub_lease.installation,
            "fingerprint": json.loads(self.stored.fingerprint),
            "life": self.sub_lease.incarnation,
            "leader": self.leader,
            "generation": self.sub_lease.generation,
            "fence": self.sub_lease.fence,
            "ceiling": self.sub_lease.ceiling,
            "offset_us": self.offset_us,
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
        return json.dumps(content, separators=(",", ":")).encode()


def _parsed(data: bytes, lessee: SubLessee) -> NodeBook | None:
    """The book in a node's ``data``; None if it is damaged, and so lost.

    Raises :class:`ConfigurationError` for what another version of django_idgen wrote.
    """
    try:
        found = json.loads(data)
        protocol = found["protocol"]
    except (ValueError, KeyError, TypeError):
        return None
    if protocol != PROTOCOL_VERSION:
        raise lessee.unknown_form(protocol)
    try:
        numbers = {name: int(found[name]) for name in ("generation", "fence", "ceiling")}
        book = NodeBook(
            SubLease(str(found["installation"]), **numbers, incarnation=str(found["life"])),
            rules.fingerprint_text(found["fingerprint"]),
            reach=lessee.namespace.reach_ticks,
            made=int(found["made"]),
            highest=int(found["highest"]),
            leader=int(found["leader"]),
            offset_us=int(found["offset_us"]),
        )
        for key, (token, start, until, generation, holder, seen, lent, off) in found[
            "workers"
        ].items():
            worker = int(key)
            mark = Mark(worker, str(token), int(start), int(until), int(generation), holder)
            book.by_worker[worker] = mark
            book.seen_us[worker], book.lent_us[worker] = int(seen), int(lent)
            book.offsets[worker] = None if off is None else int(off)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return book


class _Changed(Exception):
    """Another process has changed the node since it was read: nothing was written."""


class _Prepared(Exception):
    """This process has changed what the database or the node says: read it again."""


class _Node(SubLessee):
    """The node of ``namespace``, in which the root enters what the database has lent."""

    def __init__(
        self, session: _Session, path: str, namespace: Namespace, timeout: float, clock: Clock
    ) -> None:
        self.session = session
        self.namespace = namespace
        self.described = f"ZooKeeper at {session.hosts!r}"
        self.root_now_us: Callable[[], int] | None = None
        """The database's clock (µs since 1970); None where ZooKeeper's own is enough."""
        self._timeout = timeout
        self._top = path
        self._clock = clock
        self._fingerprint = rules.fingerprint_text(namespace.fingerprint)
        self.ended: set[str] = set()
        """Lives that can't be written any more."""

    def path_of(self, installation: str) -> str:
        """Two projects on one ZooKeeper have different ones."""
        name = quote(self.namespace.name, safe=" :@+~,;=!$&'()")
        return f"{self._top}/{installation}/{'%2E' if name in ('.', '..') else ''}{name}"

    def ask(self, request: Callable[[Any], Any]) -> Any:
        return self.session.ask(request, self._timeout)

    def stamp(self, installation: str) -> _Stamp:
        """The server's time. By then the server knows all that was written before."""
        path = f"{self.path_of(installation)}/clock"
        for _ in range(2):
            sent = self._clock.elapsed_ns()
            try:
                written = self._touched(path)
            except exceptions.NoNodeError:
                self.ask(lambda client: client.ensure_path_async(path))
            else:
                reading = Reading(written.mtime * 1000, sent, self._clock.elapsed_ns())
                return _Stamp(reading, written.mzxid >> 32)
        raise RegistryUnavailable(
            f"Node {path!r} of the {self.described} is deleted as soon as it is made. Find out "
            "what deletes it."
        )

    def _touched(self, path: str) -> Any:
        try:
            return self.ask(lambda client: client.set_async(path, b""))
        except RegistryUnavailable as error:
            if not isinstance(error.__cause__, _CONNECTION_LOST):
                raise
            # It grants nothing, so it may be sent again, on a new connection.
            return self.ask(lambda client: client.set_async(path, b""))

    def _measured(self, installation: str) -> int:
        """How far the database's clock is ahead of ZooKeeper's, in µs."""
        if self.root_now_us is None:
            return 0
        reading = self.stamp(installation).reading
        now_us = self.root_now_us()
        since_us = (self._clock.elapsed_ns() - reading.received_ns) // 1000
        return now_us - since_us - reading.registry_us

    def load(self, installation: str) -> tuple[NodeBook | None, int]:
        """The book, if there is one that is not damaged, and the version of the node."""
        path = self.path_of(installation)
        try:
            data, stat = self.ask(lambda client: client.get_async(path))
        except exceptions.NoNodeError:
            return None, -1
        return _parsed(data, self), stat.version

    def save(self, book: NodeBook, version: int, *, begins: bool = False) -> None:
        """Write ``book`` in place of that ``version``. Raises :class:`_Changed`.

        A node that was deleted and made again counts its versions anew, and a request may arrive
        late. So each life has a child of its own, which must still be there.
        """
        data = book.to_json()
        if len(data) > MOST_BYTES:
            raise ConfigurationError(
                f"Namespace {self.namespace.name!r} needs {len(data)} bytes in ZooKeeper, which "
                f"takes {MOST_BYTES} in a node. Lend fewer worker ids ('workers'), or use the "
                f"registry in the database."
            )
        path, life = self.path_of(book.installation), self._life_of(book.sub_lease)

        def request(client: Any) -> Any:
            steps = client.transaction()
            steps.create(life) if begins else steps.check(life, -1)
            steps.set_data(path, data, version)
            return steps.commit_async()

        try:
            self.ask(request)
        except exceptions.BadVersionError:
            raise _Changed from None
        except exceptions.NoNodeError:
            self.ended.add(book.sub_lease.incarnation)
            raise _Changed from None

    def _life_of(self, sub_lease: SubLease) -> str:
        return f"{self.path_of(sub_lease.installation)}/life_{sub_lease.incarnation}"

    def begin(self, installation: str, known: NodeBook | None, version: int, leader: int) -> None:
        """Begin a new life, which lends nothing until the database has opened it.

        Marks of ``known`` stay, void: they say who had which worker id. Raises
        :class:`_Changed`.
        """
        life = SubLease(installation, 0, 0, 0, incarnation=new_token())
        if known is None:
            known = NodeBook(life, self._fingerprint, reach=self.namespace.reach_ticks)
        before = self._life_of(known.sub_lease)
        known.sub_lease, known.leader = life, leader
        known.offset_us = self._measured(installation)
        self.save(known, version, begins=True)
        if before != self._life_of(life):
            with suppress(*_ANSWERS):
                self.ask(lambda client: client.delete_async(before))

    def retried(self, attempt: Callable[[], T]) -> T:
        """What ``attempt`` returns, tried again where it raises one of the two.

        Waits a random moment after :class:`_Changed`, longer each time. Raises
        :class:`RegistryUnavailable`.
        """
        until_ns, pause = self._clock.elapsed_ns() + int(self._timeout * 1e9), 0.001
        while True:
            try:
                return attempt()
            except _Prepared:
                continue
            except _Changed:
                pass
            if self._clock.elapsed_ns() > until_ns:
                raise RegistryUnavailable(
                    f"Other processes kept changing namespace {self.namespace.name!r} in the "
                    f"{self.described}: this one got no turn within {self._timeout:g} s. Raise "
                    "'timeout', or start fewer processes at once."
                )
            self._clock.sleep(_random.uniform(0, pause))
            pause = min(pause * 2, 0.25)

    # --- for the root ---------------------------------------------------------------

    def install(self, sub_lease: SubLease) -> None:
        offset_us = self._measured(sub_lease.installation)

        def attempt() -> None:
            book, version = self.load(sub_lease.installation)
            known = None if book is None else book.sub_lease
            if book is None or known is None or known.incarnation != sub_lease.incarnation:
                return
            if known.incarnation in self.ended:
                return
            given = sub_lease
            # Fences only rise: one that is not past the stored one is of an earlier generation.
            if known.generation and given.fence <= known.fence:
                if not known.serves(given):
                    return
                given = replace(given, ceiling=max(given.ceiling, known.ceiling))
            book.sub_lease, book.offset_us = given, offset_us
            self.save(book, version)

        self.retried(attempt)

    def restart(self, installation: str, incarnation: str) -> None:

        def attempt() -> None:
            book, version = self.load(installation)
            if book is not None and book.sub_lease.incarnation == incarnation:
                self.begin(installation, book, version, book.leader)

        self.retried(attempt)

    def kept(self, installation: str) -> Kept | None:
        book, _ = self.load(installation)
        if book is None:
            return None
        return Kept(rules.parsed_fingerprint(book.stored.fingerprint), book.sub_lease.ceiling)

    def enter(self, installation: str, generation: int) -> None:
        leader = self.stamp(installation).leader

        def attempt() -> None:
            book, version = self.load(installation)
            is_ours = book is not None and book.stored.fingerprint == self._fingerprint
            opened = book.sub_lease.generation if book is not None and is_ours else -1
            if opened != 0 and opened < generation:
                self.begin(installation, None, version, leader)

        self.retried(attempt)


# --- the store --------------------------------------------------------------------------


@dataclass
class _Call:
    """What the attempts of one call have in common."""

    root: Store
    installation: str
    lives: int = 0
    """How often a life of the node was begun."""
    failure: RegistryUnavailable | None = None
    """Why the ceiling could not be raised."""


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
        self.root = root
        if read_now_us is None:
            node.root_now_us = lambda: root.current().now_us()
        self._waits = waits
        self._clock = clock
        self._read_now_us = read_now_us
        self._lends_on = False
        self._holders: dict[int, str] = {}
        """By worker id, for Leaf's nodes."""
        self._last: Reading | None = None
        self._lock = threading.Lock()

    def run(self, job: Callable[[Book], T]) -> T:
        # The threads of a process would only be in each other's way.
        with self._lock:
            return self._run(job)

    def _run(self, job: Callable[[Book], T]) -> T:
        root = self.root.current()
        call = _Call(root, self.root.installation(root))
        result, book = self.node.retried(partial(self._attempt, call, job))
        if book.furthest:
            now = self._tick(book)
            self.root.lift_in_time(root, book.sub_lease, now=now, start=0, until=book.furthest)
        return result

    def _attempt(self, call: _Call, job: Callable[[Book], T]) -> tuple[T, NodeBook]:
        """``job`` over the book as it is, or :class:`_Prepared` after mending what it lacks."""
        stamp = self.node.stamp(call.installation)
        book, version = self._living_book(call, stamp)
        self._read_clocks(book, stamp)
        seen, now = book.sub_lease, self._tick(book)
        if not seen.generation:
            self._begin_a_life(call)
            self.root.open(call.root, seen.incarnation, now)
            raise _Prepared
        book.ceiling, book.cuts = seen.ceiling, call.failure is not None
        if self._waits and now < seen.fence:
            book.refusal = self.node.waiting(seen.fence - now)
        try:
            return self._applied(job, book, version), book
        except CeilingReached as reached:
            if call.failure is not None:
                raise self.node.exhausted(call.failure) from call.failure
            call.failure = self.root.failure_to_lift(call.root, seen, now=now, wanted=reached.tick)
            raise _Prepared from None

    def _living_book(self, call: _Call, stamp: _Stamp) -> tuple[NodeBook, int]:
        """The book of the present life. Raises :class:`_Prepared` after beginning another."""
        book, version = self._load(call.installation)
        if book is not None and self._goes_on(book, stamp):
            return book, version
        self._begin_a_life(call)
        whole = book if book is not None and book.is_whole else None
        self.node.begin(call.installation, whole, version, stamp.leader)
        raise _Prepared

    def _begin_a_life(self, call: _Call) -> None:
        if call.lives == LIVES:
            raise self.node.lost_again()
        call.lives += 1

    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        """See :meth:`Store.run_if_there`: makes no node, opens no generation."""

        def attempt(installation: str) -> T | None:
            book, version = self._load(installation)
            if book is None:
                return None
            now = self._clock.elapsed_ns()
            book.read_at = Reading(self.now_us(), now, now)
            return self._applied(job, book, version)

        with self._lock:
            installation = self.root.installation()
            if not installation:
                return None
            return self.node.retried(partial(attempt, installation))

    def _load(self, installation: str) -> tuple[NodeBook | None, int]:
        book, version = self.node.load(installation)
        if book is not None:
            rules.check_fingerprint(self.node.namespace, book.stored.fingerprint)
        return book, version

    def _applied(self, job: Callable[[Book], T], book: NodeBook, version: int) -> T:
        before = book.to_json()
        result = job(book)
        if book.to_json() != before:
            self.node.save(book, version)
        return result

    def now_us(self) -> int:
        """See :meth:`Store.now_us`: the time of the last round trip, continued."""
        if self._read_now_us is not None:
            return self._read_now_us()
        if self._last is None:
            return self._clock.wall_ns() // 1000
        return self._last.registry_us + (self._clock.elapsed_ns() - self._last.received_ns) // 1000

    def lend_on(self) -> None:
        self._lends_on = True

    def ping(self) -> None:
        self.node.ask(lambda client: client.exists_async("/"))

    def abandon(self) -> None:
        self._lock = threading.Lock()
        self._holders = {}
        self.node.session.start_over()
        self.root.abandon()

    # --- one attempt ------------------------------------------------------------------

    def _goes_on(self, book: NodeBook, stamp: _Stamp) -> bool:
        ended = book.sub_lease.incarnation in self.node.ended
        return book.is_whole and book.leader == stamp.leader and not ended

    def _read_clocks(self, book: NodeBook, stamp: _Stamp) -> None:
        now_us = stamp.reading.registry_us + book.offset_us
        if self._read_now_us is not None:
            now_us = self._read_now_us()
        self._last = book.read_at = replace(stamp.reading, registry_us=now_us)
        book.wall_us = None if self._lends_on else self._clock.wall_ns() // 1000

    def _tick(self, book: NodeBook) -> int:
        return self.node.namespace.tick_at(book.reading.registry_us)

    # --- Leaf's nodes -----------------------------------------------------------------

    def report(self, lease: Lease, holder: str = "") -> None:
        """Show people who holds ``lease``, and what time its holder has. Never fails."""
        holder = holder or self._holders.get(lease.worker, "")
        self._holders[lease.worker] = holder
        content = {"holder": holder, "timestamp": self._clock.wall_ns() // 1_000_000}
        data = json.dumps(content).encode()
        # The next renewal tries again.
        with suppress(exceptions.KazooException, IdgenError):
            self._put(self._leaf_path("forever", lease), data, ephemeral=False)
            self._put(self._leaf_path("temporary", lease), data, ephemeral=True)

    def _put(self, path: str, data: bytes, *, ephemeral: bool) -> None:
        stat = self.node.ask(lambda client: client.exists_async(path))
        if stat is not None and ephemeral and stat.ephemeralOwner != self.node.session.id:
            self.node.ask(lambda client: client.delete_async(path))
            stat = None
        if stat is not None:
            self.node.ask(lambda client: client.set_async(path, data))
        else:
            self.node.ask(
                lambda client: client.create_async(path, data, ephemeral=ephemeral, makepath=True)
            )

    def withdraw(self, lease: Lease) -> None:
        """Show people that ``lease`` was given back. Never fails."""
        if self._holders.pop(lease.worker, None) is not None:
            path = self._leaf_path("temporary", lease)
            with suppress(exceptions.KazooException, IdgenError):
                self.node.ask(lambda client: client.delete_async(path))

    def _leaf_path(self, kind: str, lease: Lease) -> str:
        top = self.node.path_of(self.root.installation())
        return f"{top}/leaf_{kind}/{lease.worker:010d}"

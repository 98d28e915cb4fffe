"""Segments from the project's own databases: the default source.

:class:`DatabaseSource` knows which database a tag is in. :class:`AliasSource` fetches from one
database: with :class:`ServerSource` from a server or a SQLite file, with :class:`MemorySource`
for an in-memory database and in a test that forbids the database.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db import connections
from django.utils.module_loading import import_string

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import ConfigurationError, SegmentUnavailable, TagPaused
from ..core.lease import process_label
from ..core.loader import SEVERAL, Loader
from ..core.options import check_flag
from ..core.segment import MAX_DELTA, MAX_ID, MAX_STEP, STEP, Demand, Segment, Shard, check_tag
from ..core.source import Source
from ..db.connection import (
    Place,
    Stores,
    close_after_jobs,
    kept_in_process,
    own_connection,
    place_of,
)
from ..db.dialects import stored_moment
from ..db.installation import DatabaseOwner
from .memory import MemorySource
from .server import FAILOVER_SKIP, ServerSource, check_failover_skip

Route = tuple[str, ...]
"""Aliases, each once. The remainder of a database is its position."""
Router = Callable[[str], Route]
DEFAULT_DATABASE = "default"
RETRY_AFTER = 30.0
"""Seconds until a database that failed is asked again."""
STUCK_AFTER = 1.0
"""Seconds that a fetch may take before other fetches stop joining it."""


class DatabaseSource(Source):
    """Segments of ``LeafAlloc`` in ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``router`` is the dotted path of a function from a tag to its alias. Give it or
    ``database``, not both. Several databases share a tag through
    :class:`~django_idgen.contrib.sharding.ShardedSource`.

    A new tag takes ``default_step`` ids at a time. ``failover_skip``,
    ``server_identity``, ``history`` and ``measures``: see :class:`ServerSource`. For a SQLite
    database the table is in a file beside it.

    Raises :class:`ConfigurationError`.
    """

    can_be_pooled = True
    keeps_rows = True
    knows_tables = True
    wired = ("default_step", "measures")
    _option = "database"
    _most = 1
    """Databases that may share a tag."""

    def __init__(
        self,
        *,
        default_step: int,
        database: str | Sequence[str] | None = None,
        router: str | Callable[[str], str | Sequence[str]] | None = None,
        failover_skip: int = FAILOVER_SKIP,
        server_identity: bool = True,
        history: bool = False,
        measures: bool = True,
    ) -> None:
        self.history = check_flag("history", history)
        self.failover_skip = check_failover_skip(failover_skip)
        self._options: dict[str, Any] = {
            "default_step": default_step,
            "failover_skip": self.failover_skip,
            "server_identity": check_flag("server_identity", server_identity),
            "history": self.history,
            "measures": check_flag("measures", measures),
        }
        self._by_alias: dict[tuple[str, Shard | None], AliasSource] = {}
        self._owners: dict[str, DatabaseOwner] = {}
        self._route: Router
        self._databases: Route
        if router is not None:
            if database is not None:
                raise ConfigurationError(f"Give only one of {self._option!r} and 'router'.")
            self._route, self._databases = router_of(router, most=self._most), ()
            self.is_routed = True
        else:
            given = DEFAULT_DATABASE if database is None else database
            route = check_databases(f"{self._option!r} is", given, most=self._most)
            self._route, self._databases = (lambda _tag: route), route
            self._members_on(route)
        self._loader = (
            own_connection(self._databases[0]).loader
            if len(self._databases) == 1
            else Loader(
                "idgen-fetch",
                threads=SEVERAL,
                inline=lambda: not self._has_servers_only(),
                on_idle=close_after_jobs,
            )
        )

    @property
    def loader(self) -> Loader:
        """The thread of the database; several threads where there are several databases."""
        return self._loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        source = self._members(tag)[0]
        if source.server is None or own_connection(source.database).loader.inside:
            # The fetch runs in this very thread: no other caller waits for it.
            return source.fetch(tag, floor=floor, demand=demand)
        with source.health.attempt():
            return source.fetch(tag, floor=floor, demand=demand)

    def record_rate(self, tag: str, used: int, now: datetime) -> float:
        """See :meth:`ServerSource.record_rate`; 0.0 for a database in this process.

        Where databases share the tag, the first one's row is measured.
        """
        return self._members(tag)[0].store.record_rate(tag, used, now)

    def databases(self) -> Sequence[str]:
        """Every alias that may have tags of this source; with a router, every alias there is."""
        return self._databases or tuple(connections.settings)

    def route(self, tag: str) -> Route:
        """The aliases that share ``tag``. Raises as :meth:`fetch` does for an invalid tag."""
        return self._route(check_tag(tag))

    def marks(self, tag: str) -> ServerSource | MemorySource:
        """Where the marks of ``tag`` are which are in this process, not in a row."""
        return self._members(tag)[0].store

    def is_paused(self, tag: str) -> bool:
        """Whether one of the tag's databases would refuse a :meth:`fetch` as paused.

        Raises :class:`SegmentUnavailable` if one of them does not answer.
        """
        return any(member.store.is_paused(tag) for member in self._members(tag))

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By database, a function that raises unless it answers. One database is enough for ids.

        Covers the databases that this process has used: a router may know of others.
        """
        used = {source.database: source for source in list(self._by_alias.values())}
        return {f"database {alias}": source.ping for alias, source in used.items()}

    def owner(self, tag: str, *, max_age: float = math.inf) -> str:
        """See :meth:`Source.owner`. Where databases share the tag, the first one's owner."""
        return self._owner_of(self.route(tag)[0]).current(max_age=max_age)

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._loader.check_process()
        for source in list(self._by_alias.values()):
            source.abandon()

    def close(self) -> None:
        """Free local resources. May be called twice."""
        for source in list(self._by_alias.values()):
            source.close()

    def _has_servers_only(self) -> bool:
        used = list(self._by_alias)  # none before a router has routed a tag
        return bool(used) and all(place_of(alias) is Place.SERVER for alias, _ in used)

    def _members(self, tag: str) -> Sequence[AliasSource]:
        return self._members_on(self.route(tag))

    def _members_on(self, route: Route) -> Sequence[AliasSource]:
        """The sources of the databases of ``route``, in its order."""
        return [self._member(route[0], None)]

    def _member(self, alias: str, shard: Shard | None) -> AliasSource:
        key = alias, shard
        return self._by_alias.get(key) or self._by_alias.setdefault(
            key, AliasSource(alias, shard=shard, **self._options)
        )

    def _owner_of(self, alias: str) -> DatabaseOwner:
        return self._owners.get(alias) or self._owners.setdefault(alias, DatabaseOwner(alias))


# --- which database ----------------------------------------------------------------------


def router_of(function: object, *, most: int) -> Router:
    """A router that calls ``function`` (or the one at that dotted path) and checks the answer.

    ``function`` takes the tag and returns an alias, or a list of up to ``most`` aliases. Its
    answer for a tag must never change: another database does not know which ids were given out.
    Raises :class:`ConfigurationError`, now or when a tag is routed.
    """
    ask: Any = function
    if isinstance(function, str):
        try:
            ask = import_string(function)
        except ImportError as error:
            raise ConfigurationError(
                f"'router' is {function!r}, which can't be imported: {error}"
            ) from error
    if not callable(ask):
        raise ConfigurationError(
            f"'router' must be a function from a tag to an alias of DATABASES (or a list of "
            f"them), or its dotted path, not {function!r}."
        )
    name = getattr(ask, "__qualname__", repr(ask))

    def route(tag: str) -> Route:
        try:
            answer = ask(tag)
        except Exception as error:
            raise ConfigurationError(f"Router {name} failed for tag {tag!r}: {error!r}.") from error
        return check_databases(f"Router {name} says for tag {tag!r}", answer, most)

    return route


def check_databases(whose: str, value: object, most: int) -> Route:
    """Return ``value``, an alias or a list of up to ``most`` aliases, as a route.

    Raises :class:`ConfigurationError`.
    """
    aliases = [value] if isinstance(value, str) else value
    if (
        not isinstance(aliases, Sequence)
        or not 1 <= len(aliases) <= MAX_DELTA
        or len(set(map(str, aliases))) < len(aliases)
        or not all(isinstance(alias, str) and alias in connections.settings for alias in aliases)
    ):
        known = ", ".join(map(repr, connections.settings))
        several = "" if most == 1 else f", or a list of 1 to {MAX_DELTA} different ones"
        raise ConfigurationError(
            f"{whose} {value!r}; it must be a database alias{several}, out of DATABASES ({known})."
        )
    if len(aliases) > most:
        raise ConfigurationError(
            f"{whose} {value!r}. Several databases share a tag through "
            f"'django_idgen.contrib.sharding.ShardedSource': name it as the source's BACKEND."
        )
    return tuple(aliases)


# --- one database ------------------------------------------------------------------------


class AliasSource:
    """Segments of ``LeafAlloc`` in one ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``options`` are those of :class:`ServerSource`.
    """

    def __init__(self, database: str, *, default_step: int, **options: Any) -> None:
        self.database = database
        self.health = Health(database, self.ping)
        self._default_step = default_step
        self._options = options
        self._unshared: dict[str, int] = {}
        """By tag: the end of what was granted here while a test forbade the database."""
        self._stores: Stores[ServerSource | MemorySource] = Stores(database, self._make)

    @property
    def store(self) -> ServerSource | MemorySource:
        """What keeps the marks of the database that the alias now means."""
        return self._stores.current()

    @property
    def server(self) -> ServerSource | None:
        """The source of a server or a SQLite file; None for marks in this process."""
        store = self.store
        return store if isinstance(store, ServerSource) else None

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        store = self.store
        if isinstance(store, MemorySource) and place_of(self.database) is Place.MEMORY:
            return self._fetch_in_memory(store, tag, floor, demand)
        if isinstance(store, ServerSource):
            # The table did not lose ids that it was never told about.
            expected = self._unshared.get(tag, 0)
            return store.fetch_within(None, tag, floor=floor, demand=demand, expected=expected)
        segment = store.fetch(tag, floor=floor, demand=demand)
        self._unshared[tag] = segment.stop
        return segment

    def _fetch_in_memory(
        self, store: MemorySource, tag: str, floor: int, demand: Demand
    ) -> Segment:
        row = read_row(self.database, tag)
        if row is not None:
            if row.paused:
                raise TagPaused(tag)
            floor = max(floor, row.max_id)
            store.set_step(tag, self._checked(tag, row.step))
        segment = store.fetch(tag, floor=floor, demand=demand)
        write_row(self.database, segment)
        return segment

    def ping(self) -> None:
        """Check the connection. Raises :class:`SegmentUnavailable`."""
        if self.server is not None:
            self.server.ping()

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self.health = Health(self.database, self.ping)
        self._stores.reset()
        for store in self._stores.all():
            store.abandon()

    def close(self) -> None:
        """Free local resources. May be called twice."""
        for store in self._stores.all():
            store.close()

    def _checked(self, tag: str, step: int) -> int:
        if not 1 <= step <= MAX_STEP:
            raise SegmentUnavailable(
                f"Tag {tag!r} has step {step} in leaf_alloc of database {self.database!r}; it "
                f"must be 1 to {MAX_STEP}. Correct the row, in the admin for example."
            )
        return step

    def _make(self, place: Place) -> ServerSource | MemorySource:
        if place is Place.FORBIDDEN:
            # One id at a time: what is left of a longer segment would be used on the
            # database, once it is allowed again, where another process may have those ids.
            return MemorySource(default_step=1, end=MAX_ID)
        if place is Place.MEMORY:
            # The column of the row must be able to hold the first free id.
            made = kept_in_process(self.database, place, make=lambda: MemorySource(end=MAX_ID))
            made.default_step = self._default_step
            return made
        return ServerSource(alias=self.database, default_step=self._default_step, **self._options)


class Health:
    """Whether the database ``alias`` answers, as its fetches show. Thread-safe.

    ``ping`` raises unless the database answers; it is called in the database's own thread.
    """

    def __init__(
        self, alias: str, ping: Callable[[], None], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._alias = alias
        self._ping = ping
        self._clock = clock
        self._under_way: dict[object, float] = {}
        self._retry_at: float | None = None
        """When a database that is down is asked again; None while it is up."""

    def is_up(self) -> bool:
        """Whether to ask it for ids. A database that is down is pinged now and then."""
        if self._retry_at is None:
            return True
        now = self._clock.stopwatch()
        if now >= self._retry_at:
            self._retry_at = now + RETRY_AFTER
            own_connection(self._alias).loader.submit(self._try_again)
        return False

    def _try_again(self) -> None:
        with suppress(SegmentUnavailable):
            self._ping()
            self.succeeded()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Surround a fetch.

        Raises :class:`SegmentUnavailable` if another fetch has waited for too long, so that a
        dead database holds up a few threads and not all.
        """
        now = self._clock.stopwatch()
        waited = now - min(list(self._under_way.values()), default=now)
        if waited > STUCK_AFTER:
            raise SegmentUnavailable(
                f"Database {self._alias!r} has not answered for {waited:.1f} s. Find out what "
                "blocks it. The next call starts when the present one has ended."
            )
        mine = object()
        self._under_way[mine] = now
        try:
            yield
        finally:
            del self._under_way[mine]

    def succeeded(self) -> None:
        self._retry_at = None

    def failed(self) -> None:
        self._retry_at = self._clock.stopwatch() + RETRY_AFTER


# --- the rows of an in-memory SQLite database ------------------------------------------------
#
# Its marks are kept in this process's memory, where no rollback reaches them. A fetch reads the
# tag's row for a step or a max_id that was set there, and then writes its result into the row, in
# the caller's transaction if there is one. So the row can be looked at, and a test runner that
# copies the database hands on what its migrations took.


class Row(NamedTuple):
    """What a row of ``leaf_alloc`` asks for."""

    max_id: int
    step: int
    paused: bool


def read_row(alias: str, tag: str) -> Row | None:
    """The row of ``tag``, if the calling thread has the database open."""
    raw = connections[alias].connection
    if not isinstance(raw, sqlite3.Connection):
        return None
    found = None
    with suppress(sqlite3.Error):  # no table yet, or another thread is changing it
        found = raw.execute(
            "SELECT max_id, step, paused FROM leaf_alloc WHERE biz_tag = ?", (tag,)
        ).fetchone()
    return None if found is None else Row(int(found[0]), int(found[1]), bool(found[2]))


def write_row(alias: str, segment: Segment) -> None:
    """Write that this process was granted ``segment``. Never raises."""
    raw = connections[alias].connection
    if not isinstance(raw, sqlite3.Connection):
        return
    now = stored_moment(datetime.now(UTC))
    stored = now.strftime("%Y-%m-%d %H:%M:%S.%f")  # as Django stores a moment
    row = (segment.tag, segment.stop, segment.step, stored, process_label(), stored)
    with suppress(sqlite3.Error):
        raw.execute(
            "INSERT INTO leaf_alloc (biz_tag, max_id, step, description, update_time, holder, "
            "fetched_at, fetched_ids) VALUES (?, ?, ?, '', ?, ?, ?, ?) "
            "ON CONFLICT (biz_tag) DO UPDATE SET max_id = max(max_id, excluded.max_id), "
            "update_time = excluded.update_time, holder = excluded.holder, "
            "fetched_at = excluded.fetched_at, fetched_ids = excluded.fetched_ids",
            (*row, len(segment.ids())),
        )

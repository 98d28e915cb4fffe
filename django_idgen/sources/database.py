"""Segments from the project's own databases: the default source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import Any

from django.db import connections

from ..core.errors import ConfigurationError, SegmentUnavailable
from ..core.loader import AnyLoader
from ..core.segment import STEP, Demand, Segment, Shard, check_tag
from ..core.source import Source
from ..db.connection import Place, own_connection, place_of
from ..db.installation import DatabaseOwner
from ..db.stores import AliasLoader
from .alias import AliasSource
from .fetch_threads import FetchThreads
from .health import Health
from .router import Route, Router, check_databases, router_of
from .server import FAILOVER_SKIP, ServerSource, check_failover_skip

__all__ = ["DatabaseSource"]

DEFAULT_DATABASE = "default"


class DatabaseSource(Source):
    """Segments of ``LeafAlloc`` in ``database`` (an alias of ``DATABASES``). Thread-safe.

    ``router`` is the dotted path of a function from a tag to its alias; give it or
    ``database``, not both. Several databases share a tag through
    :class:`~django_idgen.contrib.sharding.ShardedSource`.

    A new tag takes ``default_step`` ids at a time. ``failover_skip``,
    ``server_identity``, ``history`` and ``measures``: see :class:`ServerSource`. On
    SQLite the table stands in a file beside the database.

    Raises :class:`ConfigurationError`.
    """

    can_be_pooled = True
    keeps_rows = True
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
        self._default_step = default_step
        self.history = _flag("history", history)
        self.failover_skip = check_failover_skip(failover_skip)
        self._options: dict[str, Any] = {
            "failover_skip": self.failover_skip,
            "server_identity": _flag("server_identity", server_identity),
            "history": self.history,
            "measures": _flag("measures", measures),
        }
        self._by_alias: dict[tuple[str, Shard | None], AliasSource] = {}
        self._health: dict[str, Health] = {}
        self._owners: dict[str, DatabaseOwner] = {}
        self._route: Router
        self._databases: Route
        self._loader: AnyLoader
        if router is not None:
            if database is not None:
                raise ConfigurationError(f"Give only one of {self._option!r} and 'router'.")
            self._route, self._databases = router_of(router, most=self._most), ()
            self.is_routed = True
            # As far as is known: no tag was routed yet.
            self._loader = FetchThreads(lambda: bool(self._by_alias) and self._are_servers())
        else:
            given = DEFAULT_DATABASE if database is None else database
            route = check_databases(f"{self._option!r} is", given, most=self._most)
            self._route, self._databases = (lambda _tag: route), route
            self._members_on(route)
            alone = len(route) == 1
            self._loader = AliasLoader(route[0]) if alone else FetchThreads(self._are_servers)

    @property
    def loader(self) -> AnyLoader:
        """The thread of the database; several, where there are several databases."""
        return self._loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """See :meth:`Source.fetch`."""
        source = self._members(tag)[0]
        if source.server is None or own_connection(source.database).loader.inside:
            # It is done in this very thread: no other caller waits for it.
            return source.fetch(tag, floor=floor, demand=demand)
        with self._health_of(source).attempt():
            return source.fetch(tag, floor=floor, demand=demand)

    def record_rate(self, tag: str, used: int, now: datetime) -> float:
        """See :meth:`ServerSource.record_rate`; 0.0 for a database in this process.

        Where databases share the tag it is the first one's row that is measured.
        """
        server = self._members(tag)[0].server
        return server.record_rate(tag, used, now) if server is not None else 0.0

    def databases(self) -> Sequence[str]:
        """Every alias that may have tags of this source; all that there are if one routes them."""
        return self._databases or tuple(connections.settings)

    def route(self, tag: str) -> Route:
        """The aliases that share ``tag``; raises as :meth:`fetch` for one that can't be."""
        return self._route(check_tag(tag))

    def marks(self, tag: str) -> AliasSource:
        """Where the marks of ``tag`` stand that are not in its row (those of this process)."""
        return self._members(tag)[0]

    def is_new(self, tag: str) -> bool:
        """Whether none of its databases has given out ids of ``tag``.

        Of those that answer; raises :class:`SegmentUnavailable` if none does.
        """
        failure: SegmentUnavailable | None = None
        answers = []
        for member in self._members(tag):
            try:
                answers.append(member.is_new(tag))
            except SegmentUnavailable as error:
                failure = error
        if failure is not None and not answers:
            raise failure
        return all(answers)

    def is_paused(self, tag: str) -> bool:
        """Whether one of its databases refuses to hand out ids of ``tag``, as :meth:`fetch` would.

        Raises :class:`SegmentUnavailable` if one of them can't be asked.
        """
        return any(member.is_paused(tag) for member in self._members(tag))

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By database: what raises unless it answers. Ids can be had if one of them does.

        Only of those that this process has to do with: a router may know of others.
        """
        used = {source.database: source for source in list(self._by_alias.values())}
        return {f"database {alias}": source.ping for alias, source in used.items()}

    def owner(self, tag: str, *, max_age: float = math.inf) -> str:
        """See :meth:`Source.owner`. Of databases that share the tag it is the first's."""
        return self._owner_of(self.route(tag)[0]).current(max_age=max_age)

    def owners(self) -> Mapping[str, str]:
        """The owners of the ids in the databases that this process has used, by alias."""
        # Only those: it would make our tables in any other one.
        used = self._databases or tuple(self._owners)
        found = {alias: self._owner_of(alias).current() for alias in used}
        return {alias: owner for alias, owner in found.items() if owner}

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._health = {}
        self._loader.reset()
        for source in list(self._by_alias.values()):
            source.abandon()

    def close(self) -> None:
        """Free local resources. May be called twice."""
        for source in list(self._by_alias.values()):
            source.close()

    def _are_servers(self) -> bool:
        return all(place_of(alias) is Place.SERVER for alias, _ in list(self._by_alias))

    def _members(self, tag: str) -> Sequence[AliasSource]:
        return self._members_on(self.route(tag))

    def _members_on(self, route: Route) -> Sequence[AliasSource]:
        """The sources of the databases of ``route``, in its order."""
        return [self._place(route[0], None)]

    def _place(self, alias: str, shard: Shard | None) -> AliasSource:
        found = self._by_alias.get((alias, shard))
        if found is None:
            step = self._default_step
            make = partial(
                ServerSource, alias=alias, default_step=step, shard=shard, **self._options
            )
            made = AliasSource(alias, default_step=step, make_server=make)
            found = self._by_alias.setdefault((alias, shard), made)
        return found

    def _owner_of(self, alias: str) -> DatabaseOwner:
        return self._owners.get(alias) or self._owners.setdefault(alias, DatabaseOwner(alias))

    def _health_of(self, source: AliasSource) -> Health:
        alias = source.database
        return self._health.get(alias) or self._health.setdefault(
            alias, Health(alias, partial(_probe, source))
        )


def _probe(source: AliasSource) -> Future[None]:
    def ping() -> None:
        if source.server is not None:
            source.server.ping()

    return own_connection(source.database).loader.submit(ping)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}.")
    return value

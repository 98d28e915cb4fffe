"""The source of tags that several databases share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from ...core.errors import ConfigurationError, SegmentExhausted, SegmentUnavailable, TagPaused
from ...core.segment import MAX_DELTA, STEP, Demand, Segment, Shard
from ...core.tag_generator import TagGenerator
from ...db.connection import place_of
from ...db.sqlite import refuse_sqlite
from ...sources.database import AliasSource, DatabaseSource, Route
from ...sources.server import FAILOVER_SKIP, ServerSource, ShardUnknown, Sharing

SKIP_AFTER = 1.0
"""Seconds to wait for a database before the next one is tried."""


class ShardedSource(DatabaseSource):
    """Segments of tags that several databases share. Thread-safe.

    ``databases`` (a list of aliases of ``DATABASES``) share each tag: each gives out the ids
    whose remainder, when divided by the number of databases, is its place in the list. A dead
    database is skipped. Or ``router`` is the dotted path of a function from a tag to such a
    list, or to one alias. For the other options see :class:`DatabaseSource`.

    Raises :class:`ConfigurationError`.
    """

    _option = "databases"
    _most = MAX_DELTA

    def __init__(
        self,
        *,
        default_step: int,
        databases: Sequence[str] | None = None,
        router: str | Callable[[str], str | Sequence[str]] | None = None,
        failover_skip: int = FAILOVER_SKIP,
        server_identity: bool = True,
        history: bool = False,
        measures: bool = True,
    ) -> None:
        if databases is None and router is None:
            raise ConfigurationError("Give 'databases' or 'router'.")
        self._groups: dict[Route, ShardGroup] = {}
        super().__init__(
            default_step=default_step,
            database=databases,
            router=router,
            failover_skip=failover_skip,
            server_identity=server_identity,
            history=history,
            measures=measures,
        )

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        route = self.route(tag)
        if len(route) == 1:
            return super().fetch(tag, floor=floor, demand=demand)
        return self._group(route).fetch(tag, floor=floor, demand=demand)

    def agree(self, tag: str) -> None:
        """See :meth:`Source.agree`. On first use all databases must answer."""
        route = self.route(tag)
        if len(route) > 1 and self._members(tag)[0].server is not None:
            self._group(route).agree()

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._groups = {}
        super().abandon()

    def _members_on(self, route: Route) -> Sequence[AliasSource]:
        if len(route) == 1:
            return super()._members_on(route)
        return [self._member(alias, Shard(len(route), place)) for place, alias in enumerate(route)]

    def _group(self, route: Route) -> ShardGroup:
        found = self._groups.get(route)
        if found is None:
            found = self._groups.setdefault(route, ShardGroup(self._members_on(route)))
        return found


class NotAgreed(SegmentUnavailable):
    """A database that has never shared a tag with the others does not answer."""


class ShardGroup:
    """Takes segments from ``members`` in turn, and skips dead ones. Thread-safe.

    It starts with a random member, so that the load of a fleet spreads. Raises what
    :class:`Source` raises, and :class:`ConfigurationError` if a database has another division.
    """

    def __init__(self, members: Sequence[AliasSource]) -> None:
        self._members = list(members)
        self._turns = count(random.randrange(len(self._members)))  # nosec B311  # whose turn is first is no secret

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        first = self._members[0]
        if place_of(first.database).in_process:
            # In a test that keeps its marks in memory, one of them has all ids.
            return first.fetch(tag, floor=floor, demand=demand)
        failures: list[SegmentUnavailable | SegmentExhausted] = []
        for member, timeout in self._attempts():
            try:
                return self._fetch_from(member, timeout, tag, floor, demand)
            except (NotAgreed, TagPaused):
                raise
            except (SegmentUnavailable, SegmentExhausted) as error:
                failures.append(error)
        raise self._failed(tag, failures)

    def _attempts(self) -> Iterator[tuple[AliasSource, float | None]]:
        """First the members that are up, each for a moment; then all, without a limit."""
        turn = next(self._turns) % len(self._members)
        members = self._members[turn:] + self._members[:turn]
        for member in members:
            if member.health.is_up():
                yield member, SKIP_AFTER
        for member in members:
            yield member, None

    def _fetch_from(
        self,
        source: AliasSource,
        timeout: float | None,
        tag: str,
        floor: int,
        demand: Demand,
    ) -> Segment:
        health = source.health
        server = _server(source)
        try:
            with health.attempt():
                segment = server.fetch_within(timeout, tag, floor=floor, demand=demand)
        except ShardUnknown:
            self.agree()
            segment = server.fetch_within(None, tag, floor=floor, demand=demand)
        except TagPaused:
            health.succeeded()
            raise
        except SegmentUnavailable:
            health.failed()
            raise
        health.succeeded()
        return segment

    def agree(self) -> None:
        """On first use, write the division to every database. All of them must answer.

        A database that is down may have given out alone the ids that the others would give.
        """
        states = {source.database: self._share(source, write=False) for source in self._members}
        new = [alias for alias, state in states.items() if state is Sharing.NEW]
        used = [alias for alias, state in states.items() if state is Sharing.USED]
        if new and used:
            # It was emptied, or idgen_grow has not reached it: it would start at 1.
            raise ConfigurationError(
                f"Database {used[0]!r} has given out ids of the tags that {new[0]!r} is to share, "
                f"but {new[0]!r} has no rows of them, and would repeat ids. To add it, stop all "
                f"processes and run 'manage.py idgen_grow {' '.join(states)}'. If it was emptied, "
                f"restore its rows and run 'manage.py idgen_skip --all'."
            )
        for source in self._members:
            self._share(source, write=True)

    def _share(self, source: AliasSource, *, write: bool) -> Sharing:
        try:
            return _server(source).share(write=write)
        except SegmentUnavailable as error:
            names = ", ".join(repr(member.database) for member in self._members)
            raise NotAgreed(
                f"Databases {names} share tags for the first time, but {source.database!r} does "
                f"not answer, and may have given out ids alone: {error} On first use, all of "
                "these databases must answer."
            ) from error

    def _failed(
        self, tag: str, failures: Sequence[SegmentUnavailable | SegmentExhausted]
    ) -> SegmentUnavailable | SegmentExhausted:
        last = failures[-len(self._members) :]
        if all(isinstance(error, SegmentExhausted) for error in last):
            return last[-1]
        reasons = " ".join(dict.fromkeys(str(error) for error in last))
        made = SegmentUnavailable(f"No database has a segment of tag {tag!r}. {reasons}")
        made.__cause__ = next(error for error in last if isinstance(error, SegmentUnavailable))
        return made


def _server(source: AliasSource) -> ServerSource:
    refuse_sqlite(source.database)
    server = source.server
    if server is None:
        raise ConfigurationError(
            f"The test may use some of the databases that share tags, but not "
            f"{source.database!r}. Name all of them, or none, in the test's 'databases'."
        )
    return server


class TicketGenerator(TagGenerator):
    """Ids of a tag that several databases share, like those of Flickr's ticket servers."""

    __slots__ = ()
    default_source = f"{__name__}.ShardedSource"

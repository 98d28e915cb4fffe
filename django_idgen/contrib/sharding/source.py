"""One tag over several databases, each of which gives out its own remainder."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import count

from django.db import connections

from ...core.errors import ConfigurationError, SegmentExhausted, SegmentUnavailable, TagPaused
from ...core.segment import STEP, Demand, Segment
from ...db.connection import place_of
from ...sources.health import Health
from ...sources.placed import PlacedSource
from ...sources.row_opening import GridUnknown, Sharing
from ...sources.server import ServerSource

__all__ = ["SKIP_AFTER", "SeveralDatabases"]

SKIP_AFTER = 1.0
"""Seconds after which the next database is asked, as long as there is one."""


class NotAgreed(SegmentUnavailable):
    """A database is away that the others have never shared a tag with."""


class SeveralDatabases:
    """Takes segments from ``members`` in turn; one that is dead is passed over. Thread-safe.

    The first one to be asked is chosen at random, so that the load of a fleet spreads.
    Raises what :class:`Source` says, and
    :class:`ConfigurationError` where the databases were told otherwise.
    """

    def __init__(self, members: Sequence[tuple[PlacedSource, Health]]) -> None:
        self._members = list(members)
        self._turns = count(random.randrange(len(self._members)))  # nosec B311  # whose turn is first is no secret

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        first = self._members[0][0]
        if place_of(first.database).in_process:
            # In a test that keeps its marks in memory one place has all ids.
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

    def _attempts(self) -> Iterator[tuple[tuple[PlacedSource, Health], float | None]]:
        """First those that are up, each for a moment; then all of them, for as long as it takes."""
        turn = next(self._turns) % len(self._members)
        members = self._members[turn:] + self._members[:turn]
        for member in members:
            if member[1].is_up():
                yield member, SKIP_AFTER
        for member in members:
            yield member, None

    def _fetch_from(
        self,
        member: tuple[PlacedSource, Health],
        timeout: float | None,
        tag: str,
        floor: int,
        demand: Demand,
    ) -> Segment:
        source, health = member
        server = _server(source)
        try:
            with health.attempt():
                segment = server.fetch_within(timeout, tag, floor=floor, demand=demand)
        except GridUnknown:
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
        """Tell each database of the others; on the first use of all, and all have to be there.

        A database that is away may have given out, alone, the very ids that the
        others would.
        """
        states = {source.database: self._share(source, write=False) for source, _ in self._members}
        new = [alias for alias, state in states.items() if state is Sharing.NEW]
        used = [alias for alias, state in states.items() if state is Sharing.USED]
        if new and used:
            # It was emptied, or idgen_grow is on its way to it: it would start at 1.
            raise ConfigurationError(
                f"Database {used[0]!r} gives out ids, and {new[0]!r}, which is to share its tags, "
                f"has never heard of them. Going on would repeat ids. 'manage.py idgen_grow "
                f"{' '.join(states)}' makes its rows above those of the others."
            )
        for source, _ in self._members:
            self._share(source, write=True)

    def _share(self, source: PlacedSource, *, write: bool) -> Sharing:
        try:
            return _server(source).share(write=write)
        except SegmentUnavailable as error:
            names = ", ".join(repr(member.database) for member, _ in self._members)
            raise NotAgreed(
                f"Databases {names} are to share their tags for the first time, but "
                f"{source.database!r} can't be asked whether it gives out ids alone: "
                f"{error} All of them must be there for the first use."
            ) from error

    def _failed(
        self, tag: str, failures: Sequence[SegmentUnavailable | SegmentExhausted]
    ) -> SegmentUnavailable | SegmentExhausted:
        last = failures[-len(self._members) :]
        if all(isinstance(error, SegmentExhausted) for error in last):
            return last[-1]
        words = " ".join(dict.fromkeys(str(error) for error in last))
        made = SegmentUnavailable(f"No database has a segment of tag {tag!r}. {words}")
        made.__cause__ = next(error for error in last if isinstance(error, SegmentUnavailable))
        return made


def _server(source: PlacedSource) -> ServerSource:
    server = source.server
    if server is None:
        raise ConfigurationError(
            f"Database {source.database!r} ({connections[source.database].vendor}) can't share its "
            f"tags here: several databases must all be servers, not SQLite."
        )
    return server

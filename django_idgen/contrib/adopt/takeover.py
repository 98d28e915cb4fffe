"""Taking over the tags of a Leaf, a Go version of it, or a TinyID, while it keeps running.

Its tables stay as they are. The old server keeps the ids up to a distance above its mark, and
this project's tags begin there: the ids that the old server holds are below its mark, and the
ids that it takes from then on are below the tag here, until it has used up the distance. So
its clients can move over one after the other. By default the distance is 10,000 of its
fetches, each of which is meant to last ten minutes, and at least 10,000,000 ids, since Leaf
grows its steps to a million.

The history gets one row a tag, for all ids of the old server. From that row a later run knows
where the tag here began, and reports whether the old server has kept its distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.models import Max
from django.utils import timezone

from ...core.errors import ConfigurationError, InvalidTag, one_line
from ...core.segment import MAX_ID, MAX_STEP, check_tag
from ...db.connection import home_of
from ...db.rows import insert_row, read_aggregate, rows_of
from ...db.tables import is_missing, refuse_unfit_columns, table_of
from ...fields.operations import Report, query
from ...models import LeafAlloc, SegmentHistory
from ...process.tags import find_tag, source_of_tags
from .marks import raise_tag
from .project import check_alias
from .stages import check_margin
from .tables import columns_of

_LEAF = ("leaf_alloc", "biz_tag", "max_id", "step", "description")
_TINYID = ("tiny_id_info", "biz_type", "max_id", "step", "delta", "remainder")
_TABLES = {"leaf": _LEAF, "go-leaf": _LEAF, "tinyid": _TINYID}
"""The table of each kind of server, and the columns that are read."""
KINDS = tuple(_TABLES)
FETCHES = 10_000
LEAST = 10_000_000


@dataclass(frozen=True, slots=True)
class Theirs:
    """A row of the other server."""

    tag: str
    first_free: int
    """The first id that none of its processes has."""
    step: int
    description: str
    delta: int = 1
    remainder: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Where a tag of this project begins."""

    theirs: Theirs
    ours: int
    """The tag's next id now; 0 for a new tag."""
    began: int
    """Where the tag began when it was taken over before; 0 if it was not."""
    first: int
    """Where the tag is to begin."""

    @property
    def is_done(self) -> bool:
        """The tag here began above the old server's ids, and was not set back."""
        return 0 < self.began <= self.ours and self.theirs.first_free <= self.began

    @property
    def has_met(self) -> bool:
        """The old server has reached ids that this project may have given out."""
        return 0 < self.began < self.theirs.first_free and self.ours > self.began

    def describe(self) -> str:
        theirs = f"{self.theirs.tag}: the old server is at {self.theirs.first_free}"
        if self.is_done:
            left = self.began - self.theirs.first_free
            return (
                f"{theirs}, and this project began at {self.began}: the old server has {left} ids "
                "left."
            )
        following = max(self.first, self.ours)
        if self.has_met:
            return (
                f"{theirs}, but this project began at {self.began}: IDS HAVE BEEN GIVEN OUT "
                "TWICE, unless no process of this project took ids there. Stop the old server. "
                f"This project continues at {following}."
            )
        if self.ours > self.theirs.first_free:
            return (
                f"{theirs}, but this project is at {self.ours} already, and may have given out "
                "ids that the old server will reach. Stop the old server before that. This "
                f"project continues at {following}."
            )
        return f"{theirs}; this project begins at {self.first}."


class Takeover:
    """Takes over the tags of server ``kind`` in the databases ``sources``.

    ``into``: the database that the tags go to; it must be one of those in the settings. Raises
    :class:`ConfigurationError` before anything is changed.
    """

    def __init__(
        self,
        kind: str,
        sources: Sequence[str],
        *,
        tag: str = "",
        margin: int | None = None,
        into: str | None = None,
    ) -> None:
        self.kind = kind
        self.sources = list(sources)
        self.margin = margin
        self.left_out: dict[str, str] = {}
        """Tags that can't be taken over, and the reasons. The other tags are taken over."""
        self._names = ", ".join(map(repr, self.sources))
        self._holder = f"{kind} in {', '.join(self.sources)}"[:200]
        self._check_options(into)
        self.moves = list(self._moves(tag))

    def plan(self) -> list[str]:
        """What there is, and what :meth:`run` does, a line a tag."""
        lines = [
            *(move.describe() for move in self.moves),
            *(f"{tag!r} is left out. {reason}" for tag, reason in self.left_out.items()),
        ]
        return lines or ["There are no tags to take over."]

    @property
    def is_done(self) -> bool:
        """There is no tag left that :meth:`run` would let begin."""
        return all(move.is_done for move in self.moves)

    def run(self, report: Report) -> None:
        """Let the tags begin. May be interrupted and repeated. Never lowers a tag."""
        for move in self.moves:
            if move.is_done:
                continue
            self._remember(move)
            theirs = move.theirs
            description = theirs.description[:256]
            try:
                raise_tag(theirs.tag, move.first, step=theirs.step, description=description)
            except (ConfigurationError, InvalidTag) as error:
                self.left_out[theirs.tag] = str(error)
            else:
                report(f"{theirs.tag}: begins at {move.first}")

    def after(self) -> list[str]:
        """The user's next steps."""
        return [
            "Next:",
            "  1. Move the clients over, one after the other: both servers may give out ids.",
            "  2. Run this again now and then: it shows how much of its distance the old server "
            "has left, and takes over tags that were made meanwhile.",
            "  3. Stop the old server. Its tables are not needed any more.",
        ]

    # --- reading ---------------------------------------------------------------------

    def _check_options(self, into: str | None) -> None:
        for alias in (*self.sources, *([into] if into else [])):
            check_alias(alias)
        if len(set(self.sources)) < len(self.sources):
            raise ConfigurationError("A database is named twice.")
        if len(self.sources) > 1 and self.kind != "tinyid":
            raise ConfigurationError(
                "Name one database: only TinyID shares its tags among several. Take the others "
                "over one by one."
            )
        check_margin(self.margin)
        ours = source_of_tags().databases()
        if into is not None and into not in ours:
            raise ConfigurationError(
                f"IDGEN['SEGMENTS'] keeps tags in {', '.join(map(repr, ours))}, not in {into!r}."
            )

    def _moves(self, tag: str) -> Iterator[Move]:
        found: dict[str, list[Theirs]] = {}
        for alias in self.sources:
            self._refuse_shared(alias)
            for theirs in _rows_of_server(self.kind, alias, tag):
                found.setdefault(theirs.tag, []).append(theirs)
        if tag and tag not in found:
            raise ConfigurationError(f"There is no tag {tag!r} in {self._names}.")
        for name, rows in found.items():
            try:
                yield self._move(self._joined(rows))
            except InvalidTag as error:
                self.left_out[name] = f"{error} Rename it there."
            except ConfigurationError as error:
                self.left_out[name] = str(error)

    def _joined(self, rows: list[Theirs]) -> Theirs:
        """One tag in all of its databases, each of which must be named."""
        first = rows[0]
        check_tag(first.tag)
        places = sorted((row.delta, row.remainder) for row in rows)
        if places != [(first.delta, number) for number in range(first.delta)]:
            found = ", ".join(f"delta={delta}, remainder={rest}" for delta, rest in places)
            raise ConfigurationError(
                f"Tag {first.tag!r} is divided among {first.delta} databases, but {self._names} "
                f"has {found}. Name each of its databases once: this project must begin above all "
                "of them. If there is no other, set delta to 1 and remainder to 0 in its row of "
                "tiny_id_info: the old server then gives every id above its mark."
            )
        return Theirs(
            first.tag,
            max(row.first_free for row in rows),
            max(row.step for row in rows),
            first.description,
            first.delta,
        )

    def _refuse_shared(self, alias: str) -> None:
        """Leaf's own table in a database of this project needs no takeover: both use it."""
        names = ("ENGINE", "HOST", "PORT", "NAME")
        theirs = connections.settings[alias]
        for ours in source_of_tags().databases():
            settings = connections.settings[ours]
            if self.kind != "tinyid" and all(settings[name] == theirs[name] for name in names):
                refuse_unfit_columns(connections[alias])
                raise ConfigurationError(
                    f"Table {LeafAlloc._meta.db_table} of database {alias!r} has this project's "
                    "tags already. Both servers may take ids from it at once, so there is nothing "
                    "to take over. 'manage.py migrate django_idgen' has added the columns that "
                    "were missing."
                )

    def _move(self, theirs: Theirs) -> Move:
        found = find_tag(theirs.tag)
        distance = max(theirs.step * FETCHES, LEAST) if self.margin is None else self.margin
        first = theirs.first_free + distance
        if first >= MAX_ID:
            raise ConfigurationError(
                f"Tag {theirs.tag!r} is at {theirs.first_free}, and fewer than {distance} ids are "
                "left above that. Give a smaller --margin."
            )
        began = self._began(theirs.tag)
        return Move(theirs, found.max_id if found else 0, began, max(first, began))

    # --- the history -----------------------------------------------------------------

    def _began(self, tag: str) -> int:
        alias = source_of_tags().route(tag)[0]
        if is_missing("SegmentHistory", alias):
            return 0
        rows = rows_of(SegmentHistory, alias).filter(tag=tag, holder=self._holder)
        return int(read_aggregate(rows, Max("stop", default=0)))

    def _remember(self, move: Move) -> None:
        """Write the old server's ids to the history, before the tag here begins."""
        alias = source_of_tags().route(move.theirs.tag)[0]
        if is_missing("SegmentHistory", alias):
            raise ConfigurationError(
                f"Database {alias!r} lacks {table_of('SegmentHistory')}. Run 'manage.py migrate "
                f"django_idgen --database {alias}' first."
            )
        row = SegmentHistory(
            tag=move.theirs.tag,
            start=1,
            stop=move.first,
            delta=1,
            holder=self._holder,
            taken_at=timezone.now(),
        )
        with transaction.atomic(using=home_of(alias)):
            insert_row(row, alias)


def _rows_of_server(kind: str, alias: str, tag: str) -> list[Theirs]:
    """The tags of a server in database ``alias``, or ``tag`` alone."""
    (table, *names), connection = _TABLES[kind], connections[alias]
    q = connection.ops.quote_name
    try:
        columns = columns_of(connection, table)
        if missing := sorted(set(names) - set(columns)):
            problem = f"lacks {', '.join(missing)}" if columns else "does not exist"
            raise ConfigurationError(
                f"Database {alias!r} has no table of a {kind}: {table} {problem}."
            )
        listed = ", ".join(map(q, names))
        rows = query(connection, f"SELECT {listed} FROM {q(table)} ORDER BY {q(names[0])}")  # noqa: S608 - Django quotes the names
    except DatabaseError as error:
        raise ConfigurationError(
            f"Database {alias!r} does not answer: {one_line(error)}"
        ) from error
    return [_theirs(kind, row) for row in rows if not tag or row[0] == tag]


def _theirs(kind: str, row: Sequence[Any]) -> Theirs:
    name, max_id, step, *rest = row
    # Leaf gives out the ids below max_id, TinyID max_id as well. One id more is no loss.
    first_free = max(int(max_id), 0) + 1
    steps = min(max(int(step or 1), 1), MAX_STEP)
    if kind != "tinyid":
        return Theirs(name, first_free, steps, str(rest[0] or ""))
    return Theirs(name, first_free, steps, "", int(rest[0] or 1), int(rest[1] or 0))

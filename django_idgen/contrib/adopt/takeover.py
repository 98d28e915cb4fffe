"""Taking over the tags of a Leaf, a Go version of it, or a TinyID, which goes on running.

Its tables stay as they are. The old server keeps the ids up to a distance above its mark,
and this project's tags begin there: what the old server holds lies below its mark, and
what it takes from then on lies below the tag here, until it has used up the distance. So
its clients can move over one after the other. By default the distance is 10,000 of its
fetches, each of which is meant to last ten minutes, and no less than 10,000,000 ids, since
Leaf grows its steps to a million.

The history has one row a tag, for all ids of the old server. From that row a later run
knows where the tag here began, and says whether the old server has kept its distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections, transaction
from django.utils import timezone

from ...core.errors import ConfigurationError, InvalidTag
from ...core.segment import MAX_ID, MAX_STEP, check_tag
from ...db.connection import home_connection, home_of
from ...db.tables import insert_row, missing_tables, refuse_unfit_columns, table_of
from ...fields.filling import Report, rows_of
from ...models import Installation, LeafAlloc, SegmentHistory
from ...process.tags import find_tag, source_of_tags
from .marks import raise_tag
from .tables import columns_of

__all__ = ["KINDS", "Takeover"]

KINDS = ("leaf", "go-leaf", "tinyid")
_TABLES = {"leaf": "leaf_alloc", "go-leaf": "leaf_alloc", "tinyid": "tiny_id_info"}
_COLUMNS = {
    "leaf": ("biz_tag", "max_id", "step", "description"),
    "go-leaf": ("biz_tag", "max_id", "step", "description"),
    "tinyid": ("biz_type", "max_id", "step", "delta", "remainder"),
}


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
class _Move:
    """Where a tag of this project is to begin."""

    theirs: Theirs
    ours: int
    """Where it stands now; 0 for a new one."""
    began: int
    """Where it began when it was taken over before; 0 if it wasn't."""
    first: int
    """Where it is to begin."""


class Takeover:
    """Takes over the tags of server ``kind`` in the databases ``sources``.

    ``into``: the database that the tags go to; it must be one that the settings lead to.
    Raises :class:`ConfigurationError`, before anything is changed.
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
        self.into = into
        self.left_out: dict[str, str] = {}
        """Tags that can't be taken over, and why; they hold up no other."""
        self._check_aliases()
        self.moves = list(self._moves(tag))

    def plan(self) -> list[str]:
        """What is there, and what :meth:`run` does, a line a tag."""
        left_out = [f"{tag!r} is left out. {why}" for tag, why in self.left_out.items()]
        lines = [self._line(move) for move in self.moves] + left_out
        return lines or ["There are no tags to take over."]

    def run(self, report: Report) -> None:
        """Begin the tags; may be repeated, and broken off. Never lowers a tag."""
        for move in self.moves:
            if self._is_done(move):
                continue
            self._remember(move)
            theirs = move.theirs
            description = theirs.description[:256]
            try:
                raise_tag(theirs.tag, move.first, step=theirs.step, description=description)
            except (ConfigurationError, InvalidTag) as error:
                self.left_out[theirs.tag] = str(error)
                continue
            report(f"{move.theirs.tag}: begins at {move.first}")

    def met(self) -> list[str]:
        """Tags in which the old server has come to where this project began."""
        return [move.theirs.tag for move in self.moves if self._is_met(move)]

    def after(self) -> list[str]:
        """What to do next."""
        return [
            "Next:",
            "  1. Move the clients over, one after the other: both servers may give out ids.",
            "  2. Run this again now and then: it says how much of its distance the old server has "
            "left, and takes over tags that were made meanwhile.",
            "  3. Stop the old server. Its tables are not needed any more.",
        ]

    # --- reading -------------------------------------------------------------------------

    def _check_aliases(self) -> None:
        for alias in (*self.sources, *([self.into] if self.into else [])):
            if alias not in connections.settings:
                known = ", ".join(map(repr, connections.settings))
                raise ConfigurationError(
                    f"There is no database {alias!r} in DATABASES. There are {known}."
                )
        if len(set(self.sources)) < len(self.sources):
            raise ConfigurationError("A database is named twice.")
        if len(self.sources) > 1 and self.kind != "tinyid":
            raise ConfigurationError(
                "Several databases of one server: only TinyID shares its tags among them. Take "
                "them over one by one."
            )
        if self.margin is not None and not 1 <= self.margin <= MAX_ID // 4:
            raise ConfigurationError(f"--margin must be 1 to {MAX_ID // 4}, not {self.margin}.")
        known_sources = source_of_tags().databases()
        if self.into is not None and self.into not in known_sources:
            raise ConfigurationError(
                f"Tags of this project are in {', '.join(map(repr, known_sources))}, as "
                f"IDGEN['SEGMENTS'] says, not in {self.into!r}."
            )

    def _moves(self, tag: str) -> Iterator[_Move]:
        found: dict[str, list[Theirs]] = {}
        for alias in self.sources:
            self._refuse_shared(alias)
            for theirs in _rows_of_server(self.kind, alias, tag):
                found.setdefault(theirs.tag, []).append(theirs)
        if tag and tag not in found:
            raise ConfigurationError(f"There is no tag {tag!r} in {self._where()}.")
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
            said = ", ".join(f"delta={delta}, remainder={rest}" for delta, rest in places)
            raise ConfigurationError(
                f"Tag {first.tag!r} is divided among {first.delta} databases, and {self._where()} "
                f"has {said}. Name all of its databases, and each once: ours must begin above "
                f"all of them. If there is no other, set delta to 1 and remainder to 0 in its row "
                f"of tiny_id_info: the old server goes on above its mark, with every id."
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
        if self.kind == "tinyid":
            return
        ours = [a for a in source_of_tags().databases() if _is_one_database(a, alias)]
        if ours:
            refuse_unfit_columns(connections[alias])
            raise ConfigurationError(
                f"Table {LeafAlloc._meta.db_table} of database {alias!r} is the one that this "
                f"project's tags are in: it is shared with the other server already, and both "
                f"may take ids from it at once. 'manage.py migrate django_idgen' has added what "
                f"columns it lacked."
            )

    # --- deciding ------------------------------------------------------------------------

    def _move(self, theirs: Theirs) -> _Move:
        found = find_tag(theirs.tag)
        distance = max(theirs.step * FETCHES, LEAST) if self.margin is None else self.margin
        first = theirs.first_free + distance
        if first >= MAX_ID:
            raise ConfigurationError(
                f"Tag {theirs.tag!r} stands at {theirs.first_free}: there are no {distance} ids "
                f"above it. Name a smaller --margin."
            )
        began = self._began(theirs.tag)
        return _Move(theirs, found.max_id if found else 0, began, max(first, began))

    def _began(self, tag: str) -> int:
        alias = source_of_tags().route(tag)[0]
        if missing_tables(home_connection(alias), ["SegmentHistory"]):
            return 0
        rows = SegmentHistory.objects.using(alias).filter(tag=tag, holder=self._holder)
        return max(rows.values_list("stop", flat=True), default=0)

    def _is_done(self, move: _Move) -> bool:
        """The tag here began above where the old server is, and has not been set back."""
        return 0 < move.began <= move.ours and move.theirs.first_free <= move.began

    @staticmethod
    def _is_met(move: _Move) -> bool:
        return 0 < move.began < move.theirs.first_free and move.ours > move.began

    def _line(self, move: _Move) -> str:
        theirs = f"{move.theirs.tag}: theirs stands at {move.theirs.first_free}"
        if self._is_done(move):
            left = move.began - move.theirs.first_free
            return f"{theirs}, ours began at {move.began}: {left} ids are left to it."
        if self._is_met(move):
            return (
                f"{theirs}, but ours began at {move.began}: IDS HAVE BEEN GIVEN OUT TWICE, unless "
                f"no process took ours there. Stop the old server; ours goes on at "
                f"{max(move.first, move.ours)}."
            )
        if move.ours > move.theirs.first_free:
            return (
                f"{theirs}, and ours at {move.ours} already: ours may have given out ids that the "
                f"old server comes to. Stop it before it does. Ours goes on at "
                f"{max(move.first, move.ours)}."
            )
        return f"{theirs}; ours begins at {move.first}."

    # --- doing ---------------------------------------------------------------------------

    @property
    def _holder(self) -> str:
        return f"{self.kind} in {', '.join(self.sources)}"[:200]

    def _remember(self, move: _Move) -> None:
        """Write down the old server's ids, before the tag here begins."""
        alias = source_of_tags().route(move.theirs.tag)[0]
        if missing_tables(home_connection(alias), ["SegmentHistory"]):
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

    def _where(self) -> str:
        return ", ".join(map(repr, self.sources))


def _is_one_database(one: str, other: str) -> bool:
    if one == other:
        return True
    names = ("ENGINE", "HOST", "PORT", "NAME")
    ours, theirs = connections.settings[one], connections.settings[other]
    if all(str(ours.get(name) or "") == str(theirs.get(name) or "") for name in names):
        return True
    return _identity(one) is not None and _identity(one) == _identity(other)


def _identity(alias: str) -> str | None:
    try:
        if missing_tables(home_connection(alias), ["Installation"]):
            return None
        rows = Installation.objects.using(alias).values_list("identity", flat=True)
        identity = rows.first()
    except DatabaseError:
        return None
    return None if identity is None else f"{identity}/{connections.settings[alias]['NAME']}"


def _rows_of_server(kind: str, alias: str, tag: str) -> list[Theirs]:
    """Tags of server ``kind`` in ``alias``, or just ``tag``. Raises ConfigurationError."""
    table, names = _TABLES[kind], _COLUMNS[kind]
    connection = connections[alias]
    try:
        there = columns_of(connection, table)
        if not set(names) <= set(there):
            missing = ", ".join(sorted(set(names) - set(there)))
            raise ConfigurationError(
                f"Database {alias!r} has no table of a {kind}: {table} "
                f"{f'lacks {missing}' if there else 'is not there'}."
            )
        q = connection.ops.quote_name
        listed = ", ".join(q(name) for name in names)
        rows = rows_of(connection, f"SELECT {listed} FROM {q(table)} ORDER BY {q(names[0])}")  # noqa: S608 - Django quotes the names
    except DatabaseError as error:
        words = " ".join(str(error).split())
        raise ConfigurationError(f"Database {alias!r} can't be asked: {words}") from error
    return [_theirs(kind, row) for row in rows if not tag or row[0] == tag]


def _theirs(kind: str, row: Sequence[Any]) -> Theirs:
    name, max_id, step, *rest = row
    # Leaf gives out what is below max_id, TinyID max_id as well. One id more is no loss.
    first_free = max(int(max_id), 0) + 1
    steps = min(max(int(step or 1), 1), MAX_STEP)
    if kind != "tinyid":
        return Theirs(name, first_free, steps, str(rest[0] or ""))
    return Theirs(name, first_free, steps, "", int(rest[0] or 1), int(rest[1] or 0))

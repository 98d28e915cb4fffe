"""Ids for rows that other programs insert: a sequence of the database, over ids of the tag.

psql, ETL and triggers leave the id out, and the column's default takes it from a sequence of
PostgreSQL or MariaDB. The range of the sequence is a segment of the tag, granted to it alone, so
it never repeats an id that Django gives. The sequence does not cycle. Its next segment is set
long before the present one ends. If the two adjoin, the sequence simply continues; else the rest of
the former is skipped.

Each segment is set once, right after it was fetched: anything lost or late on the way leaves a
gap. The sequence is not owned by the column: ``TRUNCATE ... RESTART IDENTITY`` and Django's
``sqlsequencereset`` would reset an owned one to its start.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from django.apps import apps
from django.db import DatabaseError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import split_identifier, truncate_name

from ..core.errors import ConfigurationError, IdgenError, SegmentUnavailable
from ..core.options import check_whole
from ..core.segment import HIGHEST, LONGEST_STEP, MAX_STEP, Demand
from ..db.connection import Place, place_of
from ..db.dialects import server_identity
from ..fields import SegmentSource
from ..fields.operations import query
from ..process.tags import next_free_id, source_behind_pool
from .upkeep import Results

T = TypeVar("T")

LENGTH = 100_000
"""Ids of a segment by default."""
LEAST = 100
LOW = 2
"""The next segment is set when less than 1/LOW of the last one is left."""
VERY_LOW = 4
"""With less than 1/VERY_LOW left, segments are used up faster than expected: they double."""
LOCK_SECONDS = 2
"""A writer that wants an id waits as long as we wait for a transaction to end."""
PREFIX = "idgen_native_"
"""The prefix of our sequences. Their comment is the identity of their server."""
MOST_CACHED = 1000

_CALL = re.compile(r"nextval\((?:'((?:[^']|'')+)'::regclass|([^()]+))\)", re.IGNORECASE)
_LOCK_TIMEOUT = "55P03", 1205
"""PostgreSQL's state and MariaDB's number."""


@dataclass(frozen=True, slots=True)
class Position:
    """The state of a sequence."""

    name: str
    """Quoted for SQL."""
    ids: range
    """All ids that it may give or may have given."""
    newest: int
    """The first id of its latest segment."""
    following: int
    """Its next id, or one above it."""
    server: str
    """The identity of the server that set it; "" if unknown."""

    @property
    def left(self) -> int:
        return len(range(self.following, self.ids.stop, self.ids.step))

    @property
    def length(self) -> int:
        """How many ids its latest segment has."""
        return len(range(self.newest, self.ids.stop, self.ids.step))

    @property
    def runs_low(self) -> bool:
        return self.left * LOW < self.length

    def __str__(self) -> str:
        by = f" by {self.ids.step}" if self.ids.step > 1 else ""
        return f"{self.ids[0]} to {self.ids[-1]}{by}, {self.left} left"


class NativeColumn(ABC):
    """The column of ``field``, a :class:`SegmentSource`, on an open connection to its database.

    Each change is one statement or one transaction, under a lock against other changes. Raises
    :class:`IdgenError` and database errors.
    """

    def __init__(self, connection: BaseDatabaseWrapper, field: Any) -> None:
        self.connection = connection
        self.tag: str = field.resolved_tag
        q = connection.ops.quote_name
        self.table, self.column = q(field.model._meta.db_table), q(field.column)
        self.plain_table = split_identifier(field.model._meta.db_table)[1]
        self.plain_column: str = field.column
        named = f"{connection.settings_dict['NAME']}.{self.table}.{self.column}"
        self._digest = blake2b(named.encode(), digest_size=8).digest()
        self._key = int.from_bytes(self._digest, "big", signed=True)

    def __str__(self) -> str:
        return (
            f"{self.plain_table}.{self.plain_column} in {self.connection.alias!r} "
            f"(tag {self.tag!r})"
        )

    # --- changes ----------------------------------------------------------------------

    def install(self, length: int | None = None) -> str:
        """Give the column its default, if it has none; returns what was done."""
        wanted = _check_length(LENGTH if length is None else length)
        with self._locked():
            default = self._default()
            if default is None:
                raise ConfigurationError(f"There is no {self}. Run 'manage.py migrate' first.")
            position = self.position()
            if position is not None:
                return f"{self}: has its sequence already, {position}"
            if default:
                raise ConfigurationError(
                    f"{self} has a default already ({default}), which other programs may rely on. "
                    f"Drop it first; after idgen_adopt, finish its stages first."
                )
            # The digest tells the columns a.b_c and a_b.c apart.
            plain = truncate_name(f"{PREFIX}{self.plain_table}_{self.plain_column}", 50)
            plain = f"{plain}_{self._digest.hex()[:8]}"
            name = self.connection.ops.quote_name(plain)
            self._create(name, self._take(wanted, None))
            made = self._position_of(name)
        return f"{self}: takes from sequence {plain}, {made}"

    def extend(self, length: int | None = None, *, renew: bool = False) -> str:
        """Set the next segment if the last one runs low, or to ``renew``; returns what was done."""
        wanted = 0 if length is None else _check_length(length)
        with self._locked():
            position = self.position()
            if position is None:
                raise ConfigurationError(f"{self} has no sequence of idgen_native.")
            why = "as you asked" if renew else self.problem(position)
            if not why and not position.runs_low:
                return ""
            if not wanted:
                wanted = max(position.length, LEAST)
                if position.left * VERY_LOW < wanted:
                    wanted = max(wanted, min(2 * wanted, LONGEST_STEP))
            ids = self._take(wanted, position)
            adjoins = ids.step == position.ids.step and ids[0] == position.ids[-1] + ids.step
            if adjoins and not why:
                self._set(position.name, range(position.ids[0], ids.stop, ids.step), ids[0])
                return f"{self}: continues to {ids[-1]}, nothing is skipped{self._reserve}"
            self._set(position.name, ids, ids[0], restart=True)
            if position.server != self._identity():
                self._note(position.name)
        because = f" ({why})" if why else ""
        return (
            f"{self}: continues with {ids[0]} to {ids[-1]}; of those before, up to "
            f"{position.left} are skipped{because}{self._reserve}"
        )

    def remove(self) -> str:
        """Remove the column's default, and drop the sequence; returns what was done."""
        with self._locked():
            position = self.position()
            if position is None:
                return f"{self}: has no sequence of idgen_native"
            self._run(f"ALTER TABLE {self.table} ALTER COLUMN {self.column} DROP DEFAULT")
            self._run(f"DROP SEQUENCE {position.name}")
        return f"{self}: has no default any more; {position.left} ids are skipped"

    # --- looking ----------------------------------------------------------------------

    def describe(self) -> str:
        """The column and its sequence, for people."""
        return f"{self}: {self.position() or 'no sequence'}"

    def position(self) -> Position | None:
        """The state of the column's sequence; None if idgen_native made none."""
        found = _CALL.fullmatch(self._default() or "")
        if found is None:
            return None
        name = (found[1] or found[2]).replace("''", "'")
        return self._position_of(name) if PREFIX in name else None

    def problem(self, position: Position) -> str:
        """Why the sequence must leave its segment at once; "" if it need not."""
        # The rows first: ids given meanwhile are not above the position read after them.
        rows = self._highest(position.following, position.ids[-1])
        now = self._position_of(position.name)
        if rows >= now.following:
            return f"the table has id {rows}, which it would give again"
        identity = self._identity()
        if position.server and identity and position.server != identity:
            return "another server has taken over, which may have missed some"
        if source_behind_pool().keeps_rows and next_free_id(self.tag) <= position.ids[-1]:
            return "the tag was reset to below its end"
        return ""

    def _highest(self, first: int, last: int) -> int:
        sql = (
            f"SELECT MAX({self.column}) FROM {self.table} "  # noqa: S608 - Django quotes the names
            f"WHERE {self.column} BETWEEN {first:d} AND {last:d}"
        )
        return int(self._run(sql)[0][0] or 0)

    def _take(self, length: int, position: Position | None) -> range:
        """A segment of the tag above all ids of the sequence, and above the table's rows."""
        source: Any = source_behind_pool()
        if source.keeps_rows and any(place_of(each).in_process for each in source.route(self.tag)):
            raise ConfigurationError(
                f"Tag {self.tag!r} is kept in this process' memory, and a sequence outlives it. "
                f"Keep the tags in a database on a server, or in a file."
            )
        granted = 1 if position is None else position.ids[-1] + 1
        floor = max(granted, self._highest(1, HIGHEST) + 1)
        demand = Demand(times=0, at_least=length, granted=granted)
        ids: range = source.fetch(self.tag, floor=floor, demand=demand).ids()
        if ids[0] < floor or len(ids) < 2:
            raise SegmentUnavailable(
                f"The source of tag {self.tag!r} gave {len(ids)} ids from {ids[0]} on, instead of "
                f"two or more from {floor} on."
            )
        return ids

    def _identity(self) -> str:
        with transaction.atomic(using=self.connection.alias):
            # Without characters that a comment would have to quote.
            return re.sub(r"['\\%]", "", server_identity(self.connection))

    def _run(self, sql: str, params: list[Any] | None = None) -> list[Any]:
        try:
            return query(self.connection, sql, params)
        except DatabaseError as error:
            cause: Any = error.__cause__
            code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
            if code in _LOCK_TIMEOUT or (error.args and error.args[0] in _LOCK_TIMEOUT):
                raise self._busy() from error
            raise

    def _busy(self) -> SegmentUnavailable:
        return SegmentUnavailable(
            f"{self} is in use: another command extends it, or a long transaction has taken ids "
            f"from it. Run it again when that has ended."
        )

    def _position_of(self, name: str) -> Position:
        (row,) = self._run(self._position_sql.format(name, _literal(name)))
        least, most, step, newest, following, server = row
        return Position(name, range(least, most + 1, step), newest, following, server or "")

    def _note(self, name: str) -> None:
        """Write the server's identity into the comment."""
        self._run(self._comment_sql.format(name, _literal(self._identity())))

    def _set_default(self, sql: str) -> None:
        self._run(f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET DEFAULT {sql}")

    def _set(self, name: str, ids: range, start: int, *, restart: bool = False) -> None:
        # In one statement, so that no id comes from a half-changed sequence.
        again = f" RESTART WITH {start:d}" if restart else ""
        reserve = self._reserve_of(range(start, ids.stop, ids.step))
        self._run(f"ALTER SEQUENCE {name} {_bounds(ids, start)}{reserve}{again}")

    # --- what differs between databases -------------------------------------------------------

    @abstractmethod
    def _locked(self) -> Any:
        """A block in which no other process changes the sequence; a transaction if DDL allows."""

    @abstractmethod
    def _default(self) -> str | None:
        """The column's default as SQL, "" without one; None if there is no such column."""

    @abstractmethod
    def _create(self, name: str, ids: range) -> None:
        """Make the sequence, instead of one that an earlier try left; set the default."""

    def _reserve_of(self, _segment: range, /) -> str:
        """SQL for how many ids of a segment the server holds in reserve."""
        return ""

    _position_sql: str
    """From the sequence ``{}``: its bounds, increment and start, its next value, its comment."""
    _comment_sql: str
    _reserve = ""
    """A note on ids that the server holds in reserve."""


class _Postgres(NativeColumn):
    _position_sql = (
        "SELECT seqmin, seqmax, seqincrement, seqstart, "
        "last_value + CASE WHEN is_called THEN seqincrement ELSE 0 END, "
        "obj_description(seqrelid, 'pg_class') FROM pg_sequence, {0} WHERE seqrelid = {1}::regclass"
    )
    _comment_sql = "COMMENT ON SEQUENCE {} IS {}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        outermost = not self.connection.in_atomic_block
        with transaction.atomic(using=self.connection.alias):
            if outermost:  # a migration waits as long as its user wants
                self._run(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
            self._run(f"SELECT pg_advisory_xact_lock({self._key})")
            yield

    def _default(self) -> str | None:
        found = self._run(
            "SELECT CASE WHEN a.attidentity <> '' THEN 'identity' "
            "ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), '') END FROM pg_attribute a "
            "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
            "WHERE a.attrelid = to_regclass(%s) AND a.attname = %s AND NOT a.attisdropped",
            [self.table, self.plain_column],
        )
        return str(found[0][0]) if found else None

    def _create(self, name: str, ids: range) -> None:
        self._run(f"DROP SEQUENCE IF EXISTS {name}")
        self._run(f"CREATE SEQUENCE {name} AS bigint {_bounds(ids, ids[0])} NO CYCLE")
        self._note(name)
        self._set_default(f"nextval({_literal(name)})")


class _MariaDB(NativeColumn):
    # Its next value is past the ids that the server holds in reserve (CACHE).
    _position_sql = (
        "SELECT minimum_value, maximum_value, increment, start_value, next_not_cached_value, "
        "(SELECT table_comment FROM information_schema.tables WHERE table_schema = database() "
        "AND concat('`', table_name, '`') = substring_index({1}, '.', -1)) FROM {0}"
    )
    _comment_sql = "ALTER TABLE {} COMMENT {}"
    _reserve = "; MariaDB also skips what it held in reserve"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._run("SELECT @@wsrep_on")[0][0]:
            raise ConfigurationError(
                f"{self}: the nodes of a Galera cluster count their sequences separately. Let the "
                f"other programs take ids from the REST API."
            )
        if self._run(f"SELECT GET_LOCK('idgen {self._key}', {LOCK_SECONDS})")[0][0] != 1:
            raise self._busy()
        try:
            yield
        finally:
            self._run(f"SELECT RELEASE_LOCK('idgen {self._key}')")

    def _default(self) -> str | None:
        found = self._run(
            "SELECT coalesce(nullif(column_default, 'NULL'), extra) FROM "
            "information_schema.columns WHERE table_schema = database() AND table_name = %s "
            "AND column_name = %s",
            [self.plain_table, self.plain_column],
        )
        return str(found[0][0]) if found else None

    def _create(self, name: str, ids: range) -> None:
        bounds = _bounds(ids, ids[0]) + self._reserve_of(ids)
        self._run(f"CREATE OR REPLACE SEQUENCE {name} {bounds} NOCYCLE")
        self._note(name)
        self._set_default(f"(nextval({name}))")

    def _reserve_of(self, segment: range, /) -> str:
        # The reserve is skipped when the server stops, and by each change.
        return f" CACHE {max(1, min(MOST_CACHED, len(segment) // LEAST)):d}"


def _bounds(ids: range, start: int) -> str:
    return (
        f"INCREMENT BY {ids.step:d} MINVALUE {ids[0]:d} MAXVALUE {ids[-1]:d} START WITH {start:d}"
    )


def _literal(text: str) -> str:
    # Not every database takes parameters in DDL.
    return "'" + text.replace("'", "''") + "'"


_check_length = partial(check_whole, "A length", least=LEAST, most=MAX_STEP)


# --- which columns, and where ---------------------------------------------------------


def native_column(connection: BaseDatabaseWrapper, field: Any) -> NativeColumn | None:
    """The column of ``field``, or None where the database has no sequences for it."""
    if connection.vendor == "postgresql":
        return _Postgres(connection, field)
    if connection.vendor == "mysql" and connection.mysql_is_mariadb:  # type: ignore[attr-defined]
        return _MariaDB(connection, field)
    return None


def unsupported(connection: BaseDatabaseWrapper, way_out: str = "") -> ConfigurationError:
    """The error for a database that has no sequences."""
    return ConfigurationError(
        f"Database {connection.alias!r} is {connection.display_name}, whose columns can't take "
        f"their default from a sequence: PostgreSQL's and MariaDB's can.{way_out} Other programs "
        f"can take ids from the REST API."
    )


def segment_fields(tag: str | None = None) -> list[Any]:
    """The fields of the project whose ids come from ``tag``, or from any tag."""
    return [
        field
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.local_concrete_fields
        if isinstance(field, SegmentSource)
        and field.copied_from is None
        and tag in (None, field.resolved_tag)
    ]


def on_own_connection(alias: str, work: Callable[[BaseDatabaseWrapper], T]) -> T:
    """Run ``work`` on a connection of its own, outside of the caller's transaction."""

    def run() -> T:
        connection = connections[alias]
        try:
            if connection.vendor == "mysql":
                query(connection, f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}")
            return work(connection)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def renew_native(tag: str) -> list[str]:
    """Make each sequence of ``tag`` leave its segment; returns what was done."""
    return [
        line
        for alias, fields in _fields_by_alias(tag).items()
        for line in on_own_connection(alias, partial(_renew, fields))
    ]


def _renew(fields: list[Any], connection: BaseDatabaseWrapper) -> list[str]:
    columns = [native_column(connection, field) for field in fields]
    return [each.extend(renew=True) for each in columns if each and each.position()]


# --- the scheduler's ------------------------------------------------------------------


def extend_native() -> dict[str, dict[str, Any]]:
    """Extend each sequence that runs low, in the databases that the models are written to.

    May come late, run twice at once, or be killed: at worst that leaves a gap. Returns, by
    "table.column", ``{"left": ids}`` or ``{"extended": what was done}``. Raises
    :class:`UpkeepFailed` for a sequence that failed, after extending all others.
    """
    results = Results()
    for alias, fields in _fields_by_alias().items():
        try:
            on_own_connection(alias, partial(_extend_all, fields, results))
        except (IdgenError, DatabaseError) as error:
            results.failed(f"database {alias}", error)
    return results.all("Sequences were not all extended")


def _fields_by_alias(tag: str | None = None) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for field in segment_fields(tag):
        alias = router.db_for_write(field.model)
        vendor = connections[alias].vendor
        if vendor in {"postgresql", "mysql"} and place_of(alias) is not Place.FORBIDDEN:
            found.setdefault(alias, []).append(field)
    return found


def _extend_all(fields: list[Any], results: Results, connection: BaseDatabaseWrapper) -> None:
    for field in fields:
        column = native_column(connection, field)
        if column is None or (position := column.position()) is None:
            continue
        name = f"{column.plain_table}.{column.plain_column}"
        try:
            extended = column.extend()
            results.done[name] = {"extended": extended} if extended else {"left": position.left}
        except (IdgenError, DatabaseError) as error:
            results.failed(name, error)

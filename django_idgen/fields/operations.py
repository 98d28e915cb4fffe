"""Migration operations for the fields of this app, and what operations on tables share."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.core.exceptions import FieldDoesNotExist
from django.core.management.base import CommandError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor as Editor
from django.db.backends.utils import strip_quotes
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.state import ProjectState as State

from ..core.errors import ConfigurationError, IdgenError
from ..core.segment import MAX_ID
from .base import GeneratedOnSave

logger = logging.getLogger("django_idgen")

MAX_BATCH = 5000
Rows = Sequence[Sequence[Any]]
Take = Callable[[Rows], Sequence[int]]
"""Returns a new id for each row, of which it gets the columns that order them."""
Report = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")


def _with_command_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Turn errors of this package into ``CommandError``, which ``migrate`` shows in one line."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except IdgenError as error:
            raise CommandError(" ".join(str(error).split())) from error

    return wrapped


class TableOperation(Operation):
    """Works on field ``name`` of a model's table, in the databases that have the table.

    The models stay as they are, unless a subclass says otherwise. Errors of this package
    become ``CommandError``.
    """

    reduces_to_sql = False
    category = OperationCategory.PYTHON

    def __init__(self, model_name: str, name: str) -> None:
        self.model_name = model_name
        self.name = name

    @abstractmethod
    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        """Change the database from state ``before`` to ``after``."""

    def backwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:
        """Change the database back from state ``before`` to ``after``; by default nothing."""

    def state_forwards(self, app_label: str, state: State) -> None:
        """Nothing."""

    @_with_command_errors
    def database_forwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if self._has_table(app_label, schema_editor, to_state):
            self.forwards(app_label, schema_editor, from_state, to_state)

    @_with_command_errors
    def database_backwards(
        self, app_label: str, schema_editor: Editor, from_state: State, to_state: State
    ) -> None:
        if self._has_table(app_label, schema_editor, to_state):
            self.backwards(app_label, schema_editor, from_state, to_state)

    def references_model(self, name: str, app_label: str) -> bool:  # noqa: ARG002
        return name.lower() == self.model_name.lower()

    def field_in(self, state: State, app_label: str) -> Any:
        """The field in ``state``. Raises :class:`ConfigurationError`."""
        try:
            return state.apps.get_model(app_label, self.model_name)._meta.get_field(self.name)
        except (LookupError, FieldDoesNotExist) as error:
            raise ConfigurationError(f"{self!r} can't run: {error}") from error

    def _has_table(self, app_label: str, editor: Editor, state: State) -> bool:
        model = self.field_in(state, app_label).model
        return bool(self.allow_migrate_model(editor.connection.alias, model))


class FillIds(TableOperation):
    """Give an id to each row that has none in field ``name``, which was added with ``null=True``.

    ``FillIds("order", "public_id")`` takes the ids from the field's own generator or tag, in
    the order of the primary key. A row that has an id keeps it.

    ``batch_size`` (1 to 5000) is the number of rows of one ``UPDATE``. In a migration with
    ``atomic = False`` each batch is a transaction, and a ``migrate`` that was killed continues
    where it stopped. Otherwise PostgreSQL and SQLite fill all rows in the migration's
    transaction, which keeps other writers off the table. Backwards it does nothing.

    Processes that do not know the field may insert rows meanwhile. It ends when these come as
    fast as it fills them, and logs a warning with the number of empty rows.

    ``migrate`` fails with ``CommandError`` if the model or field does not exist, if the field
    is not one of this app's, or if it can't be empty.
    """

    def __init__(
        self, model_name: str, name: str, batch_size: int = 1000, elidable: bool = False
    ) -> None:
        super().__init__(model_name, name)
        self.batch_size = batch_size
        self.elidable = elidable  # type: ignore[misc]  # RunPython does the same

    def forwards(self, app_label: str, editor: Editor, before: State, after: State) -> None:  # noqa: ARG002
        field = self.field_in(after, app_label)
        if problem := self._problem_with(field):
            raise ConfigurationError(f"{self!r} can't run: {problem}")
        table = strip_quotes(field.model._meta.db_table)
        stop_writers(editor.connection, table)
        filling = ColumnFilling(
            editor.connection,
            table,
            key=[key.column for key in field.model._meta.pk_fields],
            new=field.column,
            take=ids_of(field),
            batch=self.batch_size,
        )
        if left := filling.run()[1]:
            logger.warning(
                "%d rows of %s came while the others were filled, and have no id in %s. Stop the "
                "processes that do not know the field, and run this migration again.",
                left,
                table,
                field.column,
            )

    def describe(self) -> str:
        return f"Fill {self.model_name}.{self.name} of the rows that have no id"

    @property
    def migration_name_fragment(self) -> str:
        return f"fill_{self.model_name.lower()}_{self.name}"

    def _problem_with(self, field: Any) -> str:
        if not isinstance(field, GeneratedOnSave):
            return f"{field} is a {type(field).__name__}. Name a SnowflakeField or SegmentIdField."
        if not field.null:
            return (
                f"{field} has no null=True, so no row is empty. Put {self.__class__.__name__} "
                "before the AlterField that removes null=True."
            )
        if type(self.batch_size) is not int or not 1 <= self.batch_size <= MAX_BATCH:
            return f"batch_size must be a whole number of 1 to {MAX_BATCH}."
        return ""


# --- SQL -------------------------------------------------------------------------


def query(
    connection: BaseDatabaseWrapper, sql: str, params: Sequence[Any] | None = None
) -> list[Any]:
    """Run ``sql``; return its rows, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


def count_rows(
    connection: BaseDatabaseWrapper,
    table: str,
    condition: str = "1 = 1",
    params: Sequence[Any] | None = None,
) -> int:
    """How many rows of ``table`` meet ``condition``, which is SQL of this package."""
    sql = f"SELECT count(*) FROM {connection.ops.quote_name(table)} WHERE {condition}"  # noqa: S608 - Django quotes the names
    return int(query(connection, sql, params)[0][0])


def stop_writers(connection: BaseDatabaseWrapper, table: str) -> None:
    """Keep other writers off ``table`` until the transaction ends, if there is one.

    On SQLite a transaction that reads first and then writes fails at once if another one wrote
    in between; one that begins with a write waits its turn.
    """
    if not connection.in_atomic_block:
        return
    quoted = connection.ops.quote_name(table)
    if connection.vendor == "postgresql":
        query(connection, f"LOCK TABLE {quoted} IN SHARE ROW EXCLUSIVE MODE")
    elif connection.vendor == "sqlite":
        query(connection, f"DELETE FROM {quoted} WHERE 0")  # noqa: S608 - Django quotes the names


def ids_of(field: GeneratedOnSave) -> Take:
    """Takes ids of the field's generator or tag."""
    return lambda rows: field.next_values(len(rows))


class Progress:
    """Reports a line a percent of ``total`` rows that are done. For one thread."""

    def __init__(self, total: int, report: Report) -> None:
        self.done = 0
        self._total = total
        self._report = report
        self._percent = 0

    def add(self, count: int) -> None:
        self.done += count
        percent = min(100, 100 * self.done // max(self._total, 1))
        if percent > self._percent:
            self._percent = percent
            self._report(f"{percent} %: {self.done} rows are filled")


class ColumnFilling:
    """Fills the column ``new`` of ``table``, whose primary key is in the columns ``key``.

    Each batch is a transaction, unless the caller has begun one. The rows alone show what is
    left to fill: a killed process loses the ids of one batch, as a gap. The next pass finds the
    rows that were inserted in the meantime, since their column is empty.

    ``take``: None if the column is full already. Raises what the database and ``take`` raise.
    """

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        table: str,
        *,
        key: Sequence[str],
        new: str,
        take: Take | None,
        batch: int = 1000,
    ) -> None:
        self.connection = connection
        self.table = table
        self.key = key
        self.new = new
        self.take = take
        self.empty = f"{connection.ops.quote_name(new)} IS NULL"
        """The rows to fill, as SQL."""
        self.order = key
        """The columns by which rows are read; the key comes last."""
        self.batch = batch
        self.batches_read = 1
        """How many batches one ``SELECT`` reads."""
        self.by_range = connection.vendor != "mysql"  # which would lock the gaps
        """Whether an ``UPDATE`` names the first and last key of its rows, or each key."""
        self.enough = 0
        """How many empty rows may be left in the end."""
        self._q = connection.ops.quote_name

    def count_empty(self) -> int:
        """How many rows are left to fill."""
        return count_rows(self.connection, self.table, self.empty)

    def run(self, report: Report = lambda _line: None) -> tuple[int, int]:
        """Fill the empty rows; return how many it filled, and how many are empty in the end.

        Ends when at most :attr:`enough` rows are empty, though other processes may insert more.
        It also ends when a pass leaves as many empty rows as it found: these come as fast as
        they are filled.
        """
        before, left = MAX_ID, self.count_empty()
        progress = Progress(left, report)
        while before > left > (self.enough if progress.done else 0):
            self._pass(progress, left)
            before, left = left, self.count_empty()
        return progress.done, left

    def _pass(self, progress: Progress, left: int) -> None:
        """Fill ``left`` rows at most, those that were empty: others may insert rows for ever."""
        last, most = None, self.batch * self.batches_read
        while left > 0 and (rows := self._empty_after(last, min(left, most))):
            for begin in range(0, len(rows), self.batch):
                progress.add(self._fill(rows[begin : begin + self.batch]))
            last, left = rows[-1], left - len(rows)

    def _empty_after(self, last: Sequence[Any] | None, most: int) -> Rows:
        """The next rows without an id, by the columns of their :attr:`order`."""
        q, columns, row = self._q, self._listed(self.order), self._marks(self.order)
        # The first column once more: MySQL uses no index for a comparison of rows.
        after = f" AND {q(self.order[0])} >= %s AND ({columns}) > {row}" if last else ""
        return query(
            self.connection,
            f"SELECT {columns} FROM {q(self.table)} WHERE {self.empty}{after} "  # noqa: S608 - Django quotes the names
            f"ORDER BY {columns} LIMIT {most:d}",
            [last[0], *last] if last else None,
        )

    def _fill(self, rows: Rows) -> int:
        """Fill a batch; return how many rows of it are done."""
        if self.take is None:
            return 0
        self._write_ids([row[-len(self.key) :] for row in rows], self.take(rows))
        return len(rows)

    def _write_ids(self, keys: Rows, ids: Sequence[int]) -> int:
        """Write ``ids`` to the rows with ``keys``; the number of rows that the database counts."""
        q, columns, row = self._q, self._listed(self.key), self._marks(self.key)
        whens = " ".join([f"WHEN ({columns}) = {row} THEN %s"] * len(keys))
        pairs = [value for key, id_ in zip(keys, ids, strict=True) for value in (*key, id_)]
        chosen = keys
        if self.by_range:  # a row inserted in between matches no WHEN, and stays empty
            which, chosen = f"({columns}) >= {row} AND ({columns}) <= {row}", [keys[0], keys[-1]]
        else:
            which = f"({columns}) IN ({', '.join([row] * len(keys))})"
        with self.connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {q(self.table)} SET {q(self.new)} = CASE {whens} END "  # noqa: S608 - Django quotes the names
                f"WHERE {which} AND {q(self.new)} IS NULL",
                [*pairs, *(value for key in chosen for value in key)],
            )
            return int(cursor.rowcount)

    def _listed(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self._q, columns))

    def _marks(self, columns: Sequence[str]) -> str:
        return f"({', '.join(['%s'] * len(columns))})"

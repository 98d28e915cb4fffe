"""Our tables: making them where they are missing.

``migrate`` makes them in the ordinary way. But with a project-wide
``DEFAULT_AUTO_FIELD`` of this app, the first row of ``django_migrations`` needs an
id before any migration has run; and a test runner that skips migrations makes
no unmanaged table. So the first use makes them while ``migrate`` runs and in test
databases, as Django does with ``django_migrations``. The migration then finds them there.
At any other time a missing table is an error: the operator runs DDL (:func:`may_make_tables`).

An existing table may belong to a live Leaf. ``migrate`` adds the missing columns, each with
a default in the database, and changes nothing else. It refuses a table whose column types can't
hold our values. A first use never alters a table.

Another app's data migration may take ids between two of our migrations. So each of
ours calls :func:`bring_up`, which makes the tables of this version's models,
whatever the state of the migration; and :func:`before_migrate` adds the missing columns of
tables from an earlier version before ``migrate`` runs anything. A new column
must therefore be null or have a default in the database, for processes of the
earlier version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.management import CommandError
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    router,
    transaction,
)
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from ..core.errors import ConfigurationError, sentence
from ..core.lease import PROTOCOL_VERSION
from .connection import home_connection, own_connection
from .rows import insert_row, is_any, read_first, rows_of
from .sqlite import FileConnection, database_of, is_test_database, tie

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.migrations import Migration
    from django.db.models import Model


LABEL = "django_idgen"
TIMEOUT = 10.0
"""Seconds to make the tables of the file beside a SQLite database."""
_TYPES_OF = {
    "postgresql": "SELECT column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = ANY (current_schemas(false)) AND table_name = %s",
    "mysql": "SELECT column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = DATABASE() AND table_name = %s",
}
_UNIQUE_IN = {
    "postgresql": "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid "
    "AND attnum = indkey[0] WHERE indrelid = to_regclass(%s) AND indisunique "
    "AND indnkeyatts = 1 AND indpred IS NULL",
    "mysql": "SELECT MIN(column_name) FROM information_schema.statistics "
    "WHERE table_schema = DATABASE() AND table_name = %s "
    "GROUP BY index_name HAVING COUNT(*) = 1 AND MAX(non_unique) = 0",
}
"""Columns that have a unique index of their own."""
_FITTING = {
    "postgresql": {
        "CharField": {"character varying", "text"},
        "BigIntegerField": {"bigint"},
        "PositiveIntegerField": {"integer", "bigint"},
        "DateTimeField": {"timestamp with time zone"},
    },
    "mysql": {
        "CharField": {"varchar", "text"},
        "BigIntegerField": {"bigint"},
        "PositiveIntegerField": {"int", "bigint"},
        "DateTimeField": {"datetime", "timestamp"},
    },
}
"""By our field's type: the column types of a foreign table that can hold its values."""
# The installation's row is there before any namespace's table: see _make_identity.
MODELS = (
    "LeafAlloc",
    "Installation",
    "NamespaceRecord",
    "WorkerLease",
    "SegmentHistory",
    "LeaseHistory",
)

_migrating = False
"""Whether ``migrate`` runs in this process: another app's migration may take ids first."""


def bring_up(_apps: object, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the missing tables and columns of this version's models. Our migrations run it."""
    connection = schema_editor.connection
    if database_of(connection.alias) is None:
        _bring_up(connection)
        return
    # On our own connection, which the caller's transaction does not block.
    identity = own_connection(connection.alias).run(_bring_up, timeout=TIMEOUT)
    if identity is not None:
        tie(connection, identity)


def _bring_up(connection: BaseDatabaseWrapper) -> str | None:
    """The identity of the installation; ``None`` if its row was lost."""
    make_missing_tables(connection)
    add_missing_columns(connection)
    found: Any = read_first(rows_of(_model("Installation"), connection.alias))
    return None if found is None else str(found.identity)


def before_migrate(
    *,
    using: str = DEFAULT_DB_ALIAS,
    plan: Iterable[tuple[Migration, bool]] = (),
    **_kwargs: Any,
) -> None:
    """Receiver of ``pre_migrate``: add the missing columns of tables from an earlier version.

    Leaves Leaf's own table alone, unless one of our migrations will run.
    """
    global _migrating
    _migrating = True
    labels = {migration.app_label for migration, backwards in plan if not backwards}
    if not labels or not router.allow_migrate(using, LABEL):
        return
    connection = home_connection(using)
    if LABEL in labels or not missing_tables(connection, ["Installation"]):
        try:
            add_missing_columns(connection)
        except ConfigurationError as error:
            # Other apps' migrations may mend it. Ours can't run.
            if LABEL in labels:
                raise CommandError(str(error)) from error


def after_migrate() -> None:
    """Receiver of ``post_migrate``: a missing table is an error again."""
    global _migrating
    _migrating = False


def may_make_tables(connection: BaseDatabaseWrapper) -> bool:
    """Whether the first use may make tables that ``connection`` lacks.

    It may while ``migrate`` runs in this process, in a test database and in the file beside
    a SQLite database.
    """
    if _migrating or isinstance(connection, FileConnection):
        return True
    return is_test_database(connection.alias)


def how_to_make_tables(alias: str) -> str:
    """What the operator does about tables that database ``alias`` lacks."""
    with suppress(Exception):  # of a router of the project's
        if not router.allow_migrate(alias, LABEL):
            return (
                f"'allow_migrate' of DATABASE_ROUTERS forbids them in {alias!r}. Allow them for "
                f"{LABEL!r}, as the documentation says under 'A database that both reach'"
            )
    return f"Run 'manage.py migrate {LABEL} --database {alias}'"


def make_missing_tables(
    connection: BaseDatabaseWrapper, *, only: tuple[str, ...] = MODELS
) -> list[str]:
    """Make those of our tables that ``connection`` lacks; returns their names.

    On MySQL and Oracle, where that would commit, it must not be called inside a
    transaction. Two processes may do it at once. Raises what the database says
    if it doesn't let us.
    """
    made = []
    for name in only:
        model = _model(name)
        table = model._meta.db_table
        if table not in our_tables(connection) and _make(connection, model):
            made.append(table)
    return made


def add_missing_columns(connection: BaseDatabaseWrapper) -> list[str]:
    """Add the columns that those of our tables lack which are there; returns ``table.column``.

    Others may write to the tables meanwhile, and two processes may do it at once.
    Raises what the database says if it doesn't let us, and :class:`ConfigurationError` for
    a table of another program whose columns don't fit: nothing is changed then.
    """
    made = []
    tables = our_tables(connection)
    for model in map(_model, MODELS):
        if model._meta.db_table in tables:
            columns = _lacking(connection, model)
            if columns and model.__name__ == "LeafAlloc":
                refuse_unfit_columns(connection)
            made += [column for column in columns if _add_column(connection, model, column)]
    return made


def missing_tables(connection: BaseDatabaseWrapper, names: Iterable[str] = MODELS) -> list[str]:
    """The tables of the models ``names`` that ``connection`` lacks."""
    found = our_tables(connection)
    wanted = [_model(name)._meta.db_table for name in names]
    return [table for table in wanted if table not in found]


def is_missing(model: str, alias: str) -> bool:
    """Whether the database ``alias`` has no table of ``model``. Raises :class:`DatabaseError`."""
    return bool(missing_tables(home_connection(alias), [model]))


def missing_columns(connection: BaseDatabaseWrapper, names: Iterable[str] = MODELS) -> list[str]:
    """``table.column`` for each missing column of our existing tables."""
    found = our_tables(connection)
    models = [_model(name) for name in names]
    there = [model for model in models if model._meta.db_table in found]
    return [column for model in there for column in _lacking(connection, model)]


def with_way_out(error: DatabaseError) -> str:
    """``error`` as a sentence, and what to do if it may come from a missing table or column."""
    said = sentence(error)
    # Not for a missing database, which is another OperationalError.
    if isinstance(error, ProgrammingError) or _ABSENT.search(said):
        return f"{said} If a table or a column is missing, run 'manage.py migrate django_idgen'."
    return said


_ABSENT = re.compile(r"no such (table|column)|has no column|Unknown column")
"""In OperationalErrors of SQLite and MySQL."""


def unfit_columns(connection: BaseDatabaseWrapper) -> list[str]:
    """What is wrong with the columns of the table of tags, which may be another program's.

    A missing column is no fault. SQLite's columns hold any type.
    """
    if connection.vendor not in _TYPES_OF or missing_tables(connection, ["LeafAlloc"]):
        return []
    model = _model("LeafAlloc")
    with connection.cursor() as cursor:
        # Django's introspection runs two queries, and another process may add columns between.
        cursor.execute(_TYPES_OF[connection.vendor], [model._meta.db_table])
        found = dict(cursor.fetchall())
        cursor.execute(_UNIQUE_IN[connection.vendor], [model._meta.db_table])
        unique = {name for (name,) in cursor.fetchall()}
    wrong = [
        f"{field.column} is {found[field.column]}, and must be {' or '.join(sorted(fitting))}"
        for field in model._meta.local_concrete_fields
        if field.column in found
        and (fitting := _FITTING[connection.vendor].get(field.get_internal_type()))
        and found[field.column] not in fitting
    ]
    if (key := model._meta.pk.column) not in unique:
        wrong.append(f"{key} must be unique")
    return wrong


def refuse_unfit_columns(connection: BaseDatabaseWrapper) -> None:
    """Raise :class:`ConfigurationError` if :func:`unfit_columns` finds any."""
    if wrong := unfit_columns(connection):
        raise ConfigurationError(
            f"Table {table_of('LeafAlloc')} in database {connection.alias!r} belongs to another "
            f"program, and can't hold tags of this project: {'; '.join(wrong)}. Stop the programs "
            "that write to it, change these columns, and run 'manage.py migrate django_idgen "
            f"--database {connection.alias}'. You may drop any of them except max_id and step: "
            "the migration makes it anew. Or keep django_idgen in another database, and take the "
            "tags over with 'manage.py idgen_adopt --from'."
        )


def _lacking(connection: BaseDatabaseWrapper, model: type[Model]) -> list[str]:
    table = model._meta.db_table
    with connection.cursor() as cursor:
        # Django's introspection runs two queries, and fails if a column is added in between.
        cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)} WHERE 1 = 0")  # noqa: S608 - Django quotes the names
        found = {column[0] for column in cursor.description}
    wanted = [field.column for field in model._meta.local_concrete_fields]
    return [f"{table}.{column}" for column in wanted if column not in found]


def _add_column(connection: BaseDatabaseWrapper, model: type[Model], name: str) -> bool:
    fields = model._meta.local_concrete_fields
    field = next(field for field in fields if name == f"{model._meta.db_table}.{field.column}")
    try:
        with _rolled_back_whole(connection):
            editor = connection.schema_editor(atomic=False)
            editor.deferred_sql = []  # no added column has an index
            # SQLite's own method would rebuild the table with all columns of the model.
            BaseDatabaseSchemaEditor.add_field(editor, model, field)
    except DatabaseError:
        # Another process was quicker, or the user lacks the right.
        if name not in _lacking(connection, model):
            return False
        raise
    return True


def table_of(name: str) -> str:
    """The table of our model ``name``."""
    return _model(name)._meta.db_table


def _model(name: str) -> type[Model]:
    return apps.get_model(LABEL, name)


def table_names(connection: BaseDatabaseWrapper) -> list[str]:
    """The tables of ``connection``. Does not make the file beside a SQLite database."""
    if isinstance(connection, FileConnection) and not connection.is_made():
        return []
    with connection.cursor() as cursor:
        return connection.introspection.table_names(cursor)


def our_tables(connection: BaseDatabaseWrapper) -> list[str]:
    """Those of this app's tables that ``connection`` finds, maybe with other tables."""
    if connection.vendor != "postgresql":
        return table_names(connection)
    # A package for tenants lists the tables of one schema alone, and ours are in another.
    with connection.cursor() as cursor:
        cursor.execute(_FOUND_IN_POSTGRESQL, [[table_of(name) for name in MODELS]])
        return [name for (name,) in cursor.fetchall()]


_FOUND_IN_POSTGRESQL = """
    SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NOT NULL
"""


def has_table(connection: BaseDatabaseWrapper, table: str) -> bool:
    """Whether a query finds a table or view under ``table``, a model's ``db_table``.

    The database itself looks: by its own rules for upper and lower case, in the schema that the
    name may have, and in the search path of the caller. Raises what the database raises otherwise.
    """
    quoted = connection.ops.quote_name(table)
    if connection.vendor != "postgresql":
        return _finds(connection, "1", quoted)
    # A failed statement would end the caller's transaction.
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s)", [quoted])
        return cursor.fetchone()[0] is not None


def has_column(connection: BaseDatabaseWrapper, table: str, column: str) -> bool:
    """As :func:`has_table` of ``table`` in SQL, and whether it has ``column``."""
    if connection.vendor != "postgresql":
        # Qualified: SQLite takes an unknown name in quotes for a text.
        return _finds(connection, f"{table}.{connection.ops.quote_name(column)}", table)
    with connection.cursor() as cursor:
        cursor.execute(_COLUMN_IN_POSTGRESQL, [table, column])
        return cursor.fetchone() is not None


def _finds(connection: BaseDatabaseWrapper, what: str, table: str) -> bool:
    with connection.cursor() as cursor:
        try:
            cursor.execute(f"SELECT {what} FROM {table} WHERE 1 = 0")  # noqa: S608
        except (ProgrammingError, OperationalError) as error:
            if not _is_missing(error):
                raise
            return False
    return True


_COLUMN_IN_POSTGRESQL = """
    SELECT 1 FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped
"""


def _is_missing(error: Exception) -> bool:
    """Whether a statement failed because a table, its database or a column does not exist."""
    number = error.args[0] if error.args else None
    words = "no such table", "no such column", "unknown database", "ORA-00942", "ORA-00904"
    return number in (1049, 1054, 1146) or any(each in str(error) for each in words)


def _make(connection: BaseDatabaseWrapper, model: type[Model]) -> bool:
    try:
        with _rolled_back_whole(connection):
            if model.__name__ == "NamespaceRecord":
                _make_identity(connection)
            _create(connection, model)
            if model.__name__ == "Installation":
                _make_identity(connection)
    except DatabaseError:
        # Another process was quicker, or the user lacks the right.
        if model._meta.db_table in our_tables(connection):
            return False
        raise
    return True


def _rolled_back_whole(connection: BaseDatabaseWrapper) -> AbstractContextManager[object]:
    # On other databases DDL would commit, so Django refuses it in a transaction.
    if connection.features.can_rollback_ddl:
        return transaction.atomic(using=connection.alias)
    return nullcontext()


def _create(connection: BaseDatabaseWrapper, model: type[Model]) -> None:
    # Not as a context manager: on SQLite that fails inside a transaction, because of foreign
    # keys, which our tables don't have.
    editor = connection.schema_editor(atomic=False)
    editor.deferred_sql = []
    editor.create_model(model)
    for statement in editor.deferred_sql:
        editor.execute(statement)


def _make_identity(connection: BaseDatabaseWrapper) -> None:
    """Make the installation's row, unless it exists.

    Once the table of namespaces exists, a missing row is the sign of a loss. So the row is made
    before that table.
    """
    from ..core.stored import ALL, SERVER
    from .dialects import server_identity

    model = _model("Installation")
    if is_any(rows_of(model, connection.alias)):
        return
    with suppress(IntegrityError), transaction.atomic(using=connection.alias):
        memory = {ALL: {SERVER: server_identity(connection)}}
        row = model(
            key=1,
            identity=token_hex(16),
            protocol=PROTOCOL_VERSION,
            namespaces=json.dumps(memory),
        )
        insert_row(row, connection.alias)  # unless another process was quicker

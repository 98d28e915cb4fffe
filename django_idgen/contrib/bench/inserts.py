"""``--insert``: rows into tables of the project's own database that differ in their key alone.

The tables are made for this and dropped at the end, also after an error or Ctrl-C. The kinds
take turns: each round saves one batch of each kind, and single rows of each.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any

from django.apps.registry import Apps
from django.db import DatabaseError, connections, models

from ...core.options import check_whole
from ...fields import SegmentIdField, SnowflakeField
from ...process.maps import segments
from .measure import quiet_gc
from .targets import SEGMENT, BenchFailed, PeerMissing, peer

BATCH = 1000
"""Rows of a ``bulk_create()``."""
SINGLE = 50
"""Rows of ``create()`` in a round."""
MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Inserted:
    """What one kind of key costs."""

    name: str
    rows: int
    """Rows in the table at the end, counted."""
    single_ns: float
    """Median of the rounds: nanoseconds of one ``create()``."""
    batch_ns: float
    """The same of one row of ``bulk_create()``."""
    index_bytes: int | None
    """Size of the primary key's index; of the whole table where the table is the index."""

    @property
    def is_peer(self) -> bool:
        return self.name.startswith(("BigAutoField", "UUIDField"))


def _keys(targets: tuple[str, ...]) -> Iterator[tuple[str, models.Field[Any, Any]]]:
    for name in targets:
        if name.startswith(SEGMENT):
            tag = name.removeprefix(SEGMENT)
            yield f"SegmentIdField of {tag!r}", SegmentIdField(primary_key=True, tag=tag)
        else:
            field = SnowflakeField(primary_key=True, generator=name)
            yield f"SnowflakeField of {name!r}", field
    yield "BigAutoField", models.BigAutoField(primary_key=True)
    yield "UUIDField, UUIDv4", models.UUIDField(primary_key=True, default=uuid.uuid4)
    with suppress(PeerMissing):
        uuid7 = peer("uuid7").source.next_id
        rising = models.UUIDField(primary_key=True, default=lambda: uuid.UUID(int=uuid7().int))
        yield "UUIDField, UUIDv7", rising


def insert_rows(
    targets: tuple[str, ...],
    rows: int,
    *,
    database: str = "default",
    gate: Callable[[], object] = lambda: None,
) -> list[Inserted]:
    """Save about ``rows`` rows with each kind of key; the keys of ``targets`` come first.

    Each round begins after ``gate()``.
    Raises :class:`ConfigurationError` for a number that can't be, :class:`BenchFailed` for what
    the database refuses.
    """
    check_whole("--insert", rows, least=BATCH, most=MOST)
    try:
        with _tables(targets, database) as made:
            return _inserted(made, rows // BATCH, database, gate)
    except DatabaseError as error:
        raise BenchFailed(f"Database {database!r}: {str(error).strip()}") from error


@contextmanager
def _tables(targets: tuple[str, ...], database: str) -> Iterator[dict[str, type[models.Model]]]:
    """A model and a table for each kind of key."""
    connection, apps = connections[database], Apps()
    made: dict[str, type[models.Model]] = {}
    try:
        for number, (name, key) in enumerate(_keys(targets)):
            table = f"idgen_bench_{os.getpid()}_{number}"
            meta = type("Meta", (), {"app_label": "idgen_bench", "db_table": table, "apps": apps})
            body = {
                "__module__": __name__,
                "Meta": meta,
                "id": key,
                "customer": models.CharField(max_length=100),
                "total": models.IntegerField(),
            }
            model = type(f"Row{number}", (models.Model,), body)
            with connection.schema_editor() as editor:
                editor.create_model(model)
            made[name] = model
        yield made
    except BaseException:
        if not connection.in_atomic_block:
            connection.close()  # it may have been interrupted in a statement
        raise
    finally:
        with connection.schema_editor() as editor:
            for model in made.values():
                editor.delete_model(model)
        # A tag must not look for its highest id in a table that is gone.
        gone = set(made.values())
        for fields in segments.fields.values():
            fields[:] = [field for field in fields if field.model not in gone]


def _inserted(
    made: dict[str, Any], rounds: int, database: str, gate: Callable[[], object]
) -> list[Inserted]:
    single: dict[str, list[float]] = {name: [] for name in made}
    batch: dict[str, list[float]] = {name: [] for name in made}
    names = list(made)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            rows = made[name].objects.using(database)
            gate()
            with quiet_gc():
                single[name].append(_timed(SINGLE, partial(_create, rows)))
                batch[name].append(_timed(BATCH, partial(_bulk_create, rows)))
    return [
        Inserted(
            name,
            made[name].objects.using(database).count(),
            median(single[name]),
            median(batch[name]),
            _index_bytes(connections[database], made[name]._meta.db_table),
        )
        for name in names
    ]


def _timed(rows: int, save: Callable[[], None]) -> float:
    begun = perf_counter_ns()
    save()
    return (perf_counter_ns() - begun) / rows


def _create(rows: Any) -> None:
    for number in range(SINGLE):
        rows.create(customer="Ada Lovelace", total=number)


def _bulk_create(rows: Any) -> None:
    model = rows.model
    rows.bulk_create(model(customer="Ada Lovelace", total=number) for number in range(BATCH))


def _index_bytes(connection: Any, table: str) -> int | None:
    sql = {
        "postgresql": "SELECT pg_indexes_size(%s::regclass)",
        # The table is the index of its primary key, so rows of any kind cost the same there.
        "mysql": "SELECT data_length + index_length FROM information_schema.tables "
        "WHERE table_schema = database() AND table_name = %s",
    }.get(connection.vendor)
    if sql is None:
        return None
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute(f"ANALYZE TABLE {connection.ops.quote_name(table)}")
            cursor.fetchall()
        cursor.execute(sql, [table])
        return int(cursor.fetchone()[0])


def insert_table(found: list[Inserted], *, database: str) -> Iterator[str]:
    """The lines to print."""
    width = max(len(each.name) for each in found)
    base = next(each for each in found if each.name == "BigAutoField")
    yield f"ratio: the time per row, as a multiple of that of {base.name}; less is faster."
    yield (
        f"{'key':<{width}} {'create()/s':>11} {'ratio':>7} {'bulk rows/s':>12} {'ratio':>7} "
        f"{'bytes a row':>12}"
    )
    for each in found:
        size = "" if each.index_bytes is None else f"{each.index_bytes / each.rows:.1f}"
        yield (
            f"{each.name:<{width}} {1e9 / each.single_ns:>11,.0f} "
            f"{each.single_ns / base.single_ns:>6.2f}x {1e9 / each.batch_ns:>12,.0f} "
            f"{each.batch_ns / base.batch_ns:>6.2f}x {size:>12}"
        )
    yield ""
    yield (
        f"{base.rows:,} rows of each in database {database!r} ({connections[database].vendor}), "
        f"single ones and batches of {BATCH}; medians of interleaved rounds. "
        f"The primary key is unique, and the rows were counted."
    )
    yield (
        "Bytes a row: the primary key's index; on MariaDB and MySQL the table, which is its "
        "index. SQLite does not show it."
    )

"""``--insert``: rows into tables of the project's own database that differ in their key alone.

The tables are made for this and dropped at the end, also after an error or Ctrl-C. The kinds
take turns: each round saves one batch of each kind, and single rows of each.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import perf_counter_ns
from typing import Any

from django.apps.registry import Apps
from django.db import connections, models

from ...core.options import check_whole
from ...fields import SegmentIdField, SnowflakeField
from ...process.maps import segments
from .measure import ROUNDS, in_turns
from .report import Row, cells, shown, spread, table
from .targets import SEGMENT, Peer

BATCH, SINGLE = 1000, 50
"""Rows of a ``bulk_create()`` at most, and of ``create()``, in each round."""
BASE = "BigAutoField"
INDEX_BYTES = {
    "postgresql": ["SELECT pg_indexes_size('{0}'::regclass)"],
    "mysql": [
        "ANALYZE TABLE {0}",
        "SELECT data_length + index_length FROM information_schema.tables "
        "WHERE table_schema = database() AND table_name = '{0}'",
    ],
}
"""By vendor, statements of which the last one tells the bytes of a primary key's index.

On MariaDB and MySQL the table is that index.
"""


def insert_rows(targets: Mapping[str, str], rows: int, *, database: str = "default") -> list[Row]:
    """Save about ``rows`` rows with each kind of key; the keys of ``targets`` come first.

    Raises :class:`ConfigurationError` for a number that can't be, and errors of the database.
    """
    check_whole("--insert", rows, least=ROUNDS, most=10_000_000)
    batch = min(BATCH, rows // ROUNDS)
    with _tables(targets, database) as made:
        single: dict[str, list[float]] = {name: [] for name in made}
        bulk: dict[str, list[float]] = {name: [] for name in made}
        for name in in_turns(list(made), rows // batch):
            saved = made[name].objects.using(database)
            single[name].append(_ns_a_row(_create, saved, SINGLE))
            bulk[name].append(_ns_a_row(_bulk_create, saved, batch))
        return [
            {
                "name": name,
                "is_peer": not name.startswith(("SegmentIdField", "SnowflakeField")),
                "rows": model.objects.using(database).count(),
                "batch": batch,
                "ns_per_create": spread(single[name]),
                "ns_per_bulk_row": spread(bulk[name]),
                "index_bytes": _index_bytes(connections[database], model._meta.db_table),
            }
            for name, model in made.items()
        ]


def _keys(targets: Mapping[str, str]) -> Iterator[tuple[str, models.Field[Any, Any]]]:
    for name, source in targets.items():
        if source.startswith(SEGMENT):
            tag = source.removeprefix(SEGMENT)
            yield f"SegmentIdField, {name}", SegmentIdField(primary_key=True, tag=tag)
        else:
            yield f"SnowflakeField, {name}", SnowflakeField(primary_key=True, generator=source)
    yield BASE, models.BigAutoField(primary_key=True)
    yield "UUIDField, UUIDv4", models.UUIDField(primary_key=True, default=uuid.uuid4)
    with suppress(ImportError):
        uuid7 = Peer("uuid7").next_id
        rising = models.UUIDField(primary_key=True, default=lambda: uuid.UUID(int=uuid7().int))
        yield "UUIDField, UUIDv7", rising


@contextmanager
def _tables(targets: Mapping[str, str], alias: str) -> Iterator[dict[str, Any]]:
    """A model and a table for each kind of key."""
    connection, apps = connections[alias], Apps()
    made: dict[str, Any] = {}
    try:
        for name, key in _keys(targets):
            options = {
                "app_label": "idgen_bench",
                "db_table": f"idgen_bench_{os.getpid()}_{len(made)}",
                "apps": apps,
            }
            body = {
                "__module__": __name__,
                "Meta": type("Meta", (), options),
                "id": key,
                "customer": models.CharField(max_length=100),
                "total": models.IntegerField(),
            }
            model = type(f"Row{len(made)}", (models.Model,), body)
            with connection.schema_editor() as editor:
                editor.create_model(model)
            made[name] = model
        yield made
    finally:
        if not connection.in_atomic_block:
            connection.close()  # it may have been interrupted in a statement
        with connection.schema_editor() as editor:
            for model in made.values():
                editor.delete_model(model)
        # A tag must not look for its highest id in a table that is gone.
        for fields in segments.fields.values():
            fields[:] = [field for field in fields if field.model not in made.values()]


def _ns_a_row(save: Callable[[Any, int], None], saved: Any, count: int) -> float:
    begun = perf_counter_ns()
    save(saved, count)
    return (perf_counter_ns() - begun) / count


def _create(saved: Any, count: int) -> None:
    for number in range(count):
        saved.create(customer="Ada Lovelace", total=number)


def _bulk_create(saved: Any, count: int) -> None:
    saved.bulk_create(saved.model(customer="Ada Lovelace", total=each) for each in range(count))


def _index_bytes(connection: Any, name: str) -> int | None:
    """Bytes of the primary key's index; None where the database does not tell."""
    size = None
    with connection.cursor() as cursor:
        for sql in INDEX_BYTES.get(connection.vendor, []):
            cursor.execute(sql.format(name))
            size = cursor.fetchall()[0][0]
    return size


def lines_of_inserts(rows: list[Row], *, database: str) -> Iterator[str]:
    """The lines to print."""
    base = next(row for row in rows if row["name"] == BASE)
    for way, figure in (("create()", "ns_per_create"), ("bulk_create()", "ns_per_bulk_row")):
        yield from table(
            [way, "rows/s", "a row", "half of the rounds", "ratio"],
            [[row["name"], *cells(row[figure], base[figure])] for row in rows],
        )
        yield ""
    if base["index_bytes"] is not None:
        sizes = [[row["name"], shown(row["index_bytes"] / row["rows"], [(0, "")])] for row in rows]
        yield from table(["primary key's index", "bytes a row"], sizes)
        yield ""
    yield (
        f"{base['rows']:,} rows of each in database {database!r} ({connections[database].vendor}), "
        f"single ones and batches of {base['batch']}. The rows were counted. Medians of "
        f"interleaved rounds; ratio: the time of a row, as a multiple of that of {BASE}; less is "
        f"faster. Not distinguishable: the middle halves of the rounds overlap."
    )

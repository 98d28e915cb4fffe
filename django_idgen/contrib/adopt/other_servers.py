"""The tags of a Leaf, a Go version of it, or a TinyID, as their tables have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, connections

from ...core.errors import ConfigurationError
from ...core.segment import MAX_STEP
from .reading import columns_of, rows_of

__all__ = ["KINDS", "Theirs", "rows_of_server"]

KINDS = ("leaf", "go-leaf", "tinyid")
_TABLES = {"leaf": "leaf_alloc", "go-leaf": "leaf_alloc", "tinyid": "tiny_id_info"}
_COLUMNS = {
    "leaf": ("biz_tag", "max_id", "step", "description"),
    "go-leaf": ("biz_tag", "max_id", "step", "description"),
    "tinyid": ("biz_type", "max_id", "step", "delta", "remainder"),
}


@dataclass(frozen=True, slots=True)
class Theirs:
    """A row of the other server."""

    tag: str
    first_free: int
    """The first id that it has given to none of its processes."""
    step: int
    description: str
    delta: int = 1
    remainder: int = 0


def rows_of_server(kind: str, alias: str, tag: str) -> list[Theirs]:
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

"""The rows of ``LeafAlloc`` in an in-memory SQLite database.

The marks of such a database stand in this process' memory. Its rows are looked at
for a step or a ``max_id`` set there, and written when ``migrate`` is done: a test
runner may hand a copy of the database to other processes, which have to go on
where the migrations left off. They are written when a request has ended, too, to be
looked at; but what a ``TestCase`` used is rolled back with it, and shows up in no other.
"""

from __future__ import annotations

import sqlite3

from django.db import connections

from .mirror_rows import FetchedRow, Row, read_row, write_rows

__all__ = ["changed", "row_of", "write"]

_changed: dict[str, dict[str, FetchedRow]] = {}


def row_of(alias: str, tag: str) -> Row | None:
    """What the row of ``tag`` asks for, if the calling thread has the database open."""
    raw = connections[alias].connection
    if not isinstance(raw, sqlite3.Connection):
        return None
    try:
        return read_row(raw, tag)
    except sqlite3.Error:
        return None  # no table yet, or another thread is about to change it


def changed(alias: str, row: FetchedRow) -> None:
    """The row of a tag is to be brought up to its mark by :func:`write`."""
    # Told by name: production code must not import the test frameworks.
    blocks = getattr(connections[alias], "atomic_blocks", ())
    if any(getattr(block, "_from_testcase", False) for block in blocks):
        return  # it is rolled back when the test ends
    _changed.setdefault(_name(alias), {})[row.tag] = row


def write(alias: str) -> None:
    """Write what has changed, unless the calling thread is in a transaction."""
    connection = connections[alias]
    raw = connection.connection
    rows = _changed.get(_name(alias))
    if not rows or not isinstance(raw, sqlite3.Connection) or raw.in_transaction:
        return
    try:
        write_rows(raw, list(rows.values()))
    except sqlite3.Error:
        return  # no table: nothing to hand on
    rows.clear()


def _name(alias: str) -> str:
    return str(connections.settings[alias]["NAME"])

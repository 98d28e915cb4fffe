"""What is measured: the project's generators and tags, and the peers beside them.

A new peer is one entry in :data:`PEERS`.
"""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from django.db import Error, connections

from ...core.errors import ConfigurationError, IdgenError, sentence
from ...process.maps import generators, segments

SEGMENT, PEER = "segment:", "peer:"


class BenchFailed(IdgenError):
    """A target could not be measured."""


def open_target(name: str) -> Any:
    """What gives the ids of ``alias``, ``segment:TAG`` or ``peer:NAME``.

    Raises :class:`ConfigurationError` for an unknown alias, and what ``segments[tag]`` and
    :class:`Peer` raise.
    """
    if name.startswith(PEER):
        return Peer(name.removeprefix(PEER))
    if name.startswith(SEGMENT):
        return segments[name.removeprefix(SEGMENT)]
    return generators[name]


# --- peers -----------------------------------------------------------------------


class Peer:
    """Another way to get ids, by its name in :data:`PEERS`.

    Raises :class:`ConfigurationError` for an unknown name and :class:`ImportError` if the
    package is not installed.
    """

    def __init__(self, name: str) -> None:
        if name not in PEERS:
            raise ConfigurationError(
                f"There is no peer {name!r} to measure against. Known peers: {', '.join(PEERS)}."
            )
        package, make = PEERS[name]
        try:
            self.next_id = make()
        except (ImportError, AttributeError):
            raise ImportError(f"{package} is not installed") from None

    def next_ids(self, n: int) -> list[Any]:
        return [self.next_id() for _ in range(n)]


def _uuid7() -> Any:
    try:
        return import_module("uuid_utils").uuid7  # in Rust, the fastest one
    except ImportError:
        return uuid.uuid7  # type: ignore[attr-defined]  # from Python 3.14


STDLIB = "the standard library"
PEERS: Mapping[str, tuple[str, Callable[[], Callable[[], Any]]]] = {
    "uuid4": (STDLIB, lambda: uuid.uuid4),
    "uuid4-rust": ("uuid-utils", lambda: import_module("uuid_utils").uuid4),
    "uuid6": ("uuid6", lambda: import_module("uuid6").uuid6),
    "uuid7": ("uuid-utils", _uuid7),
    "ulid": ("python-ulid", lambda: import_module("ulid").ULID),
    "ksuid": ("cyksuid", lambda: import_module("cyksuid.v2").ksuid),
    "tsid": ("tsidpy", lambda: import_module("tsidpy").TSID.create),
    "sonyflake": (
        "sonyflake-py",
        lambda: import_module("sonyflake").SonyFlake(machine_id=lambda: 1).next_id,
    ),
    "snowflake-id": (
        "snowflake-id",
        lambda: import_module("snowflake").SnowflakeGenerator(1).__next__,
    ),
    "auto-increment": ("Django", lambda: auto_increment()),
    "count": (STDLIB, lambda: itertools.count(1).__next__),
    "getrandbits": (STDLIB, lambda: partial(random.getrandbits, 63)),
}
"""By name: the package on PyPI that it comes from, and what makes its ``next_id``."""
SLOW = {"peer:auto-increment": 20_000, "peer:sonyflake": 100_000}
"""By target: how many ids are taken at most. A million inserts take minutes."""


INSERT = "INSERT INTO idgen_bench (stub) VALUES ('x')"


def auto_increment(alias: str = "default") -> Callable[[], int]:
    """A function that inserts a row into database ``alias`` and returns its id. Thread-safe.

    The table has ``BigAutoField``'s column. It is temporary: nothing is left behind, and no
    commit waits for the disk. A real table costs more. Each thread has a table of its own, in its
    connection, whose ids start at 1. The function raises :class:`BenchFailed` if the database
    makes no table, and errors of the database.
    """
    ready = threading.local()

    def next_id() -> int:
        connection = connections[alias]
        if not hasattr(ready, "table"):
            _make_table(connection)
            ready.table = True
        returning = " RETURNING id" * connection.features.can_return_columns_from_insert
        with connection.cursor() as cursor:
            cursor.execute(INSERT + returning)
            if returning:
                return int(cursor.fetchone()[0])
            return int(connection.ops.last_insert_id(cursor, "idgen_bench", "id"))

    return next_id


def _make_table(connection: Any) -> None:
    try:
        with connection.cursor() as cursor:
            kind = connection.data_types["BigAutoField"]
            suffix = connection.data_types_suffix.get("BigAutoField", "")
            # A connection from a pool may have the table already.
            cursor.execute(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS idgen_bench "
                f"(id {kind} NOT NULL PRIMARY KEY {suffix}, stub char(1) NOT NULL)"
            )
    except Error as error:
        raise BenchFailed(
            f"Database {connection.alias!r} can't make a temporary table for 'auto-increment': "
            f"{sentence(error)} Leave it out of --against."
        ) from error

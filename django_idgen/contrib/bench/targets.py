"""What is measured: the project's generators and tags, and the peers beside them.

A new peer is one entry in :data:`PEERS`.
"""

from __future__ import annotations

import importlib
import itertools
import random
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.errors import ConfigurationError, IdgenError, sentence
from ...core.generator import Generator
from ...core.lease import Lease
from ...process.maps import generators, segments

SEGMENT = "segment:"
PEER = "peer:"


class BenchFailed(IdgenError):
    """A target could not be measured."""


class PeerMissing(Exception):
    """The package that a peer comes from is not installed."""


@dataclass(frozen=True, slots=True)
class Target:
    """One way to get ids. Threads may share it if they may share what it wraps."""

    name: str
    source: Any
    """An object with the attribute ``next_id``, which it may replace after each id."""
    next_ids: Callable[[int], list[Any]]
    what: str
    """What it is, for people."""
    ours: bool = False
    """Whether it is of this package: its ids are integers that rise and must never repeat."""

    @property
    def worker(self) -> int | None:
        """The worker id of this process, if the generator has one."""
        stats = self.source.stats() if self.ours else None
        lease: Lease | None = getattr(stats, "lease", None)
        return None if lease is None else lease.worker


def open_target(name: str) -> Target:
    """The target of a name: ``alias``, ``segment:TAG`` or ``peer:NAME``.

    Raises :class:`ConfigurationError` for an unknown alias, and what :func:`peer` raises.
    """
    if name.startswith(PEER):
        return peer(name.removeprefix(PEER))
    if name.startswith(SEGMENT):
        return target_of(name, segments[name.removeprefix(SEGMENT)])
    try:
        return target_of(name, generators[name])
    except KeyError:
        raise ConfigurationError(
            f"There is no generator {name!r} in IDGEN['GENERATORS']. Name one that is there, or a "
            f"tag as {SEGMENT}TAG."
        ) from None


def target_of(name: str, generator: Generator) -> Target:
    """A target for a generator of this package."""
    return Target(name, generator, generator.next_ids, type(generator).__name__, ours=True)


# --- peers -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to get ids."""

    package: str
    """Where it comes from: the name on PyPI."""
    what: str
    make: Callable[[], Callable[[], Any]]
    """Makes its ``next_id``."""


def peer(name: str) -> Target:
    """A new target for the peer ``name`` of :data:`PEERS`.

    Raises :class:`ConfigurationError` for an unknown name and :class:`PeerMissing` if the
    package is not installed.
    """
    try:
        found = PEERS[name]
    except KeyError:
        raise ConfigurationError(
            f"There is no peer {name!r} to measure against. Known peers: {', '.join(PEERS)}."
        ) from None
    try:
        next_id = found.make()
    except (ImportError, AttributeError):
        raise PeerMissing(f"{found.package} is not installed") from None
    source = SimpleNamespace(next_id=next_id)
    what = f"{found.what} ({found.package})"
    return Target(name, source, lambda count: [next_id() for _ in repeat(None, count)], what)


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _uuid7() -> Any:
    try:
        return _imported("uuid_utils", "uuid7")  # in Rust, the fastest one
    except ImportError:
        return _imported("uuid", "uuid7")  # from Python 3.14


STDLIB = "the standard library"
PEERS: Mapping[str, Peer] = {
    "uuid4": Peer(STDLIB, "128 random bits", lambda: uuid.uuid4),
    "uuid4-rust": Peer("uuid-utils", "uuid4 in Rust", lambda: _imported("uuid_utils", "uuid4")),
    "uuid6": Peer("uuid6", "a UUID that rises", lambda: _imported("uuid6", "uuid6")),
    "uuid7": Peer("uuid-utils", "a UUID that rises with time, in Rust", _uuid7),
    "ulid": Peer("python-ulid", "128 bits, 26 characters", lambda: _imported("ulid", "ULID")),
    "ksuid": Peer("cyksuid", "160 bits, in Cython", lambda: _imported("cyksuid.v2", "ksuid")),
    "tsid": Peer(
        "tsidpy", "64 bits: time, node, counter", lambda: _imported("tsidpy", "TSID").create
    ),
    "sonyflake": Peer(
        "sonyflake-py",
        "64 bits; its layout gives 25,600 a second",
        lambda: _imported("sonyflake", "SonyFlake")(machine_id=lambda: 1).next_id,
    ),
    "snowflake-id": Peer(
        "snowflake-id",
        "a snowflake generator, without a lock",
        lambda: _imported("snowflake", "SnowflakeGenerator")(1).__next__,
    ),
    "auto-increment": Peer("Django", "one INSERT per id", lambda: AutoIncrement().next_id),
    "count": Peer(STDLIB, "itertools.count, no id at all", lambda: itertools.count(1).__next__),
    "getrandbits": Peer(STDLIB, "63 random bits", lambda: partial(random.getrandbits, 63)),
}


TABLE = "idgen_bench"
INSERT = "INSERT INTO idgen_bench (stub) VALUES ('x')"
INSERT_RETURNING = f"{INSERT} RETURNING id"


class AutoIncrement:
    """Ids of a ``BigAutoField`` column in database ``alias``: an insert an id. Thread-safe.

    The table is temporary: nothing is left behind, and no commit waits for the disk. A real
    table costs more. Each thread uses a connection with a table of its own, whose ids start
    at 1. The connections close with this object.
    """

    def __init__(self, alias: str = "default") -> None:
        self._alias = alias
        self._idle = deque([_with_table(alias)])
        weakref.finalize(self, _close, self._idle)

    def next_id(self) -> int:
        """Insert a row and return its id. Raises :class:`BenchFailed` and database errors."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = _with_table(self._alias)
        with connection.cursor() as cursor:
            if connection.features.can_return_columns_from_insert:
                cursor.execute(INSERT_RETURNING)
                inserted = cursor.fetchone()[0]
            else:
                cursor.execute(INSERT)
                inserted = connection.ops.last_insert_id(cursor, TABLE, "id")
        self._idle.append(connection)  # a connection that failed is not used again
        return int(inserted)


def _with_table(alias: str) -> BaseDatabaseWrapper:
    """A connection with a temporary table, which no other connection sees."""
    connection = connections.create_connection(alias)
    connection.inc_thread_sharing()  # threads use it one after the other
    try:
        kind = connection.data_types["BigAutoField"]
        suffix = connection.data_types_suffix.get("BigAutoField", "")
        with connection.cursor() as cursor:
            # A connection from a pool may have the table already.
            cursor.execute(
                f"CREATE TEMPORARY TABLE IF NOT EXISTS {TABLE} (id {kind} NOT NULL PRIMARY KEY "
                f"{suffix}, stub char(1) NOT NULL)"
            )
    except Error as error:
        raise BenchFailed(
            f"Database {alias!r} can't make a temporary table for 'auto-increment': "
            f"{sentence(error)} Leave it out of --against."
        ) from error
    return connection


def _close(idle: deque[BaseDatabaseWrapper]) -> None:
    for connection in idle:
        # SQLite's own close() leaves a database in memory open.
        BaseDatabaseWrapper.close(connection)

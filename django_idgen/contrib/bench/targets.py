"""What is measured: the project's generators and tags, a service's, and the peers beside them.

A new peer is one entry in :data:`PEERS`.
"""

from __future__ import annotations

import importlib
import itertools
import os
import random
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ...core.errors import ConfigurationError, IdgenError, sentence
from ...core.generator import Generator
from ...process.handlers import generators, segments

SEGMENT = "segment:"
PEER = "peer:"
Opener = Callable[[str], "Target"]
"""Builds the target of a name, in the process that measures it."""


class BenchFailed(IdgenError):
    """A target could not be measured."""


class PeerMissing(Exception):
    """The package that a peer comes from is not installed."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        super().__init__(f"{package} is not installed")


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
    """Whether it is of this package: its ids are integers that must never repeat."""
    rises: bool = True
    """Whether those of one thread must rise, too."""
    stats: Callable[[], Mapping[str, Any]] = dict


def open_target(name: str) -> Target:
    """The target of a name: ``alias``, ``segment:TAG`` or ``peer:NAME``.

    Raises ``KeyError`` for an unknown alias, and what :func:`peer` raises.
    """
    if name.startswith(PEER):
        return peer(name.removeprefix(PEER))
    if name.startswith(SEGMENT):
        return target_of(name, segments[name.removeprefix(SEGMENT)])
    return target_of(name, generators[name])


def target_of(name: str, generator: Generator) -> Target:
    """A target for a generator of this package."""
    return Target(
        name,
        generator,
        generator.next_ids,
        what=type(generator).__name__,
        ours=True,
        stats=lambda: _as_json(generator.stats()) or {},
    )


def _as_json(value: Any) -> Any:
    """``value`` for JSON, without the tokens of leases: a token lets others renew the lease."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items() if key != "token"}
    return value


# --- a service -------------------------------------------------------------------

REQUEST, CLIENT = "request:", "client:"
TOKEN = "IDGEN_TOKEN"  # noqa: S105  # nosec B105  # a variable's name
"""The environment variable with the access token."""


def over_http(name: str) -> tuple[str, str]:
    """The two ways to take ids of ``name`` from a service: by requests, and by the client."""
    return REQUEST + name, CLIENT + name


def open_over_http(name: str, *, url: str) -> Target:
    """One of the targets that :func:`over_http` names, of the service at ``url``.

    Raises :class:`PeerMissing` without httpx, and what the client raises.
    """
    if name.startswith(PEER):
        return peer(name.removeprefix(PEER))
    try:
        from ...client import Client
    except ImportError:
        raise PeerMissing(name, "httpx") from None
    way, _, of = name.partition(":")
    tag = of.removeprefix(SEGMENT) if of.startswith(SEGMENT) else None
    if f"{way}:" == REQUEST:
        return _requested(name, url, f"tags/{tag}" if tag else f"generators/{of}")
    client = Client(url, token_env=TOKEN, wait=60)
    made: Any = client.generators[of] if tag is None else client.segments[tag]
    return replace(target_of(name, made), what="django_idgen.client: ids from grants, in memory")


def _requested(name: str, url: str, path: str) -> Target:
    import httpx

    headers = {"Authorization": f"Bearer {os.environ.get(TOKEN, '')}"}
    http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def next_ids(count: int) -> list[int]:
        try:
            answer = http.post(f"{path}/ids", params={"count": count})
        except httpx.HTTPError as error:
            raise BenchFailed(f"{url}{path}/ids: {error}") from error
        if answer.status_code != httpx.codes.OK:
            raise BenchFailed(f"{url}{path}/ids: {answer.status_code} {answer.text[:300]}")
        return [int(each) for each in answer.json()["ids"]]

    source = SimpleNamespace(next_id=lambda: next_ids(1)[0])
    return Target(
        name, source, next_ids, what="an HTTP request for each call", ours=True, rises=False
    )


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
        raise PeerMissing(name, found.package) from None
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
COLUMN = "id"


class AutoIncrement:
    """Ids of a ``BigAutoField`` column in database ``alias``: an insert an id. Thread-safe.

    The table is temporary: nothing is left behind, and no commit waits for the disk. A real
    table costs more. Each thread uses a connection with a table of its own, whose ids start
    at 1. The connections close with this object.
    """

    def __init__(self, alias: str = "default") -> None:
        self._alias = alias
        self._idle = deque([_TemporaryTable(alias)])
        weakref.finalize(self, _close, self._idle)

    def next_id(self) -> int:
        """Insert a row and return its id. Raises :class:`BenchFailed` and database errors."""
        try:
            table = self._idle.pop()
        except IndexError:
            table = _TemporaryTable(self._alias)
        inserted = table.insert()
        self._idle.append(table)  # a connection that failed is not used again
        return inserted


class _TemporaryTable:
    """A temporary table, and the one connection that sees it."""

    def __init__(self, alias: str) -> None:
        self.connection = connection = connections.create_connection(alias)
        connection.inc_thread_sharing()  # threads use it one after the other
        table, column = map(connection.ops.quote_name, (TABLE, COLUMN))
        try:
            kind = connection.data_types["BigAutoField"]
            suffix = connection.data_types_suffix.get("BigAutoField", "")
            with connection.cursor() as cursor:
                # A connection from a pool may have the table already.
                cursor.execute(
                    f"CREATE TEMPORARY TABLE IF NOT EXISTS {table} ({column} {kind} NOT NULL "
                    f"PRIMARY KEY {suffix}, stub char(1) NOT NULL)"
                )
        except Error as error:
            raise BenchFailed(
                f"Database {alias!r} can't make a temporary table for 'auto-increment': "
                f"{sentence(error)} Leave it out of --against."
            ) from error
        self._returns = connection.features.can_return_columns_from_insert
        returning = f" RETURNING {column}" if self._returns else ""
        self._insert = f"INSERT INTO {table} (stub) VALUES ('x'){returning}"  # noqa: S608

    def insert(self) -> int:
        connection = self.connection
        with connection.cursor() as cursor:
            cursor.execute(self._insert)
            if self._returns:
                return int(cursor.fetchone()[0])
            return int(connection.ops.last_insert_id(cursor, TABLE, COLUMN))


def _close(tables: deque[_TemporaryTable]) -> None:
    for table in tables:
        # SQLite's own close() leaves a database in memory open.
        BaseDatabaseWrapper.close(table.connection)

"""What the benchmark measures: our generators, and the peers they are compared with."""

from __future__ import annotations

import importlib
import itertools
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import repeat
from typing import Any, Protocol

from ...core.errors import ConfigurationError

__all__ = ["PEERS", "IdSource", "Opener", "PeerMissing", "Target", "peer", "target_of"]

Opener = Callable[[str], "Target"]
"""Makes the target of a name in the process that will measure it."""


class IdSource(Protocol):
    """What every generator of ours offers."""

    def next_id(self) -> int: ...
    def next_ids(self, count: int, /) -> list[int]: ...
    def stats(self) -> Any: ...


class PeerMissing(Exception):
    """The package that a peer comes from is not installed."""

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package
        super().__init__(f"{package} is not installed")


@dataclass(frozen=True, slots=True)
class Target:
    """One way to get ids. As safe to share between threads as what it wraps."""

    name: str
    next_id: Callable[[], Any]
    next_ids: Callable[[int], list[Any]]
    ours: bool = False
    """Whether its ids are integers that must rise and never repeat."""
    stats: Callable[[], Mapping[str, Any]] = dict


def target_of(name: str, generator: IdSource) -> Target:
    """``generator``, one of ours, as a target: its ids will be proven unique."""

    def stats() -> Mapping[str, Any]:
        found: Mapping[str, Any] = _fields(generator.stats())
        return found

    return Target(name, generator.next_id, generator.next_ids, ours=True, stats=stats)


def peer(name: str) -> Target:
    """The peer of that name, one of :data:`PEERS`, made anew.

    Raises :class:`ConfigurationError` for an unknown name and
    :class:`PeerMissing` for one whose package is not installed.
    """
    try:
        package, make = PEERS[name]
    except KeyError:
        raise ConfigurationError(
            f"There is no peer {name!r} to measure against. Known are: {', '.join(PEERS)}."
        ) from None
    try:
        next_id = make()
    except (ImportError, AttributeError):
        raise PeerMissing(name, package) from None
    return Target(name, next_id, lambda count: [next_id() for _ in repeat(None, count)])


def _uuid7() -> Callable[[], Any]:
    # The fastest there is: the one in Rust before the standard library's (3.14).
    try:
        return _from("uuid_utils", "uuid7")
    except ImportError:
        return _from("uuid", "uuid7")


def _snowflake_id() -> Callable[[], Any]:
    generator = importlib.import_module("snowflake").SnowflakeGenerator(1)
    next_id: Callable[[], Any] = generator.__next__
    return next_id


def _from(module: str, name: str) -> Callable[[], Any]:
    function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return function


def _getrandbits() -> Callable[[], Any]:
    getrandbits = random.getrandbits
    return lambda: getrandbits(63)


PEERS: Mapping[str, tuple[str, Callable[[], Callable[[], Any]]]] = {
    "uuid4": ("the standard library", lambda: uuid.uuid4),
    "uuid7": ("uuid-utils", _uuid7),
    "uuid6": ("uuid6", lambda: _from("uuid6", "uuid6")),
    "snowflake-id": ("snowflake-id", _snowflake_id),
    "count": ("the standard library", lambda: itertools.count(1).__next__),
    "getrandbits": ("the standard library", _getrandbits),
}
"""By name: the package it comes from, and what makes its ``next_id``."""


def _fields(value: Any) -> Any:
    """``value`` as JSON has it; a lease's token, which would let others renew it, left out."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _fields(item) for key, item in value.items() if key != "token"}
    return value

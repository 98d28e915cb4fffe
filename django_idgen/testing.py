"""For users' tests: ids that are known beforehand, and ids without a registry.

Nothing here is needed for tests to work. Each of the three is a context manager
and a decorator of functions, acts on the whole process (all its threads) for
the duration, and can be nested.

>>> with fixed_ids(7, 9):
...     Order.objects.create().pk
7
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.test import override_settings

from .conf import DEFAULT_ALIAS, LEASE_OPTIONS, SettingsError, read_settings
from .core.errors import IdgenError, InvalidId
from .core.layout import BitLayout
from .core.loader import InlineLoader
from .core.segment import MAX_ID, check_tag
from .handlers import generators, segments
from .leases.memory import MemoryLeases, MemoryMarks
from .sources.memory import MemorySource

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["FixedIds", "FixedIdsUsedUp", "fixed_ids", "no_registry", "sequential_ids"]


class FixedIdsUsedUp(IdgenError):
    """More ids were asked for than :func:`fixed_ids` was given."""

    def __init__(self, name: str, given: int) -> None:
        self.name = name
        self.given = given
        super().__init__(
            f"All {given} fixed ids of {name} are used up. Give fixed_ids() more of them, or "
            f"use sequential_ids()."
        )


class FixedIds:
    """A generator that gives ``values`` in their order. Thread-safe.

    ``layout`` is that of the generator it stands for; a tag has none. Raises
    :class:`FixedIdsUsedUp` after the last value.
    """

    def __init__(
        self, values: Iterable[int], *, name: str = "the test", layout: BitLayout | None = None
    ) -> None:
        self.name = name
        self.layout = layout
        self.issued: list[int] = []
        """What was given out so far."""
        self._values = iter(values)
        self._lock = threading.Lock()

    def next_id(self) -> int:
        return self.next_ids(1)[0]

    def next_ids(self, n: int) -> list[int]:
        with self._lock:
            first = len(self.issued)
            for _ in range(n):
                self.issued.append(self._next())
            return self.issued[first:]

    async def anext_id(self) -> int:
        return self.next_id()

    async def anext_ids(self, n: int) -> list[int]:
        return self.next_ids(n)

    def _next(self) -> int:
        for value in self._values:
            return value
        raise FixedIdsUsedUp(self.name, len(self.issued))

    def stats(self) -> dict[str, int]:
        return {"issued": len(self.issued)}

    def close(self) -> None:
        """Nothing to free."""

    def forget(self) -> None:
        """A forked child goes on from a copy of its own."""
        self._lock = threading.Lock()

    def __enter__(self) -> FixedIds:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def fixed_ids(
    *values: int, generator: str = DEFAULT_ALIAS, tag: str | None = None
) -> Iterator[FixedIds]:
    """``generators[generator]``, or ``segments[tag]``, gives just these ids, in this order.

    Raises :class:`~django_idgen.core.errors.InvalidId` for a value outside
    1..2**63-1; asking for more ids than were given raises :class:`FixedIdsUsedUp`.
    """
    for value in values:
        _check_id(value)
    with _replaced(values, generator, tag) as ids:
        yield ids


@contextmanager
def sequential_ids(
    start: int = 1, *, generator: str = DEFAULT_ALIAS, tag: str | None = None
) -> Iterator[FixedIds]:
    """``generators[generator]``, or ``segments[tag]``, counts up from ``start``.

    Raises :class:`~django_idgen.core.errors.InvalidId` for a start outside 1..2**63-1.
    """
    with _replaced(count(_check_id(start)), generator, tag) as ids:
        yield ids


class MemorySegments(MemorySource):
    """What :func:`no_registry` takes segments from: in the caller's thread, without waiting."""

    def __init__(self, default_step: int = 1000) -> None:
        super().__init__(default_step)
        self.loader = InlineLoader()


@contextmanager
def no_registry() -> Iterator[None]:
    """All generators and tags work from this process' memory: no table, file or server.

    Generators keep their layouts; tags start at 1. Everything begins anew on the
    way in and on the way out, so have empty tables on both.
    """
    with override_settings(IDGEN=_in_memory()):
        yield


def _in_memory() -> dict[str, Any]:
    configured: dict[str, Any] = getattr(settings, "IDGEN", {})
    entries = {DEFAULT_ALIAS: {}, **configured.get("GENERATORS", {})}
    marks = MemoryMarks()
    lent = {alias: {**entry, "LEASES": _leases(entry, marks)} for alias, entry in entries.items()}
    source = {"BACKEND": f"{MemorySegments.__module__}.{MemorySegments.__qualname__}"}
    return {
        "GENERATORS": lent,
        "SEGMENTS": {**configured.get("SEGMENTS", {}), "SOURCE": source},
    }


def _leases(entry: dict[str, Any], marks: MemoryMarks) -> dict[str, Any]:
    options = entry.get("LEASES", {}).get("OPTIONS", {})
    kept = {key: value for key, value in options.items() if key in LEASE_OPTIONS}
    # One set of marks: aliases that share a namespace must not share worker ids.
    return {
        "BACKEND": f"{MemoryLeases.__module__}.{MemoryLeases.__qualname__}",
        "OPTIONS": {**kept, "marks": marks},
    }


def _replaced(values: Iterable[int], generator: str, tag: str | None) -> Any:
    if tag is not None:
        return segments.override(check_tag(tag), FixedIds(values, name=f"tag {tag!r}"))
    known = read_settings().generators
    if generator not in known:
        raise SettingsError(f"There is no generator {generator!r} to replace: {', '.join(known)}.")
    layout = known[generator].layout
    return generators.override(
        generator, FixedIds(values, name=f"generator {generator!r}", layout=layout)
    )


def _check_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ID:
        raise InvalidId(value, "it must be a whole number of 1 to 2**63-1")
    return value

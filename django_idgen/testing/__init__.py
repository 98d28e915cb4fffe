"""For users' tests: fixed ids, and ids without a registry.

Tests need it only where they must know ids. Each of its functions is a context manager
and a decorator of functions, coroutine functions and unittest's ``TestCase``s. It acts on
the whole process (all its threads), and can be nested.

```python
with fixed_ids(7, 9):
    assert Order.objects.create().pk == 7
```
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from unittest import TestCase

from django.conf import settings
from django.test import override_settings

from ..core.errors import IdgenError, InvalidId
from ..core.generator import Generator
from ..core.layout import BitLayout
from ..core.segment import MAX_ID, check_tag
from ..leases.memory import MemoryLeases, MemoryMarks
from ..process.maps import generators, segments
from ..settings.config import DEFAULT_ALIAS, LEASE_OPTIONS, SettingsError, read_settings

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["FixedIds", "FixedIdsUsedUp", "fixed_ids", "no_registry", "sequential_ids"]


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Replacement(ContextDecorator, Generic[T]):
    """A context manager that also decorates functions, coroutine functions and test cases.

    On a test case it starts for each test, before its ``setUp``. (``contextlib`` would turn
    the class into a function, whose tests no runner finds.)
    """

    def __init__(self, name: str, begin: Callable[[], AbstractContextManager[T]]) -> None:
        self._name = name
        self._begin = begin
        self._begun: list[AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        block = self._begin()
        entered = block.__enter__()
        self._begun.append(block)
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._begun.pop().__exit__(kind, error, trace)

    def __call__(self, func: F) -> F:
        if isinstance(func, type):
            self._decorate_setup(func)
            return func
        if iscoroutinefunction(func):
            return cast("F", self._around(func))

        @wraps(func)
        def inside(*args: Any, **options: Any) -> Any:
            with self._begin():
                return func(*args, **options)

        return cast("F", inside)

    def _around(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(func)
        async def inside(*args: Any, **options: Any) -> Any:
            with self._begin():
                return await func(*args, **options)

        return inside

    def _decorate_setup(self, case: type) -> None:
        if not issubclass(case, TestCase):
            raise TypeError(
                f"{self._name}() can't decorate {case.__qualname__}, which is not a "
                "unittest.TestCase: decorate its methods, or use the fixtures of pytest."
            )
        set_up, begin = case.setUp, self._begin

        @wraps(set_up)
        def begin_with_it(test: TestCase) -> None:
            test.enterContext(begin())
            set_up(test)

        case.setUp = begin_with_it  # type: ignore[assignment, method-assign]


def _replacement(function: Callable[P, Iterator[T]]) -> Callable[P, Replacement[T]]:
    begin = contextmanager(function)

    @wraps(function)
    def replacement(*args: P.args, **options: P.kwargs) -> Replacement[T]:
        return Replacement(function.__name__, lambda: begin(*args, **options))

    return replacement


class FixedIdsUsedUp(IdgenError):
    """A test has taken more ids than :func:`fixed_ids` was given."""

    def __init__(self, name: str, given: int) -> None:
        self.name = name
        self.given = given
        super().__init__(
            f"All {given} fixed ids of {name} are used up. Give fixed_ids() more of them, or "
            f"use sequential_ids()."
        )


class FixedIds(Generator):
    """A generator that gives ``values`` in their order. Thread-safe.

    ``layout``: that of the generator it replaces; a tag has none. Raises
    :class:`FixedIdsUsedUp` after the last value.
    """

    def __init__(
        self, values: Iterable[int], *, name: str = "the test", layout: BitLayout | None = None
    ) -> None:
        self.name = name
        self.layout = layout
        self.issued: list[int] = []
        """The ids that were given out."""
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

    def forget(self) -> None:
        """A forked child continues with its own copy."""
        self._lock = threading.Lock()


@_replacement
def fixed_ids(
    *values: int, generator: str = DEFAULT_ALIAS, tag: str | None = None
) -> Iterator[FixedIds]:
    """``generators[generator]``, or ``segments[tag]``, gives exactly these ids, in this order.

    Raises :class:`~django_idgen.core.errors.InvalidId` for a value outside
    1..2**63-1. Taking more ids raises :class:`FixedIdsUsedUp`.
    """
    for value in values:
        _check_id(value)
    with _replaced(values, generator, tag) as ids:
        yield ids


@_replacement
def sequential_ids(
    start: int = 1, *, generator: str = DEFAULT_ALIAS, tag: str | None = None
) -> Iterator[FixedIds]:
    """``generators[generator]``, or ``segments[tag]``, counts up from ``start``.

    Raises :class:`~django_idgen.core.errors.InvalidId` for a start outside 1..2**63-1.
    """
    with _replaced(count(_check_id(start)), generator, tag) as ids:
        yield ids


@_replacement
def no_registry() -> Iterator[None]:
    """All generators and tags use this process's memory: no table, file or server.

    Generators keep their layouts. Tags start at 1. Everything starts over at the beginning
    and at the end, so use it while tables are empty.
    """
    with override_settings(IDGEN=_in_memory()):
        yield


def _in_memory() -> dict[str, Any]:
    configured: dict[str, Any] = getattr(settings, "IDGEN", {})
    entries = {DEFAULT_ALIAS: {}, **configured.get("GENERATORS", {})}
    marks = MemoryMarks()
    lent = {alias: {**entry, "LEASES": _leases(entry, marks)} for alias, entry in entries.items()}
    source = {"BACKEND": "django_idgen.sources.memory.MemorySource"}
    return {
        "GENERATORS": lent,
        "SEGMENTS": {**configured.get("SEGMENTS", {}), "SOURCE": source},
    }


def _leases(entry: dict[str, Any], marks: MemoryMarks) -> dict[str, Any]:
    options = entry.get("LEASES", {}).get("OPTIONS", {})
    kept = {key: value for key, value in options.items() if key in LEASE_OPTIONS}
    # Shared marks: aliases that share a namespace must not share worker ids.
    return {
        "BACKEND": f"{MemoryLeases.__module__}.{MemoryLeases.__qualname__}",
        "OPTIONS": {**kept, "marks": marks},
    }


def _replaced(values: Iterable[int], generator: str, tag: str | None) -> Any:
    if tag is not None:
        return segments.override(check_tag(tag), FixedIds(values, name=f"tag {tag!r}"))
    known = read_settings().generators
    if generator not in known:
        raise SettingsError(
            f"There is no generator {generator!r} to replace. Known: {', '.join(known)}."
        )
    layout = known[generator].layout
    return generators.override(
        generator, FixedIds(values, name=f"generator {generator!r}", layout=layout)
    )


def _check_id(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ID:
        raise InvalidId(value, "it must be a whole number of 1 to 2**63-1")
    return value

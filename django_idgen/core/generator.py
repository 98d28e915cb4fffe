"""What gives out ids: the base class."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat, starmap
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self

from .errors import ConfigurationError

if TYPE_CHECKING:
    from .keeper import LeaseKeeper
    from .layout import BitLayout, IdParts

HAS_GIL: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether one step of a C iterator is atomic."""

MAX_BATCH: Final = 10_000_000
"""The most ids that one call of ``next_ids`` gives."""


def check_count(count: object) -> int:
    """Return ``count`` if so many ids can be asked for at once.

    Raises :class:`TypeError` for what is no int, and :class:`ConfigurationError`
    (a :class:`ValueError`) for one outside 0 to :data:`MAX_BATCH`.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"A number of ids must be an int of 0 to {MAX_BATCH}, not {count!r}.")
    if not 0 <= count <= MAX_BATCH:
        raise ConfigurationError(
            f"{count} ids can't be given by one call: ask for 0 to {MAX_BATCH} at a time."
        )
    return count


_NO_ARGUMENTS: Final = repeat(())


def walk(
    pop: Callable[[Any, Any], Iterator[int]], key: object, slow: Callable[[], int]
) -> Callable[[], int]:
    """A ``next_id`` for life, which walks one iterator over a ``range`` after another.

    ``pop`` is that of a dictionary. At the end of one iterator it takes the next from ``key``
    there. If there is none it calls ``slow``, which returns an id, or puts an iterator there and
    raises :class:`StopIteration`.

    All but ``slow`` is C code that does not give up the GIL: two threads never get one id. Only
    ``slow`` can raise, so that an interrupt ends one call and not the chain. Its error reaches
    the caller, and the next call asks it again.
    """
    ask = starmap(slow, _NO_ARGUMENTS)
    return chain.from_iterable(starmap(pop, repeat((key, ask)))).__next__


def drop(ids: Iterator[int]) -> None:
    """End the iterator over a ``range``, also for a :func:`walk` that is on it."""
    iterator: Any = ids
    iterator.__setstate__(sys.maxsize)


class Watch(ABC):
    """Looks at the tables whose rows get the ids of a generator.

    Its methods run in a thread of a caller, with no lock held. They raise
    :class:`SegmentUnavailable` if a database does not answer. Thread-safe.
    """

    @abstractmethod
    def follow(self, field: Any, using: str | None = None) -> None:
        """Before an id goes into ``field``: look at its table, unless that was done.

        ``using``: the database of the row; by default the one that routers name.
        """

    @abstractmethod
    def is_due(self) -> bool:
        """Whether :meth:`find` has something to find. Quick, and without I/O."""

    @abstractmethod
    def find(self) -> None:
        """Call :meth:`.SegmentGenerator.expect` with the tables that the caller finds."""

    @abstractmethod
    def look(self, tables: frozenset[str]) -> None:
        """Call :meth:`.SegmentGenerator.pass_rows` with the highest id of ``tables``."""

    @abstractmethod
    async def in_thread(self, ask: Callable[[], None]) -> None:
        """Call ``ask`` in a thread that may wait for the database of the coroutine."""


class Generator(ABC):
    """The base class of everything that gives out ids.

    Safe to share between threads. As a context manager it closes at the end.
    """

    __slots__ = ()

    has_parts: ClassVar[bool] = False
    """Whether :meth:`decode` can take its ids apart."""
    keeper: LeaseKeeper | None = None
    """Keeps its lease; None for ids without a worker id."""
    watch: Watch | None = None
    """Looks at the tables whose rows get its ids; None where there are none."""

    @abstractmethod
    def next_id(self) -> int:
        """The next id, 1 to 2**63-1. Raises :class:`IdgenError`."""

    @abstractmethod
    def next_ids(self, count: int, /) -> list[int]:
        """``count`` ids (0 to :data:`MAX_BATCH`). Raises as :meth:`next_id`."""

    async def anext_id(self) -> int:
        """As :meth:`next_id`, for coroutines. Never blocks the event loop."""
        return await asyncio.to_thread(self.next_id)

    async def anext_ids(self, count: int, /) -> list[int]:
        return await asyncio.to_thread(self.next_ids, count)

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError("A generator can't be copied or pickled: both would give the same ids.")

    @classmethod
    def reach(cls, layout: BitLayout, options: Mapping[str, Any]) -> float:  # noqa: ARG003
        """How many seconds past now its ids may lie with these options."""
        value = options.get("max_ahead", 0.0)
        # The constructor refuses what can't be one.
        return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0

    def decode(self, value: int) -> IdParts:
        """Take an id apart, if ids of this class have parts.

        Raises :class:`InvalidId` for what can't be one of its ids.
        """
        raise ConfigurationError(
            f"The ids of {type(self).__name__} have no layout, and can't be decoded."
        )

    def stats(self) -> object:
        """Its counts; None if it keeps none."""
        return None

    def close(self) -> None:
        """Issue no more ids, and give back what is left. May be called twice. Never raises."""

    def forget(self) -> None:
        """In the child of a fork: drop what it inherited. No other thread may use it then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self.close()

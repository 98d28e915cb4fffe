"""What gives out ids, whatever it is made of."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from .errors import ConfigurationError

if TYPE_CHECKING:
    from .keeper import LeaseKeeper
    from .layout import BitLayout, IdParts

__all__ = ["HAS_GIL", "MAX_BATCH", "Generator", "check_count", "drop", "walk"]

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


def walk(ids: Iterator[int], slow: Callable[[], int]) -> Callable[[], int]:
    """A ``next_id`` that takes the next of ``ids``, and calls ``slow`` once they have ended.

    ``ids`` iterates over a ``range``. Two threads never get one id of it: no step of these
    iterators runs Python code, and so none gives up the GIL, before ``ids`` has ended.
    What ``slow`` raises reaches the caller, and the next call asks it again.
    """
    return chain(ids, iter(slow, None)).__next__


def drop(ids: Iterator[int]) -> None:
    """End the iterator over a ``range``, for those too that hold it in a :func:`walk`."""
    iterator: Any = ids
    iterator.__setstate__(sys.maxsize)


class Generator(ABC):
    """The base class of what gives out ids; also what can be asked of it.

    Safe to share between threads. As a context manager it is closed at the end.
    """

    __slots__ = ()

    has_parts: ClassVar[bool] = False
    """Whether its ids can be taken apart: see :meth:`decode`."""
    has_background: ClassVar[bool] = False
    """Whether it takes ``background``: False for one that must not start a thread."""
    keeper: LeaseKeeper | None = None
    """What holds its worker id; None for ids that have none."""

    @abstractmethod
    def next_id(self) -> int:
        """The next id, 1 to 2**63-1. Raises :class:`IdgenError`, and never returns a non-id."""

    @abstractmethod
    def next_ids(self, count: int, /) -> list[int]:
        """``count`` ids (0 to :data:`MAX_BATCH`). Raises as :meth:`next_id`."""

    async def anext_id(self) -> int:
        """As :meth:`next_id`, for coroutines: the event loop is never held up."""
        return await asyncio.to_thread(self.next_id)

    async def anext_ids(self, count: int, /) -> list[int]:
        """As :meth:`next_ids`, for coroutines."""
        return await asyncio.to_thread(self.next_ids, count)

    @classmethod
    def reach(cls, layout: BitLayout, options: Mapping[str, Any]) -> float:  # noqa: ARG003
        """How many seconds past now its ids may lie, with these options of its settings."""
        value = options.get("max_ahead", 0.0)
        # What can't be one is refused by the constructor, in its own words.
        return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0

    def decode(self, value: int) -> IdParts:
        """Take an id apart, if :attr:`has_parts`.

        Raises :class:`InvalidId` for what can't be one of its ids.
        """
        raise ConfigurationError(f"The ids of {type(self).__name__} have no parts.")

    def stats(self) -> object:
        """Counts of what it did; None if it keeps none."""
        return None

    def close(self) -> None:
        """Give no more ids, and give back what is left. May be called twice. Never raises."""

    def forget(self) -> None:
        """Drop what the child of a fork inherited. No other thread uses the generator."""

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

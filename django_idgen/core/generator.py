"""What gives out ids, whatever it is made of."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol

from .errors import ConfigurationError

__all__ = ["MAX_BATCH", "Generator", "check_count"]

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


class Generator(Protocol):
    """What all generators share; see ``docs/architecture.md``."""

    def next_id(self) -> int: ...
    def next_ids(self, count: int, /) -> list[int]: ...
    async def anext_id(self) -> int: ...
    async def anext_ids(self, count: int, /) -> list[int]: ...
    def stats(self) -> object: ...
    def close(self) -> None: ...
    def forget(self) -> None: ...
    def __enter__(self) -> Generator: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

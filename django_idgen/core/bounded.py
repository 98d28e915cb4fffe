"""The one bounded cache: a plain dictionary in which the newest entries stay."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def keep_newest(known: dict[K, V], key: K, value: V, *, most: int) -> None:
    """Put ``key`` into ``known`` as its newest entry; the oldest ones go, down to ``most``.

    Thread-safe without a lock, which a fork would leave held. Threads that put at the same
    moment may pass ``most`` by their number.
    """
    known.pop(key, None)
    while len(known) >= most:
        with suppress(KeyError, StopIteration, RuntimeError):  # another thread changes it
            del known[next(iter(known))]
    known[key] = value

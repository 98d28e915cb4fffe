"""Ids for a process that uWSGI is about to fork, without holding on to a grant.

uWSGI forks its workers without running Python's fork hooks, its own hook is a
single place that any application may overwrite, and its master runs nothing at
its end. A grant that its master held would be walked by every worker, and never
be given back. So there each call takes a grant and gives it back: what is not
there can't be inherited.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from .generator import Generator

if TYPE_CHECKING:
    from .layout import IdParts

__all__ = ["PreforkGenerator", "is_prefork"]


def is_prefork() -> bool:
    """Whether uWSGI has loaded the application here only to fork this process."""
    # Not imported: a thread that is importing at a fork leaves the child a held lock.
    uwsgi: Any = sys.modules.get("uwsgi")
    if not hasattr(uwsgi, "worker_id"):
        return False
    # Mules and spoolers have no worker id either, but are no one's parents.
    return uwsgi.worker_id() == 0 and uwsgi.masterpid() in {0, os.getpid()}


class PreforkGenerator(Generator):
    """Stands for a generator until the fork, and afterwards for the worker's own.

    ``make`` builds a generator for one call, ``find`` looks up the process' own.
    Ids of two calls before the fork may come out of order if they fall into one
    tick. Thread-safe.
    """

    has_parts = True  # or decode() says so

    def __init__(self, make: Callable[[], Generator], find: Callable[[], Generator]) -> None:
        self._make = make
        self._find = find
        self._found: Generator | None = None

    def next_id(self) -> int:
        """As the generator that this one stands for."""
        own = self._own()
        return self.next_ids(1)[0] if own is None else own.next_id()

    def next_ids(self, count: int, /) -> list[int]:
        """As the generator that this one stands for."""
        own = self._own()
        if own is not None:
            return own.next_ids(count)
        with closing(self._make()) as once:
            return once.next_ids(count)

    async def anext_id(self) -> int:
        """As :meth:`next_id`; before the fork in the caller's own thread."""
        own = self._own()
        return self.next_id() if own is None else await own.anext_id()

    async def anext_ids(self, count: int, /) -> list[int]:
        """As :meth:`next_ids`, and :meth:`anext_id`."""
        own = self._own()
        return self.next_ids(count) if own is None else await own.anext_ids(count)

    def stats(self) -> object:
        """Those of the worker's own generator; before the fork there is nothing to tell."""
        return self._own_or_new().stats()

    def close(self) -> None:
        """Close the worker's own generator; before the fork there is nothing to give back."""
        own = self._own()
        if own is not None:
            own.close()

    def decode(self, value: int) -> IdParts:
        """As the generator that this one stands for."""
        return self._own_or_new().decode(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own_or_new(), name)

    def _own(self) -> Generator | None:
        if self._found is None and not is_prefork():
            self._found = self._find()
        return self._found

    def _own_or_new(self) -> Generator:
        return self._own() or self._make()

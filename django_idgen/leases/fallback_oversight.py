"""Looking into, and after, the worker ids of two registries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..core.clock import Clock
from ..core.errors import LeaseError, NotSeenFromHere
from ..core.lease import LeaseRegistry
from ..core.survey import Overseen, Survey, Tenure

__all__ = ["FallbackOversight"]


class FallbackOversight:
    """An :class:`Overseen` of ``parts``, which lend other worker ids each."""

    def __init__(self, parts: Sequence[LeaseRegistry], clock: Clock) -> None:
        self._parts = parts
        self._clock = clock

    def survey(self, workers: Collection[int] | None = None) -> Sequence[Survey]:
        """See :meth:`Overseen.survey`.

        What can't be asked is told as a failure. Raises what the first says if none can be.
        """
        found: list[Survey] = []
        failures: list[LeaseError] = []
        for part in self._parts:
            try:
                found += _overseen(part).survey(workers)
            except LeaseError as error:
                failures.append(error)
                found.append(self._unseen(part, error))
        if len(failures) == len(self._parts):
            raise failures[0]
        return found

    def _unseen(self, part: Any, error: LeaseError) -> Survey:
        now_us = self._clock.wall_ns() // 1000
        kind = str(getattr(part, "kind", type(part).__name__))
        workers = getattr(part, "workers", None)  # of one that is told its own
        return Survey(kind, part.namespace, now_us, workers=workers, failure=str(error))

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Overseen.free`."""
        return self._of(worker, lambda overseen: overseen.free(worker, lease)) or False

    def tenure(self, worker: int, tick: int) -> Tenure | None:
        """See :meth:`Overseen.tenure`."""
        found: Tenure | None = self._of(worker, lambda overseen: overseen.tenure(worker, tick))
        return found

    def _of(self, worker: int, ask: Callable[[Overseen], Any]) -> Any:
        for part in self._parts:
            if worker in part.namespace.workers:
                return ask(_overseen(part))
        return None


def _overseen(part: Any) -> Overseen:
    if not hasattr(part, "oversight"):
        raise NotSeenFromHere(
            f"{type(part).__name__} does not tell who holds its worker ids: it has no oversight()."
        )
    overseen: Overseen = part.oversight()
    return overseen

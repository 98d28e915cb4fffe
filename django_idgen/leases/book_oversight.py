"""Looking into, and after, the worker ids of a registry that sees all its rows at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from ..core.lease import Mark, Namespace
from ..core.lending import LeaseBook
from ..core.moments import moment
from ..core.survey import Sight, Survey, Tenure, name_of

__all__ = ["BookOversight", "OverseenBook", "Term", "tenure_of"]

T = TypeVar("T")

Term = tuple[int, str, int]
"""Of somebody who was lent a worker id: the first tick, the label, when (µs since 1970)."""


class OverseenBook(LeaseBook, Protocol):
    """The rows of one namespace, with what nobody needs who lends."""

    def sightings(self) -> Iterable[tuple[Mark, int, int | None]]:
        """Every mark, when its holder was seen, and when it was lent if that is known (µs)."""
        ...

    def void(self, worker: int) -> bool:
        """Take the token out of a mark and leave the rest; False if there is none in it."""
        ...

    def term(self, worker: int, tick: int) -> Term | None:
        """The last one of the history that began at ``tick`` or before."""
        ...


class BookOversight(ABC):
    """An :class:`Overseen` of one namespace.

    The clock of such a registry is its host's own, and so is that of every holder: there
    is nothing to be measured between them. ``place`` is where they are kept; ``changed`` is
    called when a mark was.
    """

    def __init__(
        self,
        namespace: Namespace,
        now_us: Callable[[], int],
        *,
        place: str,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._space = namespace
        self._now_us = now_us
        self._place = place
        self._changed = changed

    @abstractmethod
    def _run(self, job: Callable[[OverseenBook], T]) -> T | None:
        """What ``job`` returns, in one transaction; ``None`` where there are no rows yet."""

    def survey(self, workers: Collection[int] | None = None) -> Sequence[Survey]:
        """See :meth:`Overseen.survey`."""
        sights = self._run(_sights) or []
        if workers is not None:
            sights = [sight for sight in sights if sight.mark.worker in workers]
        return [Survey("database", self._space, self._now_us(), sights, place=self._place)]

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Overseen.free`."""
        freed = bool(self._run(lambda book: _freed(book, worker, lease)))
        if freed:
            self._changed()
        return freed

    def tenure(self, worker: int, tick: int) -> Tenure | None:
        """See :meth:`Overseen.tenure`."""
        return self._run(lambda book: _tenure(book, worker, tick))


def _sights(book: OverseenBook) -> list[Sight]:
    record = book.record()
    generation = None if record is None else record.generation
    return [
        Sight(mark, seen_us=seen, acquired_us=acquired, void=mark.generation != generation)
        for mark, seen, acquired in book.sightings()
    ]


def _freed(book: OverseenBook, worker: int, lease: str | None) -> bool:
    mark = book.mark(worker)
    if mark is None or lease not in (None, name_of(mark.token)):
        return False
    return book.void(worker)


def _tenure(book: OverseenBook, worker: int, tick: int) -> Tenure | None:
    mark = book.mark(worker)
    if mark and tick >= mark.until:
        return None  # promised to nobody yet
    term = book.term(worker, tick)
    if mark and tick >= mark.start and (term is None or term[0] != mark.start):
        return Tenure(mark.holder, None, mark.start)  # no history was kept of it
    return None if term is None else tenure_of(term)


def tenure_of(term: Term) -> Tenure:
    """What a row of the history says."""
    start, holder, lent_us = term
    return Tenure(holder, moment(lent_us), start)

"""Which free worker id to lend: the one held last, else at random, else by a scan."""

from __future__ import annotations

from dataclasses import dataclass
from random import SystemRandom

from django.db.models import Q, QuerySet

from ..core.errors import NoFreeWorker
from ..core.holder import identity_of
from ..core.lease import Mark, Namespace, is_free
from ..models import WorkerLease

__all__ = ["WorkerChoice", "mark_of"]

RANDOM_TRIES = 10
PREVIOUS_LIMIT = 64
"""Rows of one host that are looked at."""
# Processes started from one image, or forked, must not all try the same ones.
_random = SystemRandom()


def mark_of(row: WorkerLease, generation: int) -> Mark:
    """The row as a mark; one of another generation counts as released."""
    token = row.token if row.generation == generation else ""
    return Mark(row.worker, token, row.start, row.until, row.generation, row.holder)


@dataclass(frozen=True, slots=True)
class WorkerChoice:
    """Chooses among the worker ids of ``namespace``, whose rows are ``rows``.

    ``now`` is a tick, ``generation`` the current one, ``avoid`` a worker id to
    pass over. The caller has locked the namespace.
    """

    namespace: Namespace
    rows: QuerySet[WorkerLease]
    now: int
    generation: int
    avoid: int | None
    by: int
    """The tick of :func:`~..core.lease.soon`."""

    def choose(self, holder: str) -> tuple[int, WorkerLease | None]:
        """A free worker id, and its row if it ever had one.

        Raises :class:`NoFreeWorker`.
        """
        at_once = self._held_last(holder, until__lte=self.by) or self._at_random()
        return at_once or self._by_scan(holder)

    def _held_last(self, holder: str, **limits: int) -> tuple[int, WorkerLease] | None:
        if not holder:
            return None
        who = identity_of(holder)
        had = self._free_rows().filter(Q(holder=who) | Q(holder__startswith=f"{who}:"), **limits)
        rows = had.order_by("-seen_at", "worker")[:PREVIOUS_LIMIT]
        return next(((row.worker, row) for row in rows if identity_of(row.holder) == who), None)

    def _at_random(self) -> tuple[int, WorkerLease | None] | None:
        span = self.namespace.workers
        tries = _random.sample(span, min(RANDOM_TRIES, len(span)))
        known = self._rows_of(tries)
        for worker in tries:
            row = known.get(worker)
            if worker == self.avoid or not self._is_free(row):
                continue
            if row is None or row.until <= self.by:
                return worker, row
        return None

    def _by_scan(self, holder: str) -> tuple[int, WorkerLease | None]:
        row = self._free_rows().order_by("until", "worker").first()
        if row is not None and row.until <= self.by:
            return row.worker, row
        missing = self._lowest_missing()
        if missing is not None:
            return missing, None
        if row is None:
            raise NoFreeWorker(self.namespace.name, self.namespace.workers)
        return self._held_last(holder) or (row.worker, row)

    def _lowest_missing(self) -> int | None:
        taken = self._in_range().order_by("worker").values_list("worker", flat=True)
        wanted = self.namespace.workers.start
        for worker in taken.iterator(chunk_size=2000):
            while wanted < worker:
                if wanted != self.avoid:
                    return wanted
                wanted += 1
            wanted = worker + 1
        if wanted == self.avoid:
            wanted += 1
        return wanted if wanted in self.namespace.workers else None

    def _rows_of(self, workers: list[int]) -> dict[int, WorkerLease]:
        keys = [WorkerLease.key_of(self.namespace.name, worker) for worker in workers]
        return {row.worker: row for row in self.rows.filter(pk__in=keys)}

    def _is_free(self, row: WorkerLease | None) -> bool:
        return is_free(mark_of(row, self.generation) if row else None, self.now)

    def _in_range(self) -> QuerySet[WorkerLease]:
        span = self.namespace.workers
        return self.rows.filter(worker__gte=span.start, worker__lt=span.stop)

    def _free_rows(self) -> QuerySet[WorkerLease]:
        # The rule of core.lease.is_free, in SQL.
        free = Q(token="") | Q(until__lte=self.now) | ~Q(generation=self.generation)
        rows = self._in_range().filter(free)
        return rows if self.avoid is None else rows.exclude(worker=self.avoid)

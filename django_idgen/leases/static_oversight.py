"""Looking into the worker ids that are configured on this host."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ..core.errors import NotSeenFromHere
from ..core.lease import Namespace
from ..core.survey import Sight, Survey, Tenure
from .markfile import MarkFile

__all__ = ["StaticOversight"]


class StaticOversight:
    """An :class:`Overseen` of the mark files in ``directory``. Thread-safe.

    Takes no lock, which somebody may be about to need: a mark is replaced whole. When a
    holder was seen is when its mark was written.
    """

    def __init__(
        self, namespace: Namespace, workers: range, directory: Path, now_us: Callable[[], int]
    ) -> None:
        self._space = namespace
        self._workers = workers
        self._directory = directory
        self._now_us = now_us

    def survey(self, workers: Collection[int] | None = None) -> Sequence[Survey]:
        """See :meth:`Overseen.survey`: of this host alone."""
        sights = list(self._sights(self._workers if workers is None else workers))
        now_us, place = self._now_us(), str(self._directory)
        return [Survey("static", self._space, now_us, sights, self._workers, place=place)]

    def free(self, worker: int, lease: str | None = None) -> NoReturn:  # noqa: ARG002
        """Raises :class:`NotSeenFromHere`: a lock of the kernel's can't be taken away."""
        raise NotSeenFromHere(
            f"Worker id {worker} of namespace {self._space.name!r} is configured for this host, "
            f"and held by a lock that only the end of its process frees. Stop that process."
        )

    def tenure(self, worker: int, tick: int) -> Tenure | None:
        """See :meth:`Overseen.tenure`: the last one, no more is kept."""
        if worker not in self._workers:
            return None
        mark = self._file(worker).read()
        if mark is None or not mark.start <= tick < mark.until:
            return None
        return Tenure(mark.holder, None, mark.start)

    def _sights(self, workers: Collection[int]) -> Iterable[Sight]:
        for worker in filter(workers.__contains__, self._workers):
            file = self._file(worker)
            mark = file.read()
            if mark is not None:
                yield Sight(mark, seen_us=_written_us(file.path))

    def _file(self, worker: int) -> MarkFile:
        return MarkFile(self._directory, self._space, worker)


def _written_us(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_mtime_ns // 1000
    return None

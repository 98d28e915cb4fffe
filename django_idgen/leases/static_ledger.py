"""The ledger of a namespace whose worker ids the configuration names: files of this host.

What other hosts have lent can't be seen from here. So whoever rewrites it has to know that
they have stopped, and reckons with the longest window from now on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import LeaseTaken, RegistryUnavailable
from ..core.lease import Mark, Namespace
from ..core.ledger import Change, Stored
from ..core.succession import namespace_of
from .lockfile import LockFile, file_name
from .markfile import MarkFile

__all__ = ["StaticLedger"]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one mark file says."""

    worker: int
    fingerprint: Mapping[str, Any]
    until: int


class StaticLedger:
    """The files of ``workers`` in ``directory``. A :class:`Ledger`.

    A generation of files has no number: what holds a worker id is its lock, and it is
    rewritten only while no process of this host holds any.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        workers: range,
        directory: Path,
        read_now_us: Callable[[], int],
    ) -> None:
        self.namespace = namespace
        self.workers = workers
        self.directory = directory
        self.place = f"directory {str(directory)!r}"
        self.key: tuple[str, ...] = ("static", str(directory), namespace.name)
        self._read_now_us = read_now_us

    def read(self) -> Stored | None:
        """See :meth:`Ledger.read`; its settings are others if any are."""
        try:
            kept = list(self._kept())
        except OSError as error:
            raise RegistryUnavailable(f"{self.place} can't be read: {error}.") from error
        if not kept:
            return None
        wanted = dict(self.namespace.fingerprint)
        other = next((each.fingerprint for each in kept if dict(each.fingerprint) != wanted), None)
        found = wanted if other is None else other
        highest = max(each.until for each in kept if dict(each.fingerprint) == dict(found))
        return Stored(found, 0, 0, highest, self.namespace.reach_ticks)

    def rewrite(self, change: Change) -> Stored:
        """See :meth:`Ledger.rewrite`.

        Raises :class:`LeaseTaken` while a process of this host holds one.
        """
        now_us = self._read_now_us()
        with self._locked() as locks:
            stored = self._reckoned(now_us)
            successor = change(stored, now_us)
            for worker, lock in locks.items():
                mark = Mark(worker, "", successor.fence, successor.fence, 0, "")
                lock.restart_high_water(successor.fence)
                MarkFile(self.directory, self.namespace, worker).write(mark)
        found = self.read()
        assert found is not None  # noqa: S101  # nosec B101  # it was just written
        return found

    def installation(self) -> str:
        """None: files have no such name."""
        return ""

    def entered(self) -> bool:
        """True: the files are what lends."""
        return True

    def is_whole(self) -> bool:
        """True: nobody else has any of it."""
        return True

    def enter(self) -> None:
        """Nothing to do."""

    def _reckoned(self, now_us: int) -> Stored:
        """What is stored here, and what other hosts may have lent until now."""
        stored = self.read() or Stored(self.namespace.fingerprint, 0, 0, 0, 0)
        space = namespace_of(self.namespace, stored.fingerprint)
        elsewhere = space.tick_at(now_us) + space.skew_ticks + space.reach_ticks
        return Stored(
            stored.fingerprint, 0, 0, max(stored.highest, elsewhere), self.namespace.reach_ticks
        )

    def _kept(self) -> Iterator[_Kept]:
        prefix = file_name(self.namespace, 0, "mark").removesuffix("0.mark")
        for path in sorted(self.directory.iterdir()):
            named = re.fullmatch(re.escape(prefix) + r"(\d+)\.mark", path.name)
            if named:
                yield self._parsed(path, int(named[1]))

    def _parsed(self, path: Path, worker: int) -> _Kept:
        try:
            words = json.loads(path.read_bytes())
            return _Kept(worker, dict(words["fingerprint"]), int(words["until"]))
        except (ValueError, LookupError, TypeError) as error:
            raise RegistryUnavailable(
                f"The mark file {str(path)!r} is damaged: {error}."
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[dict[int, LockFile]]:
        """All worker ids of this host, held; also those of files that are left from before."""
        locks: dict[int, LockFile] = {}
        with ExitStack() as stack:
            try:
                for worker in sorted({*self.workers, *(each.worker for each in self._kept())}):
                    lock = LockFile.take(self.directory, self.namespace, worker)
                    if lock is None:
                        raise self._held(worker)
                    stack.callback(lock.close)
                    locks[worker] = lock
                yield locks
            except OSError as error:
                raise RegistryUnavailable(
                    f"{self.place} can't be read or written: {error}."
                ) from error

    def _held(self, worker: int) -> LeaseTaken:
        path = LockFile.path_of(self.directory, self.namespace, worker)
        return LeaseTaken(
            f"Worker id {worker} of namespace {self.namespace.name!r} is held by a running "
            f"process of this host (lock file {str(path)!r}). Stop it first."
        )

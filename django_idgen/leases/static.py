"""Worker ids that the configuration names: one, or a few for the processes of one host.

For each worker id there are two files in ``directory``. The *lock file* is
``flock()``ed for the life of the lease, so that two processes of the host can't
hold one id; the kernel frees it however the process ends. The *mark file* says, as
any registry's row does, up to which tick the id was promised; it is replaced whole,
and written ahead. They are two, since replacing a locked file loses its lock.

After a SIGKILL the lock is free but the window is not: the next holder starts at
its end, which may lie up to a window ahead of the time.

Two hosts with the same worker id, or a directory that was deleted while ids were
made, can't be noticed here.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ..core.book import lost
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import (
    ConfigurationError,
    IdgenError,
    LeaseTaken,
    NoFreeWorker,
    NotSeenFromHere,
    RegistryUnavailable,
    WorkerOutOfRange,
)
from ..core.holder import identity_of
from ..core.inspection import InspectedMark, Inspection, PastLease
from ..core.lease import (
    Grant,
    Lease,
    Mark,
    Namespace,
    extend_window,
    final_mark,
    grant_window,
    new_token,
)
from ..core.ledger import Change, Ledger, Stored, namespace_of
from ..core.registry import Registry
from .book_registry import read_clock
from .worker_files import LockFile, MarkFile, file_name

__all__ = ["StaticLeases", "StaticLedger"]


class StaticLeases(Registry):
    """Lends the configured worker ids. Thread-safe; the children of a fork start anew.

    Give ``worker``, or ``workers``: consecutive ids of which each process takes a
    free one. ``directory`` must exist, be writable, on a local disk, and survive a
    restart. ``read_now_us`` gives the time in microseconds since 1970; it is the
    host's wall clock unless told.

    Raises :class:`WorkerOutOfRange` for an id that the layout can't
    hold and :class:`ConfigurationError` for anything else amiss.
    """

    kind = "static"
    needs_workers = True

    def __init__(
        self,
        namespace: Namespace,
        *,
        worker: int | None = None,
        workers: tuple[int, ...] | range | None = None,
        directory: str | os.PathLike[str],
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self.workers = self.lent = _configured(namespace, worker, workers)
        self.directory = Path(directory)
        self._clock = clock
        self._read_now_us = read_now_us or (lambda: clock.wall_ns() // 1000)
        LockFile.check_platform()
        self._held: dict[int, _Held] = {}

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`Registry.acquire`; also :class:`LeaseTaken`.

        :class:`LeaseTaken` says that the one configured worker id is
        held by another process of this host, or by another lease of this one.
        """
        with self._local() as locks, _reporting(self.directory):
            lock = self._lock_one(locks, holder, avoid)
            try:
                reading = self._read()
                mark = self._granted(lock, reading, holder, not_before)
                self._write(lock, mark)
            except BaseException:
                lock.close()
                raise
            locks[mark.worker] = lock
            return Grant(_lease(self.namespace, mark), reading)

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`Registry.renew`."""
        with self._local() as locks, _reporting(self.directory):
            mark = self._current(locks, lease)
            if mark is None:
                raise lost(lease)
            reading = self._read()
            now = self.namespace.tick_at(reading.registry_us)
            until = extend_window(self.namespace, mark, now=now, last_tick=last_tick)
            mark = replace(mark, until=until)
            self._write(locks[mark.worker], mark)
            return Grant(_lease(self.namespace, mark), reading)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`Registry.release`."""
        with self._local() as locks, _reporting(self.directory):
            mark = self._current(locks, lease)
            if mark is None:
                return False
            given_back = replace(mark, token="", until=final_mark(mark, last_tick))
            self._write(locks[mark.worker], given_back)
            # Only now: whoever locks it next must see the lowered mark.
            locks.pop(mark.worker).close()
            return True

    def renew_seen(self, *, idle_after: float) -> int:  # noqa: ARG002 - nobody else's are known
        """0: whose lock is held needs no renewal by others, and nobody else can take its id."""
        return 0

    # --- inspecting ---------------------------------------------------------

    def inspect(self, workers: Collection[int] | None = None) -> Sequence[Inspection]:
        """See :meth:`Registry.inspect`: of this host alone.

        Takes no lock, which a process may be about to need: a mark is replaced whole. When a
        holder was seen is when its mark was written.
        """
        marks = list(self._inspected(self.workers if workers is None else workers))
        now_us, place = self._read_now_us(), str(self.directory)
        return [Inspection("static", self.namespace, now_us, marks, self.workers, place=place)]

    def _inspected(self, workers: Collection[int]) -> Iterator[InspectedMark]:
        for worker in filter(workers.__contains__, self.workers):
            file = MarkFile(self.directory, self.namespace, worker)
            mark = file.read()
            if mark is not None:
                yield InspectedMark(mark, seen_us=_written_us(file.path))

    def free(self, worker: int, lease: str | None = None) -> NoReturn:  # noqa: ARG002
        """Raises :class:`NotSeenFromHere`: a lock of the kernel's can't be taken away."""
        raise NotSeenFromHere(
            f"Worker id {worker} of namespace {self.namespace.name!r} is configured for this "
            f"host, and held by a lock that only the end of its process frees. Stop that process."
        )

    def past_lease(self, worker: int, tick: int) -> PastLease | None:
        """See :meth:`Registry.past_lease`: the last one, no more is kept."""
        known = next(self._inspected([worker]), None)
        if known is None or not known.mark.start <= tick < known.mark.until:
            return None
        return known.as_lease()

    def ledgers(self) -> Sequence[Ledger]:
        """See :meth:`Registry.ledgers`: what this host has stored."""
        return [
            StaticLedger(
                self.namespace,
                workers=self.workers,
                directory=self.directory,
                read_now_us=self._read_now_us,
            )
        ]

    # --- its life -----------------------------------------------------------

    def abandon(self) -> None:
        """Close what was inherited. The lock is the parent's: closing leaves it held."""
        for pid in list(self._held):
            self._drop(pid)

    def close(self) -> None:
        """Give up the locks, as the end of the process would; windows stay promised."""
        with self._local() as locks:
            while locks:
                locks.popitem()[1].close()

    # --- inside the lock ----------------------------------------------------

    @contextmanager
    def _local(self) -> Iterator[dict[int, LockFile]]:
        # Not every fork runs Python's hooks: uWSGI's does not unless told to.
        pid = os.getpid()
        held = self._held.get(pid)
        if held is None:
            # setdefault, since two threads of a new child may come here at once.
            held = self._held.setdefault(pid, _Held())
            for other in list(self._held):
                if other != pid:
                    self._drop(other)
        with held.guard:
            yield held.locks

    def _drop(self, pid: int) -> None:
        held = self._held.pop(pid, None)
        for lock in held.locks.values() if held else ():
            lock.close()

    def _lock_one(self, locks: dict[int, LockFile], holder: str, avoid: int | None) -> LockFile:
        for worker in self._in_order(holder):
            if worker != avoid and worker not in locks:
                lock = LockFile.take(self.directory, self.namespace, worker)
                if lock is not None:
                    return lock
        if len(self.workers) > 1 or avoid in self.workers:
            raise NoFreeWorker(self.namespace.name, self.workers)
        path = LockFile.path_of(self.directory, self.namespace, self.workers[0])
        raise LeaseTaken(
            f"Worker id {self.workers[0]} of namespace {self.namespace.name!r} is held by another "
            f"lease on this host (lock file {str(path)!r}). Give each process a worker id of its "
            f"own, or configure 'workers' with as many ids as there are processes."
        )

    def _in_order(self, holder: str) -> Sequence[int]:
        if len(self.workers) == 1:
            return self.workers
        marks = (MarkFile(self.directory, self.namespace, worker) for worker in self.workers)
        holders = {mark.worker: mark.last_holder() for mark in marks}
        # Its own first, then those that nobody would come back for.
        who = identity_of(holder)
        return sorted(
            self.workers, key=lambda w: (identity_of(holders[w]) != who, holders[w] != "")
        )

    def _granted(self, lock: LockFile, reading: Reading, holder: str, not_before: int) -> Mark:
        now = self.namespace.tick_at(reading.registry_us)
        old = MarkFile(self.directory, self.namespace, lock.worker).read()
        start, until = grant_window(
            self.namespace,
            old,
            now=now,
            fence=0 if old else lock.high_water(),
            highest=self._highest(),
            not_before=not_before,
        )
        return Mark(lock.worker, new_token(), start, until, 0, holder)

    def _highest(self) -> int:
        """The end of the latest window of this host's worker ids."""
        where = self.directory, self.namespace
        return max(LockFile.written(*where, worker) for worker in self.workers)

    def _write(self, lock: LockFile, mark: Mark) -> None:
        lock.raise_high_water(mark.until)
        MarkFile(self.directory, self.namespace, mark.worker).write(mark)

    def _current(self, locks: dict[int, LockFile], lease: Lease) -> Mark | None:
        lock = locks.get(lease.worker)
        if lock is None or not lock.still_in_place():
            return None
        mark = MarkFile(self.directory, self.namespace, lease.worker).read()
        if mark is None or (mark.token, mark.start) != (lease.token, lease.start):
            return None
        return mark

    def _read(self) -> Reading:
        return read_clock(self._clock, self._read_now_us)


class _Held:
    """What one process holds."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.locks: dict[int, LockFile] = {}


def _configured(
    namespace: Namespace, worker: int | None, workers: tuple[int, ...] | range | None
) -> range:
    if (worker is None) == (workers is None):
        raise ConfigurationError(
            f"A static registry needs either 'worker' or 'workers', not worker={worker!r} and "
            f"workers={workers!r}."
        )
    ids = [worker] if workers is None else list(workers)
    for each in ids:
        if isinstance(each, bool) or not isinstance(each, int):
            raise WorkerOutOfRange(each, namespace.workers)
        namespace.check_worker(each)
    if not ids or ids != list(range(ids[0], ids[0] + len(ids))):  # type: ignore[operator, arg-type]
        raise ConfigurationError(
            f"The 'workers' of a host must be consecutive ids, such as range(12, 24), "
            f"not {workers!r}."
        )
    return range(ids[0], ids[0] + len(ids))  # type: ignore[operator, arg-type]


def _lease(namespace: Namespace, mark: Mark) -> Lease:
    return Lease(namespace.name, mark.worker, mark.token, mark.start, mark.until)


@contextmanager
def _reporting(directory: Path) -> Iterator[None]:
    try:
        yield
    except IdgenError:
        raise
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"The directory {str(directory)!r} of the static worker ids is not there "
            f"({error}). Make it, or mount it, on a disk that survives a restart."
        ) from error
    except PermissionError as error:
        raise ConfigurationError(
            f"This process' user may not write to {str(directory)!r}, where the static worker "
            f"ids keep their marks ({error}). Give the user that right."
        ) from error
    except OSError as error:
        raise RegistryUnavailable(
            f"The marks of the static worker ids in {str(directory)!r} could not be read or "
            f"written: {error}."
        ) from error


def _written_us(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_mtime_ns // 1000
    return None


# --- changing the settings ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one mark file says."""

    worker: int
    fingerprint: Mapping[str, Any]
    until: int


class StaticLedger(Ledger):
    """The files of ``workers`` in ``directory``.

    What other hosts have lent can't be seen from here. So a caller that rewrites it has to know
    that they have stopped; the longest window from now on is reckoned with.

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

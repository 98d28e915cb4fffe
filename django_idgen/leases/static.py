"""Worker ids that the configuration names: one, or a few for the processes of one host.

Each worker id has a lock file and a mark file in ``directory``. A process holds the lock
(``flock()``) for the life of its lease, so that no other process of the host can use the worker
id; the kernel frees it however the process ends. The mark says, as any registry's row does, up
to which tick the worker id was promised; it is written ahead.

After a SIGKILL the lock is free but the window is not: the next holder starts at its end, which
may lie up to a window ahead of the time.

This registry can't notice two hosts with the same worker id, or a directory that was deleted
while processes made ids.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..core import book as rules
from ..core.book import Book, Record
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import (
    ConfigurationError,
    LeaseTaken,
    NamespaceMismatch,
    NoFreeWorker,
    NotSeenFromHere,
    RegistryUnavailable,
    WorkerOutOfRange,
)
from ..core.files import NumberFile, check_platform, file_errors, file_name, replace_file
from ..core.lease import (
    PROTOCOL_VERSION,
    Grant,
    Lease,
    Mark,
    Namespace,
    identity_of,
    of_another_version,
)
from ..core.options import numbered_worker
from ..core.registry import Registry
from ..core.store import Store, read_clock
from ..core.stored import namespace_of
from .book_registry import BookRegistry
from .memory import MemoryBook, MemoryMarks

T = TypeVar("T")


class StaticLeases(BookRegistry):
    """Lends the configured worker ids. Thread-safe; the children of a fork start anew.

    Give ``worker``; or ``workers``, consecutive ids of which each process takes a free one; or
    ``worker_from``, which says where the number of the host or process is: it gets the worker id
    with that number, of ``workers`` or the layout's. ``directory`` must exist, be writable, on a
    local disk, and survive a restart. ``read_now_us`` returns the time in microseconds since
    1970, by default the host's wall clock.

    Raises :class:`WorkerOutOfRange` for a worker id that the layout has no room for, and
    :class:`ConfigurationError` for other options that can't work.
    """

    kind = "static"
    needs_workers = True
    knows_holders = False
    store: _HostStore
    held_by = Registry.held_by

    def __init__(
        self,
        namespace: Namespace,
        *,
        worker: int | None = None,
        workers: tuple[int, ...] | range | None = None,
        worker_from: str | None = None,
        directory: str | os.PathLike[str],
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        if worker_from is not None:
            if worker is not None:
                raise _one_of(worker=worker, worker_from=worker_from)
            among = namespace.workers if workers is None else _configured(namespace, None, workers)
            worker, workers = numbered_worker("worker_from", worker_from, among), None
        self.lent = _configured(namespace, worker, workers)
        check_platform("Static worker ids")
        read = read_now_us or (lambda: clock.wall_ns() // 1000)
        super().__init__(namespace, _HostStore(namespace, self.lent, Path(directory), clock, read))

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`Registry.acquire`.

        Raises :class:`LeaseTaken` if another process of this host, or another lease of this
        process, holds the one configured worker id.
        """

        def job(worker: int, book: Book) -> Grant:
            rules.free_by_hand(book, worker)  # the lock shows that its last holder has ended
            alone = replace(self.namespace, workers=range(worker, worker + 1))
            return Grant(
                rules.lend(book, alone, holder=holder, not_before=not_before), book.reading
            )

        return self.store.run_locked(job, holder, avoid)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        with self.store.held() as held:
            known = super().release(lease, last_tick=last_tick)
            if known:
                # Only now: the next process that locks it must see the lowered mark.
                held.pop(lease.worker).close()
            return known

    def renew_seen(self, *, idle_after: float) -> int:  # noqa: ARG002 - others' are not known
        """0: a lock needs no renewal, since no other process can take the worker id."""
        return 0

    def free(self, worker: int, lease: str | None = None) -> NoReturn:  # noqa: ARG002
        """Raises :class:`NotSeenFromHere`: only the kernel frees the lock of a process."""
        raise NotSeenFromHere(
            f"Worker id {worker} of namespace {self.namespace.name!r} is configured for this "
            "host, and a process holds it by a file lock. Only the end of that process frees the "
            "lock: stop it."
        )

    def close(self) -> None:
        """Give up the locks, as the end of the process would. Windows stay as they are."""
        with self.store.held() as held:
            while held:
                held.popitem()[1].close()


class FileBook(MemoryBook):
    """The marks of some worker ids of a host, read from their files.

    They have no generation: a lock holds a worker id.
    """

    server = ""
    installation = ""

    def __init__(
        self,
        namespace: Namespace,
        files: Iterable[WorkerFiles],
        reading: Reading,
        *,
        fence: int = 0,
        highest: int = 0,
    ) -> None:
        super().__init__(MemoryMarks())
        self.read_at = reading
        ours = rules.fingerprint_text(namespace.fingerprint)
        found = {}
        for file in files:
            if kept := file.mark():
                found[file] = kept[0], rules.fingerprint_text(kept[1])
        # Where files differ, the book is that of the old settings.
        text = next((each for _, each in found.values() if each != ours), ours)
        for file, (mark, each) in found.items():
            if each == text:
                self.by_worker[file.worker] = mark
                self.seen_us[file.worker] = file.written_us()
        self.stored = Record(text, 0, fence, namespace.reach_ticks, self.count(), highest)

    def record(self) -> Record:
        return self.stored

    def save_record(self, record: Record) -> None:
        self.stored = record

    def next_generation(self, after: int) -> int:  # noqa: ARG002
        return 0


class _HostStore(Store):
    """The files of a host's worker ids, and the locks of this process."""

    def __init__(
        self,
        namespace: Namespace,
        workers: range,
        directory: Path,
        clock: Clock,
        now_us: Callable[[], int],
    ) -> None:
        self.place = str(directory)
        self.described = f"directory {self.place!r}"
        self.key = ("static", self.place)
        self._namespace = namespace
        self._workers = workers
        self._directory = directory
        self._clock = clock
        self._now_us = now_us
        self._held: dict[int, _Held] = {}

    def run(self, job: Callable[[Book], T]) -> T:
        """See :meth:`Store.run`. Over the worker ids that this process holds."""
        with self.held() as held, self._reporting():
            files = [each for each in held.values() if each.still_in_place()]
            return self._save(job, FileBook(self._namespace, files, self._reading()), files)

    def run_locked(self, job: Callable[[int, Book], T], holder: str, avoid: int | None) -> T:
        """As :meth:`run`, over another worker id, which this process holds from now on."""
        with self.held() as held, self._reporting():
            file = self._lock_one(held, holder, avoid)
            try:
                fence = 0 if file.mark() else file.high_water()
                highest = max(each.peek() or 0 for each in self._files())
                book = FileBook(
                    self._namespace, [file], self._reading(), fence=fence, highest=highest
                )
                result = self._save(partial(job, file.worker), book, [file])
            except BaseException:
                file.close()
                raise
            held[file.worker] = file
            return result

    def _save(self, job: Callable[[Book], T], book: FileBook, files: Iterable[WorkerFiles]) -> T:
        before = dict(book.by_worker)
        result = job(book)
        for file in files:
            mark = book.by_worker.get(file.worker)
            if mark is not None and mark is not before.get(file.worker):
                file.save(mark, rules.parsed_fingerprint(book.stored.fingerprint))
        return result

    def run_if_there(self, job: Callable[[Book], T]) -> T | None:
        """See :meth:`Store.run_if_there`. Over all that this host has stored.

        Without a lock, which a process may need just now: marks are replaced whole.
        """
        with self._reporting():
            book = FileBook(self._namespace, self._files(), self._reading())
        rules.check_fingerprint(self._namespace, book.stored.fingerprint)
        return job(book)

    def read(self, job: Callable[[Book], T]) -> T | None:
        """See :meth:`Store.read`. Whatever the settings were, and of all worker ids."""
        with self._reporting():
            files = WorkerFiles.found(self._directory, self._namespace)
            book = FileBook(self._namespace, files, self._reading())
        return job(book) if book.by_worker else None

    def rewrite(self, job: Callable[[Book], T]) -> T:
        """See :meth:`Store.rewrite`. Raises :class:`LeaseTaken` while this host holds a lease.

        It can't see what other hosts have lent. The caller has to know that they have stopped;
        the rewrite goes past the longest window from now.
        """
        with self._reporting(), ExitStack() as stack:
            files = self._lock_all(stack)
            book = FileBook(self._namespace, files, self._reading())
            space = namespace_of(self._namespace, rules.parsed_fingerprint(book.stored.fingerprint))
            elsewhere = space.tick_at(book.reading.registry_us) + space.lead_ticks
            book.stored = replace(book.stored, highest_until=elsewhere)
            result = job(book)
            fence, fingerprint = book.stored.fence, book.stored.fingerprint
            for file in files:
                mark = Mark(file.worker, "", fence, fence)
                file.save(mark, rules.parsed_fingerprint(fingerprint), restart=True)
            return result

    def now_us(self) -> int:
        return self._now_us()

    def abandon(self) -> None:
        """In the child of a fork: close the files. The parent keeps its locks."""
        for pid in list(self._held):
            self._drop(pid)

    # --- which worker ids are held ----------------------------------------------

    @contextmanager
    def held(self) -> Iterator[dict[int, WorkerFiles]]:
        """The worker ids that this process has locked, for one thread at a time."""
        # By process id, since uWSGI forks without Python's hooks.
        pid = os.getpid()
        held = self._held.get(pid)
        if held is None:
            # setdefault, since two threads of a new child may get here at once.
            held = self._held.setdefault(pid, _Held())
            for other in list(self._held):
                if other != pid:
                    self._drop(other)
        with held.guard:
            yield held.files

    def _drop(self, pid: int) -> None:
        held = self._held.pop(pid, None)
        for file in held.files.values() if held else ():
            file.close()

    def _lock_one(self, held: Collection[int], holder: str, avoid: int | None) -> WorkerFiles:
        for file in self._in_order(holder):
            if file.worker != avoid and file.worker not in held and file.lock():
                return file
        if len(self._workers) > 1 or avoid in self._workers:
            raise NoFreeWorker(self._namespace.name, self._workers)
        raise self._taken(
            file,
            "another lease on this host",
            "Give each process a worker id of its own, or configure 'workers' with as many ids as "
            "there are processes.",
        )

    def _in_order(self, holder: str) -> list[WorkerFiles]:
        files = self._files()
        if len(files) == 1:
            return files
        holders = {file: file.last_holder() for file in files}
        # First its own, then those without a holder that may come back.
        who = identity_of(holder)
        return sorted(
            files, key=lambda file: (identity_of(holders[file]) != who, bool(holders[file]))
        )

    def _lock_all(self, stack: ExitStack) -> list[WorkerFiles]:
        """All worker ids of this host, also those of earlier settings."""
        files = {each.worker: each for each in WorkerFiles.found(self._directory, self._namespace)}
        files |= {each.worker: each for each in self._files()}
        for file in files.values():
            if not file.lock():
                raise self._taken(file, "a running process of this host", "Stop it first.")
            stack.callback(file.close)
        return list(files.values())

    def _taken(self, file: WorkerFiles, by: str, advice: str) -> LeaseTaken:
        return LeaseTaken(
            f"Worker id {file.worker} of namespace {self._namespace.name!r} is held by {by} "
            f"(lock file {str(file.path)!r}). {advice}"
        )

    # --- small things -----------------------------------------------------------

    def _files(self) -> list[WorkerFiles]:
        return [WorkerFiles(self._directory, self._namespace, each) for each in self._workers]

    def _reading(self) -> Reading:
        return read_clock(self._clock, self._now_us)

    def _reporting(self) -> AbstractContextManager[None]:
        return file_errors("the static worker ids", self._directory, RegistryUnavailable)


class _Held:
    """The locks of one process."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.files: dict[int, WorkerFiles] = {}


def _configured(
    namespace: Namespace, worker: int | None, workers: tuple[int, ...] | range | None
) -> range:
    if (worker is None) == (workers is None):
        raise _one_of(worker=worker, workers=workers)
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


def _one_of(**given: object) -> ConfigurationError:
    shown = " and ".join(f"{name}={value!r}" for name, value in given.items())
    return ConfigurationError(
        f"A static registry needs 'worker', 'workers' or 'worker_from' ('workers' may stand beside "
        f"'worker_from'), not {shown}."
    )


# --- the files ------------------------------------------------------------------------
#
# The lock file holds the end of the latest window ever lent, so that this is known even after
# somebody deleted the mark file. The mark file is JSON, replaced whole, and on the disk before
# it counts. They are two, since replacing a locked file loses its lock.

_TYPES = {
    "protocol": int,
    "namespace": str,
    "worker": int,
    "token": str,
    "start": int,
    "until": int,
    "holder": str,
    "fingerprint": dict,
}


class WorkerFiles(NumberFile):
    """The lock file and the mark file of one worker id in ``directory``.

    Every method may raise ``OSError``. Only the holder of the lock may write.
    """

    def __init__(self, directory: Path, namespace: Namespace, worker: int) -> None:
        super().__init__(directory / f"{file_name(namespace.name)}-{worker}.lock")
        self.worker = worker
        self.mark_path = self.path.with_suffix(".mark")
        self._namespace = namespace.name

    @classmethod
    def found(cls, directory: Path, namespace: Namespace) -> Iterator[WorkerFiles]:
        """The files of all worker ids that have a mark file in ``directory``."""
        prefix = re.escape(file_name(namespace.name))
        for path in sorted(directory.iterdir()):
            named = re.fullmatch(prefix + r"-(\d+)\.mark", path.name)
            if named:
                yield cls(directory, namespace, int(named[1]))

    def high_water(self) -> int:
        """The end, in ticks, of the latest window ever lent; 0 if none was. Needs the lock.

        Raises :class:`RegistryUnavailable` if the file is damaged.
        """
        if not self.is_open:
            raise RegistryUnavailable(f"The lock file {str(self.path)!r} is closed.")
        try:
            return self.read()[0]
        except ValueError as error:
            raise RegistryUnavailable(
                f"The lock file {str(self.path)!r} is damaged: it should hold a tick in 20 "
                f"digits, not {error.args[0]!r}. If no process uses worker id {self.worker}, "
                "empty the file: the mark file beside it has the same tick."
            ) from None

    def mark(self) -> tuple[Mark, dict[str, Any]] | None:
        """The mark and the fingerprint it was written with; None if there is no file.

        Needs no lock. Raises :class:`RegistryUnavailable` if the file is damaged.
        """
        try:
            text = self.mark_path.read_bytes()
        except FileNotFoundError:
            return None
        stored = self._parsed(text)
        if stored["namespace"] != self._namespace:
            raise NamespaceMismatch(
                self._namespace, "namespace", stored["namespace"], self._namespace
            )
        mark = Mark(
            self.worker, stored["token"], stored["start"], stored["until"], 0, stored["holder"]
        )
        return mark, stored["fingerprint"]

    def written_us(self) -> int:
        """When the mark was written, µs since 1970; 0 without a mark."""
        try:
            return self.mark_path.stat().st_mtime_ns // 1000
        except OSError:
            return 0

    def last_holder(self) -> str:
        """The last holder; empty if unknown. Needs no lock, and is only a hint."""
        try:
            return str(json.loads(self.mark_path.read_bytes())["holder"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def save(self, mark: Mark, fingerprint: Mapping[str, Any], *, restart: bool = False) -> None:
        """Put ``mark`` on the disk: the high water, the file and its directory entry.

        ``restart``: its ticks are those of another layout, so the high water may fall.
        """
        if restart or mark.until > self.high_water():
            self.write(mark.until)
        record = {
            "protocol": PROTOCOL_VERSION,
            "namespace": self._namespace,
            "worker": mark.worker,
            "token": mark.token,
            "start": mark.start,
            "until": mark.until,
            "holder": mark.holder,
            "fingerprint": dict(fingerprint),
        }
        replace_file(self.mark_path, record)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            stored = json.loads(text)
        except ValueError:
            raise self._damaged(f"it is not JSON: {text[:40]!r}") from None
        if not isinstance(stored, dict):
            raise self._damaged(f"it is not a JSON object: {text[:40]!r}")
        if stored.get("protocol", PROTOCOL_VERSION) != PROTOCOL_VERSION:
            what = f"The mark file {str(self.mark_path)!r}"
            raise RegistryUnavailable(of_another_version(what, stored["protocol"]))
        for key, kind in _TYPES.items():
            if not isinstance(stored.get(key), kind):
                raise self._damaged(f"{key} is {stored.get(key)!r}")
        if stored["worker"] != self.worker:
            raise self._damaged("it belongs to another worker id")
        return stored

    def _damaged(self, reason: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"The mark file {str(self.mark_path)!r} is damaged ({reason}), so it is not known "
            f"which ticks worker id {self.worker} has used. Restore it; or stop every process "
            f"that uses the worker id and delete the file: the next one then starts past every "
            f"window."
        )

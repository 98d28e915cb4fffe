"""Leases that outlive their process, in a file of the host: Leaf's weak dependency on its registry.

A process that starts again resumes the lease of its predecessor, under the same worker id, even
while the registry is down, as long as the lease's window lasts. A mark in the file, on the disk
before it counts, says which ticks the predecessor can't have used.

Each process locks a file of its own for life. It does not resume a file that was copied, moved
or put back from a backup, which the inode and the time of the last change show; the registry
then lends another lease.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..core.book import fingerprint_text, lost
from ..core.clock import SYSTEM_CLOCK, Clock, Reading
from ..core.errors import (
    ClockSkewed,
    IdgenError,
    LeaseLost,
    NoFreeWorker,
    RegistryUnavailable,
)
from ..core.files import NumberFile, check_platform, file_errors, file_name, replace_file
from ..core.inspection import Inspection
from ..core.keeper import pause_until_renewal
from ..core.lease import PROTOCOL_VERSION, Grant, Lease, Namespace, of_another_version
from ..core.loader import RepeatingThread
from ..core.options import check_seconds
from ..core.registry import Registry
from ..core.store import StoredBook

logger = logging.getLogger("django_idgen")

FILES: Final = 1024
"""Processes of a host, and namespace, at most."""


class CheckpointedLeases(Registry):
    """The leases of ``registry``, kept in files of ``directory``. Thread-safe.

    ``directory`` must exist, be writable, on a local disk, and survive a restart. Every
    ``every`` seconds the holder writes its mark, up to three times as far ahead. With
    ``skew_limit`` (seconds) a process whose clock is further off the mean of what the other
    holders reported gets no lease (:class:`ClockSkewed`), as Leaf has it.

    Raises :class:`ConfigurationError`.
    """

    kind = "checkpointed"
    nested = ("registry",)

    def __init__(
        self,
        namespace: Namespace,
        *,
        registry: Registry,
        directory: str | os.PathLike[str],
        every: float = 3.0,
        skew_limit: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_platform("Leases in files")
        short = -(-int(check_seconds("every", every, most=3600) * 3e6) // namespace.tick_us)
        # The holder renews at a third of this; the registry is asked at a third of its own.
        self.namespace = replace(namespace, window_ticks=min(namespace.window_ticks, short))
        self._asks_each_time = namespace.window_ticks <= short
        self.registry = registry
        self.database = registry.database
        self.lent = registry.lent
        self._directory = Path(directory)
        self._skew_limit = (
            None if skew_limit is None else check_seconds("skew_limit", skew_limit, most=86_400)
        )
        self._clock = clock
        self._third_ns = registry.namespace.window_ticks * namespace.tick_us * 1000 // 3
        self._name = file_name(namespace.name)
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        """By token."""
        self._thread = RepeatingThread()
        """Asks the registry, so that callers wait for the file alone."""

    # --- lending --------------------------------------------------------------

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """Resume the lease of an ended process of this host, or else acquire one."""
        with self._lock, self._reporting():
            file, kept = self._own_file(avoid)
            try:
                held = self._resumed(file, kept, not_before) if kept else None
                if held is None:
                    grant = self.registry.acquire(holder=holder, not_before=not_before, avoid=avoid)
                    held = _Held(file, grant.lease, grant.lease.start, grant.reading)
                    held.ask_at_ns = self._next_ask_ns(spread=True)
                granted = self._marked(held, held.start, held.reading)
            except BaseException:
                file.close()
                raise
            self._held[granted.lease.token] = held
        self._check_clock(granted)
        return granted

    def _resumed(self, file: _File, kept: _Kept, not_before: int) -> _Held | None:
        """The lease of an ended process, from its mark on; None if nothing is left of it."""
        lease = kept.lease
        ask_at_ns = self._next_ask_ns(spread=True)
        try:
            grant = self.registry.renew(lease, last_tick=max(kept.mark - 1, lease.start))
        except LeaseLost:
            return None
        except RegistryUnavailable as error:
            now_us = self._clock.wall_ns() // 1000
            start = max(kept.mark, not_before, self.namespace.tick_at(now_us))
            if start >= lease.until:
                raise RegistryUnavailable(
                    f"The registry of namespace {lease.namespace!r} does not answer, and the "
                    f"window of worker id {lease.worker}, which an ended process of this host "
                    f"held, is over: {error} A longer 'window' survives longer outages."
                ) from error
            logger.warning(
                "Worker id %s of namespace %r continues from its checkpoint until tick %s, "
                "without the registry: %s",
                lease.worker, lease.namespace, lease.until, error,
            )  # fmt: skip
            ask_at_ns = self._clock.elapsed_ns()
            grant = Grant(lease, Reading(now_us, ask_at_ns, ask_at_ns))
        held = _Held(file, grant.lease, max(kept.mark, not_before), grant.reading)
        held.ask_at_ns = ask_at_ns
        return held if held.start < grant.lease.until else None

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """Write the mark; a thread renews at the registry.

        Where the registry's window is no longer than the marks reach, this renews there, too.
        """
        if not self._asks_each_time:
            self._ask_from_now_on()
        with self._lock, self._reporting():
            held = self._held_by(lease)
            if held is None:
                raise lost(lease)
            if held.failure is not None:
                raise held.failure
            held.last_tick = max(held.last_tick, last_tick)
            if self._asks_each_time:
                return self._marked(held, last_tick, self._renewed(held, last_tick))
            if last_tick >= held.lease.until:
                raise RegistryUnavailable(
                    f"The window of worker id {lease.worker} of namespace {lease.namespace!r} is "
                    f"over, and the registry did not renew it."
                )
            return self._marked(held, last_tick)

    def _renewed(self, held: _Held, last_tick: int) -> Reading:
        """The registry's time at its answer."""
        grant = self.registry.renew(held.lease, last_tick=last_tick)
        held.lease, held.reading = grant.lease, grant.reading
        return held.reading

    def _ask_from_now_on(self) -> None:
        """Start the thread that renews; without one, renew in the caller's if it is time."""
        with self._lock:
            name = f"idgen-asking-{self._name}"
            self._thread.start(self.ask_in_background, pause=self._pause(), name=name)
            is_asking = self._thread.is_alive()
        if not is_asking:
            self.ask_in_background()

    def ask_in_background(self) -> float:
        """Renew at the registry if it is time; returns the seconds until the next look.

        Never raises.
        """
        now_ns = self._clock.elapsed_ns()
        with self._lock:
            due = [each for each in self._held.values() if now_ns >= each.ask_at_ns]
            for held in due:  # so that no other thread asks, too
                held.ask_at_ns = self._next_ask_ns(spread=held.is_late)
        for held in due:
            self._ask(held)
        return self._pause()

    def _pause(self) -> float:
        return self._third_ns / 30e9

    def _ask(self, held: _Held) -> None:
        lease = held.lease
        latest = max(held.last_tick, held.mark - 1, lease.start)
        try:
            grant = self.registry.renew(lease, last_tick=latest)
        except LeaseLost as error:
            held.failure = error
        except Exception as error:  # noqa: BLE001 - asked again; the window goes on meanwhile
            logger.warning(
                "The registry of namespace %r does not answer. Worker id %s can be used until "
                "tick %s: %s",
                lease.namespace, lease.worker, lease.until, error,
            )  # fmt: skip
            held.ask_at_ns = self._clock.elapsed_ns() + self._third_ns // 10
            held.is_late = True
        else:
            with self._lock:
                held.lease, held.reading = grant.lease, grant.reading
                held.is_late = False

    def _next_ask_ns(self, *, spread: bool) -> int:
        """When to renew at the registry, on the elapsed clock."""
        pause = pause_until_renewal(self._third_ns, spread=spread)
        return self._clock.elapsed_ns() + round(pause)

    def _held_by(self, lease: Lease) -> _Held | None:
        held = self._held.get(lease.token)
        if held is None:
            return None
        known = held.start, held.lease.worker, held.lease.generation
        return held if known == (lease.start, lease.worker, lease.generation) else None

    def _marked(self, held: _Held, last_tick: int, reading: Reading | None = None) -> Grant:
        """Put a mark on the disk, and lend the ticks below it."""
        if reading is None:
            elapsed, answered = self._clock.elapsed_ns(), held.reading
            now_us = answered.registry_us + (elapsed - answered.received_ns) // 1000
            reading = Reading(now_us, elapsed, elapsed)
        latest = max(self.namespace.tick_at(reading.registry_us), last_tick, held.start)
        until = min(latest + self.namespace.window_ticks, held.lease.until)
        if until > held.mark:
            held.file.save(held.lease, until)
            held.mark = until
        return Grant(replace(held.lease, start=held.start, until=held.mark), reading)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        with self._lock, self._reporting():
            held = self._held_by(lease)
            if held is None:
                return False
            held.file.save(None, 0)  # first, so that no process resumes the lease
            del self._held[lease.token]
            held.file.close()
            if not self._held:
                self._thread.stop()
                self._thread = RepeatingThread()
        # An earlier process stamped the ticks below this one's start.
        used = max(held.start - 1, -1 if last_tick is None else last_tick)
        return self.registry.release(held.lease, last_tick=used if used >= 0 else None)

    def renew_seen(self, *, idle_after: float) -> int:
        return self.registry.renew_seen(idle_after=idle_after)

    # --- files ----------------------------------------------------------------

    def _own_file(self, avoid: int | None) -> tuple[_File, _Kept | None]:
        """Lock a file, if possible one with a lease to resume, and return both."""
        name = self._name
        known = len(list(self._directory.glob(f"{name}-*.lock")))
        free: _File | None = None
        for number in range(FILES):
            if number > known and free is not None:
                break
            file = _File(self._directory / f"{name}-{number}", self.namespace)
            if not file.lock():
                continue
            try:
                kept = file.kept()
            except BaseException:
                file.close()
                if free is not None:
                    free.close()
                raise
            if kept is not None and kept.lease.worker != avoid:
                if free is not None:
                    free.close()
                return file, kept
            if free is None:
                free = file
            else:
                file.close()
        if free is None:
            raise NoFreeWorker(self.namespace.name, self.namespace.workers)
        return free, None

    def _reporting(self) -> AbstractContextManager[None]:
        return file_errors("the checkpoints", self._directory, RegistryUnavailable)

    # --- the clocks of the others -----------------------------------------------

    def _check_clock(self, grant: Grant) -> None:
        if self._skew_limit is None:
            return
        own = grant.lease.worker
        now = self.namespace.tick_at(grant.reading.registry_us)
        try:
            marks = list(self.registry.inspect().marks)
        except IdgenError:
            return  # The registry has failed since it lent: there is nothing to compare with.
        offsets = [
            seen.offset_us
            for seen in marks
            if seen.offset_us is not None
            and seen.mark.token
            and seen.mark.worker != own
            and seen.mark.until > now
        ]
        if not offsets:
            return
        mean = sum(offsets) / len(offsets) / 1e6
        ours = (self._clock.wall_ns() // 1000 - grant.reading.registry_us) / 1e6
        if abs(ours - mean) > self._skew_limit:
            self.release(grant.lease, last_tick=None)
            raise ClockSkewed(
                f"This host's clock is {ours - mean:+.3f} s off the mean of the {len(offsets)} "
                f"other holders of namespace {self.namespace.name!r}; the limit is "
                f"{self._skew_limit:g} s. Correct the clock (NTP), or raise 'skew_limit'.",
                int((ours - mean) * 1e6),
            )

    # --- what the registry does ---------------------------------------------------

    def end_of(self, lease: Lease) -> int:
        held = self._held_by(lease)
        return lease.until if held is None else held.lease.until

    def lend_on(self) -> None:
        self.registry.lend_on()

    def inspect(self, workers: Collection[int] | None = None) -> Inspection:
        return self.registry.inspect(workers)

    def free(self, worker: int, lease: str | None = None) -> bool:
        return self.registry.free(worker, lease)

    def installation(self) -> str | None:
        return self.registry.installation()

    def check_access(self) -> None:
        self.registry.check_access()

    def stored_book(self) -> StoredBook | None:
        return self.registry.stored_book()

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return self.registry.probes()

    def abandon(self) -> None:
        # The files stay locked by the parent.
        self._thread.stop()
        for held in self._held.values():
            held.file.close()
        self._start_over()
        self.registry.abandon()

    def close(self) -> None:
        """Give up the files, as the end of the process would; leases in them can be resumed."""
        with self._lock:
            self._thread.stop()
            while self._held:
                self._held.popitem()[1].file.close()
        self.registry.close()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A lease in a file; its holder stamped nothing at or past ``mark``."""

    lease: Lease
    mark: int


class _Held:
    """A lease of this process."""

    def __init__(self, file: _File, lease: Lease, start: int, reading: Reading) -> None:
        self.file = file
        self.lease = lease
        """As the registry has it."""
        self.start = start
        """The first tick of this process; an earlier one may have used those below."""
        self.mark = 0
        self.reading = reading
        """The registry's time at its last answer."""
        self.ask_at_ns = 0
        self.is_late = False
        """Whether the last renewal at the registry failed."""
        self.last_tick = -1
        self.failure: LeaseLost | None = None


class _File(NumberFile):
    """A lock, and beside it the lease and its mark as JSON, replaced whole.

    The lock file knows the JSON file's inode and time of last change, which no copy has.
    """

    def __init__(self, path: Path, namespace: Namespace) -> None:
        super().__init__(path.with_name(f"{path.name}.lock"), 2)
        self._lease_path = path.with_name(f"{path.name}.lease")
        self._fingerprint = fingerprint_text(namespace.fingerprint)

    def kept(self) -> _Kept | None:
        """The lease that may be resumed. Raises :class:`RegistryUnavailable` if damaged."""
        try:
            content = self._lease_path.read_bytes()
            place = _place_of(self._lease_path)
        except FileNotFoundError:
            return None
        try:
            found: dict[str, Any] = json.loads(content)
            if found["protocol"] != PROTOCOL_VERSION:
                what = f"The checkpoint {str(self._lease_path)!r}"
                raise RegistryUnavailable(of_another_version(what, found["protocol"]))
            kept = None if found["lease"] is None else _Kept(Lease(**found["lease"]), found["mark"])
            if kept is not None and not kept.lease.start <= kept.mark <= kept.lease.until:
                raise ValueError(f"mark {kept.mark} is outside the lease")
            host, fingerprint, known = found["host"], found["fingerprint"], self.read()
        except (ValueError, LookupError, TypeError) as error:
            raise RegistryUnavailable(
                f"The checkpoint {str(self._lease_path)!r} is damaged ({error!r}). Delete it: the "
                f"process then asks its registry, and starts past every window."
            ) from error
        if host != socket.gethostname():
            raise RegistryUnavailable(
                f"The checkpoint {str(self._lease_path)!r} belongs to another host, {host!r}: two "
                "hosts with one lease would repeat ids. Give each host a directory of its own, or "
                "delete the file if that host no longer exists."
            )
        ours = fingerprint == self._fingerprint
        # Copied, or put back: its process may have come further than it says.
        return kept if ours and known == place else None

    def save(self, lease: Lease | None, mark: int) -> None:
        """Put a lease and its mark on the disk; None: there is none to resume."""
        if not self.still_in_place():
            raise RegistryUnavailable(
                f"The lock file {str(self.path)!r} was deleted or replaced while its process "
                f"ran. Leave the directory alone; the next lease gets another file."
            )
        record = {
            "protocol": PROTOCOL_VERSION,
            "host": socket.gethostname(),
            "fingerprint": self._fingerprint,
            "lease": None if lease is None else asdict(lease),
            "mark": mark,
        }
        replace_file(self._lease_path, record)
        self.write(*_place_of(self._lease_path))


def _place_of(path: Path) -> tuple[int, int]:
    """What no copy has: the inode, and when it was last changed or moved."""
    found = os.stat(path)
    return found.st_ino, found.st_ctime_ns

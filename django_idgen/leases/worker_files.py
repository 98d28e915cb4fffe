"""The two files of a worker id that is configured on a host: its lock, and its mark.

The *lock file* is held by one process of the host, for the life of its lease. Its content is
the end of the latest window ever lent, so that a mark file that somebody deleted does not take
that knowledge with it. The *mark file* is JSON, replaced whole, and on the disk before it
counts. They are two, since replacing a locked file loses its lock.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import NamespaceMismatch, RegistryUnavailable
from ..core.files import NumberFile, file_name, sync_directory
from ..core.lease import PROTOCOL_VERSION, Mark, Namespace

__all__ = ["WorkerFiles"]

_TYPES = {
    "namespace": str,
    "worker": int,
    "token": str,
    "start": int,
    "until": int,
    "holder": str,
    "fingerprint": dict,
}


class WorkerFiles:
    """The files of one worker id in ``directory``. Every method may raise ``OSError``.

    Only the holder of the lock may write.
    """

    def __init__(self, directory: Path, namespace: Namespace, worker: int) -> None:
        self.worker = worker
        self.lock_path = directory / f"{file_name(namespace.name)}-{worker}.lock"
        self.mark_path = self.lock_path.with_suffix(".mark")
        self._namespace = namespace.name
        self._lock = NumberFile(self.lock_path)

    @classmethod
    def found(cls, directory: Path, namespace: Namespace) -> Iterator[WorkerFiles]:
        """Those of all worker ids that have a mark file in ``directory``."""
        prefix = re.escape(file_name(namespace.name))
        for path in sorted(directory.iterdir()):
            named = re.fullmatch(prefix + r"-(\d+)\.mark", path.name)
            if named:
                yield cls(directory, namespace, int(named[1]))

    # --- the lock ---------------------------------------------------------------

    def lock(self) -> bool:
        """Lock the worker id until :meth:`close`; False if a process holds it."""
        return self._lock.lock()

    def still_in_place(self) -> bool:
        """Whether the path still leads to the file that is locked."""
        return self._lock.still_in_place()

    def close(self) -> None:
        """Close the file, and leave the lock to the parent of a forked child."""
        self._lock.close()

    # --- the high water ---------------------------------------------------------

    def highest(self) -> int:
        """The end, in ticks, of the latest window ever lent; 0 if none was, or it is damaged.

        Needs no lock.
        """
        return self._lock.peek()

    def high_water(self) -> int:
        """As :meth:`highest`, of the file that is locked.

        Raises :class:`RegistryUnavailable` if it is damaged.
        """
        self._check_open()
        try:
            return self._lock.read()[0]
        except ValueError as error:
            raise RegistryUnavailable(
                f"The lock file {str(self.lock_path)!r} is damaged: it should hold a tick in 20 "
                f"digits, not {error.args[0]!r}. If no process uses worker id {self.worker}, empty "
                f"it; the mark file beside it says the same."
            ) from None

    # --- the mark ---------------------------------------------------------------

    def read(self) -> tuple[Mark, dict[str, Any]] | None:
        """The mark and the fingerprint it was written with; None if there is no file.

        Needs no lock. Raises :class:`RegistryUnavailable` if it is damaged: never a fresh start.
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
        """When the mark was written, µs since 1970; 0 if there is none."""
        try:
            return self.mark_path.stat().st_mtime_ns // 1000
        except OSError:
            return 0

    def last_holder(self) -> str:
        """Who held it last; empty if unknown. Needs no lock, and is only a hint."""
        try:
            return str(json.loads(self.mark_path.read_bytes())["holder"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def write(self, mark: Mark, fingerprint: Mapping[str, Any]) -> None:
        """Put ``mark`` on the disk: the high water, the file and its directory entry."""
        if mark.until > self.high_water():
            self._lock.write(mark.until)
        self._write_mark(mark, fingerprint)

    def restart(self, mark: Mark, fingerprint: Mapping[str, Any]) -> None:
        """As :meth:`write`, but the ticks are those of another layout than before."""
        self._check_open()
        self._lock.write(mark.until)
        self._write_mark(mark, fingerprint)

    def _write_mark(self, mark: Mark, fingerprint: Mapping[str, Any]) -> None:
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
        new = self.mark_path.with_suffix(".mark-new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.mark_path)
        sync_directory(self.mark_path.parent)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            stored = json.loads(text)
        except ValueError:
            raise self._damaged(f"it is no JSON: {text[:40]!r}") from None
        if not isinstance(stored, dict):
            raise self._damaged(f"it is no JSON object: {text[:40]!r}")
        protocol = stored.get("protocol")
        if isinstance(protocol, int) and protocol > PROTOCOL_VERSION:
            raise RegistryUnavailable(
                f"The mark file {str(self.mark_path)!r} was written by a newer django_idgen "
                f"(protocol {protocol}, this one knows {PROTOCOL_VERSION}). Upgrade this process."
            )
        for key, kind in _TYPES.items():
            if not isinstance(stored.get(key), kind):
                raise self._damaged(f"{key} is {stored.get(key)!r}")
        if stored["worker"] != self.worker:
            raise self._damaged("it is not of this worker id")
        return stored

    def _damaged(self, reason: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"The mark file {str(self.mark_path)!r} is damaged ({reason}), so it is not known "
            f"which ticks worker id {self.worker} has used. Restore it; or stop every process "
            f"that uses the worker id and delete the file: the next one then starts past every "
            f"window."
        )

    def _check_open(self) -> None:
        if not self._lock.is_open:
            raise RegistryUnavailable(f"The lock file {str(self.lock_path)!r} is closed.")

"""The two files of a worker id that is configured on a host: its lock, and its mark.

The *lock file* is held by one process of the host, for the life of its lease. Its content is
the end of the latest window ever lent, so that a mark file that somebody deleted does not take
that knowledge with it. The *mark file* is JSON, replaced whole, and on the disk before it
counts. They are two, since replacing a locked file loses its lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import ConfigurationError, NamespaceMismatch, RegistryUnavailable
from ..core.lease import PROTOCOL_VERSION, Mark, Namespace

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["WorkerFiles", "check_platform"]

_TYPES = {
    "namespace": str,
    "worker": int,
    "token": str,
    "start": int,
    "until": int,
    "holder": str,
    "fingerprint": dict,
}


def check_platform() -> None:
    """Raise :class:`ConfigurationError` where there is no ``flock()``."""
    if fcntl is None:
        raise ConfigurationError(
            "Static worker ids need flock(), which this platform lacks. Use the leases of a "
            "database instead."
        )


class WorkerFiles:
    """The files of one worker id in ``directory``. Every method may raise ``OSError``.

    Only the holder of the lock may write.
    """

    def __init__(self, directory: Path, namespace: Namespace, worker: int) -> None:
        self.worker = worker
        self.lock_path = directory / f"{_file_name(namespace)}-{worker}.lock"
        self.mark_path = self.lock_path.with_suffix(".mark")
        self._namespace = namespace.name
        self._descriptor: int | None = None

    @classmethod
    def found(cls, directory: Path, namespace: Namespace) -> Iterator[WorkerFiles]:
        """Those of all worker ids that have a mark file in ``directory``."""
        prefix = re.escape(_file_name(namespace))
        for path in sorted(directory.iterdir()):
            named = re.fullmatch(prefix + r"-(\d+)\.mark", path.name)
            if named:
                yield cls(directory, namespace, int(named[1]))

    # --- the lock ---------------------------------------------------------------

    def lock(self) -> bool:
        """Lock the worker id until :meth:`close`; False if a process holds it."""
        self._descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Deleted, or replaced, before we had it: that lock excludes no other process.
            if self.still_in_place():
                return True
        except BlockingIOError:
            pass
        except BaseException:
            self.close()
            raise
        self.close()
        return False

    def still_in_place(self) -> bool:
        """Whether the path still leads to the file that is locked."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.stat(self.lock_path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file. No LOCK_UN: that would free the lock of a forked child's parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    # --- the high water ---------------------------------------------------------

    def highest(self) -> int:
        """The end, in ticks, of the latest window ever lent; 0 if none was, or it is damaged.

        Needs no lock.
        """
        try:
            return int(self.lock_path.read_bytes())
        except (OSError, ValueError):
            return 0

    def high_water(self) -> int:
        """As :meth:`highest`, of the file that is locked.

        Raises :class:`RegistryUnavailable` if it is damaged.
        """
        content = os.pread(self._open(), 64, 0)
        if not content:
            return 0
        if not re.fullmatch(rb"\d{20}\n", content):
            raise RegistryUnavailable(
                f"The lock file {str(self.lock_path)!r} is damaged: it should hold a tick in 20 "
                f"digits, not {content!r}. If no process uses worker id {self.worker}, empty it; "
                f"the mark file beside it says the same."
            )
        return int(content)

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
            self._write_high_water(mark.until)
        self._write_mark(mark, fingerprint)

    def restart(self, mark: Mark, fingerprint: Mapping[str, Any]) -> None:
        """As :meth:`write`, but the ticks are those of another layout than before."""
        self._write_high_water(mark.until)
        self._write_mark(mark, fingerprint)

    def _write_high_water(self, tick: int) -> None:
        # Of one length, within one sector of a disk: written whole or not at all.
        os.pwrite(self._open(), b"%020d\n" % tick, 0)
        os.fsync(self._open())

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
        _sync_directory(self.mark_path.parent)

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

    def _open(self) -> int:
        if self._descriptor is None:
            raise RegistryUnavailable(f"The lock file {str(self.lock_path)!r} is closed.")
        return self._descriptor


def _file_name(namespace: Namespace) -> str:
    """A name that every file system can store, whatever the namespace is called."""
    name = namespace.name
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', name)[:40]}-{digest}"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

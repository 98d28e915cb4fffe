"""The two files of a worker id that is configured on a host: its lock, and its mark.

The *lock file* is held by one process of the host, for the life of its lease. The *mark file*
is JSON, replaced whole, and on the disk before it counts. They are two, since replacing a
locked file loses its lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from ..core.book import check_fingerprint, fingerprint_text
from ..core.errors import ConfigurationError, NamespaceMismatch, RegistryUnavailable
from ..core.lease import PROTOCOL_VERSION, Mark, Namespace

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["LockFile", "MarkFile", "file_name"]

_TYPES = {"namespace": str, "worker": int, "token": str, "start": int, "until": int, "holder": str}


def file_name(namespace: Namespace, worker: int, suffix: str) -> str:
    """A name that every file system can store, whatever the namespace is called."""
    name = namespace.name
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)[:40]}-{digest}"
    return f"{name}-{worker}.{suffix}"


class LockFile:
    """An open and locked file. Its content is the end of the latest window ever lent.

    So a mark file that somebody deleted does not take that knowledge with it.
    """

    def __init__(self, path: Path, worker: int, descriptor: int) -> None:
        self.path = path
        self.worker = worker
        self._descriptor: int | None = descriptor

    @staticmethod
    def check_platform() -> None:
        """Raise :class:`ConfigurationError` where there is no ``flock()``."""
        if fcntl is None:
            raise ConfigurationError(
                "Static worker ids need flock(), which this platform lacks. Use the leases of a "
                "database instead."
            )

    @staticmethod
    def path_of(directory: Path, namespace: Namespace, worker: int) -> Path:
        return directory / file_name(namespace, worker, "lock")

    @classmethod
    def take(cls, directory: Path, namespace: Namespace, worker: int) -> LockFile | None:
        """Lock the file of ``worker``; ``None`` if somebody holds it. Raises ``OSError``."""
        path = cls.path_of(directory, namespace, worker)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        lock = cls(path, worker, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Deleted, or replaced, before we had it: that lock excludes nobody.
            if lock.still_in_place():
                return lock
        except BlockingIOError:
            pass
        except BaseException:
            lock.close()
            raise
        lock.close()
        return None

    def still_in_place(self) -> bool:
        """Whether the path still leads to the file that is locked."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    @classmethod
    def written(cls, directory: Path, namespace: Namespace, worker: int) -> int:
        """The :meth:`high_water` of a file that another process may hold; 0 if it has none."""
        try:
            return int(cls.path_of(directory, namespace, worker).read_bytes())
        except (OSError, ValueError):
            return 0

    def high_water(self) -> int:
        """The end, in ticks, of the latest window ever lent; 0 if none was."""
        content = os.pread(self._open(), 64, 0)
        if not content:
            return 0
        if not re.fullmatch(rb"\d{20}\n", content):
            raise RegistryUnavailable(
                f"The lock file {str(self.path)!r} is damaged: it should hold a tick in 20 digits, "
                f"not {content!r}. If no process uses worker id {self.worker}, empty it; the mark "
                f"file beside it says the same."
            )
        return int(content)

    def raise_high_water(self, until: int) -> None:
        """Put ``until`` on the disk if it is the highest so far. Before it is lent."""
        if until > self.high_water():
            # Of one length, within one sector of a disk: written whole or not at all.
            os.pwrite(self._open(), b"%020d\n" % until, 0)
            os.fsync(self._open())

    def restart_high_water(self, tick: int) -> None:
        """Put ``tick`` on the disk, whatever was there: the ticks are those of another layout."""
        os.pwrite(self._open(), b"%020d\n" % tick, 0)
        os.fsync(self._open())

    def close(self) -> None:
        """Close the file. No LOCK_UN: that would free the lock of a forked child's parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor is None:
            raise RegistryUnavailable(f"The lock file {str(self.path)!r} is closed.")
        return self._descriptor


class MarkFile:
    """Reads and writes one mark. The caller holds the lock of the worker id."""

    def __init__(self, directory: Path, namespace: Namespace, worker: int) -> None:
        self.namespace = namespace
        self.worker = worker
        self.path = directory / file_name(namespace, worker, "mark")

    def read(self) -> Mark | None:
        """The mark, or ``None`` if there is no file.

        Raises :class:`NamespaceMismatch` if it was made under other settings, and
        :class:`RegistryUnavailable` if it is damaged: never a fresh start.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        stored = self._parsed(text)
        if stored["namespace"] != self.namespace.name:
            raise NamespaceMismatch(
                self.namespace.name, "namespace", stored["namespace"], self.namespace.name
            )
        check_fingerprint(self.namespace, json.dumps(stored["fingerprint"], sort_keys=True))
        return Mark(
            self.worker, stored["token"], stored["start"], stored["until"], 0, stored["holder"]
        )

    def last_holder(self) -> str:
        """Who held it last; empty if unknown. Needs no lock, and is only a hint."""
        try:
            return str(json.loads(self.path.read_bytes())["holder"])
        except (OSError, ValueError, LookupError, TypeError):
            return ""

    def write(self, mark: Mark) -> None:
        """Put ``mark`` on the disk, file and directory entry. Raises ``OSError``."""
        record = {
            "protocol": PROTOCOL_VERSION,
            "namespace": self.namespace.name,
            "worker": mark.worker,
            "token": mark.token,
            "start": mark.start,
            "until": mark.until,
            "holder": mark.holder,
            "fingerprint": json.loads(fingerprint_text(self.namespace.fingerprint)),
        }
        new = self.path.with_suffix(".mark-new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        _sync_directory(self.path.parent)

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
                f"The mark file {str(self.path)!r} was written by a newer django_idgen (protocol "
                f"{protocol}, this one knows {PROTOCOL_VERSION}). Upgrade this process."
            )
        for key, kind in _TYPES.items():
            if not isinstance(stored.get(key), kind):
                raise self._damaged(f"{key} is {stored.get(key)!r}")
        if stored["worker"] != self.worker or not isinstance(stored.get("fingerprint"), dict):
            raise self._damaged("it is not of this worker id")
        return stored

    def _damaged(self, reason: str) -> RegistryUnavailable:
        return RegistryUnavailable(
            f"The mark file {str(self.path)!r} is damaged ({reason}), so it is not known which "
            f"ticks worker id {self.worker} has used. Restore it; or stop every process that "
            f"uses the worker id and delete the file: the next one then starts past every window."
        )


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

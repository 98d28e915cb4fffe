"""The lock file of a static worker id: held, by one process of a host, for life."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from pathlib import Path

from ..core.errors import ConfigurationError, RegistryUnavailable
from ..core.lease import Namespace

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["LockFile", "file_name"]


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

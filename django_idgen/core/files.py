"""Marks in files: numbers that one process locks, and writes to the disk before they count."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from .errors import ConfigurationError, IdgenError, sentence


def check_platform(what: str) -> None:
    """Raise :class:`ConfigurationError` where there is no ``flock()``, which ``what`` need."""
    if fcntl is None:
        raise ConfigurationError(
            f"{what} need flock(), which this platform lacks. Use the database instead."
        )


@contextlib.contextmanager
def file_errors(what: str, directory: Path, unavailable: type[IdgenError]) -> Iterator[None]:
    """Translate an ``OSError`` of the block, about the files of ``what`` in ``directory``.

    Raises :class:`ConfigurationError` if the directory is missing or read-only, and
    ``unavailable`` for any other ``OSError``.
    """
    place = repr(str(directory))
    try:
        yield
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"The directory {place} of {what} does not exist ({error}). Make or mount it, on a "
            "disk that survives a restart."
        ) from error
    except PermissionError as error:
        raise ConfigurationError(
            f"The user of this process may not write to {place}, where {what} are ({error}). Give "
            "the user that right."
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigurationError(
                f"A file of {what} in {place} is a symbolic link, which may lead two processes to "
                f"one file under two names ({error}). Put the file itself there."
            ) from error
        raise unavailable(f"The files of {what} in {place} failed: {sentence(error)}") from error


def file_name(name: str) -> str:
    """A file name that every file system can store, unique for each ``name``."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', name)[:40]}-{digest}"


def sync_directory(directory: Path) -> None:
    """Put the directory's entries on the disk. May raise ``OSError``."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# A link that somebody else has put there would have us write elsewhere.
_OWN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def replace_file(path: Path, words: Mapping[str, Any]) -> None:
    """Replace ``path`` whole by ``words`` as JSON, on the disk before it counts.

    Only its owner may read it. May raise ``OSError``.
    """
    new = path.with_name(f"{path.name}-new")
    new.unlink(missing_ok=True)  # a process was killed here
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OWN, 0o600), "w") as file:
        json.dump(words, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_directory(path.parent)


class NumberFile:
    """The file ``path``, which one process locks at a time. Every method may raise ``OSError``.

    Its content is a line of ``count`` numbers of 20 digits each. The fixed length fits into one
    sector of a disk, so that a write is complete or did not happen. The kernel frees the lock
    however the process ends.
    """

    def __init__(self, path: Path, count: int = 1) -> None:
        self.path = path
        self._count = count
        self._descriptor: int | None = None

    def lock(self) -> bool:
        """Lock the file until :meth:`close`; False if another holder has it. Creates the file."""
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _OWN, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was deleted or replaced meanwhile excludes no other process.
            if self.still_in_place():
                return True
        except BlockingIOError:
            pass
        except BaseException:
            self.close()
            raise
        self.close()
        return False

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def still_in_place(self) -> bool:
        """Whether the path still leads to the locked file."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def peek(self) -> int | None:
        """The first number, 0 if it is new; None if it can't be read. Needs no lock."""
        try:
            content = self.path.read_bytes()
            return int(content.split()[0]) if content else 0
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, IndexError):
            return None

    def read(self) -> tuple[int, ...]:
        """The numbers in the locked file; all 0 if it is new.

        Raises ``ValueError`` with the content if that is not numbers.
        """
        content = os.pread(self._open(), 256, 0)
        if not content:
            return (0,) * self._count
        if not re.fullmatch(rb"\d{20}( \d{20}){%d}\n" % (self._count - 1), content):
            raise ValueError(content)
        return tuple(map(int, content.split()))

    def write(self, *numbers: int) -> None:
        """Put ``numbers`` on the disk. Needs the lock."""
        line = b" ".join(b"%020d" % each for each in numbers) + b"\n"
        written = os.pwrite(self._open(), line, 0)
        if written != len(line):
            raise OSError(errno.ENOSPC, f"{written} of {len(line)} bytes were written", self.path)
        os.fsync(self._open())

    def close(self) -> None:
        """Close the file. No LOCK_UN: that would free the lock of a forked child's parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def unlock(self) -> None:
        """Free the lock, even if a forked child has the file open, and close it."""
        fcntl.flock(self._open(), fcntl.LOCK_UN)
        self.close()

    def _open(self) -> int:
        if self._descriptor is None:
            raise OSError(f"{str(self.path)!r} is closed")
        return self._descriptor

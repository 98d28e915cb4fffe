"""The marks of a SQLite database: a file of its own beside it, ``<NAME>-idgen``.

SQLite has one writer. While the caller's transaction writes, nobody else can, and
a grant written inside that transaction would be undone by its rollback while the
ids are in use. So the marks live in a second file, where the caller's transaction
neither blocks a grant nor can take it back.

The file is tied to the database by the installation's identity, which stands in
both. Where the file is new, or belongs to another database, what the database
still knows (:class:`Seed`) is taken over, with a distance: the database's rows
are a mirror and may lag.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from ...core.errors import IdgenError
from ...core.lease import PROTOCOL_VERSION
from .marks_seed import (
    Seed,
    identity_of,
    make_tables,
    merge_namespaces,
    merge_segments,
    snapshot_of,
)

__all__ = ["MarksError", "MarksFile", "MarksLost", "Seed"]

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds that another process may keep the file locked."""
ADOPTIONS = 3
"""How often in a row the file may be found replaced before we give up."""


class MarksError(IdgenError):
    """The marks file can't be read or written; ``path`` is the file."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"The id marks in {str(path)!r} can't be used: {reason}")


class MarksLost(Exception):
    """Raised by a job that finds rows missing: the file is seeded, and the job run again."""


class MarksFile:
    """Runs jobs on the marks file, one transaction each.

    ``seed`` is asked what the database knows when this object first uses the file
    and when the file was replaced or rows are missing; it is called in the calling
    thread, without any lock of ours held. Thread-safe, and safe across a fork: no
    connection outlives a job, and no fork happens during one.
    A new file gets the owner and the mode of ``like``, where that is permitted.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        seed: Callable[[], Seed] | None = None,
        *,
        like: Path | None = None,
    ) -> None:
        self.path = Path(path)
        self._like = like
        self._seed = seed
        self._identity: str | None = None

    def run(self, job: Callable[[sqlite3.Connection], T], *, compared: bool = False) -> T:
        """Return ``job(connection)``, committed; if it raises, nothing was changed.

        With ``compared`` the database is asked first whether it knows of later marks, as
        it does where the file was put back from a copy under a living process. The job
        must not keep the connection. Raises :class:`MarksError`: the job may then be
        done, and its outcome counts as lost.
        """
        if compared or self._identity is None:
            self._adopt(rows_missing=False)
        for _ in range(ADOPTIONS):
            try:
                return self._transact(lambda db: job(self._checked(db)))
            except MarksLost:
                # Rolled back with nothing granted: going on repeats nothing.
                self._adopt(rows_missing=True)
        raise MarksError(self.path, "the file, or rows of it, are removed again and again.")

    def snapshot(self) -> Seed:
        """What the database should know of the marks: for its mirror."""
        return self.run(snapshot_of)

    # --- identity and seeding ----------------------------------------------

    def _checked(self, db: sqlite3.Connection) -> sqlite3.Connection:
        if identity_of(db) != self._identity:
            raise MarksLost
        return db

    def _adopt(self, *, rows_missing: bool) -> None:
        # Asked before the file is locked: the database may be locked by somebody
        # who waits for this very file.
        seed = self._seed() if self._seed else Seed()
        self._identity = self._transact(lambda db: self._take_over(db, seed, rows_missing))

    def _take_over(self, db: sqlite3.Connection, seed: Seed, rows_missing: bool) -> str:
        found = identity_of(db)
        if found is None:
            self._check_readable(seed)
            make_tables(db, seed.identity or token_hex(16))
        foreign = seed.identity is not None and found != seed.identity
        if foreign:
            db.execute("UPDATE installation SET identity = ?", (seed.identity,))
        merge_segments(db, seed, anyway=foreign or rows_missing)
        merge_namespaces(db, seed, anyway=foreign)
        self._check_protocol(db)
        return str(identity_of(db))

    def _check_readable(self, seed: Seed) -> None:
        if not seed.readable:
            raise MarksError(
                self.path,
                "the file is new, and the database beside it could not be asked what it knows "
                "of earlier ids. See that it isn't locked, and try again.",
            )

    def _check_protocol(self, db: sqlite3.Connection) -> None:
        (protocol,) = db.execute("SELECT protocol FROM installation").fetchone()
        if protocol > PROTOCOL_VERSION:
            raise MarksError(
                self.path,
                f"they were written by a newer django_idgen (protocol {protocol}, this one "
                f"knows {PROTOCOL_VERSION}). Upgrade this process.",
            )

    # --- transactions -------------------------------------------------------

    def _transact(self, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with _gate(self.path), closing(self._connect()) as db:
                # FULL, and the removal of the journal too: a grant survives a power cut.
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("BEGIN IMMEDIATE")
                # Closing without a commit rolls back.
                result = job(db)
                db.execute("COMMIT")
                return result
        except sqlite3.Error as error:
            raise MarksError(self.path, _reason(self.path, error)) from error

    def _connect(self) -> sqlite3.Connection:
        if self._like is not None and not self.path.exists():
            self._make_like(self._like)
        return sqlite3.connect(self.path, timeout=BUSY_TIMEOUT, isolation_level=None)

    def _make_like(self, database: Path) -> None:
        # As SQLite does with its own files beside it: marks that were made by
        # "sudo manage.py migrate" must not lock the site's user out.
        with suppress(OSError):
            like = database.stat()
            self.path.touch(like.st_mode & 0o666)
            self.path.chmod(like.st_mode & 0o666)
            os.chown(self.path, like.st_uid, like.st_gid)


# One at a time in this process: SQLite's own waiting polls, and a fork during a
# job would leave the child with SQLite's memory of a lock that nobody gives back.
_turn = threading.Lock()
_forking = threading.local()


@contextmanager
def _gate(path: Path) -> Iterator[None]:
    turn = _turn
    if not turn.acquire(timeout=2 * BUSY_TIMEOUT):
        raise MarksError(path, "other threads of this process have used them for too long.")
    try:
        yield
    finally:
        turn.release()


def _before_fork() -> None:
    _forking.holds = _turn.acquire(timeout=BUSY_TIMEOUT)


def _after_fork_in_parent() -> None:
    if _forking.__dict__.pop("holds", False):
        _turn.release()


def _after_fork_in_child() -> None:
    global _turn
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


_REASONS = {
    "SQLITE_BUSY": "another process has kept the file locked for {timeout:g} s. Look for one "
    "that was stopped, or that has the file open in a database shell.",
    "SQLITE_CANTOPEN": "the file can't be opened. Its directory must exist, and this "
    "process' user must be able to write to it.",
    "SQLITE_READONLY": "this process' user may not write to the file or to its directory, "
    "where SQLite keeps a journal. Give the user both rights.",
    "SQLITE_NOTADB": "the file is not a SQLite database. Move it away: a new one takes over "
    "what the database knows, and leaves a gap.",
    "SQLITE_CORRUPT": "the file is damaged. Move it away: a new one takes over what the "
    "database knows, and leaves a gap.",
    "SQLITE_FULL": "the disk is full. Free some space.",
}


def _reason(path: Path, error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "") or ""
    for prefix, reason in _REASONS.items():
        if name.startswith(prefix):
            return reason.format(timeout=BUSY_TIMEOUT)
    if path.is_dir():
        return "it is a directory. Move it away."
    return f"SQLite says: {error}."

"""The file beside a SQLite database, ``<NAME>-idgen``, in which our tables stand.

SQLite has one writer. While the caller's transaction writes, no other connection can, and a
grant that is written inside that transaction comes back with its rollback while its ids are
in use. So our tables stand in a second file: the caller's transaction neither blocks a grant
nor takes it back. :class:`FileConnection` opens the file; the same code as on a server runs on it.

The database and the file know each other by the installation's identity. The file has a *life*,
which stands in for a server's identity: a new one begins where the file was lost, replaced, or
copied, or belongs to another database. What was granted in an earlier life is then skipped, as
after the failover of a server.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from os import PathLike, fspath
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qs, unquote

from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.models.signals import post_migrate

from ..core.clock import SYSTEM_CLOCK
from .forking import no_fork

__all__ = [
    "BUSY_TIMEOUT",
    "LIFE_SQL",
    "SUFFIX",
    "FileConnection",
    "FileUnusable",
    "database_of",
    "file_beside",
    "file_of",
    "is_test_database",
    "reason_of",
    "remove_leftovers",
    "tie",
    "watch",
]

logger = logging.getLogger("django_idgen")

SUFFIX = "-idgen"
"""What the file's name has after that of its database."""
BUSY_TIMEOUT = 4.0
"""Seconds that another process may keep the file locked."""
PATIENCE = 0.2
"""Seconds to wait for the database before a new file is begun."""
LATE = 2.0
"""Seconds between the last statement that wrote and the end of its commit, at the most."""
LOST_STEP = 100_000
"""What the longest fetch is taken for where the file that said so is lost."""
LIFE_SQL = "(SELECT life FROM django_idgen_file)"
"""The file's life, as an SQL expression."""
ANOTHER_LIFE = "another life"
"""Stands for a life that is not known any more."""
_OPTIONS = {
    "timeout": BUSY_TIMEOUT,
    # A transaction that reads first must not find that another one wrote meanwhile.
    "transaction_mode": "IMMEDIATE",
}
_MADE = (
    "CREATE TABLE IF NOT EXISTS django_idgen_file (key INTEGER PRIMARY KEY CHECK (key = 1), "
    "life TEXT NOT NULL, inode INTEGER NOT NULL, written REAL NOT NULL)"
)
_WRITTEN = "(julianday('now') - 2440587.5) * 86400.0"
_TIE = (
    "CREATE TABLE IF NOT EXISTS django_idgen_identity "
    "(key INTEGER PRIMARY KEY CHECK (key = 1), identity TEXT NOT NULL)"
)


class FileUnusable(OperationalError):
    """The file can't be used; the text says which and why."""


def file_of(name: str | PathLike[str] | None) -> Path | None:
    """The database's file, as SQLite itself would find it; ``None`` if it has none.

    Symbolic links are followed: two releases of a site, each with a link to the one
    database, must find the same file beside it.
    """
    text = fspath(name or "")
    query = ""
    if text.startswith("file:"):
        text, _, query = text.removeprefix("file:").partition("#")[0].partition("?")
        if text.startswith("//"):
            text = "/" + text[2:].partition("/")[2]
        text = unquote(text)
    if text in {"", ":memory:"} or "memory" in parse_qs(query).get("mode", ()):
        return None
    return Path(os.path.realpath(text))


def file_beside(database: Path) -> Path:
    """Where the file of ``database`` is."""
    return database.with_name(database.name + SUFFIX)


def database_of(alias: str) -> Path | None:
    """The file of the database ``alias``; ``None`` if it is no SQLite database in a file."""
    if connections[alias].vendor != "sqlite":
        return None
    return file_of(connections.settings[alias]["NAME"])


class FileConnection(DatabaseWrapper):
    """A connection to the file beside ``database``, which it makes where there is none.

    ``alias`` is the name under which ``connections`` has it; ``configured``: the settings of
    the database. Raises :class:`FileUnusable` when it connects.
    """

    def __init__(self, alias: str, configured: dict[str, Any], database: Path) -> None:
        self.database = database
        self.pid = os.getpid()
        self._opened = 0
        self.path = file_beside(database)
        own = {
            **configured,
            "NAME": str(self.path),
            "OPTIONS": _OPTIONS,
            "AUTOCOMMIT": True,
            "ATOMIC_REQUESTS": False,
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": False,
        }
        super().__init__(own, alias)

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        return {**params, "uri": False}  # the path may begin with "file:"

    def connect(self) -> None:
        with no_fork():
            try:
                self._touch()
                super().connect()
                with self.wrap_database_errors:
                    self._look_into()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        with no_fork():
            super().close()

    def drop(self) -> None:
        """Close it for good; in a forked child leave the parent's alone. Never fails."""
        if self.connection is not None and self.pid == os.getpid():
            self.connection.close()
            self.connection = None

    def __del__(self) -> None:
        # ``connections.all()`` doesn't have it, so Django does not close it when its thread ends.
        self.drop()

    def is_made(self) -> bool:
        """Whether the file is there: to connect is to make it."""
        return self.connection is not None or (self.path.exists() and self.path.stat().st_size > 0)

    def refresh(self) -> None:
        """Close it if the path leads to another file than the one that is open."""
        if self.connection is not None and self._inode() != self._opened:
            self.close()

    def _touch(self) -> None:
        # As SQLite does with its own files beside it: a file that was made by
        # "sudo manage.py migrate" must not lock the site's user out.
        if not self.path.exists():
            with suppress(OSError):
                like = self.database.stat()
                self.path.touch(like.st_mode & 0o666)
                self.path.chmod(like.st_mode & 0o666)
                os.chown(self.path, like.st_uid, like.st_gid)

    def _inode(self) -> int:
        try:
            return self.path.stat().st_ino
        except OSError:
            return 0

    # --- whose it is, and whether it is the last that was written -----------------------

    def _look_into(self) -> None:
        self._opened = self._inode()
        # Past FULL, the removal of the journal too: a grant survives a power cut.
        self.connection.execute("PRAGMA synchronous = EXTRA")
        tied, why = self._identity_in_database()
        found = self._found() or self._found_in_original()
        if found is None and why:
            raise FileUnusable(
                f"The id file {str(self.path)!r} is new, and what the database knows of earlier "
                f"ids can't be read: {why}. Try again when {str(self.database)!r} "
                f"is not locked."
            )
        if found is None or self._is_another(found, tied):
            with transaction.atomic(using=self.alias):
                found = self._found()
                if found is None:
                    self._begin(tied)
                elif self._is_another(found, tied):
                    self._begin_again(found, tied)

    def _identity_in_database(self) -> tuple[str | None, str]:
        """The identity that the database has, if it has one; and why it can't be read."""
        if not self.database.exists():
            return None, ""
        uri = f"{self.database.as_uri()}?mode=rw"
        patience = PATIENCE if self.path.stat().st_size == 0 else 0.0
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=patience)) as db:
                row = db.execute("SELECT identity FROM django_idgen_identity").fetchone()
        except sqlite3.Error as error:
            return None, str(error) if _is_busy(error) else ""
        return (None, "") if row is None else (str(row[0]), "")

    def _found(self) -> tuple[str | None, int, float] | None:
        """The file's identity, its inode and when it was last written, as it says itself."""
        try:
            # Not through Django's cursor, of which a test that counts queries would know.
            found = self.connection.execute(
                "SELECT (SELECT identity FROM django_idgen_installation), inode, written "
                "FROM django_idgen_file"
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
        return next(iter(found), None)

    def _found_in_original(self) -> tuple[str | None, int, float] | None:
        """Begin with what the file of a test database knows, of which a runner made a copy."""
        original = _original_of(self.database)
        if original is None or not file_beside(original).exists():
            return None
        with closing(sqlite3.connect(file_beside(original))) as known:
            known.backup(self.connection)
        ours = f"UPDATE django_idgen_file SET inode = ?, written = {_WRITTEN}"  # noqa: S608
        self.connection.execute(ours, [self._opened])
        return self._found()

    def _is_another(self, found: tuple[str | None, int, float], tied: str | None) -> bool:
        identity, inode, written = found
        if tied is not None and identity not in (None, tied):
            return True
        return inode != self._opened or self._was_written_over(written)

    def _was_written_over(self, written: float) -> bool:
        """Whether the file's own last write is older than the file system's: a copy's is."""
        found = self.path.stat()
        # What keeps the time of writing, as "cp -p" does, changes the inode later still.
        late = max(found.st_mtime, found.st_ctime) - written
        if late <= LATE:
            return False
        # Perhaps the file system is another host's, with a clock of its own.
        return late - self._clock_offset() > LATE

    def _clock_offset(self) -> float:
        """How far the file system's clock is ahead of this host's, in seconds."""
        with transaction.atomic(using=self.alias), self.cursor() as cursor:
            cursor.execute("UPDATE django_idgen_file SET inode = inode + 1")
            transaction.set_rollback(True, using=self.alias)
            try:
                journal = self.path.with_name(self.path.name + "-journal").stat()
            except OSError:
                return 0.0
            return journal.st_mtime - SYSTEM_CLOCK.wall_ns() / 1e9

    def _begin(self, tied: str | None) -> None:
        """Make the tables; with a database that had a file before, suppose its loss."""
        from .tables import make_missing_tables

        make_missing_tables(self)
        if tied is not None:
            logger.warning(
                "The id file %r is new, but its database had one before. What that knew is lost: "
                "tags go on a distance above the rows of their tables.",
                str(self.path),
            )
        with self.cursor() as cursor:
            cursor.execute(_MADE)
            if tied is not None:
                cursor.execute(
                    "UPDATE django_idgen_installation SET identity = %s, namespaces = %s, "
                    "server = %s, largest_step = max(largest_step, %s)",
                    [tied, json.dumps({"": {}}), ANOTHER_LIFE, LOST_STEP],
                )
            cursor.execute(
                f"INSERT OR REPLACE INTO django_idgen_file VALUES (1, %s, %s, {_WRITTEN})",  # noqa: S608 - constants
                [token_hex(8), self._opened],
            )
            for table in self.introspection.table_names(cursor):
                for event in ("INSERT", "UPDATE", "DELETE") if _is_ours(table) else ():
                    cursor.execute(
                        f"CREATE TRIGGER IF NOT EXISTS {table}_{event} AFTER {event} ON {table} "  # noqa: S608
                        f"BEGIN UPDATE django_idgen_file SET written = {_WRITTEN}; END"
                    )

    def _begin_again(self, found: tuple[str | None, int, float], tied: str | None) -> None:
        """Begin a new life of a file that knows less, or other ids, than was granted."""
        logger.warning(
            "The id file %r was copied, replaced, or is another database's. What was granted "
            "meanwhile is not known: ids go on at a distance.",
            str(self.path),
        )
        with self.cursor() as cursor:
            cursor.execute(
                f"UPDATE django_idgen_file SET life = %s, inode = %s, written = {_WRITTEN}",  # noqa: S608
                [token_hex(8), self._opened],
            )
            if tied is not None and found[0] not in (None, tied):
                cursor.execute(
                    "UPDATE django_idgen_installation SET identity = %s, namespaces = %s",
                    [tied, json.dumps({"": {}})],
                )
                cursor.execute("UPDATE leaf_alloc SET server = %s", [ANOTHER_LIFE])


def _is_ours(table: str) -> bool:
    return table != "django_idgen_file" and table.startswith(("leaf_alloc", "django_idgen_"))


def tie(connection: BaseDatabaseWrapper, identity: str) -> None:
    """Have the database of ``connection`` know which installation's file belongs to it."""
    with connection.cursor() as cursor:
        cursor.execute(_TIE)
        cursor.execute("INSERT OR IGNORE INTO django_idgen_identity VALUES (1, %s)", [identity])


# --- why it can't be used ---------------------------------------------------------------


_REASONS = {
    "SQLITE_BUSY": "another process has kept the file locked for {timeout:g} s. Look for one "
    "that was stopped, or that has the file open in a database shell.",
    "SQLITE_CANTOPEN": "the file can't be opened. Its directory must exist, and this "
    "process' user must be able to write to it.",
    "SQLITE_READONLY": "this process' user may not write to the file or to its directory, "
    "where SQLite keeps a journal. Give the user both rights.",
    "SQLITE_NOTADB": "the file is not a SQLite database. Move it away: a new one begins above "
    "the rows that are there, and leaves a gap.",
    "SQLITE_CORRUPT": "the file is damaged. Move it away: a new one begins above "
    "the rows that are there, and leaves a gap.",
    "SQLITE_FULL": "the disk is full. Free some space.",
}


def reason_of(error: BaseException, database: Path) -> str:
    """What is wrong with the file beside ``database``, as ``error`` says, and the way out."""
    if isinstance(error, FileUnusable):
        return str(error)
    path = file_beside(database)
    name = getattr(error.__cause__, "sqlite_errorname", "") or ""
    found = [reason for prefix, reason in _REASONS.items() if name.startswith(prefix)]
    if path.is_dir():
        found = ["it is a directory. Move it away."]
    reason = found[0].format(timeout=BUSY_TIMEOUT) if found else f"SQLite says: {error}."
    return f"The id file {str(path)!r} can't be used: {reason}"


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


# --- what a dropped test database leaves --------------------------------------------------


_configured: dict[str, str] = {}
_test_databases: set[Path] = set()


def watch() -> None:
    """See to the files of test databases (called when the app is ready)."""
    for alias in connections.settings:
        _configured[alias] = _name(alias)
    post_migrate.connect(_on_migrated, dispatch_uid="django_idgen.sqlite")
    atexit.register(remove_leftovers)


def is_test_database(alias: str) -> bool:
    """Whether a test runner has put a database of its own in the place of the configured one."""
    return alias in _configured and _configured[alias] != _name(alias)


def _on_migrated(*, using: str = DEFAULT_DB_ALIAS, **_kwargs: Any) -> None:
    if is_test_database(using) and (database := database_of(using)):
        _test_databases.add(database)


def remove_leftovers() -> None:
    """Remove the files of test databases that are gone, copies for parallel runs too."""
    for database in _test_databases:
        for path in _files_of_copies(database):
            if not path.with_name(path.name.removesuffix(SUFFIX)).exists():
                with suppress(OSError):
                    path.unlink()


def _files_of_copies(database: Path) -> Iterator[Path]:
    with suppress(OSError):
        for path in database.parent.iterdir():
            beside = path.name.endswith(SUFFIX)
            if beside and _is_copy(path.with_name(path.name.removesuffix(SUFFIX)), database):
                yield path


def _is_copy(path: Path, database: Path) -> bool:
    # Django calls the copies test_1.sqlite3, test_2.sqlite3 and so on.
    stem, extension = os.path.splitext(database.name)
    pattern = re.escape(stem) + r"(_\d+)?" + re.escape(extension)
    return path.parent == database.parent and bool(re.fullmatch(pattern, path.name))


def _original_of(path: Path) -> Path | None:
    """The test database of which a runner made ``path`` for one of its parallel processes."""
    copied = [each for each in _test_databases if path != each and _is_copy(path, each)]
    return next(iter(copied), None)


def _name(alias: str) -> str:
    return str(connections.settings[alias].get("NAME") or "")

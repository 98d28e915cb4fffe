"""The file beside a SQLite database, ``<NAME>-idgen``, that holds our tables.

SQLite has one writer. While the caller's transaction writes, no other connection can; and a
rollback returns a grant that was written inside that transaction, while its ids are in use. So our
tables are in a second file: the caller's transaction neither blocks a grant nor takes it back.
:class:`FileConnection` opens the file, and the same code as on a server runs on it.

The database and the file both store the installation's identity. The file has a *life*, which
takes the place of a server's identity. A new life begins when the file was lost, replaced or
copied, or belongs to another database. Ids that an earlier life may have granted are then
skipped, as after the failover of a server.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
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
from ..core.errors import ConfigurationError, sentence

logger = logging.getLogger("django_idgen")

SUFFIX = "-idgen"
"""What the file's name adds to that of its database."""
BUSY_TIMEOUT = 4.0
"""Seconds to wait for another process that has locked the file."""
PATIENCE = 0.2
"""Seconds to wait for the database before a new file is made."""
LATE = 2.0
"""Seconds between the last statement that wrote and the end of its commit, at the most."""
LOST_STEP = 100_000
"""The length that the longest fetch is assumed to have had when the file is lost."""
LIFE_SQL = "(SELECT life FROM django_idgen_file)"
"""The file's life, as an SQL expression."""
ANOTHER_LIFE = "another life"
"""Stands for a life that is no longer known."""
_OPTIONS = {
    "timeout": BUSY_TIMEOUT,
    # A transaction that reads first must not fail because another one has written since.
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
    """The file can't be used. The message says which file, and why."""


def file_of(name: str | PathLike[str] | None) -> Path | None:
    """The file of the database ``name``, as SQLite finds it; ``None`` for one in memory.

    Follows symbolic links: two releases of a site that each link to one database must find the
    same file beside it.
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
    """The path of our file beside ``database``."""
    return database.with_name(database.name + SUFFIX)


def database_of(alias: str) -> Path | None:
    """The SQLite file of the database ``alias``; ``None`` for any other database."""
    if connections[alias].vendor != "sqlite":
        return None
    return file_of(connections.settings[alias]["NAME"])


def refuse_sqlite(alias: str) -> None:
    """Raises :class:`ConfigurationError` for SQLite, whose marks are in a file of one host."""
    if connections[alias].vendor == "sqlite":
        raise ConfigurationError(
            f"Database {alias!r} is SQLite, which can't share its tags: only PostgreSQL, MariaDB "
            "and MySQL can."
        )


class FileConnection(DatabaseWrapper):
    """A connection to the file beside ``database``. Connecting makes a missing file.

    ``alias``: its name in ``connections``. ``configured``: the settings of the database.
    Connecting raises :class:`FileUnusable`.
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

    def get_new_connection(self, conn_params: dict[str, Any]) -> sqlite3.Connection:
        made: list[sqlite3.Connection] = []

        def connection(*args: Any, **options: Any) -> sqlite3.Connection:
            made.append(sqlite3.Connection(*args, **options))
            return made[0]

        try:
            found: sqlite3.Connection = super().get_new_connection(
                {**conn_params, "factory": connection}
            )
            return found
        except BaseException:
            # Django forgets it where a command that it begins with fails.
            for forgotten in made:
                forgotten.close()
            raise

    def connect(self) -> None:
        with no_fork():
            try:
                self._touch()
                super().connect()
                with self.wrap_database_errors:
                    self._check_file()
            except BaseException:
                self.close()
                raise

    def wait_for_writers(self, seconds: float) -> None:
        """From now on a transaction waits up to ``seconds`` for one of another process to end."""
        self.ensure_connection()
        # Not through Django's cursor: a test may count queries.
        self.connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def close(self) -> None:
        with no_fork():
            super().close()

    def drop(self) -> None:
        """Close it for good. A forked child leaves the parent's connection open. Never raises."""
        if self.connection is not None and self.pid == os.getpid():
            self.connection.close()
            self.connection = None

    def __del__(self) -> None:
        # Django closes only what ``connections.all()`` has when a thread ends.
        self.drop()

    def is_made(self) -> bool:
        """Whether the file exists."""
        return self.connection is not None or (self.path.exists() and self.path.stat().st_size > 0)

    def refresh(self) -> None:
        """Close it if the path now leads to another file."""
        if self.connection is not None and self._inode() != self._opened:
            self.close()

    def _touch(self) -> None:
        # SQLite does the same with its journal: a file that "sudo manage.py migrate" made
        # must not lock the site's user out.
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

    # --- whether it belongs to the database and is up to date ---------------------------

    def _check_file(self) -> None:
        self._opened = self._inode()
        # EXTRA also syncs the removal of the journal: a grant survives a power cut.
        self.connection.execute("PRAGMA synchronous = EXTRA")
        tied, why = self._identity_in_database()
        found = self._found() or self._found_in_original()
        if found is None and why:
            raise FileUnusable(
                f"The id file {str(self.path)!r} is new, and the database can't be read for "
                f"earlier ids: {why}. Try again when {str(self.database)!r} is not locked."
            )
        if found is None or self._is_another(found, tied):
            with transaction.atomic(using=self.alias):
                found = self._found()
                if found is None:
                    self._make_tables(tied)
                elif self._is_another(found, tied):
                    self._begin_new_life(found, tied)

    def _identity_in_database(self) -> tuple[str | None, str]:
        """The identity that the database stores, or None; and why it can't be read, or ""."""
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
        """The identity, inode and time of the last write that the file stores about itself."""
        try:
            # Not through Django's cursor: a test may count queries.
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
        """Start as a copy of the original's file where a test runner copied the database."""
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
        """Whether the file system wrote the file later than we did, as it does with a copy."""
        found = self.path.stat()
        # "cp -p" keeps the time of writing, but changes the inode later.
        late = max(found.st_mtime, found.st_ctime) - written
        if late <= LATE:
            return False
        # The file system may be on another host, which has its own clock.
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

    def _make_tables(self, tied: str | None) -> None:
        """Make the tables. Assume a loss if the database had a file before."""
        from ..core.stored import LOST_NAMES
        from .tables import make_missing_tables

        with self.cursor() as cursor:
            # First, since the installation's row tells the life that it was made in.
            cursor.execute(_MADE)
            cursor.execute(
                f"INSERT OR REPLACE INTO django_idgen_file VALUES (1, %s, %s, {_WRITTEN})",  # noqa: S608 - constants
                [token_hex(8), self._opened],
            )
        make_missing_tables(self)
        if tied is not None:
            logger.warning(
                "The id file %r is new, but its database had another one before, which is lost. "
                "Tags continue a distance above the rows of their tables.",
                str(self.path),
            )
        with self.cursor() as cursor:
            if tied is not None:
                cursor.execute(
                    "UPDATE django_idgen_installation SET identity = %s, namespaces = %s, "
                    "server = %s, largest_step = max(largest_step, %s)",
                    [tied, LOST_NAMES, ANOTHER_LIFE, LOST_STEP],
                )
            for table in self.introspection.table_names(cursor):
                for event in ("INSERT", "UPDATE", "DELETE") if _is_ours(table) else ():
                    cursor.execute(
                        f"CREATE TRIGGER IF NOT EXISTS {table}_{event} AFTER {event} ON {table} "  # noqa: S608
                        f"BEGIN UPDATE django_idgen_file SET written = {_WRITTEN}; END"
                    )

    def _begin_new_life(self, found: tuple[str | None, int, float], tied: str | None) -> None:
        """Begin a new life: the file may not know all ids that were granted."""
        from ..core.stored import LOST_NAMES

        logger.warning(
            "The id file %r was copied or replaced, or belongs to another database. It may lack "
            "ids that were granted since: ids continue a distance above.",
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
                    [tied, LOST_NAMES],
                )
                cursor.execute("UPDATE leaf_alloc SET server = %s", [ANOTHER_LIFE])


def _is_ours(table: str) -> bool:
    return table != "django_idgen_file" and table.startswith(("leaf_alloc", "django_idgen_"))


def tie(connection: BaseDatabaseWrapper, identity: str) -> None:
    """Store in the database of ``connection`` which installation's file belongs to it."""
    with connection.cursor() as cursor:
        cursor.execute(_TIE)
        cursor.execute("INSERT OR IGNORE INTO django_idgen_identity VALUES (1, %s)", [identity])


# --- why the file can't be used ---------------------------------------------------------------


_REASONS = {
    "SQLITE_BUSY": (
        "another process has kept the file locked for {timeout:g} s. Look for a stopped process, "
        "or one that has the file open in a database shell."
    ),
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


def reason_of(error: BaseException, database: Path, *, waited: float) -> str:
    """What ``error`` means for the file beside ``database``, and what to do.

    ``waited``: seconds that a statement waited for the lock.
    """
    if isinstance(error, FileUnusable):
        return str(error)
    path = file_beside(database)
    name = getattr(error.__cause__, "sqlite_errorname", "") or ""
    found = [reason for prefix, reason in _REASONS.items() if name.startswith(prefix)]
    if path.is_dir():
        found = ["it is a directory. Move it away."]
    reason = found[0].format(timeout=waited) if found else f"SQLite says: {sentence(error)}"
    return f"The id file {str(path)!r} can't be used: {reason}"


def _is_busy(error: sqlite3.Error) -> bool:
    return str(getattr(error, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


# --- files of test databases --------------------------------------------------


_configured: dict[str, str] = {}
_test_databases: set[Path] = set()


def watch() -> None:
    """Watch for test databases, to remove their files at exit. Called when the app is ready."""
    for alias in connections.settings:
        _configured[alias] = _name(alias)
    post_migrate.connect(_on_migrated, dispatch_uid="django_idgen.sqlite")
    atexit.register(remove_leftovers)


def is_test_database(alias: str) -> bool:
    """Whether a test runner has replaced the configured database."""
    return alias in _configured and _configured[alias] != _name(alias)


def _on_migrated(*, using: str = DEFAULT_DB_ALIAS, **_kwargs: Any) -> None:
    if is_test_database(using) and (database := database_of(using)):
        _test_databases.add(database)


def remove_leftovers() -> None:
    """Remove the files of dropped test databases and of their copies for parallel runs."""
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
    # Django names the copies test_1.sqlite3, test_2.sqlite3 and so on.
    stem, extension = os.path.splitext(database.name)
    pattern = re.escape(stem) + r"(_\d+)?" + re.escape(extension)
    return path.parent == database.parent and bool(re.fullmatch(pattern, path.name))


def _original_of(path: Path) -> Path | None:
    """The test database that a runner copied to ``path`` for a parallel process."""
    copied = [each for each in _test_databases if path != each and _is_copy(path, each)]
    return next(iter(copied), None)


def _name(alias: str) -> str:
    return str(connections.settings[alias].get("NAME") or "")


# --- no fork while SQLite holds its locks --------------------------------------------------


FORK_PATIENCE = 5.0
"""Seconds that a fork is delayed, at most."""


class _Uses:
    """How many threads are inside :func:`no_fork`. Locked only to count, and during a fork."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.Lock())
        self.count = 0
        self.forking = False
        self.mine = threading.local()
        """``depth``: how often the calling thread has entered."""

    def enter(self) -> None:
        depth = getattr(self.mine, "depth", 0)
        if depth == 0:
            with self.changed:
                # A busy thread that re-enters at once would delay the fork for ever.
                self.changed.wait_for(lambda: not self.forking, FORK_PATIENCE)
                self.count += 1
        self.mine.depth = depth + 1

    def leave(self) -> None:
        self.mine.depth -= 1
        if self.mine.depth == 0:
            with self.changed:
                self.count -= 1
                self.changed.notify_all()


_uses = _Uses()


@contextmanager
def no_fork() -> Iterator[None]:
    """Let no thread fork this process during a short block. Thread-safe.

    SQLite locks its state in the process for short moments while it opens or closes a file. A
    child that another thread forks at such a moment inherits the lock, but not the thread that
    holds it, and waits for ever at its first use.
    """
    uses = _uses
    uses.enter()
    try:
        yield
    finally:
        uses.leave()


def _before_fork() -> None:
    _uses.changed.acquire()
    _uses.forking = True
    own = 1 if getattr(_uses.mine, "depth", 0) else 0
    _uses.changed.wait_for(lambda: _uses.count == own, FORK_PATIENCE)


def _after_fork_in_parent() -> None:
    _uses.forking = False
    _uses.changed.notify_all()
    _uses.changed.release()


def _after_fork_in_child() -> None:
    global _uses
    _uses = _Uses()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )

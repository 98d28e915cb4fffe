"""What tests of the database servers share: processes, a lossy wire, and a look at the server."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.db.connection import home_connection
from django_idgen.db.tables import bring_up
from tests import servers, warm
from tests.servers import free_port
from tests.wires import COMMIT, LossyWire

ROOT = Path(__file__).parents[1]


def sessions(alias: str) -> int:
    """How many connections ``alias`` keeps, once our loaders are idle, but for the asking one."""
    wait_for_threads(alias)
    sql = {
        "postgres": "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "mariadb": "SELECT count(*) FROM information_schema.processlist "
        "WHERE db = database() AND id <> connection_id()",
    }[alias]
    deadline = SYSTEM_CLOCK.stopwatch() + 10  # the server takes note of a closed socket in its time
    while (count := int(execute(alias, sql)[0][0])) and SYSTEM_CLOCK.stopwatch() < deadline:
        SYSTEM_CLOCK.sleep(0.01)
    return count


THREAD_PATIENCE = 30
"""Seconds that a thread may take, on a loaded machine."""


def wait_for_threads(*aliases: str) -> None:
    """Come back when no thread uses the databases ``aliases`` any more, unless it hangs.

    Before they are other databases, or are gone: a thread closes the connections of the
    aliases that are there at its end.
    """
    # First those who have the threads of the databases work for them.
    for names in (("idgen-fetch", "idgen-readiness"), tuple(f"idgen-{each}" for each in aliases)):
        for thread in threading.enumerate():
            if thread.name.startswith(names):
                _join(thread)


def _join(thread: threading.Thread) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + THREAD_PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline:
        try:
            thread.join(THREAD_PATIENCE)
        except RuntimeError:
            SYSTEM_CLOCK.sleep(0.01)  # it is on the list, and just being started
        else:
            return


def execute(alias: str, sql: str) -> list[Any]:
    """Run ``sql`` on the calling thread's connection to our tables."""
    with home_connection(alias).cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


def execute_apart(alias: str, sql: str) -> list[Any]:
    """Run ``sql`` on a connection of its own, so that it sees what is going on right now."""
    with closing(connections.create_connection(alias)) as apart, apart.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []


OPEN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""


def stop_between_transactions(*pids: int) -> None:
    """SIGSTOP ``pids``, but in no transaction on the tests' PostgreSQL.

    One that stands still in the middle of it keeps its row locked, for whoever comes next.
    """
    send(signal.SIGSTOP, *pids)
    while _is_any_open():
        send(signal.SIGCONT, *pids)
        SYSTEM_CLOCK.sleep(0.01)
        send(signal.SIGSTOP, *pids)


def send(number: signal.Signals, *pids: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def _is_any_open() -> bool:
    SYSTEM_CLOCK.sleep(0.1)  # so that those of other processes are over
    return all(execute_apart("postgres", OPEN)[0][0] for _ in range(5))


SESSION = {
    "postgres": "SELECT 1 FROM pg_stat_activity WHERE pid = {}",
    "mariadb": "SELECT 1 FROM information_schema.processlist WHERE id = {}",
}


def kill_session_of(connection: Any) -> None:
    """End the server's side of ``connection``, as an administrator or a crash would."""
    kill = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}[connection.alias]
    own = {"postgres": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}
    with connection.cursor() as cursor:
        cursor.execute(own[connection.alias])
        session = cursor.fetchone()[0]
    execute_apart(connection.alias, kill.format(session))
    # Or a statement that is quick enough would still be answered.
    deadline = SYSTEM_CLOCK.stopwatch() + 30
    while execute_apart(connection.alias, SESSION[connection.alias].format(session)):
        assert SYSTEM_CLOCK.stopwatch() < deadline


def make_tables(alias: str) -> None:
    """Make our tables for the database ``alias``, as ``migrate`` does."""
    bring_up(None, connections[alias].schema_editor(atomic=False))


def python(
    alias: str, code: str, *, stdin: int | None = None, migrated: bool = True
) -> warm.Process:
    """Another process, with Django set up, that works on the database of ``alias``."""
    if migrated:
        make_tables(alias)
    name = connections.settings[alias]["NAME"]
    url = servers.URLS[alias].rpartition("/")[0] + f"/{name}"
    environment = {
        **os.environ,
        f"IDGEN_TEST_{alias.upper()}": url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    start = "import django; django.setup()\n"
    return warm.Process(
        ["-c", start + code],
        cwd=ROOT,
        env=environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def configured(alias: str, **changes: Any) -> Iterator[None]:
    """The database ``alias`` with other settings, for connections that are made in the block."""
    settings = connections.settings[alias]
    before = dict(settings)
    connections[alias].close()
    settings.update(changes)
    try:
        yield
    finally:
        connections[alias].close()
        settings.clear()
        settings.update(before)


@contextmanager
def unreachable(alias: str) -> Iterator[None]:
    """A block in which nothing listens where the database ``alias`` was."""
    with configured(alias, PORT=str(free_port())):
        yield


@contextmanager
def one_more(alias: str, **changes: Any) -> Iterator[str]:
    """The alias of a database beside ``alias``, where nothing listens."""
    given = {**connections.settings[alias], **changes, "PORT": str(free_port())}
    connections.settings["gone"] = given
    try:
        yield "gone"
    finally:
        wait_for_threads("gone")
        if hasattr(connections._connections, "gone"):
            del connections["gone"]
        del connections.settings["gone"]


@contextmanager
def lossy_wire(alias: str) -> Iterator[LossyWire]:
    """Lay a wire that can lose commits between our connections and the server of ``alias``."""
    settings = connections.settings[alias]
    wire = LossyWire((settings["HOST"], int(settings["PORT"])), COMMIT)
    options = dict(settings.get("OPTIONS") or {})
    if alias == "postgres":
        options |= {"gssencmode": "disable", "sslmode": "disable"}
    with closing(wire), configured(alias, HOST="127.0.0.1", PORT=str(wire.port), OPTIONS=options):
        yield wire

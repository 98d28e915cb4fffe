"""How a process may end, or stop, or start with others, and what becomes of its worker id."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import server_tools
from tests.tiers import LONG, long

from .processes import (
    ON_POSTGRES,
    ON_SQLITE,
    LeaseRow,
    Running,
    Site,
    Taken,
    assert_no_repeats,
    database_settings,
    worker_ids_from_redis,
)

START = """
import json, os, sys, threading, time
from tests.faults.site.taking import record, take, wait_for
"""
MIGRATE = """
from django.core.management import call_command
from django.db import connections
call_command("migrate", "django_idgen", verbosity=0)
connections.close_all()
"""
# Python leaves it alone where it was started with the signal ignored, as a shell does with "&".
INTERRUPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.raise_signal(signal.SIGINT)
"""
ENDINGS = {
    "end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise LookupError('meant')", 1),
    "thread": ("threading.Thread(target=lambda: record(take(5))).start()", 0),
    "interrupt": (INTERRUPT, -signal.SIGINT),
}


OPEN_SESSIONS = {
    "postgres": "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'",
    "mariadb": "SELECT count(*) FROM information_schema.processlist WHERE db = '{}'",
}


def ticks(taken: list[Taken]) -> list[int]:
    """The ticks of the standard layout that the ids were stamped with."""
    return [value >> 22 for entry in taken for value in entry["ids"]]


def check_given_back(site: Site) -> None:
    """The one worker id is free from the tick on that follows the last one used."""
    assert_no_repeats(site.recorded())
    (row,) = site.leases()
    assert row.token == ""
    assert row.until == max(ticks(site.recorded())) + 1
    assert site.sessions() == 0


@ON_SQLITE
@pytest.mark.parametrize(("code", "status"), ENDINGS.values(), ids=ENDINGS.keys())
def test_a_script_gives_its_worker_id_back(site: Site, code: str, status: int) -> None:
    """Hazard 66: however a script ends in order, its worker id is free at once."""
    with site.python(START + "record(take(5))\n" + code) as script:
        assert script.finish() == status, script.output
    check_given_back(site)


@ON_SQLITE
@pytest.mark.parametrize(
    "words",
    [("take_ids",), ("shell", "-c", "from tests.faults.site.taking import *; record(take(5))")],
    ids=["command", "shell"],
)
def test_a_management_command_gives_its_worker_id_back(site: Site, words: tuple[str, ...]) -> None:
    """Commands that take ids leave no worker id behind, the shell included."""
    with site.start(sys.executable, "-W", "ignore", "-m", "django", *words) as command:
        assert command.finish() == 0, command.output
    check_given_back(site)


ONE_WORKER = {"window": 1.5, "workers": [7, 8]}
"""A single worker id, so that the next process must take over the same one."""
INSIST = """
from django_idgen.core.errors import LeaseError
while True:
    try:
        record(take(5))
        break
    except LeaseError:
        time.sleep(0.05)
"""


def first_lease(site: Site, process: Running) -> LeaseRow:
    process.wait_until(site.recorded)
    (row,) = site.leases()
    return row


def take_over(site: Site) -> list[Taken]:
    """Let another process have the same worker id, and return what it took."""
    before = len(site.recorded())
    with site.python(START + INSIST) as heir:
        assert heir.finish() == 0, heir.output
    return site.recorded()[before:]


@ON_POSTGRES
def test_what_was_killed_expires(site: Site) -> None:
    """After SIGKILL the worker id can be had again, for ticks past all that were promised."""
    site.set_leases(ONE_WORKER)
    with site.python(START + "record(take(5))\nwait_for('never')") as killed:
        promised = first_lease(site, killed)
        killed.send(signal.SIGKILL)
        killed.finish()
        heir = take_over(site)
    assert {entry["worker"] for entry in site.recorded()} == {promised.worker}
    assert min(ticks(heir)) >= promised.until
    assert_no_repeats(site.recorded())


@ON_SQLITE
def test_what_was_stopped_repeats_nothing(site: Site) -> None:
    """A process that sleeps past its window, and wakes up, goes on past its heir's ids or fails."""
    site.set_leases(ONE_WORKER)
    code = START + "record(take(5))\nwait_for('wake')\nrecord(take(5))\n" + INSIST
    with site.python(code) as sleeper:
        first_lease(site, sleeper)
        sleeper.send(signal.SIGSTOP)
        heir = take_over(site)
        (site.directory / "wake").touch()
        sleeper.send(signal.SIGCONT)
        sleeper.finish()
    assert len(heir) == 1
    assert_no_repeats(site.recorded())
    inside = set(ticks(heir))
    woken = [entry for entry in site.recorded() if entry["pid"] != heir[0]["pid"]]
    assert inside.isdisjoint(ticks(woken))


TOGETHER = """
import traceback
from django.db import connection
from django_idgen import generators
from django_idgen.process import factory, maps
from django_idgen.core.errors import RegistryUnavailable
from tests.faults.site.children import join

# All of it imported by now, and nothing used: or each child would do that first.
factory.build_generator(maps.current_settings().generators["default"])
connection.ensure_connection()
connection.close()
go, told = os.pipe()

def start():
    os.close(told)
    os.read(go, 1)  # nothing, as soon as the last of the others has closed its end
    while True:
        try:
            id = generators["default"].next_id()
            break
        except RegistryUnavailable:  # a few cores may take longer to serve all than one waits
            time.sleep(0.2)
    record({"worker": generators["default"].layout.unpack(id).worker})

children = []
for _ in range(PROCESSES):
    pid = os.fork()
    if not pid:
        try:
            start()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # without a word: what is held stays so for a window
    children.append(pid)
os.close(told)
join(children)
"""
PROCESSES = 64 if LONG else 16


@pytest.fixture(params=["postgres", "redis", *long("sqlite", "mariadb")])
def fleet_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The site on each database in turn; and with worker ids from Redis, on PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_site")
        return
    alias = request.getfixturevalue("postgres" if request.param == "redis" else request.param)
    site = Site(tmp_path, database_settings(alias), alias)
    if request.param == "redis":
        with worker_ids_from_redis(site, request.getfixturevalue("redis")):
            yield site
    else:
        yield site


def test_processes_that_start_together_get_different_worker_ids(fleet_site: Site) -> None:
    """Hazard 5: all of them take their first id at once, where nothing was ever lent."""
    with fleet_site.python(START + f"PROCESSES = {PROCESSES}\n" + TOGETHER) as parent:
        assert parent.finish() == 0, parent.output
    workers = [entry["worker"] for entry in fleet_site.journal()]
    assert len(set(workers)) == len(workers) == PROCESSES


ENDING_TOGETHER = """
from tests.faults.site.children import fork, join
go, told = os.pipe()
work = f'''
from django_idgen.core.errors import RegistryUnavailable
os.close({told})
os.read({go}, 1)  # nothing, as soon as the last of the others has closed its end
taken = None
while taken is None:
    try:
        taken = take(1)
    except RegistryUnavailable:  # as above
        pass
record(taken)
wait_for("leave")
'''
children = [fork(work) for _ in range(PROCESSES)]
os.close(told)
join(children)
"""


@ON_POSTGRES
def test_processes_that_end_together_leave_no_worker_id(site: Site) -> None:
    """None stands in line for the others: all are free once the last process has ended."""
    # The tag's patience is half a second otherwise; a few cores take longer to start them all.
    site.set_idgen({"SEGMENTS": {"OPTIONS": {"timeout": 50}}})
    with site.python(START + f"PROCESSES = {PROCESSES}\n" + ENDING_TOGETHER) as parent:
        parent.wait_until(lambda: len(site.recorded()) == PROCESSES)
        assert_no_repeats(site.recorded())
        assert len(site.held()) == PROCESSES
        (site.directory / "leave").touch()
        assert parent.finish() == 0, parent.output
    assert not site.held(), "they leave at once, too"


@ON_SQLITE
def test_nothing_happens_before_the_first_use(site: Site) -> None:
    """With the app installed and no id taken there is no thread, no connection and no file."""
    code = """
import threading
import django_idgen
from django_idgen import generators, segments
from django.db import connections
assert threading.active_count() == 1, threading.enumerate()
assert not any(each.connection for each in connections.all(initialized_only=True))
assert not generators.made()
open("idle", "w").close()
wait_for("leave")
"""
    with site.python(START + code) as process:
        process.wait_until((site.directory / "idle").exists)
        assert site.sessions() == 0
        assert not list(site.directory.glob("*-idgen"))
        (site.directory / "leave").touch()
        assert process.finish() == 0, process.output


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_an_idle_process_keeps_no_connection(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Once ids were taken the connection goes, so that the database can be dropped under it."""
    alias = request.getfixturevalue(server)
    site = Site(tmp_path, database_settings(alias), alias)
    own = f"{site.database['NAME']}_idle"
    server_tools.execute(alias, f"DROP DATABASE IF EXISTS {own}")
    server_tools.execute(alias, f"CREATE DATABASE {own}")
    site.database["NAME"] = own
    with site.python(START + MIGRATE + "record(take(5))\nwait_for('leave')") as process:
        process.wait_until(site.recorded)
        sessions = OPEN_SESSIONS[server].format(own)
        process.wait_until(lambda: server_tools.execute(alias, sessions)[0][0] == 0)
        server_tools.execute(alias, f"DROP DATABASE {own}")

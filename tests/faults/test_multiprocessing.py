"""Children of every kind of fork, and threads that were busy when it happened."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from django_idgen.core.layout import parse_layout
from tests.tiers import LONG, long

from .processes import (
    ON_POSTGRES,
    ON_SQLITE,
    Running,
    Site,
    assert_no_repeats,
    assert_workers_differ,
)

PREPARE = """
import multiprocessing, os, threading, time
from concurrent.futures import ProcessPoolExecutor
from django_idgen.core import loader
from tests.faults.site.children import fork, join, take_and_record
from tests.faults.site.taking import record, take, wait_for
"""
PROCESSES = """
def main():
    take_and_record(5)
    context = multiprocessing.get_context({method!r})
    children = [context.Process(target=take_and_record, args=(5,)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    take_and_record(5)
    wait_for("leave")

if __name__ == "__main__":
    main()
"""


def check_end(site: Site, parent: Running, entries: int) -> None:
    """When the children have ended, only their parent's worker id is held; then none."""
    parent.wait_until(lambda: len(site.recorded()) == entries)
    assert_no_repeats(site.recorded())
    assert site.held() == {site.recorded()[0]["worker"]}
    (site.directory / "leave").touch()
    assert parent.finish() == 0, parent.output
    assert site.held() == set()
    assert site.sessions() == 0


@pytest.mark.parametrize("method", ["fork", "spawn", *long("forkserver")])
def test_processes(sqlite_site: Site, method: str) -> None:
    """Hazard 66: children, which run no ``atexit``, give back their own worker id, not its."""
    with sqlite_site.python(PREPARE + PROCESSES.format(method=method)) as parent:
        check_end(sqlite_site, parent, 6)


def test_forked_processes_on_every_database(site: Site) -> None:
    """The same where the parent has a thread and a connection for its grants."""
    with site.python(PREPARE + PROCESSES.format(method="fork")) as parent:
        check_end(site, parent, 6)


POOLS = {
    "pool": """
pool = multiprocessing.get_context("fork").Pool(3)
pool.map(take_and_record, [5] * 30, chunksize=1)
pool.close()
pool.join()
""",
    "replaced": """
pool = multiprocessing.get_context("fork").Pool(3, maxtasksperchild=4)
pool.map(take_and_record, [5] * 30, chunksize=1)
pool.close()
pool.join()
""",
    "executor": """
with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
    list(pool.map(take_and_record, [5] * 30))
""",
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())
def test_pools(sqlite_site: Site, pool: str) -> None:
    """The processes of a pool repeat nothing, and give their worker ids back when it is closed."""
    code = PREPARE + "take_and_record(5)\n" + pool + "take_and_record(5)\nwait_for('leave')\n"
    with sqlite_site.python(code) as parent:
        check_end(sqlite_site, parent, 32)


NESTED = """
record(take(5))
child = fork('''
record(take(5))
grandchild = fork("record(take(5))", leave={grandchild!r})
os.waitpid(grandchild, 0)
record(take(5))
''', leave={child!r})
join([child])
record(take(5))
wait_for("leave")
"""


@ON_SQLITE
def test_nested_forks(site: Site) -> None:
    """Child and grandchild have worker ids of their own, and give each its own back."""
    with site.python(PREPARE + NESTED.format(child="end", grandchild="end")) as parent:
        check_end(site, parent, 5)


HELD = """
from django_idgen import generators
held = generators["default"]

def note():
    record({"ids": [held.next_id() for _ in range(5)]})

note()
child = os.fork()
if not child:
    note()
    os._exit(0)
note()
join([child])
"""


def test_a_child_takes_nothing_of_its_parents_tick(sqlite_site: Site) -> None:
    """I5: Python's fork hook drops what a tick of 30 s has left, before anyone can take of it."""
    layout = {"time": 28, "worker": 10, "sequence": 12, "tick": 30}
    sqlite_site.set_idgen({"GENERATORS": {"default": {"LAYOUT": layout}}})
    with sqlite_site.python(PREPARE + HELD) as parent:
        assert parent.finish() == 0, parent.output
    ids = [value for entry in sqlite_site.recorded() for value in entry["ids"]]
    assert len(set(ids)) == 15
    workers = Counter(parse_layout(layout).unpack(value).worker for value in ids)
    assert sorted(workers.values()) == [5, 10]


def test_a_child_that_vanishes(sqlite_site: Site) -> None:
    """After os._exit() the child's worker id stays taken until it expires, and no other's."""
    site = sqlite_site
    with site.python(PREPARE + NESTED.format(child="end", grandchild="vanish")) as parent:
        parent.wait_until(lambda: len(site.recorded()) == 5)
        assert_no_repeats(site.recorded())
        by_order = [entry["worker"] for entry in site.recorded()]
        assert site.held() == {by_order[0], by_order[2]}
        (site.directory / "leave").touch()
        assert parent.finish() == 0, parent.output
        assert site.held() == {by_order[2]}


STORM = """
take_and_record(2)  # so that nothing is left to import: Python itself can't fork amid that
failures = []
ending = threading.Event()
loader.PATIENCE = 0  # as if none of our threads ended in time

def busy(number):
    try:
        while not ending.is_set():
            record(take(2))
            time.sleep(0.001)
    except BaseException as error:
        failures.append(error)
        raise

callers = [threading.Thread(target=busy, args=(n,)) for n in range(4)]
for caller in callers:
    caller.start()
for round in range({rounds}):
    join([fork("record(take(3))", leave=leave) for leave in ("end", "vanish", "end")])
ending.set()
for caller in callers:
    caller.join()
assert not failures
"""


@pytest.mark.long
@ON_POSTGRES
def test_forks_while_threads_are_busy(site: Site) -> None:
    """A fork amid other threads' calls, loads and renewals leaves no child waiting for ever.

    Whatever lock such a thread held is no obstacle to the child, nothing repeats,
    and the parent's calls go on undisturbed.
    """
    # Short, for many renewals amid forks, and longer than a busy machine lets a process stand.
    leases = {"OPTIONS": {"window": 2}}
    site.environment["SITE_IDGEN"] = json.dumps(
        {
            "GENERATORS": {"default": {"LEASES": leases}},
            "SEGMENTS": {"OPTIONS": {"default_step": 7, "timeout": 20}},
        }
    )
    rounds = 200 if LONG else 8
    with site.python(PREPARE + STORM.format(rounds=rounds)) as parent:
        assert parent.finish() == 0, parent.output
    assert_no_repeats(site.recorded())
    # By what the children took, for a system that starts many processes uses their numbers again.
    assert sum(len(entry["ids"]) == 3 for entry in site.recorded()) == 3 * rounds


FIRST_USE = """
from django_idgen import generators, segments
barrier = threading.Barrier(64)
found = []

def run():
    barrier.wait()
    found.append((generators["default"], segments["orders"]))
    record(take(3))

threads = [threading.Thread(target=run) for _ in range(64)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(found) == 64
assert len({id(generator) for generator, _ in found}) == 1
assert len({id(segment) for _, segment in found}) == 1
wait_for("leave")
"""


@ON_SQLITE
def test_threads_at_first_use(site: Site) -> None:
    """Of 64 threads that use an alias and a tag first, all get one generator and one worker id."""
    with site.python(PREPARE + FIRST_USE) as process:
        process.wait_until(lambda: len(site.recorded()) == 64)
        assert_no_repeats(site.recorded())
        assert_workers_differ(site.recorded())
        assert len(site.leases()) == 1
        (site.directory / "leave").touch()
        assert process.finish() == 0, process.output
        assert site.held() == set()

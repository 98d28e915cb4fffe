"""Snowflake generators under threads, forks, signals, gevent and frozen clocks: the real ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import django_idgen
from django_idgen.core.errors import GeneratorClosed
from django_idgen.leases.memory import MemoryMarks
from tests.snowflake_tools import STANDARD, real
from tests.tiers import LONG

LIMIT = 60  # seconds after which a test gives up on a thread or process


def run_threads(*jobs) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()


# --- threads --------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0.0, 1.0])
def test_64_threads_on_one_generator_get_no_id_twice(ahead):
    """I1, I2: each thread's own ids rise, singly and in batches; the count is right (hazard 35)."""
    with real(max_ahead=ahead) as shared:
        got: list[list[int]] = [[] for _ in range(64)]

        def take(ids: list[int]) -> None:
            for turn in range(100):
                ids.extend(shared.next_ids(turn) if turn % 10 == 0 else [shared.next_id()])

        run_threads(*(lambda ids=ids: take(ids) for ids in got))
        for ids in got:
            assert all(a < b for a, b in pairwise(ids))
        every = [value for ids in got for value in ids]
        assert len(set(every)) == len(every) == 64 * (90 + 450)
        assert shared.stats().issued == len(every)


def test_threads_that_race_a_close_get_their_ids_or_are_told():
    """L3: none of theirs is given again by the successor, which has the same worker id."""
    marks = MemoryMarks()
    for _ in range(10):
        first = real(marks=marks, holder="host", max_ahead=0.1)
        theirs: list[int] = []
        odd: list[BaseException] = []

        def take(first=first, theirs=theirs, odd=odd) -> None:
            try:
                while True:
                    theirs.append(first.next_id())
            except GeneratorClosed:
                pass
            except BaseException as error:
                odd.append(error)

        def close(first=first, theirs=theirs) -> None:
            while len(theirs) < 1000:
                time.sleep(0)
            first.close()

        run_threads(take, take, take, close)
        with real(marks=marks, holder="host") as second:
            ours = second.next_ids(20_000)
            assert second.stats().lease.worker == STANDARD.unpack(theirs[0]).worker
        assert odd == []
        assert len({*theirs, *ours}) == len(theirs) + len(ours)


# --- frozen clocks -----------------------------------------------------------------


@pytest.mark.parametrize("begun", [True, False])
def test_ids_go_on_while_a_test_freezes_time(frozen, begun):
    """Hazard 64: also a first id, with a new lease, and more ids than a tick has."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    with real() as ours:
        ids = [ours.next_id()] if begun else []
        with frozen:
            ids += [ours.next_id() for _ in range(100)]
            ids += ours.next_ids(10_000)
        ids.append(ours.next_id())
        assert all(a < b for a, b in pairwise(ids))
        after = datetime.now(UTC) + timedelta(seconds=1)
        for value in (ids[0], ids[50], ids[-1]):
            assert before < ours.decode(value).created < after


# --- other processes ------------------------------------------------------------------

PREAMBLE = """
import fcntl, json, os, sys, threading, time
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import IdgenError
from django_idgen.core.lease import Namespace
from django_idgen.core.loader import Flag
from django_idgen.core.layout import parse_layout
from django_idgen.core.snowflake import SnowflakeGenerator
from tests.core.json_leases import JsonLeases

LAYOUT = parse_layout("standard")

def generator(window_ms=180_000, workers=1024, **options):
    space = Namespace(
        "real", LAYOUT.epoch_us, LAYOUT.tick_us, LAYOUT.max_ticks, range(workers), window_ms, 10_000
    )
    return SnowflakeGenerator(LAYOUT, JsonLeases(space, path=sys.argv[1]), **options)

def marks():
    with open(sys.argv[1]) as found:
        return [(mark["worker"], mark["token"]) for mark, _, _ in json.load(found)["marks"]]

def say(value):
    with open(sys.argv[1] + ".lock", "w") as lock:  # or long lines of two processes mix
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(json.dumps(value), flush=True)
"""


def start(code: str, marks: Path, python: str = sys.executable) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-W", "ignore", "-c", PREAMBLE + textwrap.dedent(code), str(marks)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(django_idgen.__file__).parent.parent,
    )


def said(code: str, marks: Path, python: str = sys.executable) -> list:
    with start(code, marks, python) as process:
        try:
            out, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()  # or leaving the block would wait for what hangs
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


FORK = """
    ids = generator(max_ahead=1.0)
    mine = ids.next_ids(10)
    for _ in range(4):
        if os.fork() == 0:
            if HOOKS:
                ids.forget()
            say(ids.next_ids(500) + [ids.next_id() for _ in range(500)])
            ids.close()
            os._exit(0)
    say(mine + ids.next_ids(500) + [ids.next_id() for _ in range(500)])
    for _ in range(4):
        os.wait()
    ids.close()
"""


@pytest.mark.parametrize("hooks", [True, False])
def test_forked_children_never_repeat_their_parents_ids(tmp_path, hooks):
    """I5: with fork hooks, and by comparing process ids where nothing runs them (hazard 36)."""
    lists = said(f"    HOOKS = {hooks}\n" + FORK, tmp_path / "marks")
    assert len(lists) == 5
    every = [value for ids in lists for value in ids]
    assert len(every) == len(set(every)) == 5010
    parents, *children = [STANDARD.unpack(ids[-1]).worker for ids in sorted(lists)]
    assert parents not in children
    for ids in lists:
        assert all(a < b for a, b in pairwise(ids))


def test_a_child_that_made_no_id_does_not_give_its_parents_worker_id_back(tmp_path):
    """uWSGI's children run our exit handlers, though not Python's fork hooks."""
    held, after = said(
        """
        ids = generator()
        ids.next_id()
        say(marks())
        for looks in (True, False):
            if os.fork() == 0:
                assert not looks or ids.stats().issued == 0
                ids.close()
                os._exit(0)
            os.wait()
        say(marks())
        ids.close()
        """,
        tmp_path / "marks",
    )
    assert held == after
    assert held[0][1]


def test_a_fork_while_another_thread_holds_the_lock_leaves_no_child_waiting(tmp_path):
    """The locks are the parent's; threads of the child that start together share one lease."""
    (ids,) = said(
        """
        ids = generator()
        ids.next_id()
        ids._lock.acquire()
        ids.keeper._turn._running = Flag()
        if os.fork() == 0:
            got = []
            threads = [
                threading.Thread(target=lambda: got.extend(ids.next_ids(200))) for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            say(got)
            assert sum(bool(token) for _, token in marks()) == 2
            ids.close()
            os._exit(0)
        _, status = os.wait()
        assert status == 0
        ids._lock.release()
        ids.keeper._turn._running = None
        ids.close()
        """,
        tmp_path / "marks",
    )
    assert len(set(ids)) == len(ids) == 1600


BESIDE_NO_THREAD = """
    import warnings
    ids = generator(window_ms=1500)
    warned = []
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_: warned.append(str(message))
    beside = []
    for _ in range(30):
        ids.next_id()
        named = [thread.name for thread in threading.enumerate()]
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        # Python 3.11 warns of nothing; what it counts on 3.12 and newer is this.
        beside.append(len(os.listdir("/proc/self/task")))
    ids.next_id()
    before = ids.stats().renewals
    while ids.stats().renewals < before + 2:
        time.sleep(0.01)
    say([warned, beside, named])
    ids.close()
"""


MINORS = range(30, 11, -1)
"""Of Python 3, newest first; the oldest that we support is the one that CI runs on."""


def others() -> tuple[str, ...]:
    """A released Python of each version from 3.12 on, but for ours; newest first; none on push."""
    minors = (minor for minor in MINORS if LONG and (3, minor) != sys.version_info[:2])
    return tuple(path for minor in minors if (path := find(minor)) is not None)


def find(minor: int) -> str | None:
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [shutil.which(name), *sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}"))]
    return next((str(place) for place in places if place and runs(str(place))), None)


def runs(path: str) -> bool:
    """Whether it is a released Python: pyenv has shims of versions that are not switched on."""
    code = "import sys; assert sys.version_info.releaselevel == 'final'"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="Looks at Linux's list of threads.")
@pytest.mark.parametrize("python", [sys.executable, *others()], ids=os.path.basename)
def test_a_fork_is_beside_no_thread_and_renewal_goes_on_after_it(tmp_path, python):
    """So Python 3.12 and newer warn of nothing; the next id starts the thread again."""
    ((warned, beside, named),) = said(BESIDE_NO_THREAD, tmp_path / "marks", python)
    assert warned == []
    assert beside == [1] * 30
    assert named == ["MainThread", "idgen-real"]


GEVENT = """
    from gevent import monkey
    monkey.patch_all()
    import gevent
    {preamble}
    ids = generator(window_ms=900, max_ahead=0.01)
    got = []

    def take():
        for turn in range(100):
            got.extend(ids.next_ids(20) if turn % 10 == 0 else [ids.next_id()])
            gevent.sleep(0.001)

    gevent.joinall([gevent.spawn(take) for _ in range(20)], raise_error=True)
    while ids.stats().renewals == 0:
        gevent.sleep(0.01)
    say(got)
    ids.close()
"""


def test_greenlets_share_a_generator(tmp_path):
    """Under gevent's patches: no repeats, nobody hangs, and the renewal goes on."""
    code = GEVENT.replace("    {preamble}", textwrap.indent(PREAMBLE, "    "))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "marks")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(django_idgen.__file__).parent.parent,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    ) as process:
        out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    ids = json.loads(out)
    assert len(set(ids)) == len(ids) == 20 * (90 + 200)

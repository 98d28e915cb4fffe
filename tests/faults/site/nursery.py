"""A process whose children take ids as fast as they may: forked, killed at random, replaced.

Each child writes what it took to files of its own before it takes more, so that
whatever it used is known, whenever it was killed.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from array import array
from collections.abc import Callable
from pathlib import Path

from django.db import connection

from django_idgen import generators, segments
from django_idgen.core.errors import LeaseError

BATCH = 20
PATIENCE = 60.0
"""Seconds until a child that took nothing is a failure."""
SLOW_NS = 50_000_000
"""A call for snowflakes that takes longer is noted, with its time."""
PATIENT = 0.05
"""Seconds until somebody who was lent no worker id asks again."""

Work = Callable[["Diary"], None]


class Diary:
    """Where child ``number`` writes down what it takes, a file each kind of ids."""

    def __init__(self, directory: Path, number: int) -> None:
        self._files = {
            kind: os.open(directory / f"{kind}-{number:04}", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
            for kind in ("snowflake", "segment", "refused", "slow")
        }

    def write(self, kind: str, values: list[int]) -> None:
        os.write(self._files[kind], array("q", values).tobytes())


def take(diary: Diary, tag: str, pause: float) -> None:
    """Take ids of both kinds for ever, and write each batch down."""
    while True:
        diary.write("segment", segments[tag].next_ids(BATCH))
        began = time.monotonic_ns()
        try:
            ids = generators["default"].next_ids(BATCH)
        except LeaseError:
            # Not so soon: none was free, or the registry's connection was cut.
            diary.write("refused", [began])
            time.sleep(PATIENT)
        else:
            diary.write("snowflake", ids)
            if (took := time.monotonic_ns() - began) > SLOW_NS:
                diary.write("slow", [took])
        time.sleep(pause)


class Nursery:
    """``size`` children that do ``work``, each with a diary in ``directory``."""

    def __init__(self, directory: str, size: int, work: Work) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(exist_ok=True)
        self._work = work
        self._made = 0
        # Or each child would have to import the driver first.
        connection.ensure_connection()
        connection.close()
        self.children = [self._fork() for _ in range(size)]

    def _fork(self) -> tuple[int, int]:
        """Its process id, and its number."""
        self._made += 1
        pid = os.fork()
        if pid:
            return pid, self._made
        random.seed()
        try:
            self._work(Diary(self._directory, self._made))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def kill_one(self, *, longest: float, busy: bool) -> None:
        """SIGKILL one of them and put another in its place.

        Up to ``longest`` seconds from now; or, if it is to be ``busy``, from its first ids.
        """
        place = random.randrange(len(self.children))
        if busy:
            self._wait_for_ids(self.children[place])
        time.sleep(random.uniform(0, longest))
        self._end(self.children[place])
        self.children[place] = self._fork()

    def wait_for(self, path: str) -> None:
        """Come back once somebody has made the file; fail if a child ends before."""
        while not Path(path).exists():
            assert os.waitpid(-1, os.WNOHANG)[0] == 0, "a child ended by itself"
            time.sleep(0.01)

    def kill_all(self) -> None:
        for child in self.children:
            self._end(child)
        self.children = []

    def _wait_for_ids(self, child: tuple[int, int]) -> None:
        diary = self._directory / f"snowflake-{child[1]:04}"
        deadline = time.monotonic() + PATIENCE
        while not (diary.exists() and diary.stat().st_size):
            assert time.monotonic() < deadline, "a child took nothing"
            time.sleep(0.001)

    def _end(self, child: tuple[int, int]) -> None:
        os.kill(child[0], signal.SIGKILL)
        status = os.waitpid(child[0], 0)[1]
        assert os.WIFSIGNALED(status), "a child ended by itself"


def kill_at_random(nursery: Nursery, times: int, longest: float) -> None:
    """Kill one after the other, every second one while it is surely busy; in the end all."""
    for number in range(times):
        nursery.kill_one(longest=longest, busy=number % 2 == 0)
    time.sleep(longest)
    nursery.kill_all()

"""A process of the soak: ``python -m tests.soak.worker ROLE CONFIG``.

The role ``worker`` takes ids of every kind, in batches of random sizes, and appends them raw to a
file of its own a kind. On SIGUSR1 its clocks step, on SIGUSR2 it forks a child that takes ids for
some seconds. The role ``service`` lends over HTTP,
``upkeep`` renews leases and fills the pool.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

SECRET = "idgen_a-secret-of-the-soak-that-opens-everything"
SLOW = {"disposable": 200, "segments.http": 5000, "lent.http": 5000}
"""Ids that one call asks for at the most, where a layout has few or one small service lends."""

_read_ns, _steps = time.clock_gettime_ns, {"wall": 0, "elapsed": 0}


def _stepped_ns(clock: int) -> int:
    """The clocks of this process, which were stepped. No system sets its monotonic clock back."""
    wall = clock in (time.CLOCK_REALTIME, 5)  # 5: as of the last interrupt
    return _read_ns(clock) + _steps["wall" if wall else "elapsed"]


# The package binds its clocks when it is imported.
time.clock_gettime_ns = _stepped_ns  # type: ignore[assignment]


class Worker:
    """Takes ids of all kinds, until it is told to end."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.directory = Path(config["directory"])
        self.rate = float(config["rate"])
        self.most = int(config["most"])
        self.random = random.Random(os.urandom(8))
        self.errors: Counter[str] = Counter()
        self.ends = False
        self.forks = 0
        self.files: dict[str, int] = {}
        self.kinds = kinds(config)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGUSR1, self._step)
        signal.signal(signal.SIGUSR2, self._plan_fork)
        while not self.ends:
            self.turn()
            if self.forks:
                self.forks -= 1
                self.fork()
        self.report()

    def turn(self) -> None:
        from django_idgen.core.errors import IdgenError

        kind = self.random.choice(list(self.kinds))
        most = min(self.most, SLOW.get(kind, self.most))
        count = self.random.choice((1, 1, 10, self.random.randint(1, most)))
        try:
            ids = self.kinds[kind](count)
        except IdgenError as error:
            self.errors[f"{kind} {type(error).__name__}"] += 1
            print(kind, error, file=sys.stderr)
            time.sleep(0.01)
        else:
            self.write(kind, ids)
        time.sleep(count / self.rate)

    def write(self, kind: str, ids: list[int]) -> None:
        if kind not in self.files:
            path = self.directory / f"{kind}.{os.getpid()}.{time.monotonic_ns()}.ids"
            self.files[kind] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self.files[kind], array("q", ids).tobytes())

    def fork(self) -> None:
        pid = os.fork()
        if pid:
            return
        self.files, self.errors, self.forks = {}, Counter(), 0
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        until = time.monotonic() + self.random.uniform(0.5, 4)
        while not self.ends and time.monotonic() < until:
            self.turn()
        self.report()
        sys.exit()  # gives back what it holds

    def report(self) -> None:
        path = self.directory / f"errors.{os.getpid()}.{time.monotonic_ns()}.json"
        path.write_text(json.dumps(self.errors))

    def _end(self, *_: object) -> None:
        self.ends = True

    def _plan_fork(self, *_: object) -> None:
        self.forks += 1

    def _step(self, *_: object) -> None:
        _steps["wall"] += int(self.random.uniform(-60, 60) * 1e9)
        if self.random.random() < 0.5:
            _steps["elapsed"] += int(self.random.uniform(0, 20) * 1e9)


def kinds(config: dict[str, Any]) -> dict[str, Callable[[int], list[int]]]:
    """By name: what gives so many ids. Those over HTTP are of the tags and worker ids there."""
    from django_idgen import generators, segments

    aliases = [alias for alias in generators if not alias.startswith("lent")]
    found: dict[str, Callable[[int], list[int]]] = {
        alias: (lambda n, alias=alias: generators[alias].next_ids(n)) for alias in aliases
    }
    found |= {
        "segments": lambda n: segments["orders"].next_ids(n),
        "busy": lambda n: segments["busy"].next_ids(n),
    }
    return {**found, **_lent(config["service"])} if config["service"] else found


def _lent(service: str) -> dict[str, Callable[[int], list[int]]]:
    from django_idgen import generators
    from django_idgen.client import Client

    client = Client(service, token=SECRET, timeout=2, wait=1)
    return {
        # The service lends both kinds, and the processes on the database take them, too.
        "segments.http": lambda n: client.segments["orders"].next_ids(n),
        "lent": lambda n: generators["lent"].next_ids(n),
        "lent.http": lambda n: client.generators["lent"].next_ids(n),
    }


def look_after(config: dict[str, Any]) -> None:
    """What Celery's beat would run."""
    from django_idgen.ops import upkeep

    while True:
        for task in (upkeep.renew_worker_leases, partial(upkeep.preload_segments, outage=10.0)):
            with suppress(Exception):  # the next round tries again
                task()
        time.sleep(config["window"] / 3)


def serve(config: dict[str, Any]) -> None:
    from unittest import mock

    from django.core.handlers.wsgi import WSGIHandler

    from django_idgen.rest.authentication import TOKENS
    from tests.remote.service import EVERYTHING, Quiet, Server

    find = lambda text: EVERYTHING if text == SECRET else None  # noqa: E731
    with mock.patch.object(TOKENS, "_find", find):
        server = Server((config["address"], config["port"]), Quiet, connections_override={})
        server.set_app(WSGIHandler())
        server.serve_forever()


def main(role: str, config: dict[str, Any]) -> None:
    import django
    from django.conf import settings

    settings.configure(**config["settings"])
    django.setup()
    if role == "worker":
        os.nice(10)  # many; the one service has to answer them all
    roles = {"service": serve, "upkeep": look_after, "worker": lambda it: Worker(it).run()}
    roles[role](config)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children of forks are reaped
    main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))

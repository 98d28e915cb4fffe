"""What the tests of segments are made with: a loader, a source and a clock driven by hand."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.pace import Growth
from django_idgen.core.segment import STEP, Demand, Segment
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.sources.memory import MemorySource

LIMIT = 60  # seconds after which a test gives up on a thread; never reached when all is well


class ManualLoader:
    """Has a background, but it runs when the test says so; an urgent job runs at once."""

    background = True

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], object]] = deque()

    def submit(self, fn, *, urgent=False):
        future: Future[object] = Future()
        if urgent:
            future.set_result(fn())
        else:
            self.jobs.append(fn)
        return future

    def run(self) -> None:
        while self.jobs:
            self.jobs.popleft()()


class ScriptedSource(MemorySource):
    """A memory source that fails, answers or is held up as its test wishes."""

    def __init__(self, step: int = 10) -> None:
        super().__init__(step)
        self.failures: deque[BaseException] = deque()
        self.answers: deque[Segment] = deque()
        self.floors: list[int] = []
        self.demands: list[Demand] = []
        self.returned: list[tuple[str, range]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.abandoned = self.closed = 0

    def fetch(self, tag, *, floor=0, demand=STEP):
        self.floors.append(floor)
        self.demands.append(demand)
        self.entered.release()
        assert self.gate.wait(LIMIT)
        if self.failures:
            raise self.failures.popleft()
        if self.answers:
            return self.answers.popleft()
        return super().fetch(tag, floor=floor, demand=demand)

    def give_back(self, tag, ranges):
        self.returned += [(tag, each) for each in ranges]

    def abandon(self):
        self.abandoned += 1

    def close(self):
        self.closed += 1


class Time:
    """A clock whose hands only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sleeps: list[float] = []
        self.clock = replace(SYSTEM_CLOCK, stopwatch=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += max(seconds, 1e-6)


class Events(list):
    def __call__(self, name, /, **values):
        self.append((name, values))

    def names(self) -> list[str]:
        return [name for name, _ in self]


STILL = Growth(longest_step=1)
"""No growth: segments of the row's step."""


def manual(step: int = 10, **options):
    """A generator whose loader, source and clock do what its test says."""
    source, loader, events, time = ScriptedSource(step), ManualLoader(), Events(), Time()
    options.setdefault("growth", STILL)
    allocator = SegmentAllocator(source, loader, clock=time.clock, on_event=events, **options)
    return allocator.generator("order"), source, loader, events, time


def in_child(work: Callable[[], list[int]]) -> list[int]:
    """The numbers that ``work`` gives in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(LIMIT)  # a child that waits for its parent's lock fails, not hangs
        with suppress(BaseException):
            os.write(write, " ".join(str(int(value)) for value in work()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer, "the child failed"
    return [int(word) for word in answer.split()]


class Interrupted(BaseException):
    """What the signal's handler raises."""


def _interrupt(number: int, frame: object) -> NoReturn:
    raise Interrupted


def interrupt_again_and_again(
    times: int, call: Callable[[], object], after: Callable[[], object] = lambda: None
) -> None:
    """Repeat ``call`` until a signal interrupts it, then call ``after``; so many times.

    For the main thread of a child.
    """
    main, ready = threading.get_ident(), threading.Event()
    signal.signal(signal.SIGUSR1, _interrupt)
    sys.setswitchinterval(1e-4)
    # The interpreter swallows one that comes in a callback of its own: then another is sent.
    sys.unraisablehook = lambda _ignored: ready.set()

    def send() -> None:
        while ready.wait():
            ready.clear()
            SYSTEM_CLOCK.sleep(random.uniform(0, 1e-3))
            signal.pthread_kill(main, signal.SIGUSR1)

    threading.Thread(target=send, daemon=True).start()
    for _ in range(times):
        with suppress(Interrupted):
            ready.set()
            while True:
                call()
        after()

"""Where slow calls run: in one thread a loader, or at once in the caller's."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar
from weakref import WeakMethod

from .clock import SYSTEM_CLOCK

__all__ = [
    "AnyLoader",
    "BackgroundThread",
    "InlineLoader",
    "Loader",
    "RepeatingThread",
    "process_lock",
]

PATIENCE = 1.0
"""Seconds that a fork waits for our threads, at most and in all."""


class BackgroundThread(threading.Thread):
    """A daemon thread that a fork of the process waits for, after it called ``before_fork``.

    The fork does not start it again: its owner does at the next use. Python up to 3.13
    counts the threads that a fork's own hooks start, and would warn of them.
    """

    def __init__(
        self,
        name: str,
        target: Callable[[], object],
        *,
        before_fork: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.before_fork = before_fork
        _watch_forks()

    def start_if_possible(self) -> bool:
        """Start it; ``False`` if the interpreter is ending, or the system is out of threads."""
        try:
            self.start()
        except RuntimeError:
            return False
        return True

    def wait_for_end(self, deadline: float) -> None:
        """Come back when it has ended, or at ``deadline`` of the stopwatch."""
        with suppress(RuntimeError):  # it is just being started
            self.join(max(0.0, deadline - SYSTEM_CLOCK.stopwatch()))
        while self._is_counted() and SYSTEM_CLOCK.stopwatch() < deadline:
            SYSTEM_CLOCK.sleep(0.0001)

    def _is_counted(self) -> bool:
        """Whether Linux still has the thread, as it does for a moment after :meth:`join`."""
        # gevent's threads have the number of the thread that they all run in.
        other = self.native_id != threading.get_native_id()
        return other and os.path.exists(f"/proc/self/task/{self.native_id}")


class RepeatingThread:
    """Calls a bound method again and again, as many seconds apart as each call returns.

    The method's owner is held by a weak reference only: one that its user dropped must not
    live on here. A fork ends the thread; the owner starts it again at its next use.
    Not thread-safe, but for :meth:`wake`: the owner starts and stops it under its lock.
    """

    __slots__ = ("_stop", "_thread", "_wake")

    def __init__(self) -> None:
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread: BackgroundThread | None = None

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(
        self,
        turn: Callable[[], float],
        *,
        pause: float,
        name: str,
        before_fork: Callable[[], object] | None = None,
    ) -> None:
        """Start it, unless it runs: ``turn`` is first called after ``pause`` seconds.

        ``turn`` must not raise. A fork calls ``before_fork``, a bound method, too. Where no
        thread can be started nothing happens.
        """
        if self.is_alive():
            return
        # Events of its own: a thread that was told to stop stays told.
        self._stop, self._wake = stop, wake = threading.Event(), threading.Event()
        also = None if before_fork is None else WeakMethod(before_fork)
        thread = BackgroundThread(
            name,
            partial(_repeat, WeakMethod(turn), stop, wake, pause),
            before_fork=partial(_end_for_fork, stop, wake, also),
        )
        if thread.start_if_possible():
            self._thread = thread

    def wake(self) -> None:
        """Have the next call come now. Thread-safe."""
        self._wake.set()

    def stop(self) -> None:
        """Tell it to stop, without waiting. May be called twice, and before the start."""
        self._stop.set()
        self._wake.set()
        self._thread = None


def _repeat(
    turn: WeakMethod[Callable[[], float]],
    stop: threading.Event,
    wake: threading.Event,
    pause: float,
) -> None:
    while True:
        wake.wait(min(pause, threading.TIMEOUT_MAX))
        wake.clear()
        call = None if stop.is_set() else turn()
        if call is None:
            return
        pause = call()
        del call


def _end_for_fork(
    stop: threading.Event, wake: threading.Event, also: WeakMethod[Callable[[], object]] | None
) -> None:
    stop.set()
    wake.set()
    if also is not None and (call := also()) is not None:
        call()


_watching: list[bool] = []


def _watch_forks() -> None:
    # Not at import: such hooks run in reverse order, and ours must not come after those
    # that take locks for the fork, which a thread may need to end.
    if not _watching and hasattr(os, "register_at_fork"):
        _watching.append(True)
        os.register_at_fork(before=_before_fork)


def _before_fork() -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    # Again, since the turn of one may have had another start.
    while (threads := _running()) and SYSTEM_CLOCK.stopwatch() < deadline:
        for thread in threads:
            thread.before_fork()
        for thread in threads:
            thread.wait_for_end(deadline)


def _running() -> list[BackgroundThread]:
    own = threading.current_thread()
    return [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, BackgroundThread) and thread is not own
    ]


T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]

logger = logging.getLogger("django_idgen")
_process_locks: dict[int, threading.Lock] = {}


class AnyLoader(Protocol):
    """What a generator needs of a loader: :class:`Loader`, :class:`InlineLoader`, or a choice."""

    @property
    def background(self) -> bool:
        """Whether jobs run in a thread of their own. Asked under a lock: it must not block."""
        ...

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]: ...

    def reset(self) -> None: ...


def process_lock() -> threading.Lock:
    """This process' own lock, for dropping what came with a fork.

    An inherited lock may have been held, at the fork, by a thread that the child
    does not have; this one is made by the process that asks. Hold it briefly.
    """
    return _process_locks.setdefault(os.getpid(), threading.Lock())


class Loader:
    """Runs jobs one after another in a background thread. Safe to share between threads.

    The thread is a daemon, started when there is work; it ends when there is
    none left, after calling ``on_idle`` (which closes that thread's connection).
    Where no thread can be started any more (the interpreter is shutting down)
    jobs run in the caller's thread, followed by ``on_idle``.
    """

    background: ClassVar[bool] = True

    def __init__(
        self, name: str = "idgen-loader", *, on_idle: Callable[[], None] | None = None
    ) -> None:
        self.name = name
        self._on_idle = on_idle
        self.reset()

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        """Queue ``fn``; urgent jobs go before the others, else first come, first served.

        What ``fn`` raises, :class:`BaseException` included, goes to the future.
        """
        self._check_process()
        future: Future[T] = Future()
        if sys.is_finalizing():
            # Daemon threads are frozen by now, perhaps with our lock in hand.
            _run(fn, future)
            self._idle()
            return future
        with self._lock:
            (self._urgent if urgent else self._ordinary).append((fn, future))
            started = self._ensure_worker()
        if not started:
            self._work()
        return future

    def reset(self) -> None:
        """Forget the thread and all jobs, as the child of a fork must.

        The futures of dropped jobs are never completed: their locks came with the
        fork, too. A :meth:`submit` in another process does this, too.
        """
        self._lock = threading.Lock()
        self._urgent: deque[_Job] = deque()
        self._ordinary: deque[_Job] = deque()
        self._worker: BackgroundThread | None = None
        self._pid = os.getpid()  # last: a thread that reads it finds the rest done

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.reset()

    def _ensure_worker(self) -> bool:
        # Asking is_alive() as well revives a loader whose start was interrupted.
        if self._worker is not None and self._worker.is_alive():
            return True
        self._worker = BackgroundThread(self.name, self._work)
        if not self._worker.start_if_possible():
            self._worker = None
        return self._worker is not None

    def _work(self) -> None:
        while True:
            job = self._next_job()
            if job is not None:
                _run(*job)
                del job  # a job that waits must not keep the last one's result alive
                continue
            self._idle()
            with self._lock:
                # A job put in since then found a living thread and relies on it.
                if not (self._urgent or self._ordinary):
                    self._worker = None
                    return

    def _next_job(self) -> _Job | None:
        with self._lock:
            queue = self._urgent or self._ordinary
            return queue.popleft() if queue else None

    def _idle(self) -> None:
        _call_on_idle(self._on_idle)


class InlineLoader:
    """The interface of :class:`Loader`, but jobs run at once in the calling thread.

    For sources that are fast (memory) or that no other thread may touch (SQLite).
    ``on_idle`` is called after each job. Safe to share between threads.
    """

    background: ClassVar[bool] = False

    def __init__(self, *, on_idle: Callable[[], None] | None = None) -> None:
        self._on_idle = on_idle

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:  # noqa: ARG002
        """Run ``fn`` and return its future, completed."""
        future: Future[T] = Future()
        _run(fn, future)
        _call_on_idle(self._on_idle)
        return future

    def reset(self) -> None:
        """Nothing to forget."""


def _run(fn: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn()
    except BaseException as error:  # noqa: BLE001 - the future carries it to its reader
        future.set_exception(error)
    else:
        future.set_result(result)


def _call_on_idle(on_idle: Callable[[], None] | None) -> None:
    if on_idle is None:
        return
    try:
        on_idle()
    except Exception:
        logger.exception("Closing a loader's connection failed; the next job opens another.")

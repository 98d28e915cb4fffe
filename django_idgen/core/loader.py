"""Where slow calls run: in a thread of a loader, or at once in the caller's."""

from __future__ import annotations

import logging
import os
import sys
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakMethod

from .clock import SYSTEM_CLOCK

T = TypeVar("T")
PATIENCE = 1.0
"""Most seconds that a fork waits for all our threads together."""


def is_prefork() -> bool:
    """Whether uWSGI has loaded the application here only to fork this process.

    uWSGI forks its workers without running Python's fork hooks, any application may overwrite
    its own hook, and its master runs nothing at its end. So in the master no thread runs, which
    might have the GIL at the fork, and each call gives its grant back at its end.
    """
    # Not imported here: a thread that imports at a fork leaves the child a held lock.
    uwsgi: Any = sys.modules.get("uwsgi")
    if not hasattr(uwsgi, "worker_id"):
        return False
    # Mules and spoolers have no worker id either, but they do not fork.
    return uwsgi.worker_id() == 0 and uwsgi.masterpid() in {0, os.getpid()}


class Flag:
    """As :class:`threading.Event`, made of one lock. Thread-safe.

    An Event is Python code that takes a lock: an exception of a signal handler there leaves the
    lock taken, and the next call waits for ever.
    """

    __slots__ = ("_is_set", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False
        self._lock.acquire(blocking=False)

    def set(self) -> None:
        self._is_set = True
        self._free()

    def wait(self, timeout: float) -> bool:
        """Wait ``timeout`` seconds at most; whether it is set."""
        if not self._is_set and self._lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX)):
            self._free()
        return self._is_set

    def _free(self) -> None:
        with suppress(RuntimeError):  # it is free
            self._lock.release()


class Turn:
    """Runs calls one at a time. Thread-safe, but not re-entrant.

    ``Lock.acquire(timeout=…)`` leaves the lock taken if a signal handler raises just after it.
    Here the next call runs, whatever a handler raises.
    """

    __slots__ = ("_lock", "_running")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Flag | None = None

    def run(self, call: Callable[[], T], *, timeout: float, late: Callable[[], T]) -> T:
        """``call()``, once no other call runs; ``late()`` if one still does after ``timeout`` s.

        Raises what they raise.
        """
        mine = Flag()
        try:
            return call() if self._take(mine, timeout) else late()
        finally:
            with self._lock:  # nothing before it can be interrupted
                if self._running is mine:
                    self._running = None
            mine.set()

    def _take(self, mine: Flag, timeout: float) -> bool:
        deadline = SYSTEM_CLOCK.stopwatch() + timeout
        while True:
            with self._lock:
                running = self._running
                if running is None:
                    self._running = mine
                    return True
            if not running.wait(max(deadline - SYSTEM_CLOCK.stopwatch(), 0.0)):
                return False


class BackgroundThread(threading.Thread):
    """A daemon thread. A fork calls its ``before_fork`` and waits for the thread to end.

    Its owner starts it again at the next use, not the fork: Python up to 3.13 warns of threads
    that fork hooks start.
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
        """Start it; ``False`` if there can be no more threads, or must be none."""
        if is_prefork():
            return False
        try:
            self.start()
        except RuntimeError as error:
            if error.__context__ is not None:
                # It has started. An interrupt of the wait for that also broke threading's lock.
                raise error.__context__ from None
            return False
        return True

    def wait_for_end(self, deadline: float) -> None:
        """Wait until it has ended, or until ``deadline`` of the stopwatch."""
        with suppress(RuntimeError):  # it is just being started
            self.join(max(0.0, deadline - SYSTEM_CLOCK.stopwatch()))
        while self._is_counted() and SYSTEM_CLOCK.stopwatch() < deadline:
            SYSTEM_CLOCK.sleep(0.0001)

    def _is_counted(self) -> bool:
        """Whether Linux still counts the thread, as it does for a moment after :meth:`join`."""
        # gevent's threads all have the id of the thread that they run in.
        other = self.native_id != threading.get_native_id()
        return other and os.path.exists(f"/proc/self/task/{self.native_id}")


class RepeatingThread:
    """Calls a bound method again and again. Each call returns the seconds until the next.

    It has only a weak reference to the method's owner, so that an owner that is no longer used
    can go. A fork ends the thread; the owner starts it again at its next use.
    Only :meth:`wake` is thread-safe: the owner starts and stops it under its lock.
    """

    __slots__ = ("_stop", "_thread", "_wake")

    def __init__(self) -> None:
        self._stop, self._wake = Flag(), Flag()
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
        """Start it, unless it runs. The first call of ``turn`` is after ``pause`` seconds.

        ``turn`` must not raise. A fork also calls ``before_fork``, a bound method. Does nothing
        where no thread can be started.
        """
        if self.is_alive():
            return
        # New flags: an older thread must still stop.
        self._stop, self._wake = stop, wake = Flag(), Flag()
        also = None if before_fork is None else WeakMethod(before_fork)
        thread = BackgroundThread(
            name,
            partial(_repeat, WeakMethod(turn), stop, wake, pause),
            before_fork=partial(_end_for_fork, stop, wake, also),
        )
        if thread.start_if_possible():
            self._thread = thread

    def wake(self) -> None:
        """Make the next call now. Thread-safe."""
        self._wake.set()

    def stop(self) -> None:
        """Tell it to stop, without waiting. May be called twice, and before the start."""
        self._stop.set()
        self._wake.set()
        self._thread = None


def _repeat(
    turn: WeakMethod[Callable[[], float]],
    stop: Flag,
    wake: Flag,
    pause: float,
) -> None:
    while True:
        wake.wait(pause)
        wake.clear()
        call = None if stop.is_set() else turn()
        if call is None:
            return
        pause = call()
        del call


def _end_for_fork(stop: Flag, wake: Flag, also: WeakMethod[Callable[[], object]] | None) -> None:
    stop.set()
    wake.set()
    if also is not None and (call := also()) is not None:
        call()


_watching: list[bool] = []


def _watch_forks() -> None:
    # Not at import: fork hooks run in reverse order, and ours must not run after hooks that take
    # locks which a thread may need to end.
    if not _watching and hasattr(os, "register_at_fork"):
        _watching.append(True)
        os.register_at_fork(before=_before_fork)


def _before_fork() -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    # In a loop: the last turn of a thread may have started another thread.
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


_Job = tuple[Callable[[], Any], "Future[Any]"]

logger = logging.getLogger("django_idgen")
_process_locks: dict[int, AbstractContextManager[Any]] = {}


def process_lock() -> AbstractContextManager[Any]:
    """A lock that this process made, for dropping what came with a fork. Hold it briefly.

    An inherited lock may be held by a thread that the child does not have. Re-entrant: what an
    object drops may itself have to drop what it inherited.
    """
    return _process_locks.setdefault(os.getpid(), threading.RLock())


class PerProcess:
    """Something that the child of a fork must not use as its parent left it.

    Python's fork hooks call :meth:`forget` in the child. uWSGI forks without them, so each use
    calls :meth:`check_process` first. Thread-safe.
    """

    __slots__ = ()
    _pid: int
    """The process that made it, or forgot last."""

    @abstractmethod
    def forget(self) -> None:
        """Drop what the child of a fork inherited.

        Sets ``_pid`` last: a thread that reads it finds the rest done.
        """

    def check_process(self) -> None:
        """Forget, in a forked child that has not yet."""
        if self._pid != os.getpid():
            with process_lock():
                if self._pid != os.getpid():
                    self.forget()


class Loader(PerProcess):
    """Runs jobs in their order, in ``threads`` background threads at most. Thread-safe.

    A thread is a daemon that starts when there is work, and ends when there is none left, after
    calling ``on_idle`` (which closes that thread's connection). A job runs in the caller's
    thread, followed by ``on_idle``, while ``inline()`` is true, and where no thread can be
    started (the interpreter is shutting down) or may be (before uWSGI forks).
    """

    def __init__(
        self,
        name: str = "idgen-loader",
        *,
        threads: int = 1,
        inline: Callable[[], bool] = lambda: False,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._most = threads
        self._inline = inline
        self._on_idle = on_idle
        self.forget()

    @property
    def background(self) -> bool:
        """Whether jobs run in another thread. Called under a lock: it does not block."""
        return not (self._inline() or is_prefork())

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        """Queue ``fn``. Urgent jobs run first, otherwise in order.

        Any exception of ``fn``, even a :class:`BaseException`, goes to the future. An interrupt
        of a job in this thread is raised here, too.
        """
        self.check_process()
        future: Future[T] = Future()
        # Daemon threads of an interpreter that ends are frozen, perhaps while they hold our lock.
        if not self.background or sys.is_finalizing():
            _run(fn, future)
            _call_on_idle(self._on_idle)
            return _not_interrupted(future)
        with self._lock:
            (self._urgent if urgent else self._ordinary).append((fn, future))
            started = self._ensure_thread()
        if started:
            return future
        self._work()
        return _not_interrupted(future)

    def forget(self) -> None:
        """Drop the threads and all jobs, as the child of a fork must.

        The futures of dropped jobs never complete: their locks came with the fork.
        """
        self._lock = threading.Lock()
        self._urgent: deque[_Job] = deque()
        self._ordinary: deque[_Job] = deque()
        self._threads: list[threading.Thread] = []
        self._pid = os.getpid()

    def _ensure_thread(self) -> bool:
        # Without those whose start was interrupted.
        self._threads = [each for each in self._threads if each.is_alive()]
        if len(self._threads) < self._most:
            thread = BackgroundThread(self.name, self._work)
            if thread.start_if_possible():
                self._threads.append(thread)
        return bool(self._threads)

    def _work(self) -> None:
        while True:
            job = self._next_job()
            if job is not None:
                _run(*job)
                del job  # or an idle loop would keep the last result alive
                continue
            SYSTEM_CLOCK.sleep(0)  # those who wait go on before the connection is closed
            _call_on_idle(self._on_idle)
            with self._lock:
                # A job that was added since then relies on this thread.
                if not (self._urgent or self._ordinary):
                    own = threading.current_thread()
                    self._threads = [each for each in self._threads if each is not own]
                    return

    def _next_job(self) -> _Job | None:
        with self._lock:
            queue = self._urgent or self._ordinary
            return queue.popleft() if queue else None


def inline_loader() -> Loader:
    """For sources that are fast, or that no other thread may use."""
    return Loader(inline=lambda: True)


SEVERAL = 16
"""Threads for fetches from several servers, so that one that does not answer stops no other."""


def _run(fn: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn()
    except BaseException as error:  # noqa: BLE001 - the future carries it to its reader
        future.set_exception(error)
    else:
        future.set_result(result)


def _not_interrupted(future: Future[T]) -> Future[T]:
    """``future`` of a job that this thread has run."""
    error = future.exception() if future.done() else None
    if error is None or isinstance(error, Exception):
        return future
    raise error


def _call_on_idle(on_idle: Callable[[], None] | None) -> None:
    if on_idle is None:
        return
    try:
        on_idle()
    except Exception:
        logger.exception("Closing a loader's connection failed; the next job opens another.")

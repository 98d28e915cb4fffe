"""The loader: jobs in order, in a thread that comes and goes without losing one."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

from django_idgen.core.loader import (
    BackgroundThread,
    Flag,
    Loader,
    PerProcess,
    Turn,
    inline_loader,
)
from tests.segment_tools import LIMIT, Interrupted, in_child, interrupt_again_and_again


def hold(loader: Loader) -> threading.Event:
    """Keep the loader's thread busy until the returned event is set."""
    busy, release = threading.Event(), threading.Event()

    def job() -> None:
        busy.set()
        release.wait(LIMIT)

    loader.submit(job)
    assert busy.wait(LIMIT)
    return release


def join(loader: Loader) -> None:
    for thread in loader._threads:
        thread.join(LIMIT)
    assert loader._threads == []


def test_urgent_jobs_go_first_and_equals_keep_their_order():
    """First use goes before preloads; among equals first come is first served."""
    loader, order = Loader(), []
    release = hold(loader)
    jobs = [("a", False), ("b", True), ("c", False), ("d", True)]
    futures = [loader.submit(lambda n=n: order.append(n), urgent=u) for n, u in jobs]
    release.set()
    wait(futures, LIMIT)
    assert order == ["b", "d", "a", "c"]


def test_one_thread_runs_all_jobs_of_one_busy_spell():
    """However many jobs wait, a loader has one thread."""
    loader = Loader()
    release = hold(loader)
    futures = [loader.submit(threading.get_ident) for _ in range(20)]
    release.set()
    assert len({future.result(LIMIT) for future in futures}) == 1


def test_the_thread_ends_after_on_idle_in_that_very_thread():
    """The connection is closed by the thread that opened it, and no thread stays behind."""
    closed_in: list[int] = []
    loader = Loader(on_idle=lambda: closed_in.append(threading.get_ident()))
    ran_in = loader.submit(threading.get_ident).result(LIMIT)
    join(loader)
    assert closed_in == [ran_in]


def test_a_job_that_comes_during_on_idle_is_run_and_on_idle_called_again():
    """A job put in while the thread is ending is not lost, nor its connection left open."""
    loader = Loader()
    late: list[Future[str]] = []
    calls: list[int] = []

    def on_idle() -> None:
        calls.append(1)
        if not late:
            late.append(loader.submit(lambda: "late"))

    loader._on_idle = on_idle
    loader.submit(lambda: None).result(LIMIT)
    join(loader)
    assert late[0].result(LIMIT) == "late"
    assert len(calls) == 2


def test_no_job_is_lost_while_threads_come_and_go():
    """Many threads that submit to a loader that is always about to end: all jobs are run."""
    loader = Loader(on_idle=lambda: None)

    def submitter(_: int) -> int:
        return sum(loader.submit(lambda: 1).result(LIMIT) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(submitter, range(8))) == 1600


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("loader", [Loader(), inline_loader()])
def test_whatever_a_job_raises_goes_to_its_future(loader, error):
    """A job can't end the loader: the next one is run all the same."""

    def job() -> None:
        raise error

    if loader.background or isinstance(error, Exception):
        assert loader.submit(job).exception(LIMIT) is error
    else:  # an interrupt of the caller's own thread
        with pytest.raises(type(error)):
            loader.submit(job)
    assert loader.submit(lambda: "next").result(LIMIT) == "next"


def test_an_on_idle_that_fails_is_logged_and_ends_nothing(caplog):
    """A connection that can't be closed doesn't stop later loads."""
    loader = Loader(on_idle=lambda: 1 / 0)
    loader.submit(lambda: None).result(LIMIT)
    join(loader)
    assert loader.submit(lambda: "next").result(LIMIT) == "next"
    join(loader)
    assert "ZeroDivisionError" in caplog.text


def test_without_threads_jobs_run_in_the_caller_followed_by_on_idle(monkeypatch):
    """While the interpreter shuts down ids can still be had, and connections are closed."""
    seen: list[object] = []
    loader = Loader(on_idle=lambda: seen.append("idle"))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    future = loader.submit(threading.get_ident)
    assert future.result(0) == threading.get_ident()
    assert seen == ["idle"]
    monkeypatch.undo()
    assert loader.submit(threading.get_ident).result(LIMIT) != threading.get_ident()


def test_while_finalizing_no_lock_is_asked_for(monkeypatch):
    """A daemon thread frozen by the shutdown may hold the lock: the job runs without it."""
    loader = Loader()
    loader._lock.acquire()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    assert loader.submit(lambda: "ran").result(0) == "ran"


def test_a_start_that_was_interrupted_leaves_a_loader_that_works(monkeypatch):
    """An interrupt between making and starting the thread doesn't kill the loader."""
    loader = Loader()

    def interrupt(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt):
        loader.submit(lambda: None)
    monkeypatch.undo()
    assert loader.submit(lambda: "next").result(LIMIT) == "next"


class Owner(PerProcess):
    """Drops what its loader inherited, as an allocator drops what its source did."""

    def __init__(self) -> None:
        self.loader = Loader()
        self._pid = os.getpid()

    def forget(self) -> None:
        self.loader.check_process()
        self._pid = os.getpid()


def test_a_child_that_ran_no_hooks_does_not_wait_for_itself():
    """What forgets makes others forget, which would take the same lock."""
    owner = Owner()
    owner._pid = owner.loader._pid = -1  # as after such a fork
    check = threading.Thread(target=owner.check_process, daemon=True)
    check.start()
    check.join(LIMIT)
    assert not check.is_alive()
    assert owner._pid == owner.loader._pid == os.getpid()


def test_forgetting_drops_jobs_and_a_lock_that_is_held():
    """A child's loader starts anew, even if the parent held its lock at the fork."""
    loader, ran = Loader(), []
    release = hold(loader)
    dropped = loader.submit(lambda: ran.append("dropped"))
    with loader._lock:
        loader.forget()
        assert loader.submit(lambda: "fresh").result(LIMIT) == "fresh"
    release.set()
    join(loader)
    assert (ran, dropped.done()) == ([], False)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_whose_hooks_did_not_run_has_a_loader_that_works():
    """In a forked child the parent's thread and lock are noticed to be gone."""
    loader = Loader()
    release = hold(loader)
    loader._lock.acquire()
    try:
        (own,) = in_child(lambda: [loader.submit(os.getpid).result(LIMIT) == os.getpid()])
    finally:
        loader._lock.release()
        release.set()
    assert own


def test_a_flag_is_set_once_for_all_who_wait():
    """As an Event: also for those who come later, until it is cleared; set twice is fine."""
    flag = Flag()
    assert not flag.wait(0.001)
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(flag.wait, LIMIT) for _ in range(8)]
        flag.set()
        flag.set()
        assert all(each.result(LIMIT) for each in waiting)
    assert flag.wait(LIMIT)
    flag.clear()
    assert (flag.is_set(), flag.wait(0.001)) == (False, False)


def test_one_call_has_its_turn_and_the_others_wait_or_come_late():
    """The next one runs when it is over, also after an error; who waited too long is told."""
    turn, running, go_on = Turn(), threading.Event(), threading.Event()

    def long() -> str:
        running.set()
        assert go_on.wait(LIMIT)
        raise KeyError("over")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(turn.run, long, timeout=LIMIT, late=str)
        assert running.wait(LIMIT)
        assert turn.run(int, timeout=0.001, late=lambda: "late") == "late"
        second = pool.submit(turn.run, lambda: "second", timeout=LIMIT, late=str)
        assert turn._running is not None
        go_on.set()
        with pytest.raises(KeyError):
            first.result(LIMIT)
        assert second.result(LIMIT) == "second"
    assert turn._running is None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_interrupt_leaves_nobodys_turn_taken():
    """Hazard 121: signals at any moment, of which the handler raises. The next call runs."""
    turn = Turn()

    def work() -> list[int]:
        found: list[bool] = []
        interrupt_again_and_again(
            700,
            lambda: turn.run(int, timeout=LIMIT, late=int),
            lambda: found.append(turn._running is not None),
        )
        return [any(found)]

    assert in_child(work) == [0]


class InterruptedStart(BackgroundThread):
    """An interrupt comes while threading waits for it; threading then frees a lock twice."""

    def start(self) -> None:
        super().start()
        try:
            raise Interrupted
        finally:
            threading.Lock().release()


def test_an_interrupt_of_a_threads_start_reaches_the_caller():
    """Hazard 121: it looked as if no thread could be started, and nobody heard of it."""
    ran = threading.Event()
    with pytest.raises(Interrupted):
        InterruptedStart("late", ran.set).start_if_possible()
    assert ran.wait(LIMIT)


def test_an_inline_loader_runs_at_once_in_the_caller():
    """Where no other thread may touch the source, none does; whether that is so may change."""
    closed: list[str] = []
    answers = [True]
    loader = Loader(inline=lambda: answers[0], on_idle=lambda: closed.append("idle"))
    assert loader.submit(threading.get_ident, urgent=True).result(0) == threading.get_ident()
    assert closed == ["idle"]
    assert not loader.background
    answers[0] = False
    assert loader.background
    assert loader.submit(threading.get_ident).result(LIMIT) != threading.get_ident()
    assert not inline_loader().background


def test_a_job_that_hangs_stops_no_other_where_there_are_more_threads():
    """As many run at a time as there are threads; all of those end."""
    loader = Loader(threads=3)
    releases = [hold(loader), hold(loader)]
    assert [loader.submit(lambda n=n: n).result(LIMIT) for n in range(20)] == list(range(20))
    releases.append(hold(loader))
    queued = loader.submit(lambda: "queued")
    assert len(loader._threads) == 3
    assert not queued.done()
    for release in releases:
        release.set()
    assert queued.result(LIMIT) == "queued"
    join(loader)

"""Ids for coroutines and greenlets: nothing but the caller waits."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_idgen.core.errors import GeneratorClosed, SegmentExhausted, SegmentUnavailable
from django_idgen.core.loader import Loader, inline_loader
from django_idgen.core.segment_generator import LockedSegmentGenerator, SegmentAllocator
from tests.segment_tools import LIMIT, STILL, Events, ScriptedSource, manual

LOADERS = [Loader(), inline_loader()]


def made(source: ScriptedSource, loader, **options):
    options = {"timeout": LIMIT, "growth": STILL, **options}
    return SegmentAllocator(source, loader, **options).generator("order")


async def until(condition) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0)


async def begun(source: ScriptedSource) -> None:
    """Come back once a thread has begun a load."""
    assert await asyncio.to_thread(source.entered.acquire, timeout=LIMIT)


@pytest.mark.parametrize("loader", LOADERS)
def test_coroutines_get_the_ids_that_threads_would(loader):
    """One at a time and in batches longer than the step, rising and without a gap."""

    async def work() -> list[int]:
        generator = made(ScriptedSource(7), loader)
        ids = [await generator.anext_id() for _ in range(20)]
        return [*ids, *await generator.anext_ids(50), *await generator.anext_ids(0)]

    assert asyncio.run(work()) == list(range(1, 71))


@pytest.mark.parametrize("loader", LOADERS)
def test_the_loop_goes_on_while_a_load_takes_its_time(loader):
    """Also where loads have no thread of their own: SQLite's disk doesn't stop the server."""
    source = ScriptedSource(10)
    source.gate.clear()
    generator = made(source, loader)

    async def work() -> int:
        waiting = asyncio.create_task(generator.anext_id())
        await begun(source)
        for _ in range(20):
            await asyncio.sleep(0)
            assert not waiting.done()
        source.gate.set()  # the loop itself lets the load go on: it can't be held up by it
        return await waiting

    assert asyncio.run(work()) == 1


@pytest.mark.parametrize("loader", LOADERS)
def test_thousands_of_tasks_are_served_by_one_load_and_no_thread_each(loader):
    """Hazards 19, 20: all that wait are woken by the load, and each gets its own id."""
    source = ScriptedSource(10_000)
    source.gate.clear()
    generator = made(source, loader)

    async def work() -> tuple[list[int], int]:
        tasks = [asyncio.create_task(generator.anext_id()) for _ in range(3000)]
        await begun(source)
        await asyncio.sleep(0)
        threads = threading.active_count()
        source.gate.set()
        return await asyncio.gather(*tasks), threads

    before = threading.active_count()
    ids, threads = asyncio.run(work())
    assert sorted(ids) == list(range(1, 3001))
    assert len(source.demands) <= 2
    assert threads <= before + 2
    assert generator.stats().waits == 3000


def test_of_many_tasks_one_has_an_inline_load_run():
    """The executor's queue, which others use, too, is not filled with a job a task."""
    generator = made(ScriptedSource(10_000), inline_loader())
    queue = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        run, loop.run_in_executor = loop.run_in_executor, lambda *job: queue.append(job)
        tasks = [asyncio.create_task(generator.anext_id()) for _ in range(100)]
        await until(lambda: generator._pending and generator._pending.at_least == 100)
        for job in queue:
            await run(*job)
        await asyncio.gather(*tasks)

    asyncio.run(work())
    assert len(queue) == 1


def test_tasks_and_threads_wait_for_the_same_load():
    """A thread's next_id() and a task's anext_id() at one moment: one fetch."""
    source, begun, busy = ScriptedSource(100), threading.Event(), threading.Event()
    loader = Loader()
    # The load stands behind this until both wait; it would go first if this had not begun.
    loader.submit(lambda: (begun.set(), busy.wait(LIMIT)))
    assert begun.wait(LIMIT)
    generator = made(source, loader)

    async def work() -> list[int]:
        task = asyncio.create_task(generator.anext_ids(5))
        thread = asyncio.create_task(asyncio.to_thread(generator.next_ids, 5))
        await until(lambda: generator._pending and generator._pending.at_least == 10)
        busy.set()
        return [*await task, *await thread]

    assert sorted(asyncio.run(work())) == list(range(1, 11))
    assert len(source.demands) == 1


def test_a_cancelled_task_leaves_the_others_their_ids():
    """The one who began the load goes; what it asked for is there for those who stay."""
    for loader in LOADERS:
        source = ScriptedSource(10)
        source.gate.clear()
        generator = made(source, loader)

        async def work(generator=generator, source=source) -> list[int]:
            first = asyncio.create_task(generator.anext_id())
            await begun(source)
            others = [asyncio.create_task(generator.anext_id()) for _ in range(3)]
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            source.gate.set()
            return await asyncio.gather(*others)

        assert sorted(asyncio.run(work())) == [1, 2, 3]


def test_past_the_deadline_a_coroutine_is_told_why():
    """I6: the same error as for threads, the cause chained; and the next call tries again."""
    source = ScriptedSource(10)
    generator = made(source, Loader(), timeout=0.05)
    down = OSError("connection refused")

    async def work() -> None:
        source.failures.extend([down] * 1000)
        with pytest.raises(SegmentUnavailable, match=r"0\.05 s.*refused") as caught:
            await generator.anext_id()
        assert caught.value.__cause__ is down
        source.failures.clear()
        await _id_in_time(generator)

    asyncio.run(work())


async def _id_in_time(generator) -> int:
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return await generator.anext_id()
            except SegmentUnavailable:
                continue


@pytest.mark.parametrize("loader", [Loader, inline_loader])
def test_a_thousand_tasks_fail_in_time_whatever_the_executor_does(loader):
    """Each by its own deadline: none waits for a thread, which others may use up."""
    source, busy, freed = ScriptedSource(10), threading.Event(), threading.Event()
    source.gate.clear()
    generator = made(source, loader(), timeout=0.05)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, lambda: (busy.set(), freed.wait(LIMIT)))
        assert busy.wait(LIMIT)
        for _ in range(3):
            results = await asyncio.gather(
                *(generator.anext_id() for _ in range(1000)), return_exceptions=True
            )
            assert {type(result) for result in results} == {SegmentUnavailable}
        assert len(generator._pending.loops) == 1  # nothing piles up
        assert not freed.is_set()
        freed.set()
        source.gate.set()

    asyncio.run(work())


def test_what_waiting_does_not_mend_is_raised_at_once_in_coroutines_too():
    """The end of the ids, and a closed generator."""
    generator, source, _, _, _ = manual()
    source.failures.append(SegmentExhausted("the end"))

    async def work() -> None:
        with pytest.raises(SegmentExhausted):
            await generator.anext_id()
        waiting = asyncio.create_task(made_generator.anext_id())
        await begun(gated)
        made_generator.close()
        with pytest.raises(GeneratorClosed):
            await waiting
        gated.gate.set()

    gated = ScriptedSource()
    gated.gate.clear()
    made_generator = made(gated, Loader())
    asyncio.run(work())


@pytest.mark.parametrize("n", [True, -1, "3"])
def test_a_wrong_count_is_refused_by_coroutines_too(n):
    """As next_ids() does."""
    with pytest.raises((TypeError, ValueError)):
        asyncio.run(manual()[0].anext_ids(n))


def test_without_a_gil_coroutines_take_under_the_lock():
    """The locked variant gives coroutines the same ids."""
    allocator = SegmentAllocator(ScriptedSource(7), inline_loader(), growth=STILL)
    generator = LockedSegmentGenerator("order", allocator)

    async def work() -> list[int]:
        return [await generator.anext_id() for _ in range(20)] + await generator.anext_ids(30)

    assert asyncio.run(work()) == list(range(1, 51))


def test_a_loop_that_is_gone_does_not_fail_the_load():
    """A task's loop was closed while it waited: threads get their ids from that load."""
    source, events = ScriptedSource(10), Events()
    source.gate.clear()
    generator = made(source, Loader(), on_event=events)
    loop = asyncio.new_event_loop()
    taking = generator.anext_id()
    task = loop.create_task(taking)
    loop.run_until_complete(asyncio.sleep(0))
    load = generator._pending
    assert load is not None
    loop.run_until_complete(asyncio.sleep(0))
    assert len(load.loops) == 1
    task._log_destroy_pending = False
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    source.gate.set()
    assert generator.next_id() == 1
    assert load.loops == {}
    generator._services.close()
    generator._services.loader.submit(lambda: None, urgent=True).result(LIMIT)  # the job is over
    assert "segment_loaded" in events.names()


# --- greenlets ------------------------------------------------------------------------------


GREENLETS = """
    from gevent import monkey
    monkey.patch_all()
    import gevent
    from gevent.event import Event
    from django_idgen.core.loader import Loader
    from django_idgen.core.segment_generator import SegmentAllocator
    from django_idgen.sources.memory import MemorySource

    class Slow(MemorySource):
        fetches = 0
        def fetch(self, tag, **asked):
            Slow.fetches += 1
            assert turned.wait(60)  # what the others do, which a blocked hub would not let
            return super().fetch(tag, **asked)

    generator = SegmentAllocator(Slow(1000), Loader(), timeout=60).generator("order")
    turned = Event()
    def others():
        for _ in range(20):
            gevent.sleep(0)
        turned.set()
    tasks = [gevent.spawn(generator.next_id) for _ in range(50)]
    gevent.spawn(others)
    gevent.joinall(tasks, timeout=60)
    print(sorted(task.value for task in tasks) == list(range(1, 51)), Slow.fetches)
"""


def test_greenlets_that_wait_let_the_others_go_on():
    """With gevent's patches a wait yields to the hub; one load serves all."""
    pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GREENLETS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["True", "1"], done.stderr

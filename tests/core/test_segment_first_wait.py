"""A tag's first segment, which takes longest, is waited for longer; what is away is not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_idgen.core.errors import ConfigurationError, SegmentUnavailable
from django_idgen.core.loader import Loader
from django_idgen.core.segment_generator import SegmentAllocator
from tests.segment_tools import LIMIT, STILL, ScriptedSource, manual

SHORT = 0.01
FIRST = 0.05


def gated(first_timeout: float) -> tuple[SegmentAllocator, ScriptedSource]:
    """Loads in a thread of its own, which go on when the test opens the source's gate."""
    source = ScriptedSource(10)
    source.gate.clear()
    allocator = SegmentAllocator(
        source, Loader(), timeout=SHORT, first_timeout=first_timeout, growth=STILL
    )
    return allocator, source


def limit_of(allocator: SegmentAllocator, tag: str) -> str:
    with pytest.raises(SegmentUnavailable) as caught:
        allocator.generator(tag).next_id()
    return str(caught.value).partition("within ")[2].partition(" (")[0]


@pytest.mark.parametrize("coroutine", [False, True])
def test_the_first_segment_may_take_longer_than_the_timeout(coroutine):
    """A connection is opened and tables are made: a slow machine is no failure."""
    allocator, source = gated(LIMIT)
    threading.Timer(5 * SHORT, source.gate.set).start()
    generator = allocator.generator("order")
    assert (asyncio.run(generator.anext_id()) if coroutine else generator.next_id()) == 1


def test_later_segments_are_waited_for_no_longer_than_the_timeout():
    """Whoever runs dry in a request learns it within the time that was set for it."""
    allocator, source = gated(FIRST)
    source.gate.set()
    assert allocator.generator("order").preload(LIMIT)
    source.gate.clear()
    with pytest.raises(SegmentUnavailable, match=rf"within {SHORT} s"):
        allocator.generator("order").next_ids(100)
    source.gate.set()


def test_a_source_that_kept_somebody_waiting_in_vain_is_not_waited_for_again():
    """Of a thousand tags in front of a dead server, not each costs the long wait."""
    allocator, source = gated(FIRST)
    assert limit_of(allocator, "order") == f"{FIRST} s"
    assert [limit_of(allocator, tag) for tag in ("order", "invoice")] == [f"{SHORT} s"] * 2
    source.gate.set()
    assert allocator.generator("tea").preload(LIMIT)
    source.gate.clear()
    assert limit_of(allocator, "cocoa") == f"{FIRST} s"  # it had answered
    allocator.forget()  # as the child of a fork does
    assert limit_of(allocator, "milk") == f"{FIRST} s"
    source.gate.set()


@pytest.mark.parametrize("takes", [0.0, 0.3])
def test_once_a_load_has_failed_the_timeout_counts(takes):
    """A server that refuses is tried for as long as ever, and other tags don't wait for it."""
    generator, source, _, _, clock = manual(timeout=0.5, first_timeout=5.0)
    fetch = source.fetch

    def fails(*args, **options):
        clock.sleep(takes)
        source.failures.append(OSError("refused"))
        return fetch(*args, **options)

    source.fetch = fails
    with pytest.raises(SegmentUnavailable, match=r"within 0\.5 s .*refused"):
        generator.next_id()
    assert clock.now - 100 <= 0.5 + takes + 1e-3
    began = clock.now
    with pytest.raises(SegmentUnavailable, match=r"within 0\.5 s .*refused"):
        generator._services.generator("another").next_id()
    assert clock.now - began <= 0.5 + takes + 1e-3


def test_a_first_load_that_takes_seconds_to_fail_is_the_only_one():
    """The error says what it took, and is that of the load: not that it is under way."""
    generator, source, _, _, clock = manual(timeout=0.5, first_timeout=5.0)
    fetch = source.fetch

    def fails_late(*args, **options):
        clock.sleep(3.2)
        source.failures.append(OSError("no route"))
        return fetch(*args, **options)

    source.fetch = fails_late
    with pytest.raises(SegmentUnavailable, match=r"within 3 s \(the last failure: no route"):
        generator.next_id()
    assert len(source.floors) == 1


def test_after_a_failure_of_one_tag_no_other_waits_for_long():
    """Nothing was granted since: the next tag's load, which hangs, is likely to be in vain."""
    allocator, source = gated(FIRST)
    source.gate.set()
    source.failures.append(ConfigurationError("no such table"))
    with pytest.raises(ConfigurationError):
        allocator.generator("order").preload(LIMIT)
    source.gate.clear()
    assert limit_of(allocator, "invoice") == f"{SHORT} s"
    source.gate.set()


@pytest.mark.parametrize("coroutine", [False, True])
def test_who_waits_already_hears_of_anothers_failure(coroutine):
    """Of a thousand tags that are asked for at once, each in its turn would fail as slowly."""
    allocator, source = gated(LIMIT)
    answers = source.fetch
    failed = threading.Event()

    def fetch(tag, **options):
        if tag == "order":
            source.entered.release()
            assert failed.wait(LIMIT)
            raise OSError("no route")
        return answers(tag, **options)

    source.fetch = fetch
    others = ThreadPoolExecutor(1)
    others.submit(allocator.generator("order").next_id)
    assert source.entered.acquire(timeout=LIMIT)
    threading.Timer(3 * SHORT, failed.set).start()
    generator = allocator.generator("invoice")  # whose load stands behind the other's
    with pytest.raises(SegmentUnavailable) as caught:
        asyncio.run(generator.anext_id()) if coroutine else generator.next_id()
    assert f"within {LIMIT} s" not in str(caught.value)
    source.gate.set()
    others.shutdown()


def test_a_tag_that_failed_is_not_waited_for_long_because_another_was_granted():
    """Its own row may be locked, while the database goes on for all others."""
    allocator, source = gated(FIRST)
    source.gate.set()
    source.failures.append(ConfigurationError("no such column"))
    with pytest.raises(ConfigurationError):
        allocator.generator("order").preload(LIMIT)
    assert allocator.generator("invoice").preload(LIMIT)
    source.gate.clear()
    assert limit_of(allocator, "order") == f"{SHORT} s"
    source.gate.set()


def test_each_segment_of_a_batch_is_waited_for_anew():
    """What comes in parts may take longer in all than the timeout, as long as it comes."""
    generator, source, _, _, clock = manual(step=10, timeout=0.5)
    fetch = source.fetch

    def slow(*args, demand, **options):
        clock.sleep(0.4)
        return fetch(*args, **options)  # of the row's step, whatever is asked for

    source.fetch = slow
    assert generator.next_ids(50) == list(range(1, 51))

"""Clocks: the registry's time by an anchor, and the host's clocks under frozen time."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core import clock as clock_module
from django_idgen.core.clock import SYSTEM_CLOCK, AnchoredClock, Clock, Reading

SECOND = 1_000_000  # µs
NOW_US = 1_800_000_000 * SECOND


class Hand:
    """An elapsed clock that is moved by hand, in µs."""

    def __init__(self) -> None:
        self.us = 0
        self.clock = Clock(
            stopwatch=lambda: self.us / 1e6,
            elapsed_ns=lambda: self.us * 1000,
            wall_ns=lambda: 0,
            sleep=lambda seconds: None,
        )

    def reading(self, registry_us: int, round_trip_us: int = 0) -> Reading:
        sent = self.us * 1000
        self.us += round_trip_us
        return Reading(registry_us, sent, self.us * 1000)


def anchored(skew_limit_us: int = 10 * SECOND) -> tuple[Hand, AnchoredClock]:
    hand = Hand()
    anchored = AnchoredClock(hand.clock, skew_limit_us)
    assert anchored.observe(hand.reading(NOW_US)) is None
    return hand, anchored


def test_the_registrys_time_goes_on_by_elapsed_time():
    """Now is the last reading plus what this host has measured since."""
    hand, now = anchored()
    hand.us += 1234
    assert now.now_us() == NOW_US + 1234


def test_there_is_no_time_without_a_reading():
    """A clock that was never anchored says so instead of making a time up."""
    unread = AnchoredClock(Hand().clock, 0)
    with pytest.raises(RuntimeError, match="never read"):
        unread.now_us()


def test_a_reading_is_of_the_middle_of_its_round_trip():
    """The error of a slow reading is half of its round trip at most."""
    hand = Hand()
    now = AnchoredClock(hand.clock, 0)
    now.observe(hand.reading(NOW_US, round_trip_us=100))
    assert now.now_us() == NOW_US + 50


@given(offset=st.integers(-5 * SECOND, 5 * SECOND), trip=st.integers(0, SECOND))
def test_an_anchor_is_replaced_only_by_what_differs_by_more_than_its_round_trip(offset, trip):
    """Noise of the line does not move the clock to and fro; a real difference does."""
    hand, now = anchored()
    hand.us += 60 * SECOND
    reading = hand.reading(NOW_US + 60 * SECOND + offset + trip // 2, trip)
    before = now.now_us()
    assert now.observe(reading) is None
    moved = now.now_us() - before
    assert abs(moved - (offset if abs(offset) > trip else 0)) <= 1


@pytest.mark.parametrize("offset", [11 * SECOND, -11 * SECOND, 3600 * SECOND])
def test_a_reading_past_the_skew_limit_is_refused_and_told(offset):
    """One of two clocks was stepped; the reckoning goes on as it was."""
    hand, now = anchored()
    assert now.observe(hand.reading(NOW_US + offset)) == offset
    assert now.now_us() == NOW_US


def test_the_skew_limit_itself_is_allowed():
    """The limit is the last value that is taken."""
    hand, now = anchored()
    assert now.observe(hand.reading(NOW_US - 10 * SECOND)) is None
    assert now.now_us() == NOW_US - 10 * SECOND


def test_a_new_lease_starts_on_the_registrys_time_whatever_was_before():
    """With ``restart`` nothing is refused."""
    hand, now = anchored()
    assert now.observe(hand.reading(NOW_US - 3600 * SECOND), restart=True) is None
    assert now.now_us() == NOW_US - 3600 * SECOND


def test_a_round_trip_is_never_negative():
    """An elapsed clock that is coarse, or odd, does not make a reading exact."""
    assert Reading(0, sent_ns=2000, received_ns=1000).round_trip_us == 0


def test_elapsed_time_counts_suspension_where_the_system_can():
    """On Linux it is ``CLOCK_BOOTTIME``."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        assert SYSTEM_CLOCK.elapsed_ns() > 0
        return
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= SYSTEM_CLOCK.elapsed_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_the_clocks_go_on_while_a_test_freezes_time(frozen):
    """Hazard 64: neither package stops, or moves, the clocks that ids depend on."""
    real = SYSTEM_CLOCK.wall_ns()
    with frozen:
        assert datetime.now(UTC).year == 1999
        started = SYSTEM_CLOCK.stopwatch(), SYSTEM_CLOCK.elapsed_ns(), SYSTEM_CLOCK.wall_ns()
        SYSTEM_CLOCK.sleep(0.03)
        ended = SYSTEM_CLOCK.stopwatch(), SYSTEM_CLOCK.elapsed_ns(), SYSTEM_CLOCK.wall_ns()
        assert all(after > before for before, after in zip(started, ended, strict=True))
        assert started[2] >= real - 50_000_000


@given(real=st.integers(10**18, 2 * 10**18), lag=st.integers(0, 10_000_000))
def test_the_wall_clock_is_exact_unless_it_is_faked(real, lag):
    """The coarse clock, which lags by up to a timer tick, is only asked for its opinion."""
    read = clock_module._unless_faked(lambda: real, lambda: real - lag)
    assert read() == real
    frozen = clock_module._unless_faked(lambda: 9 * 10**17, lambda: real)
    assert frozen() == real

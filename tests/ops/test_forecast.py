"""How many ids have to lie ready: from a rate, a stock and the outage to be survived."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.errors import ConfigurationError
from django_idgen.ops.upkeep import Consumption, Forecast, check_outage
from django_idgen.sources.server import Rate

OUTAGE = 1200.0
START = datetime(2026, 1, 1, tzinfo=UTC)
rates = st.floats(0, 1e6)
stocks = st.integers(0, 10**12)
outages = st.floats(0, 86_400)


@given(rates, stocks, outages)
def test_what_lies_ready_after_a_refill_lasts_for_the_outage(
    rate: float, stock: int, outage: float
) -> None:
    """And not more than an id is fetched beyond that."""
    forecast = Forecast("tag", rate, stock)
    ready = stock + forecast.lacks(outage)
    if forecast.wanted(outage):
        assert ready >= rate * outage
    if forecast.lacks(outage):
        assert ready < rate * outage + 1


@given(stocks, outages)
def test_an_idle_tag_gets_nothing(stock: int, outage: float) -> None:
    """Neither at no rate at all, nor at what is left of one that dies away."""
    for rate in (0.0, 0.9 / max(outage, 1.0)):
        assert Forecast("tag", rate, stock).lacks(outage) == 0


def test_the_first_to_run_dry_has_the_least_seconds_left() -> None:
    """What is not used lasts for ever."""
    assert Forecast("tag", 10.0, 50).lasts == 5.0
    assert Forecast("tag", 10.0, 0).lasts == 0.0
    assert Forecast("tag", 0.0, 0).lasts == math.inf


@pytest.mark.parametrize("outage", [-1, 86_401, "20 min", None, True, math.nan])
def test_an_impossible_outage_is_refused(outage: object) -> None:
    """With its value and what is allowed."""
    with pytest.raises(ConfigurationError, match="0 to 86400 seconds"):
        check_outage(outage)


class Shop:
    """A tag, its pool, and runs of upkeep a minute apart, as a pure calculation."""

    def __init__(self, delta: int = 1) -> None:
        self.delta = delta
        self.max_id = 1
        self.stock = 0
        self.now = START
        self.rate = Rate()

    def use(self, ids: int) -> None:
        """Processes take ids: from the pool, and what is missing from the database."""
        popped = min(ids, self.stock)
        self.stock -= popped
        self.max_id += (ids - popped) * self.delta

    def upkeep(self) -> int:
        """Measure and refill; returns how many ids were put into the pool."""
        self.now += timedelta(seconds=60)
        used = Consumption("tag", ("default",), (self.max_id,), self.delta, 0.0).less(self.stock)
        self.rate = self.rate.measured(used, self.now, delta=self.delta)
        lacks = Forecast("tag", self.rate.a_second, self.stock).lacks(OUTAGE)
        self.stock += lacks
        self.max_id += lacks * self.delta
        return lacks


@given(st.integers(1, 100_000), st.integers(1, 5))
def test_filling_the_pool_does_not_count_as_use(a_minute: int, delta: int) -> None:
    """At a steady rate the stock comes to the outage's need at once, and stays there."""
    shop = Shop(delta)
    for _ in range(60):
        shop.use(a_minute)
        shop.upkeep()
    need = math.ceil(a_minute / 60 * OUTAGE)
    assert need - 1 <= shop.stock <= need + 1
    assert shop.rate.a_second == pytest.approx(a_minute / 60)


@given(st.integers(1, 100_000), st.lists(st.integers(0, 100_000), max_size=20))
def test_a_tag_that_is_not_used_any_more_gets_nothing(first: int, uses: list[int]) -> None:
    """Whatever was before, from the first idle run on its pool does not grow."""
    shop = Shop()
    for ids in (first, *uses):
        shop.use(ids)
        shop.upkeep()
    shop.upkeep()
    assert [shop.upkeep() for _ in range(5)] == [0] * 5


@given(st.lists(st.integers(0, 20_000), min_size=5, max_size=40))
def test_the_stock_never_exceeds_the_need_at_the_highest_rate(uses: list[int]) -> None:
    """However the consumption comes in lumps: no run makes up for another one's filling."""
    shop = Shop()
    for ids in uses:
        shop.use(ids)
        shop.upkeep()
    assert shop.stock <= math.ceil(max(uses) / 60 * OUTAGE)


def test_what_was_given_back_is_not_used() -> None:
    """A fleet that stops puts its ids back, and its rate does not become negative."""
    shop = Shop()
    shop.use(6000)
    shop.upkeep()
    shop.use(6000)
    shop.upkeep()
    before = shop.rate.a_second
    shop.stock += 5000
    shop.upkeep()
    assert 0 <= shop.rate.a_second < before


def test_a_shared_tag_counts_each_id_once() -> None:
    """Three databases that each give out every third id: their heights are summed up."""
    used = Consumption("tag", ("a", "b", "c"), (3001, 3002, 3003), 3, 0.0)
    later = Consumption("tag", ("a", "b", "c"), (3301, 3002, 3003), 3, 0.0)
    assert (later.less(40) - used.less(0)) / 3 == 100 - 40


def test_a_measurement_that_would_say_nothing_new_is_left_out() -> None:
    """An idle tag costs no write a minute, also with a stock; one in use is measured."""
    idle = Consumption("tag", ("default",), (1500,), 1, 0.0, START, 1000)
    assert idle.is_idle(500)
    assert not idle.is_idle(499)
    assert not Consumption("tag", ("default",), (1500,), 1, 0.5, START, 1000).is_idle(500)
    assert not Consumption("tag", ("default",), (1500,), 1, 0.0).is_idle(500)

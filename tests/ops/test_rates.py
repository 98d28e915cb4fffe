"""How fast a tag is used, and how many of its ids have to lie ready."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import segments
from django_idgen.core.errors import ConfigurationError
from django_idgen.db.connection import own_connection
from django_idgen.models import LeafAlloc
from django_idgen.ops.metrics.definitions import SHARED
from django_idgen.ops.status import status
from django_idgen.ops.upkeep import Consumption, Forecast, check_outage
from django_idgen.process.tags import find_tag
from django_idgen.rest.tags import TagShown
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.server import INTERVAL, Rate, ServerSource
from tests.places import using

START = datetime(2025, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_the_second_measurement_gives_a_rate() -> None:
    """Ids used since the first, by the seconds between."""
    first = Rate().measured(1000, START)
    assert (first.a_second, first.at, first.used) == (0.0, START, 1000)
    assert first.measured(7000, after(60)).a_second == pytest.approx(100)
    assert first.measured(7000, after(60), delta=4).a_second == pytest.approx(25)


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_a_new_rate_is_approached_smoothly(old: float, new: float) -> None:
    """A minute of it counts a little, an hour nearly all; never past it."""
    known = Rate(old, START, 0)
    minute = known.measured(round(new * 60), after(60)).a_second
    hour = known.measured(round(new * 3600), after(3600)).a_second
    assert abs(hour - new) <= 0.01 * abs(old - new) + 0.1
    assert abs(minute - old) <= 0.1 * abs(new - old) + 0.1


def test_a_tag_that_is_left_alone_slows_down() -> None:
    """Also when what was used goes back, into a pool."""
    known = Rate(100.0, START, 5000)
    assert known.measured(5000, after(6000)).a_second < 1
    assert known.measured(4000, after(60)).a_second < 100


def test_it_is_measured_once_a_minute() -> None:
    """And at once where the clock has gone back."""
    known = Rate(1.0, START, 5)
    assert not known.is_due(after(INTERVAL - 1))
    assert known.is_due(after(INTERVAL))
    assert known.is_due(after(-1))
    assert Rate().is_due(START)


def test_fetches_measure_the_tag(server_alias: str) -> None:
    """A minute after the last time, with what was used up by then; not in between."""
    source = ServerSource(alias=server_alias, default_step=600)
    rows = LeafAlloc.objects.using(server_alias)
    source.fetch("t")
    first = rows.get()
    assert (first.rate, first.measured_used) == (0.0, 1)
    source.fetch("t")
    assert rows.get().measured_at == first.measured_at
    rows.update(measured_at=first.measured_at - timedelta(seconds=INTERVAL))
    source.fetch("t")
    row = rows.get()
    # 1200 ids in a minute and a moment: what this fetch took is not used yet.
    assert 10 < row.rate <= 20
    assert row.measured_used == 1201


def test_it_can_be_measured_from_outside(server_alias: str) -> None:
    """By a pool, which knows what of it lies in stock. A database in memory keeps no rates."""
    assert DatabaseSource(default_step=10).record_rate("t", 1, START) == 0.0
    source = ServerSource(alias=server_alias, default_step=600, measures=False)
    assert source.record_rate("t", 1, START) == 0.0
    source.fetch("t")
    assert LeafAlloc.objects.using(server_alias).get().measured_at is None
    assert source.record_rate("t", 1, START) == 0.0
    assert source.record_rate("t", 301, after(60)) == pytest.approx(5)
    assert LeafAlloc.objects.using(server_alias).get().rate == pytest.approx(5)
    # Through the source of the settings, too.
    whole = DatabaseSource(default_step=600, database=server_alias)
    assert whole.record_rate("t", 601, after(120)) == pytest.approx(5)


def test_a_rate_of_fetches_is_named_so(server_alias: str) -> None:
    """The API, the status and the metrics call what was fetched that, not use (hazard 88)."""
    with using(server_alias):
        segments["t"].next_id()
        tag = find_tag("t")
        assert tag is not None
        (entry,) = (each for each in status()["tags"] if each["database"] == server_alias)
        told = [TagShown(tag).data, *entry["list"], entry]
        assert [("fetch_rate" in each, "rate" in each) for each in told] == [(True, False)] * 3
    assert "tag_fetch_rate" in SHARED
    assert "tag_rate" not in SHARED


def test_an_ordinary_fetch_is_one_update(server_alias: str) -> None:
    """Whatever else stands in the row; a minute's measurement and history are one more each.

    MariaDB's UPDATE returns nothing, so there the row is read in the same transaction.
    """
    fetch = ["UPDATE"] if server_alias == "postgres" else ["UPDATE", "SELECT"]
    source = ServerSource(alias=server_alias)
    source.fetch("t")
    assert statements(source) == fetch
    LeafAlloc.objects.using(server_alias).update(measured_at=None)
    assert statements(source) == [*fetch, "UPDATE"]
    noting = ServerSource(alias=server_alias, history=True)
    noting.fetch("t")
    assert statements(noting) == [*fetch, "INSERT"]


def statements(source: ServerSource) -> list[str]:
    """The first words of what a fetch sends, but for the setting up of its transaction."""

    def job() -> list[str]:
        own = own_connection(source.alias)
        return own.call(lambda connection: _sent(source, connection))

    return source.loader.submit(job).result(30)


def _sent(source: ServerSource, connection: object) -> list[str]:
    with CaptureQueriesContext(connections[source.alias]) as captured:
        source.fetch("t")
    words = [query["sql"].split()[0] for query in captured]
    return [word for word in words if word in {"UPDATE", "SELECT", "INSERT", "SAVEPOINT"}]


# --- how many ids have to lie ready ---------------------------------------------------


OUTAGE = 1200.0
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

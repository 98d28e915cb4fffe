"""Numbers that begin again each day, month or year."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.utils import timezone as django_timezone

from django_idgen import segments
from django_idgen.contrib.periods import PeriodNumbers
from django_idgen.core.errors import ConfigurationError, InvalidTag, TagPaused
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.edits import pause_tag
from django_idgen.process import maps
from django_idgen.testing.contracts.lenders import at_once
from tests.places import make_tables

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def idgen(alias: str, **options: Any) -> dict[str, Any]:
    return {"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": alias}}, "OPTIONS": options}}


@pytest.fixture(autouse=True)
def alias(postgres: str, settings: Any) -> Iterator[str]:
    """The database of the tags."""
    make_tables(postgres)
    settings.IDGEN = idgen(postgres, timeout=30)
    yield postgres
    maps.reset()


def test_each_period_begins_at_one(alias: str) -> None:
    """And goes on in rows of their own."""
    for period, first, days, second in (
        ("day", "2026-11-21-000001", 1, "2026-11-22-000001"),
        ("month", "2026-11-000001", 10, "2026-12-000001"),
        ("year", "2026-000001", 60, "2027-000001"),
    ):
        numbers = PeriodNumbers(period, period=period)
        with time_machine.travel(NOON, tick=False) as travel:
            assert [numbers.next(), numbers.next()] == [first, first[:-1] + "2"]
            travel.shift(timedelta(days=days))
            assert numbers.next() == second
        tags = LeafAlloc.objects.using(alias).filter(biz_tag__startswith=f"{period}.")
        assert sorted(tag.pk for tag in tags) == sorted(
            f"{period}.{text.rpartition('-')[0]}" for text in (first, second)
        )


def test_at_midnight_no_number_comes_twice() -> None:
    """Of threads that ask before and after it, with counters of their own."""
    made = [PeriodNumbers("orders", prefix="A") for _ in range(8)]
    with time_machine.travel(datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC), tick=False) as travel:

        def take(number: int) -> list[str]:
            if number == 8:
                travel.shift(timedelta(seconds=2))
                return []
            return [made[number].next() for _ in range(300)]

        texts = [text for found in at_once(9, take) for text in found]
    assert len(set(texts)) == len(texts) == 2400
    assert {text.rpartition("-")[0] for text in texts} <= {"A2026-11-21", "A2026-11-22"}


def test_a_clock_that_goes_back_stays_in_the_last_period() -> None:
    """Another process with a clock that is behind goes on counting in the earlier one."""
    numbers = PeriodNumbers("orders")
    with time_machine.travel(NOON, tick=False) as travel:
        first = numbers.next()
        travel.shift(timedelta(days=1))
        assert numbers.next() == "2026-11-22-000001"
        travel.shift(timedelta(days=-1))
        assert numbers.next() == "2026-11-22-000002"
        maps.reset()
        after = PeriodNumbers("orders").next()
        assert after > first
        assert after.startswith("2026-11-21-")


def test_the_active_time_zone_has_no_say() -> None:
    """A request of another country counts the project's day."""
    with time_machine.travel(NOON, tick=False), django_timezone.override(ZoneInfo("Pacific/Apia")):
        assert PeriodNumbers("orders").next() == "2026-11-21-000001"


@pytest.mark.parametrize("period", ["day", "month", "year"])
def test_one_wrong_reading_of_the_clock_binds_nobody(period: str) -> None:
    """Hazard 111: the next right one leads back, above the numbers that the period has."""
    numbers = PeriodNumbers("orders", period=period)
    with time_machine.travel(NOON, tick=False):
        before = numbers.next()
        with time_machine.travel(datetime(2099, 1, 1, tzinfo=UTC), tick=False):
            assert numbers.next().startswith("2099")
        assert numbers.next() == f"{before[:-1]}2"


def test_the_time_zone_is_the_counters_own() -> None:
    """Whatever zone is active; two that differ share what one period gave out."""
    tokyo = PeriodNumbers("orders", time_zone=ZoneInfo("Asia/Tokyo"))
    west = PeriodNumbers("orders", time_zone=timezone(timedelta(hours=-10)))
    with time_machine.travel(datetime(2026, 11, 21, 20, tzinfo=UTC), tick=False) as travel:
        assert tokyo.next() == "2026-11-22-000001"
        assert west.next() == "2026-11-21-000001"
        travel.shift(timedelta(hours=15))
        assert west.next() == "2026-11-22-000002"


def test_long_numbers_are_not_cut(alias: str) -> None:
    """``digits`` is a least."""
    LeafAlloc.objects.using(alias).create(biz_tag="orders.2026-11-21", max_id=1234, step=10)
    with time_machine.travel(NOON, tick=False):
        assert PeriodNumbers("orders", digits=2).next() == "2026-11-21-1234"
        assert asyncio.run(PeriodNumbers("orders", digits=2).anext()) == "2026-11-21-1235"


def test_its_tags_are_made_where_others_have_to_be_there(alias: str, settings: Any) -> None:
    """And are refused as any tag is."""
    settings.IDGEN = idgen(alias, make_tags=False)
    numbers = PeriodNumbers("orders")
    with time_machine.travel(NOON, tick=False):
        numbers.next()
        segments["orders.2026-11-21"].clear()
        pause_tag("orders.2026-11-21")
        with pytest.raises(TagPaused):
            numbers.next()


def test_what_cannot_work_is_refused() -> None:
    """When it is made. A tag leaves room for the period: it has 128 characters in all."""
    refused: dict[str, Any]
    for refused, said in (
        ({"period": "week"}, "one of day, month, year, not 'week'"),
        ({"digits": 0}, "1 to 18, not 0"),
        ({"digits": "6"}, "1 to 18, not '6'"),
        ({"prefix": 5}, "prefix must be a string, not 5"),
        ({"prefix": "a\n"}, "prefix must be printable"),
        ({"time_zone": "Asia/Shanghai"}, r"ZoneInfo\('Asia/Shanghai'\), not 'Asia/Shanghai'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            PeriodNumbers("orders", **refused)
    for tag in ("", " x", "x" * 120):
        with pytest.raises(InvalidTag):
            PeriodNumbers(tag)

"""Snowflakes as people read them, and tables that are named after them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from statistics import pstdev
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.contrib.sharding.tables import IntervalTables, ModuloTables
from django_idgen.core.errors import ConfigurationError, InvalidId
from django_idgen.core.layout import PRESETS, parse_layout
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases
from django_idgen.process import maps
from django_idgen.strings.friendly import friendly, from_friendly
from tests.simulation.world import World
from tests.snowflake_tools import space_of

ID = parse_layout("standard").pack(27_605_730_123, 7, 42)


@pytest.fixture(autouse=True)
def _layouts(settings: Any) -> None:
    settings.IDGEN = {"GENERATORS": {name: {"LAYOUT": name} for name in PRESETS}}
    maps.reset()


def test_an_id_reads_as_its_time_worker_and_sequence() -> None:
    """In UTC unless a zone is named; and back."""
    assert friendly(ID) == "20251116121530123-7-42"
    tokyo = ZoneInfo("Asia/Tokyo")
    assert friendly(ID, time_zone=tokyo) == "20251116211530123-7-42"
    assert from_friendly("20251116121530123-7-42") == ID
    assert from_friendly("20251116211530123-7-42", time_zone=tokyo) == ID


@given(data=st.data())
def test_every_id_of_every_layout_comes_back(data: st.DataObject) -> None:
    """Whatever its tick is, and with the batch where there is one."""
    for name in PRESETS:
        layout = parse_layout(name)
        parts = [
            data.draw(st.integers(1, min(layout.max_ticks, 10**11) - 1)),
            data.draw(st.integers(0, len(layout.workers) - 1)),
            data.draw(st.integers(0, layout.sequences - 1)),
            data.draw(st.integers(0, layout.batches - 1)),
        ]
        value = layout.pack(*parts)
        assert from_friendly(friendly(value, generator=name), generator=name) == value


def test_another_text_is_no_id() -> None:
    """With the reason; never another id."""
    for text in (
        *("", "7", "20251116121530123-7", "20251116121530123-7-42-1", None),
        *("20251116121530123-1024-42", "20251116121530123-7-4096"),
        *("20251324121530123-7-42", "20200101000000000-0-1", "99991231235959999-0-0"),
        "２０251116121530123-7-42",
    ):
        with pytest.raises(InvalidId):
            from_friendly(text)


@pytest.mark.parametrize("moment", ["20261025023000000", "20260329023000000"])
def test_a_time_that_a_zone_has_twice_or_never_is_refused(moment: str) -> None:
    """It could be another id's. An hour earlier and later, and in UTC, texts are read back."""
    berlin = ZoneInfo("Europe/Berlin")
    with pytest.raises(InvalidId, match="Europe/Berlin has that time twice, or never"):
        from_friendly(f"{moment}-7-42", time_zone=berlin)
    number = from_friendly(f"{moment}-7-42")
    for hours in (-6, 6):
        other = number + (hours * 3_600_000 << 22)
        assert from_friendly(friendly(other, time_zone=berlin), time_zone=berlin) == other


# --- tables -------------------------------------------------------------------------------


def test_tables_by_remainder() -> None:
    """Each id has one, of all that there are."""
    tables = ModuloTables("orders_{}", 4)
    assert list(tables) == ["orders_0", "orders_1", "orders_2", "orders_3"]
    assert [tables(value) for value in (4, 5, 2**63 - 1)] == ["orders_0", "orders_1", "orders_3"]


def test_tables_by_time() -> None:
    """By the day's zone."""
    tables = IntervalTables("orders_%Y_%m")
    assert tables(ID) == "orders_2025_11"
    late = datetime(2026, 11, 30, 20, tzinfo=UTC)
    assert tables.at(late) == "orders_2026_11"
    assert IntervalTables("o_%Y%m", time_zone=ZoneInfo("Asia/Tokyo")).at(late) == "o_202612"


def test_what_names_no_table_is_refused() -> None:
    """When it is made, or asked for."""
    for make in (
        lambda: ModuloTables("orders", 4),
        lambda: ModuloTables("orders_{}", 0),
        lambda: IntervalTables("orders"),
        lambda: IntervalTables("o_%Y").at(datetime(2026, 1, 1)),  # noqa: DTZ001
    ):
        with pytest.raises(ConfigurationError):
            make()


def test_seldom_ids_spread_evenly_over_shards() -> None:
    """CosId's figure: of 99,999 ids, one a tick, the counts mod 4 have a deviation of 100 at most.

    A random start has one of 137, as draws have.
    """
    layout = parse_layout("standard")
    world = World(layout, window_ticks=10**9)
    with world.host().generator(sequence_start="next") as generator:
        counts: Counter[int] = Counter()
        for _ in range(99_999):
            counts[generator.next_id() % 4] += 1
            world.ns += 1_000_000
    assert pstdev(counts.values()) <= 100


def test_a_first_sequence_of_zero_does_not_spread() -> None:
    """So that the test above can fail: all are divisible by 4."""
    layout = parse_layout("standard")
    leases = MemoryLeases(space_of(layout))
    with SnowflakeGenerator(layout, leases, sequence_start=0, background=False) as generator:
        first = generator.next_id()
        assert first % 4 == 0

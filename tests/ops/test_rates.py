"""How fast a tag is used, as its row tells it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from django_idgen import segments
from django_idgen.db.connection import own_connection
from django_idgen.models import LeafAlloc
from django_idgen.ops.metrics.definitions import SHARED
from django_idgen.ops.status import status
from django_idgen.process.tags import find_tag
from django_idgen.rest.tags import document_of
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
    """By a pool, which knows what of it lies in stock."""
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
        told = [document_of(tag), *entry["list"], entry]
        assert [("fetch_rate" in each, "rate" in each) for each in told] == [(True, False)] * 3
    assert "tag_fetch_rate" in SHARED
    assert "tag_rate" not in SHARED


def test_a_database_in_memory_keeps_no_rates() -> None:
    """It has no second file in which they could stand."""
    assert DatabaseSource(default_step=10).record_rate("t", 1, START) == 0.0


def test_an_ordinary_fetch_is_one_update_and_one_select(server_alias: str) -> None:
    """Whatever else stands in the row; a minute's measurement and history are one more each."""
    source = ServerSource(alias=server_alias)
    source.fetch("t")
    assert statements(source) == ["UPDATE", "SELECT"]
    LeafAlloc.objects.using(server_alias).update(measured_at=None)
    assert statements(source) == ["UPDATE", "SELECT", "UPDATE"]
    noting = ServerSource(alias=server_alias, history=True)
    noting.fetch("t")
    assert statements(noting) == ["UPDATE", "SELECT", "INSERT"]


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

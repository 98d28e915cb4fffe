"""Segments kept ready by forecast: on real servers, with a real Redis between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_idgen.core.errors import ConfigurationError, SegmentUnavailable, UpkeepFailed
from django_idgen.core.segment import MAX_ID, Demand
from django_idgen.models import LeafAlloc
from django_idgen.ops import upkeep
from django_idgen.ops.upkeep import preload_segments
from django_idgen.settings.config import SettingsError, read_settings
from django_idgen.testing.contracts.lenders import at_once
from tests.redis_servers import cache_alias
from tests.server_tools import unreachable
from tests.servers import free_port
from tests.upkeep_tools import (
    POOL,
    forget_redis,
    killed_while_waiting,
    pool_on,
    source,
    upkeep_on,
)

STEP = 1000
OUTAGE = 1200.0
HOUR = 3600
USED = 60 * STEP
"""Ids in an hour: a thousand in a minute. So long that no slow machine counts."""


@pytest.fixture
def pooled(server_alias: str, redis: str) -> Iterator[str]:
    """An empty database, with a pool before it."""
    with upkeep_on(pool_on(redis, server_alias)):
        yield server_alias
        forget_redis(redis, server_alias)


def row(alias: str, tag: str = "tea") -> LeafAlloc:
    return LeafAlloc.objects.using(alias).get(pk=tag)


def pass_time(alias: str, seconds: float = HOUR, tag: str = "tea") -> None:
    """As if the last measurement had been made so much earlier."""
    found = row(alias, tag)
    assert found.measured_at is not None
    earlier = found.measured_at - timedelta(seconds=seconds)
    LeafAlloc.objects.using(alias).filter(pk=tag).update(measured_at=earlier)


def use(ids: int, tag: str = "tea") -> list[int]:
    """Take ids as processes do: out of the pool, or else from the database."""
    taken: list[int] = []
    while len(taken) < ids:
        taken += source().fetch(tag).ids()
    return taken


def use_at_once(ids: int, tag: str = "tea") -> list[int]:
    """As :func:`use`, of a tag that nothing lies ready of: in one fetch."""
    return list(source().fetch(tag, demand=Demand(at_least=ids)).ids())


def steady(alias: str, tag: str = "tea") -> dict[str, Any]:
    """Bring ``tag`` to a known rate, and have its pool filled for the first time."""
    use(STEP, tag)
    assert tag not in preload_segments()["tags"]  # one measurement says nothing
    use_at_once(USED, tag)
    pass_time(alias, tag=tag)
    done: dict[str, Any] = preload_segments()["tags"][tag]
    return done


def test_what_lies_ready_is_the_rate_times_the_outage(pooled: str) -> None:
    """So many a second, for 20 minutes; it is there, and it is used first."""
    done = steady(pooled)
    assert done["rate"] == pytest.approx(USED / HOUR, rel=0.1)
    assert done["before"] == 0
    assert done["wanted"] <= done["after"] < done["wanted"] + STEP
    assert done["wanted"] == pytest.approx(USED / HOUR * OUTAGE, rel=0.1)
    assert source().stocks(["tea"])["tea"].ids == done["after"]
    height = row(pooled).max_id
    use(done["after"])
    assert row(pooled).max_id == height


def test_filling_the_pool_does_not_raise_the_rate(pooled: str) -> None:
    """With no consumption since, the rate sinks, and nothing more is fetched.

    A row that nobody has fetched from of late costs nothing.
    """
    before = steady(pooled)
    old = timezone.now() - timedelta(days=1)
    rows = LeafAlloc.objects.using(pooled)
    rows.bulk_create(LeafAlloc(biz_tag=f"old-{number}", max_id=5000) for number in range(50))
    rows.filter(pk__startswith="old-").update(update_time=old)
    for _ in range(3):
        pass_time(pooled, 300)
        (after,) = preload_segments()["tags"].values()
        assert after["before"] == after["after"] == before["after"]
        assert after["rate"] < before["rate"]
        before = after
    assert not rows.filter(pk__startswith="old-", measured_at__isnull=False)


def test_a_pool_that_is_used_is_filled_up_again(pooled: str) -> None:
    """What processes take out of it counts as used, though no row changes by that."""
    before = steady(pooled)
    LeafAlloc.objects.using(pooled).update(update_time=timezone.now() - timedelta(days=1))
    taken = len(use(10 * STEP))
    pass_time(pooled, HOUR * taken / USED)
    after = preload_segments()["tags"]["tea"]
    assert after["before"] == before["after"] - taken
    assert after["after"] >= after["wanted"]
    assert after["rate"] == pytest.approx(before["rate"], rel=0.1)


def test_a_tag_that_wakes_up_is_noticed_by_what_is_taken_of_its_pool(pooled: str) -> None:
    """Its rate has died away, and no fetch touches its row: it is measured, and kept up again."""
    steady(pooled)
    old = timezone.now() - timedelta(days=1)
    LeafAlloc.objects.using(pooled).update(update_time=old, rate=0)
    assert preload_segments()["tags"] == {}
    taken = len(use(10 * STEP))
    pass_time(pooled, HOUR * taken / USED)
    done = preload_segments()["tags"]["tea"]
    assert done["rate"] == pytest.approx(USED / HOUR, rel=0.2)
    assert done["after"] >= done["wanted"] > 0


def test_an_idle_tag_gets_nothing_and_is_not_even_written_to(pooled: str) -> None:
    """It was fetched from once: its row stays as it was measured, run after run.

    A fetch of the source behind a pool leaves that to upkeep.
    """
    use(STEP)
    assert row(pooled).measured_at is None
    assert preload_segments()["tags"] == {}
    pass_time(pooled)
    measured = row(pooled)
    for _ in range(2):
        assert preload_segments()["tags"] == {}
    assert row(pooled).measured_at == measured.measured_at
    assert source().stocks(["tea"])["tea"].ids == 0


def test_no_more_lies_ready_than_the_pool_may_hold(server_alias: str, redis: str) -> None:
    """However high the rate was measured: a row moved up by hand, for instance."""
    with upkeep_on(pool_on(redis, server_alias, max_ids=5 * STEP)):
        use(STEP)
        preload_segments()
        found = LeafAlloc.objects.using(server_alias)
        found.filter(pk="tea").update(max_id=row(server_alias).max_id + 10**12)
        pass_time(server_alias)
        done = preload_segments()["tags"]["tea"]
        assert done["rate"] > 10**8
        assert done["after"] == 5 * STEP
        forget_redis(redis, server_alias)


def test_without_a_pool_it_says_so_and_fetches_nothing(server_alias: str) -> None:
    """Nothing to do is no failure."""
    with upkeep_on({"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": server_alias}}}}):
        use(STEP)
        height = row(server_alias).max_id
        assert preload_segments() == {"pool": False, "tags": {}}
        assert read_settings().segments.source.path != POOL
        assert row(server_alias).max_id == height


def test_the_outage_comes_from_the_settings_or_from_the_caller(pooled: str, redis: str) -> None:
    """Half of the time takes half of the ids."""
    steady(pooled)
    idgen = pool_on(redis, pooled)
    idgen["SEGMENTS"]["OPTIONS"] = {"outage": 600}
    with upkeep_on(idgen):
        half = preload_segments()
        whole = preload_segments(OUTAGE)
    assert (half["outage"], whole["outage"]) == (600.0, 1200.0)
    assert abs(2 * half["tags"]["tea"]["wanted"] - whole["tags"]["tea"]["wanted"]) <= 1
    with pytest.raises(ConfigurationError, match="An outage must be 0 to 86400"):
        preload_segments(-1)


def test_an_impossible_outage_in_the_settings_is_refused() -> None:
    """As all settings are."""
    for value in (-1, "20 min", None):
        with (
            upkeep_on({"SEGMENTS": {"OPTIONS": {"outage": value}}}),
            pytest.raises(SettingsError, match="'outage'"),
        ):
            read_settings()


def test_two_runs_at_once_repeat_nothing(pooled: str) -> None:
    """I1: each may fill the pool, but no id lies there twice, nor was it used before."""
    used = use(STEP)
    preload_segments()
    used += use(STEP)
    pass_time(pooled)
    done = at_once(4, lambda _: preload_segments())
    wanted = max(each["tags"]["tea"]["wanted"] for each in done)
    stock = source().stocks(["tea"])["tea"].ids
    assert wanted <= stock <= 4 * (wanted + STEP)
    used += use(stock)
    assert len(set(used)) == len(used)
    assert source().stocks(["tea"])["tea"].ids == 0


def test_a_run_that_is_killed_leaves_a_gap_at_worst(pooled: str) -> None:
    """SIGKILL while it waits for the tag's row; the next one fills the pool."""
    used = use(STEP)
    preload_segments()
    used += use(STEP)
    pass_time(pooled)
    killed_while_waiting(
        pooled,
        "from django_idgen.ops.upkeep import preload_segments; preload_segments()",
        "SELECT biz_tag FROM leaf_alloc WHERE biz_tag = 'tea' FOR UPDATE",
    )
    done = preload_segments()["tags"]["tea"]
    assert done["after"] >= done["wanted"] > 0
    used += use(done["after"])
    assert len(set(used)) == len(used)


def test_a_late_run_measures_over_the_whole_time(pooled: str) -> None:
    """Hours without beat: the same ids, but ten times slower."""
    use(STEP)
    preload_segments()
    use_at_once(USED)
    pass_time(pooled, 10 * HOUR)
    assert preload_segments()["tags"]["tea"]["rate"] == pytest.approx(USED / HOUR / 10, rel=0.1)


def test_a_run_without_time_leaves_the_rest_to_the_next(
    pooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how many tags it did not come to."""
    steady(pooled)
    source().clear(["tea"])
    in_time = upkeep.Preloading
    monkeypatch.setattr(upkeep, "Preloading", lambda pool, outage: in_time(pool, outage, budget=-1))
    done = preload_segments()
    assert (done["left"], done["tags"]["tea"]["after"]) == (1, 0)


def test_a_dead_database_is_named_and_the_pool_is_left_as_it_is(pooled: str) -> None:
    """The task fails visibly, and the ids that lie ready go on being used."""
    stock = steady(pooled)["after"]
    with unreachable(pooled):
        with pytest.raises(UpkeepFailed, match=f"{pooled}.*SegmentUnavailable") as raised:
            preload_segments()
        assert raised.value.done["tags"] == {}
        assert len(use(STEP)) == STEP
    assert source().stocks(["tea"])["tea"].ids == stock - STEP
    json.dumps(raised.value.done)


def test_a_dead_redis_is_named(postgres: str) -> None:
    """Nothing is fetched that could not be kept."""
    with (
        cache_alias("dead", f"redis://127.0.0.1:{free_port()}/0") as alias,
        upkeep_on(pool_on(alias, postgres)),
    ):
        use(STEP)
        height = row(postgres).max_id
        with pytest.raises(SegmentUnavailable, match="CACHES\\['dead'\\]"):
            preload_segments()
        assert row(postgres).max_id == height


def test_one_tag_that_fails_keeps_no_other_from_its_ids(pooled: str) -> None:
    """One that has come to the end of all ids, for instance."""
    steady(pooled, "tea")
    steady(pooled, "end")
    LeafAlloc.objects.using(pooled).filter(pk="end").update(max_id=MAX_ID)
    source().clear(["tea", "end"])
    with pytest.raises(UpkeepFailed) as raised:
        preload_segments()
    done = raised.value.done
    assert "SegmentExhausted" in done["errors"]["end"]
    assert done["tags"]["tea"]["after"] >= done["tags"]["tea"]["wanted"] > 0


def by_tag(tag: str) -> str:
    return "postgres" if tag.startswith("p") else "mariadb"


@pytest.mark.parametrize(
    "behind",
    [{"router": "tests.ops.test_preloading.by_tag"}, {"databases": ["postgres", "mariadb"]}],
    ids=["router", "shared"],
)
def test_tags_of_several_databases(
    behind: dict[str, Any], postgres: str, mariadb: str, redis: str
) -> None:
    """Each tag's rate is that of all its ids, and is kept where its row is (the first one's)."""
    with ExitStack() as stack:
        stack.enter_context(upkeep_on(pool_on(redis, "", **behind)))
        stack.callback(forget_redis, redis, postgres, mariadb)
        for tag in ("p-tea", "m-tea"):
            for _ in range(4):
                use(STEP, tag)
        first = preload_segments()
        for tag in ("p-tea", "m-tea"):
            use_at_once(USED, tag)
            kept = by_tag(tag) if "router" in behind else postgres
            pass_time(kept, tag=tag)
        done = preload_segments()
        assert first["tags"] == {}
        for tag in ("p-tea", "m-tea"):
            found = done["tags"][tag]
            assert found["rate"] == pytest.approx(USED / HOUR, rel=0.1)
            assert found["after"] >= found["wanted"] > 0

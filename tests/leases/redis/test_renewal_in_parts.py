"""The renewal of all holders by a scheduler, a part at a time: Redis holds up nobody for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_idgen.core.errors import RegistryUnavailable
from django_idgen.leases.redis import registry as redis_scripts
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.models import NamespaceRecord
from tests.leases.redis.fleet import HOLDERS, WINDOW, Fleet
from tests.leases.redis.test_faults import deaf_wire, scripts_run
from tests.redis_servers import RedisFarm
from tests.server_tools import unreachable

PART = HOLDERS // 3
"""Fields, so that even a small fleet is renewed in several parts."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_scripts, "RENEWED", PART)


def before_part(registry: RedisLeases, number: int, job: Callable[[], Any]) -> None:
    """Have ``job`` done before the script of part ``number`` (from 1 on) is called."""
    scripts, calls = registry._scripts, iter(range(1, 10**6))
    ask = scripts.renew_seen

    def asked(*args: Any, **options: Any) -> Any:
        if next(calls) == number:
            job()
        return ask(*args, **options)

    scripts.renew_seen = asked  # type: ignore[method-assign]


def ends(farm: RedisFarm) -> dict[int, int]:
    """The mark of each worker id that was ever lent."""
    (key,) = farm.first.run("KEYS", "django_idgen:*")
    stored = farm.first.run("HGETALL", key)
    return {
        int(field[2:]): int(words.split(b":")[2])
        for field, words in stored.items()
        if field.startswith(b"w:")
    }


def test_every_holder_is_renewed_and_no_script_meets_them_all(
    fleet: Fleet, farm: RedisFarm
) -> None:
    """Each script looks at a part, however many there are; together they leave nobody out."""
    fleet.hire()
    fleet.pass_ticks(WINDOW // 2)
    registry = fleet.registry()
    registry.renew_seen(idle_after=0.1)  # nobody was seen since; but the ceiling is raised
    before = scripts_run(farm.first)
    assert registry.renew_seen(idle_after=60) >= HOLDERS
    assert scripts_run(farm.first) - before >= 3
    assert set(ends(farm).values()) == {fleet.now + WINDOW}
    assert "cmdstat_hkeys" not in farm.first.info("commandstats")
    registry.close()
    fleet.check(ahead=0)


def test_a_part_whose_answer_was_lost_is_not_sent_again(fleet: Fleet, farm: RedisFarm) -> None:
    """L4: the run ends there, with what is done done; the next run does all, nothing repeats."""
    fleet.hire()
    fleet.pass_ticks(WINDOW // 2)
    with deaf_wire(farm.first) as wire:
        registry = fleet.registry("deaf")

        def lose() -> None:
            wire.losing = True

        before_part(registry, 3, lose)
        before = scripts_run(farm.first)
        with pytest.raises(RegistryUnavailable, match="did not answer"):
            registry.renew_seen(idle_after=60)
        wire.losing = False
        assert scripts_run(farm.first) - before <= 5  # three parts, and a ceiling raised
        renewed = [end for end in ends(farm).values() if end == fleet.now + WINDOW]
        assert 0 < len(renewed) < HOLDERS
        assert registry.renew_seen(idle_after=60) >= HOLDERS
        registry.close()
    assert set(ends(farm).values()) == {fleet.now + WINDOW}
    for holder in fleet.holders:
        assert holder.renew()
    fleet.check(ahead=0)


@pytest.mark.parametrize("how", ["flushed", "killed", "of another life"])
def test_a_loss_between_two_parts_is_noticed(fleet: Fleet, farm: RedisFarm, how: str) -> None:
    """L6: the parts after it renew nobody; a new generation lies past all windows of the old."""
    fleet.hire()
    fleet.pass_ticks(WINDOW // 2)

    def lose() -> None:
        if how == "flushed":
            farm.first.run("FLUSHALL")
        elif how == "killed":
            farm.first.kill()
            farm.first.start()
        else:
            (key,) = farm.first.run("KEYS", "django_idgen:*")
            farm.first.run("HSET", key, "incarnation", "another/life/of-it")

    registry = fleet.registry()
    before_part(registry, 3, lose)
    try:
        assert registry.renew_seen(idle_after=60) < HOLDERS
    except RegistryUnavailable:
        assert how == "killed"  # its connections are gone, too
    registry.close()
    fleet.pass_ticks(WINDOW // 4)
    for holder in fleet.holders:
        assert not holder.renew()
        holder.go_on()
    assert NamespaceRecord.objects.using(fleet.database).get().generation == 2
    fleet.check()
    fleet.settle()


def test_a_database_that_is_away_is_waited_for_once(
    fleet: Fleet, farm: RedisFarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each part; all are renewed as far as the ceiling lies."""
    fleet.hire()
    fleet.pass_ticks(WINDOW * 3 // 4)
    registry = fleet.registry()
    assert registry.renew_seen(idle_after=60) >= HOLDERS
    ceiling = fleet.check_ceiling()
    asked: list[int] = []
    lift = registry._root.lift

    def counted(*args: Any, **options: Any) -> None:
        asked.append(1)
        lift(*args, **options)

    monkeypatch.setattr(registry._root, "lift", counted)
    with unreachable(fleet.database):
        for _ in range(5):  # the last windows would end past the ceiling
            fleet.pass_ticks(WINDOW // 4)
            registry._root._not_before_ns = 0
            asked.clear()
            assert registry.renew_seen(idle_after=60) >= HOLDERS
            assert len(asked) <= 2
    assert asked
    assert set(ends(farm).values()) == {ceiling}
    registry.close()
    fleet.check(ahead=0)

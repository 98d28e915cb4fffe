"""A registry that can't be reached, and another one that lends meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from django_idgen.core.errors import (
    ClockMovedBackwards,
    ConfigurationError,
    LeaseExpired,
    NoFreeWorker,
    RegistryUnavailable,
)
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.database import DatabaseLeases
from django_idgen.leases.fallback import FallbackLeases
from django_idgen.leases.memory import MemoryLeases
from django_idgen.process.factory import build_registry
from django_idgen.settings.config import SettingsError, read_settings
from tests.simulation.world import Link, World, layout_of

LAYOUT = layout_of(("time", 41), ("worker", 2), ("sequence", 4))
WINDOW = 180_000  # ticks of 1 ms
SECOND = 3
"""The worker id of four that the second registry has."""


class Pair:
    """A host whose first registry is behind a line that can be cut."""

    def __init__(self, **options: float) -> None:
        self.world = World(LAYOUT, window_ticks=WINDOW, workers=range(SECOND))
        self.host = self.world.host()
        self.link: Link = self.host.link()
        whole = replace(self.world.namespace, workers=LAYOUT.workers)
        self.secondary = MemoryLeases(
            replace(whole, name="second", workers=range(SECOND, SECOND + 1)),
            clock=self.host.clock,
            read_now_us=self.world.registry_us,
        )
        self.registry = FallbackLeases(
            whole,
            primary=self.link,
            secondary=self.secondary,
            clock=self.host.clock,
            **options,
        )

    def generator(self) -> SnowflakeGenerator:
        return self.host.generator(self.registry)

    def take_for(self, generator: SnowflakeGenerator, seconds: int) -> list[int]:
        """An id each second."""
        taken = []
        for _ in range(seconds):
            self.world.pass_seconds(1)
            taken.append(generator.next_id())
        return taken


def workers(ids: list[int]) -> list[int]:
    return [LAYOUT.unpack(value).worker for value in ids]


def test_an_hour_without_the_first_registry() -> None:
    """Ids go on from the second one's range, always rising, and come back afterwards."""
    pair = Pair()
    with pair.generator() as generator:
        before = pair.take_for(generator, 600)
        pair.world.down = True
        during = pair.take_for(generator, 3600)
        pair.world.down = False
        after = pair.take_for(generator, 600)
    assert SECOND not in workers(before)
    # What is left of the window comes first.
    assert set(workers(during[181:])) == {SECOND}
    assert SECOND not in workers(after[-300:])
    assert all(one < next_one for one, next_one in pairwise(before + during + after))


def test_an_outage_within_the_window_changes_nothing() -> None:
    """Who holds a window needs no registry until its end."""
    pair = Pair()
    with pair.generator() as generator:
        before = pair.take_for(generator, 60)
        pair.world.down = True
        during = pair.take_for(generator, 100)
        pair.world.down = False
        after = pair.take_for(generator, 600)
    assert len(set(workers(before + during + after))) == 1


def test_a_start_without_the_first_registry() -> None:
    """A process that starts during the outage gets a worker id at once."""
    pair = Pair()
    pair.world.down = True
    with pair.generator() as generator:
        assert workers([generator.next_id()]) == [SECOND]
    assert pair.secondary.acquire(holder="next").lease.worker == SECOND


def test_a_dead_registry_is_not_asked_again_and_again() -> None:
    """One caller in ``retry_after`` seconds waits for its timeout, not each of them."""
    pair = Pair(retry_after=30)
    pair.world.down = True
    for _ in range(10):
        grant = pair.registry.acquire(holder="host")
        pair.registry.release(grant.lease, last_tick=None)
    assert pair.link.names() == ["acquire"]
    pair.world.pass_seconds(31)
    pair.registry.acquire(holder="host")
    assert pair.link.names() == ["acquire", "acquire"]


def test_a_full_registry_is_helped_out() -> None:
    """With all its worker ids held, newcomers get those of the second one; then none."""
    pair = Pair()
    lent = [pair.registry.acquire(holder="host").lease for _ in range(4)]
    assert sorted(lease.worker for lease in lent) == [0, 1, 2, SECOND]
    with pytest.raises(NoFreeWorker, match="All 4 worker ids"):
        pair.registry.acquire(holder="host")
    assert pair.registry.release(lent[0], last_tick=None) is True
    assert pair.registry.acquire(holder="host").lease.worker == lent[0].worker


def test_both_gone_is_said_of_both() -> None:
    """Without either of them the error names the two causes, and no id comes."""
    pair = Pair()
    pair.world.down = True
    pair.secondary.acquire(holder="other")
    both = r"(?s)line is cut.*All 1 worker ids"
    with pair.generator() as generator, pytest.raises(RegistryUnavailable, match=both):
        generator.next_id()


def test_past_both_windows_no_id_is_issued() -> None:
    """A holder whose window is over, and that neither registry serves, stops."""
    pair = Pair()
    with pair.generator() as generator:
        generator.next_id()
        other = pair.secondary.acquire(holder="other").lease
        while other.until < generator.keeper.last_tick + 10**7:
            other = pair.secondary.renew(other, last_tick=other.until).lease
        pair.world.down = True
        pair.world.pass_seconds(200)
        with pytest.raises(LeaseExpired, match="Neither registry"):
            generator.next_id()


def test_a_holder_that_the_first_one_sent_ahead_waits_for_the_second() -> None:
    """After a loss of the first one, and then its outage: refused in words, then it goes on."""
    pair = Pair()
    with pair.generator() as generator:
        generator.next_id()
        book = pair.world.marks.book("simulated")
        record = book.record()
        assert record is not None
        book.save_record(replace(record, fence=generator.keeper.last_tick + 3 * WINDOW))
        lease = generator.keeper.acquire()
        last = generator.next_id()
        generator.keeper.last_tick = lease.until - 1  # as after ids without a pause
        pair.world.down = True
        with pytest.raises(ClockMovedBackwards, match="has lent none past tick"):
            generator.next_ids(LAYOUT.sequences)
        pair.world.pass_seconds(4 * WINDOW / 1000)
        assert generator.next_id() > last


def test_the_bulk_renewal_reaches_the_one_that_answers() -> None:
    """With one of them gone the other's holders are renewed; with both, it says so."""
    pair = Pair()
    first = pair.registry.acquire(holder="host").lease
    pair.secondary.acquire(holder="host")
    pair.world.pass_seconds(100)
    assert pair.registry.renew_seen(idle_after=900) == 2
    pair.world.down = True
    assert pair.registry.renew_seen(idle_after=900) == 1
    pair.world.down = False
    assert pair.registry.renew(first, last_tick=-1).lease.until > first.until


def test_ranges_that_overlap_are_refused() -> None:
    """Two registries that know nothing of each other must not lend one worker id."""
    pair = Pair()
    with pytest.raises(ConfigurationError, match="3 to 3 and 2 to 3: one id could be lent twice"):
        FallbackLeases(
            pair.registry.namespace,
            primary=pair.secondary,
            secondary=MemoryLeases(replace(pair.registry.namespace, workers=range(2, 4))),
        )


def test_a_range_past_the_layout_is_refused() -> None:
    """What the layout can't hold is named."""
    pair = Pair()
    outside = MemoryLeases(replace(pair.registry.namespace, workers=range(4, 6)))
    with pytest.raises(ConfigurationError, match="can't lend worker ids 4 to 5"):
        FallbackLeases(pair.registry.namespace, primary=pair.link, secondary=outside)


def test_one_worker_id_can_not_be_split() -> None:
    """A namespace of one worker id has none for a second registry."""
    with pytest.raises(ConfigurationError, match="two worker ids at least"):
        FallbackLeases.wrapped(replace(Pair().registry.namespace, workers=range(1)))


@pytest.mark.parametrize("value", [-1, True, 1e7])
def test_an_impossible_pause_is_named(value: float) -> None:
    """``retry_after`` is a number of seconds."""
    with pytest.raises(ConfigurationError, match="retry_after"):
        Pair(retry_after=value)


# --- in the settings ----------------------------------------------------------


def configured(**options: Any) -> FallbackLeases:
    backend = "django_idgen.leases.fallback.FallbackLeases"
    leases = {"BACKEND": backend, "OPTIONS": options}
    with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": leases}}}):
        registry = build_registry(read_settings().generators["default"])
    assert isinstance(registry, FallbackLeases)
    return registry


def static(directory: Path, **options: Any) -> dict[str, Any]:
    backend = "django_idgen.leases.static.StaticLeases"
    return {"BACKEND": backend, "OPTIONS": {"directory": str(directory), **options}}


def test_settings_describe_both_registries(tmp_path: Path) -> None:
    """Each has its own backend and options; the window is common, and so is the layout."""
    registry = configured(primary=static(tmp_path, worker=7), window=60)
    assert registry.primary.namespace.workers == range(768)
    secondary = registry.secondary
    assert isinstance(secondary, DatabaseLeases)
    assert secondary.namespace.name == "default/fallback"
    assert secondary.namespace.workers == range(768, 1024)
    assert secondary.namespace.window_ticks == registry.namespace.window_ticks == 60_000


def test_settings_share_the_worker_ids_out(tmp_path: Path) -> None:
    """``workers`` of each registry is part of what its holders must agree on."""
    registry = configured(
        primary={"OPTIONS": {"workers": [0, 10]}}, secondary={"OPTIONS": {"workers": [10, 12]}}
    )
    first, second = registry.primary.namespace, registry.secondary.namespace
    assert (first.workers, second.workers) == (range(10), range(10, 12))
    assert [json.loads(json.dumps(one.fingerprint["workers"])) for one in (first, second)] == [
        [0, 10],
        [10, 12],
    ]
    assert first.fingerprint["registry"] == "database"
    assert registry.namespace.fingerprint["registry"] == "fallback"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"primary": {"OPTIONS": {"workers": [0, 900]}}}, "could be lent twice"),
        ({"primary": {"OPTIONS": {"window": 5}}}, r"\['primary'\]\['OPTIONS'\] has 'window'"),
        ({"primary": {"BACKEND": "nowhere.Leases"}}, r"\['primary'\]\['BACKEND'\] is 'nowhere"),
        ({"secondary": {"OPTIONS": {"colour": 1}}}, r"\['secondary'\].*unknown key 'colour'"),
        ({"secondary": 5}, r"\['secondary'\] must be a dictionary"),
        ({"workers": [0, 1]}, "two worker ids at least"),
        ({"tertiary": {}}, "unknown key 'tertiary'"),
    ],
)
def test_impossible_settings_are_named(options: dict[str, Any], words: str) -> None:
    """With the path of the option that can't work."""
    with pytest.raises(SettingsError, match=words):
        configured(**options)

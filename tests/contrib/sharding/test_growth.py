"""From n databases to more of them: one step, also beside a process that was left running."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models import F
from django.test import override_settings

from django_idgen import segments
from django_idgen.contrib.sharding import growth
from django_idgen.contrib.sharding.growth import QUIET, Growth
from django_idgen.core.errors import ConfigurationError
from django_idgen.core.segment import Segment
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.models import Installation, LeafAlloc
from django_idgen.process import maps
from django_idgen.sources.database import DatabaseSource
from tests.conftest import _drop_tables
from tests.ops.doctor.fleet import Child, databases_of
from tests.server_tools import make_tables

from .test_several import SHARDED, assert_disjoint, away, fetch_rising, ids_of, source_of


class Taker(Child):
    """A process of its own, set to ``names``, that takes ids until ``stop`` is there."""

    def __init__(self, names: list[str], every: list[str], stop: Path, log: Path) -> None:
        words = [json.dumps(databases_of(every)), json.dumps(names), str(stop)]
        argv = ["-m", "tests.contrib.sharding.taker", *words]
        super().__init__(argv, {"DJANGO_SETTINGS_MODULE": "tests.settings"}, log)

    def segments(self) -> list[tuple[str, Segment]]:
        rows = [line for line in self.lines() if line[0] != "refused"]
        return [(t, Segment(t, int(a), int(b), 1, int(d))) for t, a, b, d in rows]

    def wait_for(self, count: int, delta: int) -> None:
        """Until it has got ``count`` more segments of that ``delta``."""
        before = len(self.segments())

        def came() -> bool:
            return sum(s.delta == delta for _, s in self.segments()[before:]) >= count

        self.wait_until(came, f"{count} segments of {delta}")

    def wait_for_refusal(self, name: str = "ConfigurationError") -> None:
        self.wait_until(lambda: ["refused", name] in self.lines(), "a refusal")


@contextmanager
def takers(stop: Path) -> Iterator[list[Taker]]:
    running: list[Taker] = []
    try:
        yield running
    finally:
        stop.touch()
        for taker in running:
            taker.end()


def grow(shards: list[str]) -> str:
    """What the command says once it has done it."""
    out = StringIO()
    call_command("idgen_grow", *shards, yes=True, stdout=out)
    return out.getvalue()


def let_a_minute_pass(shards: list[str]) -> None:
    """Since the last fetch from any of them."""
    for alias in shards:
        moment = F("fetched_at") - timedelta(seconds=QUIET + 5)
        LeafAlloc.objects.using(alias).update(fetched_at=moment)


# --- processes that were left running --------------------------------------------------


def test_a_process_that_was_left_running_repeats_nothing(shards: list[str]) -> None:
    """I1, hazard 58: it uses up what it holds, and is refused at its next fetch."""
    source = source_of(shards[:2], step=100)
    allocator = SegmentAllocator(source, source.loader, timeout=30)
    left = allocator.generator("t")
    ids = left.next_ids(30)
    left.preload(timeout=30)
    let_a_minute_pass(shards)
    grow(shards)
    others = ids_of(fetch_rising(source_of(shards, step=100), 8))
    held = left.stats().remaining
    with pytest.raises(ConfigurationError, match=r"delta=4.*delta=2"):
        ids.extend(iter(left.next_id, None))
    assert len(ids) == 30 + held == 200
    others += ids_of(fetch_rising(source_of(shards, step=100), 8))
    assert len(set(ids + others)) == len(ids + others)
    allocator.close()


def test_processes_that_take_ids_meanwhile_repeat_nothing(
    shards: list[str], tmp_path: Path
) -> None:
    """I1, hazard 58: of the old and of the new setting, where nothing stops the step."""
    fetch_rising(source_of(shards[:2], step=5), 2, "orders")
    stop = tmp_path / "stop"
    with takers(stop) as running:
        for number, names in enumerate([shards[:2], shards[:2], shards]):
            running.append(Taker(names, shards, stop, tmp_path / f"{number}.log"))
        *old, new = running
        old[0].wait_for(20, delta=2)
        assert new.segments() == []  # refused as long as the rows don't say so
        Growth(shards).run()
        for taker in old:
            taker.wait_for_refusal()
        new.wait_for(40, delta=4)
    by_tag: dict[str, list[Segment]] = {}
    for taker in running:
        for tag, segment in taker.segments():
            by_tag.setdefault(tag, []).append(segment)
    assert {"orders", "bills"} < by_tag.keys()
    for found in by_tag.values():
        assert_disjoint(found)
    assert {s.delta for taker in old for _, s in taker.segments()} == {2}
    assert {s.start % 4 for _, s in new.segments()} == {0, 1, 2, 3}


def test_what_is_fetched_before_a_database_is_divided_counts(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new ones begin above it, however late it was, also of a tag made then."""
    found = fetch_rising(source_of(shards[:2]), 2)
    late: list[Segment] = []
    whole = growth._divide

    def after_a_fetch(alias: str, *args: Any) -> None:
        server = source_of(shards[:2])._members("t")[shards.index(alias)].server
        assert server is not None
        found.extend(server.fetch("t", floor=found[-1].stop) for _ in range(20))
        late.append(server.fetch("late"))
        whole(alias, *args)

    monkeypatch.setattr(growth, "_divide", after_a_fetch)
    Growth(shards).run()
    source = source_of(shards)
    assert_disjoint(found + [source.fetch("t") for _ in range(16)])
    assert_disjoint(late + [source.fetch("late") for _ in range(16)])


# --- interrupted -----------------------------------------------------------------------


@pytest.mark.parametrize("broken_at", ["_expect", "_divide", "_settle"])
def test_it_goes_on_where_it_was_interrupted(
    shards: list[str], broken_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two databases: nothing repeats meanwhile, and run again it does the rest."""
    found = fetch_rising(source_of(shards[:2]), 5)
    whole = getattr(growth, broken_at)
    calls = []

    def half(alias: str, *args: Any) -> Any:
        calls.append(alias)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(alias, *args)

    monkeypatch.setattr(growth, broken_at, half)
    with pytest.raises(KeyboardInterrupt):
        Growth(shards).run()
    monkeypatch.undo()
    found += _taken_by(shards[:2])
    for _ in range(4):
        with pytest.raises(ConfigurationError, match="idgen_grow"):
            source_of([shards[3], *shards[:3]]).fetch("t")
    # From databases that are ready already; the others must refuse it.
    found += _taken_by(shards)
    assert Growth(shards).plan()
    Growth(shards).run()
    assert Growth(shards).plan() == []
    found += [source_of(shards).fetch("t") for _ in range(16)]
    assert _taken_by(shards[:2]) == []
    assert_disjoint(found)
    assert not any(Installation.objects.using(alias).get().growing for alias in shards)


def _taken_by(databases: list[str], *, match: str = "idgen_grow") -> list[Segment]:
    """What eight processes get, of which some are refused with words that ``match``."""
    found: list[Segment] = []
    refusals: list[str] = []
    for _ in range(8):
        try:
            found.append(source_of(databases).fetch("t"))
        except ConfigurationError as error:
            refusals.append(str(error))
    assert all(match in words for words in refusals)
    return found


def test_a_database_that_was_emptied_does_not_start_over(shards: list[str]) -> None:
    """Its tables were made anew: the others say that it must have known them. Growing is no way."""
    fetch_rising(source_of(shards[:2]), 4)
    _drop_tables(shards[1])
    make_tables(shards[1])
    fetched = [each.start % 2 for each in _taken_by(shards[:2], match="has no rows of them")]
    assert set(fetched) <= {0}
    for databases in (shards[:2], shards):
        with pytest.raises(ConfigurationError, match=r"'west'"):
            Growth(databases).run()
    with pytest.raises(ConfigurationError, match=r"'west' .*emptied.*idgen_skip"):
        Growth(shards[:2]).plan()
    Installation.objects.using(shards[1]).all().delete()
    with pytest.raises(ConfigurationError, match=r"'west' .*emptied.*idgen_skip"):
        Growth(shards[:2]).plan()
    assert LeafAlloc.objects.using(shards[0]).get().delta == 2


def test_a_database_that_was_emptied_while_it_joins_does_not_start_over(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its note went, too. Until then nothing was made in the new ones."""
    fetch_rising(source_of(shards[:2]), 4)
    monkeypatch.setattr(growth, "_settle", lambda *_: pytest.fail("interrupted"))
    with pytest.raises(pytest.fail.Exception):
        Growth(shards).run()
    monkeypatch.undo()
    _drop_tables(shards[3])
    make_tables(shards[3])
    with pytest.raises(ConfigurationError, match=r"'south' .*emptied"):
        Growth(shards).run()
    assert not LeafAlloc.objects.using(shards[2]).exists()


# --- the command -------------------------------------------------------------------------


def test_from_one_to_three(shards: list[str]) -> None:
    """The database that stood alone gives out a third from then on, above all of the old ids."""
    alone = DatabaseSource(default_step=10, database=shards[0])
    before = [alone.fetch("t") for _ in range(5)]
    LeafAlloc.objects.using(shards[0]).create(biz_tag="unused", max_id=1)
    longest = LeafAlloc.objects.using(shards[0]).get(pk="t").largest_step
    Growth(shards[:3]).run()
    # A length in max_id, of which a fetch now takes three times as much.
    for model in (LeafAlloc, Installation):
        for alias in shards[:3]:
            found = model.objects.using(alias).order_by("-largest_step").first()
            assert found.largest_step == 3 * longest
    source = source_of(shards[:3])
    after = [source.fetch("t") for _ in range(6)] + [alone.fetch("t")]
    assert_disjoint(before + after)
    assert_disjoint([source.fetch("unused") for _ in range(6)])
    for place, alias in enumerate(shards[:3]):
        assert (LeafAlloc.objects.using(alias).get(pk="t").remainder) == place


def test_databases_that_agreed_and_gave_out_nothing_can_grow(shards: list[str]) -> None:
    """They have no tags to move, but their shards."""
    source = source_of(shards[:2])
    source.agree("t")
    Growth(shards).run()
    assert_disjoint([source_of(shards).fetch("t") for _ in range(8)])


def test_the_command_says_what_it_would_do_first(shards: list[str]) -> None:
    """And does it only with --yes; a second time there is nothing to do."""
    fetch_rising(source_of(shards[:2]), 2)
    let_a_minute_pass(shards)
    out = StringIO()
    call_command("idgen_grow", *shards, stdout=out)
    assert "its tags (1) go from delta=2, remainder=0 to delta=4, remainder=0" in out.getvalue()
    assert "'south': a row for each tag above" in out.getvalue()
    assert "--yes" in out.getvalue()
    assert LeafAlloc.objects.using(shards[0]).get().delta == 2
    assert "'databases': ['east', 'west', 'north', 'south']" in grow(shards)
    assert LeafAlloc.objects.using(shards[3]).get().delta == 4
    assert "nothing to do" in grow(shards)


def test_it_refuses_while_a_tag_is_fetched(shards: list[str]) -> None:
    """In the last minute, from any of them, by the database's clock; the tag is named."""
    fetch_rising(source_of(shards[:2]), 2, "orders")
    let_a_minute_pass(shards[:1])
    with pytest.raises(CommandError, match=r"'orders' was fetched from database 'west'"):
        grow(shards)
    assert LeafAlloc.objects.using(shards[0]).get().delta == 2
    let_a_minute_pass(shards[1:])
    assert "Done." in grow(shards)


def test_a_fetch_by_a_clock_that_was_wrong_does_not_stop_it(shards: list[str]) -> None:
    """A time of next year is no fetch of the last minute."""
    fetch_rising(source_of(shards[:2]), 2)
    for alias in shards[:2]:
        LeafAlloc.objects.using(alias).update(fetched_at=F("fetched_at") + timedelta(days=365))
    assert "Done." in grow(shards)


def test_it_refuses_while_the_pool_has_ids(shards: list[str], redis: str) -> None:
    """Of a tag of these databases, with the way to throw them away."""
    pool = {
        "BACKEND": "django_idgen.sources.pool.PoolSource",
        "OPTIONS": {
            "alias": redis,
            "source": {"BACKEND": SHARDED, "OPTIONS": {"databases": shards[:2]}},
        },
    }
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": pool}}):
        segments["orders"].next_id()
        source = segments.allocator().source
        source.refill("orders", 5000)
        let_a_minute_pass(shards)
        with pytest.raises(CommandError, match=r"pool has ids of tags: 1, such as 'orders'.*clear"):
            grow(shards)
        source.clear(["orders"])
        assert "Done." in grow(shards)
        maps.reset()


def test_a_database_that_gave_out_ids_can_not_join(shards: list[str]) -> None:
    """Neither as a new one, nor in another order, nor in another number."""
    for alias in (shards[0], shards[1]):
        DatabaseSource(default_step=10, database=alias).fetch("t")
    for databases in (shards[:2], shards, [shards[2], shards[0]]):
        with pytest.raises(CommandError, match=r"has delta=1, remainder=0, and can't get delta="):
            grow(databases)


def test_the_old_ones_come_first_and_divide_the_new_number(shards: list[str]) -> None:
    """Their order and number stand in their rows. Nothing is divided if not all can be asked."""
    fetch_rising(source_of(shards[:2]), 2)
    with pytest.raises(CommandError, match=r"'west' has delta=2, remainder=1, and can't get"):
        grow([shards[1], shards[0], *shards[2:]])
    with pytest.raises(CommandError, match="3, must be a multiple of the number in use, 2"):
        grow(shards[:3])
    with away(shards[3]), pytest.raises(CommandError, match="'south' does not answer"):
        grow(shards)
    assert LeafAlloc.objects.using(shards[0]).get().delta == 2


def test_impossible_lists_are_refused(shards: list[str]) -> None:
    """With the aliases that there are; the marks of SQLite are in a file of one host."""
    for names in (["east"], ["east", "east"], ["east", "nowhere"]):
        with pytest.raises(CommandError, match="different aliases"):
            call_command("idgen_grow", *names)
    with pytest.raises(CommandError, match="SQLite"):
        call_command("idgen_grow", "east", "default")

"""From n databases to more of them, while processes of either setting take ids."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import IO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections

from django_idgen.contrib.sharding.growth import Growth
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import ConfigurationError
from django_idgen.core.segment import Segment
from django_idgen.models import Installation, LeafAlloc
from django_idgen.sources.database import DatabaseSource
from tests import warm
from tests.server_tools import ROOT

from .test_several import assert_disjoint, away, fetch_rising, source_of

KEYS = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD", "NAME")


class Taker:
    """A process of its own, set to ``names``, that takes ids until ``stop`` is there."""

    def __init__(self, names: list[str], every: list[str], stop: Path, log: Path) -> None:
        databases = {a: {k: connections.settings[a][k] for k in KEYS} for a in every}
        self.log = log
        self._out: IO[str] = log.open("w")
        words = [json.dumps(databases), json.dumps(names), str(stop)]
        self._process = warm.Process(
            ["-m", "tests.contrib.sharding.taker", *words],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
            stdout=self._out,
            stderr=subprocess.DEVNULL,
        )

    def segments(self) -> list[tuple[str, Segment]]:
        lines = [line.split() for line in self.log.read_text().split("\n")[:-1]]
        return [(t, Segment(t, int(a), int(b), 1, int(d))) for t, a, b, d in lines]

    def wait_for(self, count: int, delta: int) -> None:
        """Until it has got ``count`` more segments of that ``delta``."""
        deadline = SYSTEM_CLOCK.stopwatch() + 90
        before = len(self.segments())
        while sum(s.delta == delta for _, s in self.segments()[before:]) < count:
            assert self._process.poll() is None
            assert SYSTEM_CLOCK.stopwatch() < deadline
            SYSTEM_CLOCK.sleep(0.05)

    def wait(self) -> None:
        try:
            assert self._process.wait(60) == 0
        finally:
            self._process.kill()
            self._out.close()


@contextmanager
def takers(stop: Path) -> Iterator[list[Taker]]:
    running: list[Taker] = []
    try:
        yield running
    finally:
        stop.touch()
        for taker in running:
            taker.wait()


def test_from_two_to_four_under_load(shards: list[str], tmp_path: Path) -> None:
    """I1, hazard 58: processes of the old and of the new setting, at every moment of it."""
    fetch_rising(source_of(shards[:2], step=5), 2, "orders")
    stop = tmp_path / "stop"
    with takers(stop) as running:
        for number, names in enumerate([shards[:2], shards[:2], shards]):
            running.append(Taker(names, shards, stop, tmp_path / f"{number}.log"))
        old, _, new = running
        old.wait_for(20, delta=2)
        assert new.segments() == []  # refused as long as the rows don't say so
        call_command("idgen_grow", *shards, yes=True, stdout=StringIO())
        old.wait_for(20, delta=4)
        new.wait_for(40, delta=4)
    by_tag: dict[str, list[Segment]] = {}
    for taker in running:
        for tag, segment in taker.segments():
            by_tag.setdefault(tag, []).append(segment)
    assert {"orders", "bills"} < by_tag.keys()
    for segments in by_tag.values():
        assert_disjoint(segments)
    used = Counter(s.start % 4 for _, s in new.segments())
    assert used.keys() == {0, 1, 2, 3}


@pytest.mark.parametrize("broken_at", ["_divide", "_settle"])
def test_it_goes_on_where_it_was_interrupted(
    shards: list[str], broken_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After half of a step nothing repeats, the new setting is refused; the rest is done later."""
    before = fetch_rising(source_of(shards[:2]), 5)
    whole = getattr(Growth, broken_at)
    calls = []

    def half(self: Growth, alias: str, *args: object, **options: object) -> int:
        calls.append(alias)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return int(whole(self, alias, *args, **options))

    monkeypatch.setattr(Growth, broken_at, half)
    with pytest.raises(KeyboardInterrupt):
        Growth(shards).run()
    monkeypatch.undo()
    between = [source_of(shards[:2]).fetch("t") for _ in range(4)]
    for _ in range(4):
        with pytest.raises(ConfigurationError, match="idgen_grow"):
            source_of([shards[3], *shards[:3]]).fetch("t")
    # From databases that are ready already; the others must refuse it.
    between += _taken_by(shards, match="idgen_grow")
    assert Growth(shards).plan()
    Growth(shards).run()
    assert Growth(shards).plan() == []
    after = [source.fetch("t") for source in (source_of(shards), source_of(shards[:2])) * 8]
    assert_disjoint(before + between + after)


def _taken_by(databases: list[str], *, match: str) -> list[Segment]:
    """What eight processes get, some of which are refused with words that ``match``."""
    found: list[Segment] = []
    refusals: list[str] = []
    for _ in range(8):
        try:
            found.append(source_of(databases).fetch("t"))
        except ConfigurationError as error:
            refusals.append(str(error))
    assert all(match in words for words in refusals)
    return found


def test_from_one_to_three(shards: list[str]) -> None:
    """The database that stood alone gives out a third from then on, above all of the old ids."""
    alone = DatabaseSource(default_step=10, database=shards[0])
    before = [alone.fetch("t") for _ in range(5)]
    LeafAlloc.objects.using(shards[0]).create(biz_tag="unused", max_id=1)
    Growth(shards[:3]).run()
    source = source_of(shards[:3])
    after = [source.fetch("t") for _ in range(6)] + [alone.fetch("t")]
    assert_disjoint(before + after)
    assert_disjoint([source.fetch("unused") for _ in range(6)])
    for place, alias in enumerate(shards[:3]):
        assert (LeafAlloc.objects.using(alias).get(pk="t").remainder) == place


def test_the_command_says_what_it_would_do_first(shards: list[str]) -> None:
    """And does it only with --yes; a second time there is nothing to do."""
    fetch_rising(source_of(shards[:2]), 2)
    out = StringIO()
    call_command("idgen_grow", *shards, stdout=out)
    assert "its tags (1) go from delta=2, remainder=0 to delta=4, remainder=0" in out.getvalue()
    assert "'south': a row for each tag above" in out.getvalue()
    assert "--yes" in out.getvalue()
    assert LeafAlloc.objects.using(shards[0]).get().delta == 2
    call_command("idgen_grow", *shards, yes=True, stdout=out)
    assert LeafAlloc.objects.using(shards[3]).get().delta == 4
    again = StringIO()
    call_command("idgen_grow", *shards, yes=True, stdout=again)
    assert "nothing to do" in again.getvalue()


def test_the_old_setting_is_refused_at_the_end(shards: list[str]) -> None:
    """``--finish``, once all processes have the new list; before its time it is refused."""
    fetch_rising(source_of(shards[:2]), 2)
    with pytest.raises(CommandError, match="delta=2"):
        call_command("idgen_grow", *shards, finish=True)
    call_command("idgen_grow", *shards, yes=True, stdout=StringIO())
    assert source_of(shards[:2]).fetch("t").delta == 4
    call_command("idgen_grow", *shards, finish=True, stdout=StringIO())
    with pytest.raises(ConfigurationError, match=r"delta=4.*delta=2"):
        source_of(shards[:2]).fetch("t")
    assert source_of(shards).fetch("t").delta == 4


def test_a_database_that_gave_out_ids_can_not_join(shards: list[str]) -> None:
    """Neither as a new one, nor in another order; the tag is named."""
    for alias in (shards[0], shards[1]):
        DatabaseSource(default_step=10, database=alias).fetch("t")
    with pytest.raises(CommandError, match="Name new databases"):
        call_command("idgen_grow", *shards[:2], yes=True, stdout=StringIO())
    with pytest.raises(CommandError, match=r"delta=1, remainder=0"):
        call_command("idgen_grow", *shards, yes=True, stdout=StringIO())
    with pytest.raises(CommandError, match="first"):
        call_command("idgen_grow", shards[2], shards[0], yes=True, stdout=StringIO())


@pytest.mark.parametrize("names", [["east"], ["east", "east"], ["east", "nowhere"]])
def test_impossible_lists_are_refused(shards: list[str], names: list[str]) -> None:
    """With the aliases that there are."""
    with pytest.raises(CommandError, match="different aliases"):
        call_command("idgen_grow", *names)


def test_sqlite_can_not_join(shards: list[str]) -> None:
    """Its marks are in a file of one host."""
    with pytest.raises(CommandError, match="SQLite"):
        call_command("idgen_grow", shards[0], "default")


def test_a_server_that_is_away_stops_it(shards: list[str]) -> None:
    """Nothing is divided as long as not all can be asked."""
    fetch_rising(source_of(shards[:2]), 2)
    with away(shards[3]), pytest.raises(CommandError):
        call_command("idgen_grow", *shards, yes=True, stdout=StringIO())
    assert LeafAlloc.objects.using(shards[0]).get().delta == 2


def test_a_database_that_was_emptied_does_not_start_over(shards: list[str]) -> None:
    """Its tables were dropped: the others say that it must have known them."""
    source = source_of(shards[:2])
    fetch_rising(source, 4)
    for model in (LeafAlloc, Installation):
        model.objects.using(shards[1]).all().delete()
    with connections[shards[1]].cursor() as cursor:
        cursor.execute("DROP TABLE leaf_alloc")
        cursor.execute("DROP TABLE django_idgen_installation")
    fetched = [each.start % 2 for each in _taken_by(shards[:2], match="has no rows of them")]
    assert set(fetched) <= {0}

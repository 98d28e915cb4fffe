"""One tag over several databases: Flickr's ticket servers, without their two faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import F
from django.test import override_settings

from django_idgen.checks import check_settings
from django_idgen.contrib.sharding import ShardedSource
from django_idgen.contrib.sharding.source import SKIP_AFTER
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import ConfigurationError, InvalidTag, SegmentUnavailable
from django_idgen.core.segment import Segment, Shard
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.db import connection
from django_idgen.db.connection import own_connection
from django_idgen.models import Installation, LeafAlloc
from django_idgen.ops.tags.edits import plan_skip
from django_idgen.sources import database
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.server import ServerSource
from django_idgen.testing.contracts.lenders import at_once
from tests.ops.doctor.asking import findings
from tests.places import empty_sqlite

SHARDED = f"{ShardedSource.__module__}.ShardedSource"
REFUSING_PORT = "1"


def source_of(databases: list[str], step: int = 10, **options: Any) -> DatabaseSource:
    return ShardedSource(default_step=step, databases=databases, **options)


def ids_of(segments: list[Segment]) -> list[int]:
    return [number for segment in segments for number in segment.ids()]


def assert_disjoint(segments: list[Segment]) -> None:
    assert max(Counter(ids_of(segments)).values()) == 1


def fetch_rising(source: DatabaseSource, count: int, tag: str = "t") -> list[Segment]:
    """As a process does: each at or above the end of the last."""
    found: list[Segment] = []
    for _ in range(count):
        found.append(source.fetch(tag, floor=found[-1].stop if found else 0))
    return found


@contextmanager
def away(alias: str) -> Iterator[None]:
    """The server of ``alias`` refuses connections for the block."""
    settings = connections.settings[alias]
    connections[alias].close()
    port, settings["PORT"] = settings["PORT"], REFUSING_PORT
    try:
        yield
    finally:
        settings["PORT"] = port


@pytest.mark.usefixtures("unhurried")
def test_each_database_gives_out_its_own_remainder(shards: list[str]) -> None:
    """Its place in the list; delta and remainder stand in the rows, and in the segments."""
    source = source_of(shards[:3])
    segments = [source.fetch("t") for _ in range(9)]
    assert {segment.delta for segment in segments} == {3}
    assert Counter(segment.start % 3 for segment in segments) == {0: 3, 1: 3, 2: 3}
    assert all(len(segment.ids()) == 10 for segment in segments)
    assert_disjoint(segments)
    assert min(ids_of(segments)) == 1
    for place, alias in enumerate(shards[:3]):
        row = LeafAlloc.objects.using(alias).get()
        assert (row.delta, row.remainder) == (3, place)


@pytest.mark.usefixtures("unhurried")
def test_a_process_gets_rising_ids_from_databases_at_different_heights(shards: list[str]) -> None:
    """I2: the floor goes with the process from one database to the next."""
    source = source_of(shards[:2])
    assert_disjoint(fetch_rising(source, 4))
    LeafAlloc.objects.using(shards[0]).update(max_id=100_000)
    segments = fetch_rising(source, 9)
    assert all(one.stop <= other.start for one, other in pairwise(segments))
    assert {segment.start % 2 for segment in segments} == {0, 1}


def test_the_generator_rises_over_several_databases(shards: list[str]) -> None:
    """I2: next_id() goes up from one segment to the next, whichever database it is of."""
    source = source_of(shards)
    allocator = SegmentAllocator(source, source.loader, timeout=30)
    ids = [allocator.generator("t").next_id() for _ in range(500)]
    allocator.close()
    assert ids == sorted(set(ids))
    assert len({number % 4 for number in ids}) > 1


def test_threads_and_processes_alike_share_no_id(shards: list[str]) -> None:
    """I1: eight sources over three databases, from their first use on."""
    found = at_once(8, lambda _: fetch_rising(source_of(shards[:3], step=3), 12))
    assert_disjoint([segment for segments in found for segment in segments])


def test_a_dead_database_is_passed_over(shards: list[str]) -> None:
    """Hazard 26: the others go on, for a known tag and for a new one; it is back by itself.

    Where all are dead, the error names each and chains the cause; ids come back with any of them.
    """
    source = source_of(shards[:2])
    before = fetch_rising(source, 4)
    with away(shards[0]):
        during = [source.fetch("t") for _ in range(4)] + [source.fetch("new")]
    assert {segment.start % 2 for segment in during} == {1}
    assert_disjoint(before + during[:-1])
    with (
        away(shards[0]),
        away(shards[1]),
        pytest.raises(SegmentUnavailable, match=r"'east'.*'west'|'west'.*'east'") as caught,
    ):
        source.fetch("t")
    assert isinstance(caught.value.__cause__, SegmentUnavailable)
    assert source.fetch("t").start


def test_a_dead_database_is_tried_again_in_the_background(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the probe; once it succeeds the database has its turn again."""
    source = source_of(shards[:2])
    fetch_rising(source, 2)
    with away(shards[0]):
        [source.fetch("t") for _ in range(2)]
    assert {source.fetch("t").start % 2 for _ in range(4)} == {1}
    monkeypatch.setattr(database, "RETRY_AFTER", 0.0)
    source._by_alias[shards[0], Shard(2, 0)].health._retry_at = 0.0
    deadline = SYSTEM_CLOCK.stopwatch() + 30
    while source.fetch("t").start % 2 == 1:
        assert SYSTEM_CLOCK.stopwatch() < deadline


Waits = list[tuple[str, float | None]]


@pytest.fixture
def note_waits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Waits]:
    """Call it to have noted from then on which database is asked, and for how long (seconds)."""
    waits: Waits = []
    fetch_within = ServerSource.fetch_within

    def noting(self: ServerSource, timeout: float | None, *args: Any, **options: Any) -> Segment:
        waits.append((self.alias, timeout))
        return fetch_within(self, timeout, *args, **options)

    def begin() -> Waits:
        monkeypatch.setattr(ServerSource, "fetch_within", noting)
        return waits

    return begin


def test_a_silent_database_holds_nobody_up(
    shards: list[str], note_waits: Callable[[], Waits]
) -> None:
    """A locked row, or a server that says nothing, is not waited for by all its turns."""
    source = source_of(shards[:2])
    fetch_rising(source, 2)
    with transaction.atomic(using=shards[0]):
        LeafAlloc.objects.using(shards[0]).select_for_update().get()
        waits = note_waits()
        segments = [source.fetch("t") for _ in range(6)]
    # Three turns were its; a probe may have let it be asked once more on a slow machine.
    assert 0 < waits.count((shards[0], SKIP_AFTER)) < 3
    assert (shards[0], None) not in waits
    assert {segment.start % 2 for segment in segments} == {1}


def test_it_is_left_after_a_second(shards: list[str], note_waits: Callable[[], Waits]) -> None:
    """As long as there is another one to ask; the last ones are given their whole time."""
    source = source_of(shards[:2])
    fetch_rising(source, 2)
    waits = note_waits()
    with away(shards[0]), away(shards[1]), pytest.raises(SegmentUnavailable):
        source.fetch("t")
    assert SKIP_AFTER <= 1
    assert sorted(waits[:2]) == [(shards[0], SKIP_AFTER), (shards[1], SKIP_AFTER)]
    assert sorted(waits[2:]) == [(shards[0], None), (shards[1], None)]


# --- settings that differ ----------------------------------------------------------------------


@pytest.mark.usefixtures("unhurried")
def test_a_setting_that_differs_is_refused(shards: list[str]) -> None:
    """Another order, another number: both values are named, and nothing is given out."""
    fetch_rising(source_of(shards[:2]), 4)
    heights = [LeafAlloc.objects.using(alias).get().max_id for alias in shards[:2]]
    with pytest.raises(ConfigurationError, match=r"delta=2, remainder=[01].*delta=2, remainder="):
        source_of([shards[1], shards[0]]).fetch("t")
    with pytest.raises(ConfigurationError, match=r"delta=2, remainder=[01].*delta=3, remainder="):
        source_of(shards[:2] + shards[2:3]).fetch("t", floor=0)
    with pytest.raises(ConfigurationError, match="delta=2"):
        source_of([shards[1], shards[0]]).fetch("new")
    assert [LeafAlloc.objects.using(a).get(pk="t").max_id for a in shards[:2]] == heights


@pytest.mark.parametrize("tag", ["old", "new"])
def test_a_database_that_gave_out_ids_alone_is_not_joined_by_a_setting(
    shards: list[str], tag: str
) -> None:
    """From one to two by rolling out settings would repeat ids at once (hazard 58)."""
    DatabaseSource(default_step=10, database=shards[0]).fetch("old")
    for _ in range(4):  # whichever of the two it begins with
        with pytest.raises(ConfigurationError, match="idgen_grow"):
            source_of(shards[:2]).fetch(tag)
    # Nothing at all may have been made in the second one.
    with suppress(Exception):
        assert not LeafAlloc.objects.using(shards[1]).exists()


def test_the_first_use_of_all_asks_all_of_them(shards: list[str]) -> None:
    """One that is away may have given out the ids alone; afterwards it may be away."""
    with away(shards[1]), pytest.raises(SegmentUnavailable, match="'west' does not answer"):
        source_of(shards[:2]).fetch("t")
    assert source_of(shards[:2]).fetch("t").delta == 2


def test_a_process_that_knows_one_database_gives_out_that_ones_ids(shards: list[str]) -> None:
    """What stands in the rows, and in the installation, counts for it, too."""
    fetch_rising(source_of(shards[:2]), 2)
    alone = DatabaseSource(default_step=10, database=shards[1])
    segments = [alone.fetch("t"), alone.fetch("new")]
    assert [(segment.delta, segment.start % 2) for segment in segments] == [(2, 1), (2, 1)]


def test_a_row_from_the_admin_joins_its_database(shards: list[str]) -> None:
    """It was made with the table's defaults, delta 1: as its first fetch finds it."""
    fetch_rising(source_of(shards[:2]), 2)
    for alias in shards[:2]:
        LeafAlloc.objects.using(alias).create(biz_tag="made", max_id=51, step=5)
    source = source_of(shards[:2])
    segments = [source.fetch("made") for _ in range(4)]
    assert {segment.delta for segment in segments} == {2}
    assert min(ids_of(segments)) >= 51
    assert_disjoint(segments)


def test_an_impossible_shard_in_a_row_is_named(shards: list[str]) -> None:
    """A delta of 0, or a remainder past it, gives nothing out."""
    source = DatabaseSource(default_step=10, database=shards[0])
    source.fetch("t")
    LeafAlloc.objects.using(shards[0]).update(delta=2, remainder=2)
    with pytest.raises(SegmentUnavailable, match="delta=2, remainder=2"):
        source.fetch("t")


@pytest.mark.usefixtures("unhurried")
def test_a_skip_says_what_all_databases_lose(shards: list[str]) -> None:
    """As the admin does: the ids of one that was behind, too, and no id of the other's."""
    sharing = {"BACKEND": SHARDED, "OPTIONS": {"databases": shards[:2]}}
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": sharing}}):
        source = source_of(shards[:2])
        top = max(source.fetch("t").stop for _ in range(4))
        behind = LeafAlloc.objects.using(shards[1])
        behind.filter(pk="t").update(max_id=F("max_id") - 20)
        out = StringIO()
        call_command("idgen_skip", "t", to=top + 100, dry_run=True, stdout=out)
        plan = plan_skip("t", most=10_000, to=top + 100)
        assert f"-> {top + 100} ({plan.lost} ids are skipped)" in out.getvalue()
        assert plan.lost != plan.to - plan.before


def test_the_installation_knows_its_place(shards: list[str]) -> None:
    """So that a row that was deleted is made anew as it was."""
    source = source_of(shards[:2])
    segments = fetch_rising(source, 4)
    for place, alias in enumerate(shards[:2]):
        row = Installation.objects.using(alias).get()
        assert (row.delta, row.remainder, row.growing) == (2, place, False)
        LeafAlloc.objects.using(alias).all().delete()
    after = source.fetch("t", floor=segments[-1].stop)
    assert after.delta == 2
    assert_disjoint([*segments, after])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"databases": []}, "'databases'"),
        ({"databases": ["default", "default"]}, "different"),
        ({"databases": ["default", "nowhere"]}, "nowhere"),
        ({"databases": 5}, "5"),
        ({"database": "nowhere"}, "nowhere"),
        ({"router": "os.path.join", "databases": ["default"]}, "only one"),
        ({"router": "tests.nowhere.at_all"}, "tests.nowhere"),
        ({"router": 5}, "function"),
        ({"failover_skip": 0}, "failover_skip"),
        ({"history": 1}, "history"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], words: str) -> None:
    """When the source is made, with the value named."""
    with pytest.raises(ConfigurationError, match=words):
        (ShardedSource if "databases" in options else DatabaseSource)(default_step=10, **options)


def test_several_databases_need_the_source_for_that(shards: list[str]) -> None:
    """A list of them, or a router that returns one, is refused by name.

    SQLite can't be one of them: its marks are in a file of one host.
    """
    with pytest.raises(ConfigurationError, match="ShardedSource"):
        DatabaseSource(default_step=10, database=shards[:2])
    with pytest.raises(ConfigurationError, match="ShardedSource"):
        DatabaseSource(default_step=10, router=lambda _tag: shards[:2]).fetch("t")
    with pytest.raises(ConfigurationError, match="'databases' or 'router'"):
        ShardedSource(default_step=10)
    with pytest.raises(ConfigurationError, match="SQLite"):
        source_of([shards[0], "default"]).fetch("t")


@pytest.mark.parametrize("of_the_source", [True, False])
def test_the_check_and_the_doctor_refuse_sqlite_too(
    shards: list[str], tmp_path: Path, of_the_source: bool
) -> None:
    """Before the first id: of the segment source, and of a generator with a tag of its own."""
    shared = {"BACKEND": SHARDED, "OPTIONS": {"databases": [shards[0], "default"]}}
    tickets = {"BACKEND": f"{ShardedSource.__module__}.TicketGenerator", "SOURCE": shared}
    entry = {**tickets, "OPTIONS": {"tag": "t"}}
    idgen = {"SEGMENTS": {"SOURCE": shared}} if of_the_source else {"GENERATORS": {"a": entry}}
    with override_settings(IDGEN=idgen):
        with empty_sqlite(Path(":memory:")):
            assert check_settings() == []  # a user's tests keep all marks in memory
        with empty_sqlite(tmp_path / "a.sqlite3"):
            (error,) = check_settings()
            assert error.id == "django_idgen.E001"
            assert "'default' is SQLite" in error.msg
            found = findings("settings", database=["default"])
            assert [each["what"] for each in found if each["subject"] == "IDGEN"] == [error.msg]


def test_a_test_that_forbids_one_of_several_is_told(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test may use all of them, or none."""
    source = source_of(shards[:2])
    source.fetch("t")
    monkeypatch.setattr(connection, "_forbidden", lambda asked: asked.alias == shards[1])
    with pytest.raises(ConfigurationError, match=f"'{shards[1]}'.*all of them"):
        fetch_rising(source, 2)


# --- the loader ----------------------------------------------------------------------------------


@pytest.mark.long
def test_a_fetch_that_hangs_stops_no_other(shards: list[str]) -> None:
    """Tags of a dead server wait in threads of their own; others are loaded meanwhile."""
    source = DatabaseSource(
        default_step=10, router=lambda tag: shards[0] if tag.startswith("a") else shards[1]
    )
    [source.fetch(tag) for tag in ("a", "b")]
    with transaction.atomic(using=shards[0]):
        LeafAlloc.objects.using(shards[0]).select_for_update().get(pk="a")
        stuck = [source.loader.submit(lambda: source.fetch("a")) for _ in range(3)]
        others = [source.loader.submit(lambda: source.fetch("b")).result(30) for _ in range(5)]
        assert len({segment.start for segment in others}) == 5
        for future in stuck:
            with pytest.raises(SegmentUnavailable):
                future.result(30)
    assert source.fetch("a").start >= 11  # one that was still queued may have come through


def test_a_single_database_keeps_its_own_loader(shards: list[str]) -> None:
    """Nothing stands between the allocator and the thread that owns the connection."""
    source = DatabaseSource(default_step=10, database=shards[0])
    allocator = SegmentAllocator(source, source.loader, timeout=30)
    assert allocator.generator("t").next_ids(25) == list(range(1, 26))
    allocator.close()
    assert source.loader is own_connection(shards[0]).loader


# --- a function that spreads tags over databases --------------------------------------


def by_first_letter(tag: str) -> str | Sequence[str]:
    """The router of these tests."""
    if tag.startswith("shared."):
        return ["west", "north"]
    if tag == "broken":
        raise LookupError("no such tag")
    return {"a": "east", "n": "nowhere"}.get(tag[0], "south")


PATH = f"{__name__}.by_first_letter"


def tags(alias: str) -> list[str]:
    return sorted(LeafAlloc.objects.using(alias).values_list("pk", flat=True))


def test_each_tag_comes_from_the_database_that_the_router_names(shards: list[str]) -> None:
    """One of them, or several that share it; ids start at 1 in each."""
    source = ShardedSource(default_step=10, router=PATH)
    assert [source.fetch(tag).start for tag in ("a", "b", "c", "a")] == [1, 1, 1, 11]
    shared = [source.fetch("shared.t") for _ in range(6)]
    ids = [number for segment in shared for number in segment.ids()]
    assert len(ids) == len(set(ids)) == 60
    assert [tags(alias) for alias in shards] == [["a"], ["shared.t"], ["shared.t"], ["b", "c"]]


def test_a_database_is_in_one_list(shards: list[str]) -> None:
    """One that gives out ids alone can't share a tag: its new rows would be made both ways."""
    source = ShardedSource(default_step=10, router=lambda tag: tag.split(","))
    source.fetch("east")
    with pytest.raises(ConfigurationError, match=r"delta=1, remainder=0.*delta=2, remainder=0"):
        source.fetch("east,west")


def test_what_it_can_not_answer_is_named(shards: list[str]) -> None:
    """The router, the tag and its answer."""
    source = DatabaseSource(default_step=10, router=PATH)
    for tag, words in (("new", "'nowhere'"), ("broken", "no such tag"), ("", "empty")):
        with pytest.raises((ConfigurationError, InvalidTag), match=words):
            source.fetch(tag)


def test_any_function_can_be_one(shards: list[str]) -> None:
    """Where the source is made by hand."""
    source = DatabaseSource(default_step=10, router=lambda tag: "west")
    assert source.fetch("t").start == 1
    assert tags("west") == ["t"]
    source.abandon()
    source.close()
    assert source.fetch("t").start == 11

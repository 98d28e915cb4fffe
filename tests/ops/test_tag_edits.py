"""Tags made and changed by people, wherever their rows are, without a repeat."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.db.models import Q
from django.test import override_settings

from django_idgen import segments
from django_idgen.contrib.adopt import marks
from django_idgen.core.errors import ConfigurationError, InvalidTag, SegmentUnavailable
from django_idgen.core.segment import MAX_ID
from django_idgen.models import Installation, LeafAlloc
from django_idgen.ops.doctor.marks import _lower_tag
from django_idgen.ops.tags import edits as tag_edits
from django_idgen.process import maps
from django_idgen.process import tags as tag_rows
from django_idgen.rest.tags import matching_names, tags_of
from django_idgen.sources.memory import MemorySource
from django_idgen.testing.contracts.lenders import at_once
from tests.contrib.sharding.test_several import PATH
from tests.places import make_tables, sqlite
from tests.server_tools import unreachable
from tests.sources.pool.test_project import project

MOST = 1_000_000


def rows(tag: str, aliases: list[str]) -> list[LeafAlloc]:
    return [LeafAlloc.objects.using(alias).get(pk=tag) for alias in aliases]


SHARED = {"BACKEND": "django_idgen.contrib.sharding.ShardedSource"}


@contextmanager
def source_of(**options: Any) -> Iterator[None]:
    idgen = {
        "SEGMENTS": {
            "SOURCE": {**({} if "database" in options else SHARED), "OPTIONS": options},
            "OPTIONS": {"default_step": 10, "timeout": 30},
        }
    }
    with override_settings(IDGEN=idgen):
        yield
        maps.reset()


def taken(tag: str, count: int) -> list[int]:
    """Ids as several processes take them: each has a generator of its own."""
    found: list[int] = []
    while len(found) < count:
        segments.close()
        found += segments[tag].next_ids(7)
    return found


# --- several databases ---------------------------------------------------------------


def test_a_tag_is_made_in_all_databases_that_share_it(shards: list[str]) -> None:
    """Each row with its own part of the ids, also before anybody took one; none below first."""
    three = shards[:3]
    with source_of(databases=three):
        tag = tag_edits.make_tag("t", step=4, description="words", max_id=1000)
        assert list(tag.rows) == three
        found = rows("t", three)
        assert [(row.delta, row.remainder) for row in found] == [(3, 0), (3, 1), (3, 2)]
        assert {(row.max_id, row.step, row.description) for row in found} == {(1000, 4, "words")}
        ids = taken("t", 100)
        deadline = time.monotonic() + 120  # one that was slow to answer is passed over for 30 s
        while {number % 3 for number in ids} != {0, 1, 2}:
            assert time.monotonic() < deadline
            ids += taken("t", 100)
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 1000


def test_a_new_tag_follows_the_division_of_its_database(shards: list[str]) -> None:
    """What the installation's row says, whoever makes the tag there: the admin, too."""
    with source_of(databases=shards[:2]):
        taken("other", 7)
        row = LeafAlloc(biz_tag="t", max_id=50, step=5, description="")
        with transaction.atomic(using=shards[1]):
            tag_edits.insert_tag_row(row, shards[1])
    (found,) = rows("t", [shards[1]])
    assert (found.delta, found.remainder) == (2, 1)
    known = Installation.objects.using(shards[1]).get()
    assert (known.delta, known.remainder) == (2, 1)


def test_an_edit_reaches_all_databases(shards: list[str]) -> None:
    """A step, a description; and a skip, also where the tag has no row yet.

    A tag that one database has is there: who used it first may not have come to all of them.
    """
    two = shards[:2]
    with source_of(databases=two):
        segments["t"].next_id()
        with pytest.raises(tag_edits.TagExists):
            tag_edits.make_tag("t", step=4)
        found = tag_rows.find_tag("t")
        assert found is not None
        (only,) = found.rows
        assert tag_edits.change_tag("t", step=3, description="new").rows[only].step == 3
        skipped = tag_edits.skip_tag("t", most=MOST, to=5000)
        assert list(skipped.rows) == two
        assert {(row.max_id, row.step, row.delta) for row in rows("t", two)} == {(5000, 3, 2)}
        segments.close()
        assert min(taken("t", 50)) >= 5000


def test_a_skip_goes_by_the_highest(shards: list[str]) -> None:
    """What stands lower in one database is no way back."""
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=4)
        LeafAlloc.objects.using(shards[1]).update(max_id=900)
        with pytest.raises(tag_edits.SkipRefused) as refused:
            tag_edits.skip_tag("t", most=MOST, to=899)
        assert (refused.value.max_id, refused.value.wanted) == (900, 899)
        assert tag_edits.skip_tag("t", most=MOST, by=10).max_id == 910


@pytest.mark.parametrize("is_there", [True, False])
def test_what_failed_half_way_can_be_completed(
    shards: list[str], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """The database that was not reached would give out the ids below, which may be in use."""
    edit = partial(tag_edits.make_tag, "t", step=4, max_id=1000)
    with source_of(databases=shards[:2]):
        if is_there:
            tag_edits.make_tag("t", step=4)
            edit = partial(tag_edits.skip_tag, "t", most=MOST, to=1000)
        with monkeypatch.context() as failing:
            failing.setattr(tag_edits, "edit_rows", _failing_at(shards[1]))
            with pytest.raises(SegmentUnavailable):
                edit()
        tag_edits.skip_tag("t", most=MOST, to=1000)
        assert [row.max_id for row in rows("t", shards[:2])] == [1000, 1000]
        assert min(taken("t", 50)) >= 1000
        with pytest.raises(tag_edits.SkipRefused):
            tag_edits.skip_tag("t", most=MOST, to=1000)


@pytest.mark.parametrize("ahead", [1000, 1100])
def test_the_command_completes_what_failed_half_way(shards: list[str], ahead: int) -> None:
    """Also if the database that was reached has gone on since."""
    two = shards[:2]
    with source_of(databases=two):
        tag_edits.make_tag("t", step=4)
        LeafAlloc.objects.using(two[0]).update(max_id=ahead)
        for said in (f"{ahead} -> {ahead}", f"stays at {ahead}"):
            out = StringIO()
            call_command("idgen_skip", "t", to=1000, yes=True, stdout=out)
            assert said in out.getvalue()
            assert [row.max_id for row in rows("t", two)] == [ahead, ahead]


def test_a_half_done_skip_is_completed_while_the_tag_is_in_use(
    shards: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its higher database goes on while the question waits for an answer."""
    two = shards[:2]
    with source_of(databases=two):
        tag_edits.make_tag("t", step=4)
        high = LeafAlloc.objects.using(two[0]).filter(pk="t")
        high.update(max_id=1100)

        def answer(*_: object) -> str:
            high.update(max_id=1104)
            return "yes"

        monkeypatch.setattr("builtins.input", answer)
        call_command("idgen_skip", "t", to=1000, stdout=StringIO())
        assert [row.max_id for row in rows("t", two)] == [1104, 1104]


def test_a_lowered_tag_fills_its_pool_again(postgres: str, redis: str) -> None:
    """A skip by mistake is taken back by the doctor: lower ids may be put in again."""
    make_tables(postgres)
    with project(redis, postgres) as pool:
        tag_edits.make_tag("t", step=20)
        tag_edits.skip_tag("t", most=MAX_ID, to=2**60)
        tag_edits.clear_tag("t")
        _lower_tag("t", [])
        assert pool.refill("t", 100) >= 100
        assert pool.fetch("t").start < 1000


def test_an_adopted_tag_is_raised_where_it_has_no_row_yet(shards: list[str]) -> None:
    """It was used in one of its databases only, and would begin below the rows in the other."""
    two = shards[:2]
    with source_of(databases=two):
        segments.allocator().source.fetch("t", floor=5000)
        marks.raise_tag("t", 3000)
        assert min(row.max_id for row in rows("t", two)) >= 3000


def _failing_at(alias: str) -> Any:
    edit = tag_edits.edit_rows

    def failing(at: str, body: Any) -> Any:
        if at == alias:
            raise SegmentUnavailable(f"{alias} is away")
        return edit(at, body)

    return failing


def test_making_and_using_at_once_repeats_nothing(shards: list[str]) -> None:
    """Of many tags, over two databases, on their first use of all."""
    with source_of(databases=shards[:2]):
        for number in range(4):

            def act(who: int, tag: str = f"t{number}") -> list[int]:
                try:
                    if who:
                        return segments[tag].next_ids(40)
                    tag_edits.make_tag(tag, step=3)
                except tag_edits.TagExists:
                    pass
                finally:
                    connections.close_all()
                return []

            ids = Counter(each for some in at_once(4, act) for each in some)
            assert len(ids) == 120
            assert max(ids.values()) == 1


def test_a_database_that_is_away_is_told(shards: list[str]) -> None:
    """Nothing is half known: whoever asks hears that it can't be asked."""
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=4)
        with unreachable(shards[1]):
            with pytest.raises(SegmentUnavailable, match=shards[1]):
                tag_rows.find_tag("t")
            with pytest.raises(SegmentUnavailable, match=shards[1]):
                tag_edits.skip_tag("t", most=MOST, by=10)


# --- a router ------------------------------------------------------------------------


def test_a_tag_is_made_where_the_router_leads(shards: list[str]) -> None:
    """And listed with all others, by whatever it is sorted."""
    with source_of(router=PATH):
        for number, tag in enumerate(("a", "b", "shared.t")):
            tag_edits.make_tag(tag, step=10 - number, max_id=5)
        assert [segments[tag].next_id() for tag in ("a", "b")] == [5, 5]
        shared = segments["shared.t"].next_ids(50)
        assert shared == sorted(set(shared))
        with pytest.raises(ConfigurationError):
            tag_edits.make_tag("n", step=1)
        listed = {tag.name: list(tag.rows) for tag in _all(ordering="tag")}
        assert listed == {"a": ["east"], "b": ["south"], "shared.t": ["west", "north"]}
        assert [tag.name for tag in _all(ordering="step")] == ["shared.t", "b", "a"]
        assert [tag.name for tag in _all(ordering="-step")] == ["a", "b", "shared.t"]


def _all(ordering: str) -> list[tag_rows.Tag]:
    names = matching_names(Q(pk__in=["a", "b", "shared.t"]), ordering)
    assert len(names) == 3
    return tags_of(names[0:10])


# --- SQLite --------------------------------------------------------------------------


@contextmanager
def locked(alias: str) -> Iterator[None]:
    """While somebody else keeps anybody from reading the database."""
    connections[alias].close()
    with closing(sqlite3.connect(connections[alias].settings_dict["NAME"])) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.rollback()


def test_on_sqlite_the_mark_itself_is_set_and_raised(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    """A first id and a skip count though the row can't be read."""
    with django_db_blocker.unblock(), sqlite(tmp_path):
        tag_edits.make_tag("t", step=3, max_id=7000)
        with locked("default"):
            assert segments["t"].next_ids(4) == [7000, 7001, 7002, 7003]
        tag_edits.make_tag("u", step=3)
        segments["u"].next_id()  # one of several: no preload is under way
        tag_edits.skip_tag("u", most=MOST, to=7000)
        segments["u"].clear()
        with locked("default"):
            assert segments["u"].next_id() == 7000


@pytest.mark.django_db
def test_in_memory_a_tag_is_made_and_skipped() -> None:
    """As in a user's own tests, inside their transaction."""
    tag_edits.make_tag("memory.t", step=3, max_id=40)
    assert segments["memory.t"].next_ids(4) == [40, 41, 42, 43]
    with pytest.raises(tag_edits.TagExists):
        tag_edits.make_tag("memory.t", step=3)
    tag_edits.skip_tag("memory.t", most=MOST, to=900)
    segments["memory.t"].clear()
    assert segments["memory.t"].next_id() == 900


@pytest.mark.django_db
def test_a_tag_whose_row_is_still_to_be_written_can_be_edited() -> None:
    """In memory it may wait for long."""
    assert segments["memory.used"].next_id() == 1
    found = tag_rows.find_tag("memory.used")
    assert found is not None
    assert found.max_id > 1
    assert tag_edits.change_tag("memory.used", step=7).first.step == 7
    segments["memory.used"].clear()
    assert segments["memory.used"].next_id() >= found.max_id
    assert segments["memory.used"].stats().current.step == 7


# --- everywhere ----------------------------------------------------------------------


def test_what_can_t_be_is_refused(place: str) -> None:
    """By exceptions with the values; nothing is made."""
    with pytest.raises(InvalidTag):
        tag_edits.make_tag(" t", step=5)
    for step in (0, -1, 10**10):
        with pytest.raises(ConfigurationError):
            tag_edits.make_tag("t", step=step)
    for edit in (
        lambda: tag_edits.change_tag("t", step=5),
        lambda: tag_edits.skip_tag("t", most=MOST, by=5),
        lambda: tag_edits.pause_tag("t"),
        lambda: tag_edits.resume_tag("t"),
    ):
        with pytest.raises(tag_rows.TagUnknown):
            edit()
    assert tag_rows.find_tag("t") is None


def test_a_description_that_is_too_long_for_the_column_is_told(place: str) -> None:
    """Not by the database's own exception, whatever it is; SQLite takes it."""
    if place == "default":
        tag_edits.make_tag("t", step=5, description="x" * 257)
        return
    with pytest.raises(tag_edits.Unstorable):
        tag_edits.make_tag("t", step=5, description="x" * 257)
    assert tag_rows.find_tag("t") is None


def test_a_row_that_moved_on_meanwhile_is_not_set_back(place: str) -> None:
    """Whatever somebody saw before: it is raised in one statement, or left where it is."""
    tag_edits.make_tag("t", step=5, max_id=900)
    assert tag_edits.change_row(place, "t", max_id=500)
    assert LeafAlloc.objects.using(place).get(pk="t").max_id == 900
    assert not tag_edits.change_row(place, "unknown", max_id=500)


def test_what_was_skipped_was_not_used(place: str) -> None:
    """A forecast measures anew, rather than take the skip for consumption.

    Where there is no pool it is said so: None, not a number.
    """
    segments["t"].next_id()  # one of many: no preload is under way
    tag_edits.skip_tag("t", most=MOST, by=50_000)
    row = LeafAlloc.objects.using(place).get(pk="t")
    assert row.measured_at is None
    assert row.rate == 0
    assert tag_edits.fill_pool(row) is None
    assert tag_edits.clear_pool("t") is None


def test_tags_that_are_kept_elsewhere_are_left_alone() -> None:
    """There are none here; making one says where they are."""
    allocator = segments.allocator()
    before, allocator.source = allocator.source, MemorySource()
    try:
        assert tag_rows.tag_databases() == ()
        assert tag_rows.find_tag("t") is None
        with pytest.raises(tag_rows.TagsElsewhere, match="MemorySource"):
            tag_edits.make_tag("t", step=5)
        with pytest.raises(tag_rows.TagsElsewhere, match="Change them there"):
            tag_edits.pause_tag("t")
        for words in (("idgen_tag", "list"), ("idgen_skip", "t", "--by", "5")):
            with pytest.raises(CommandError, match="MemorySource"):
                call_command(*words)
    finally:
        allocator.source = before


# --- a pool --------------------------------------------------------------------------


def test_a_pool_is_filled_and_emptied(postgres: str, redis: str) -> None:
    """Loading ahead puts a step there; a skip leaves nothing of what was."""
    with project(redis, postgres) as pool:
        tag = tag_edits.make_tag("pooled", step=20)
        assert tag_edits.fill_pool(tag.first) == 20
        assert pool.stocks(["pooled"])["pooled"].ids == 20
        assert tag_edits.preload_here("pooled")
        assert segments["pooled"].next_id() == 1
        held = tag_edits.held_here("pooled")
        assert tag_edits.clear_here("pooled") == held > 0
        assert pool.stocks(["pooled"])["pooled"].ids >= held
        tag_edits.skip_tag("pooled", most=MOST, to=5000)
        assert tag_edits.clear_pool("pooled") is True
        assert pool.stocks(["pooled"])["pooled"].ids == 0
        assert segments["pooled"].next_id() == 5000
        pool.clear(["pooled"])

"""Ids for moments of the past: none twice, whatever else takes ids of the namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import example, given
from hypothesis import strategies as st

from django_idgen.contrib.adopt.past_ids import PastIds, past_ids
from django_idgen.core.book import Record
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import ConfigurationError, NamespaceMismatch, NoFreeWorker
from django_idgen.core.layout import BitLayout
from django_idgen.core.lease import Namespace
from django_idgen.core.store import StoredBook
from django_idgen.core.stored import Era, Stored, Successor, era_words, first_tick, unused_from
from django_idgen.leases.memory import MemoryBook, MemoryLeases, MemoryMarks, MemoryStore
from django_idgen.ops.decoding import snowflakes
from django_idgen.settings.config import read_settings
from tests.places import empty_sqlite

LAYOUT = BitLayout((("time", 24), ("worker", 3), ("sequence", 1)), tick_us=1000, epoch_us=0)
SECONDS = replace(LAYOUT, tick_us=1_000_000)
NOW = 4_000_000
WINDOW = 2_000
RANGES = (range(4), range(6), range(2))
HOUR = 3_600_000
"""In ticks."""
WORKERS = (range(6, 8), range(6, 8), range(4, 6))
"""Those of three tables, two of which share them."""


class Book(MemoryBook):
    """A book in memory, whose installation remembers of it what a server's does."""

    remembered: Record | None = None

    def save_record(self, record: Record) -> None:
        super().save_record(record)
        self.remembered = Record("", record.generation, record.fence, record.largest_window, 0, 0)

    def was_opened(self) -> bool:
        return self.remembered is not None

    def recalled(self) -> Record:
        return self.remembered or super().recalled()


class World:
    """A namespace in memory, and all ids that were ever made in it. Its time is in ticks."""

    def __init__(self, layout: BitLayout = LAYOUT) -> None:
        self.layout = layout
        self.marks = MemoryMarks()
        self.stored = self.marks.books["ids"] = Book(self.marks)
        self.lent = range(4)
        self.now = NOW
        self.made: set[int] = set()
        self.windows: set[tuple[int, int]] = set()

    @property
    def namespace(self) -> Namespace:
        words = {**self.layout.fingerprint(), "workers": [self.lent.start, self.lent.stop]}
        ticks = self.layout.max_ticks
        return Namespace("ids", 0, self.layout.tick_us, ticks, self.lent, WINDOW, 10, words)

    def now_us(self) -> int:
        return self.now * self.layout.tick_us

    @property
    def book(self) -> StoredBook:
        store = MemoryStore("ids", self.marks, SYSTEM_CLOCK, self.now_us)
        return StoredBook(self.namespace, store)

    def past(self, workers: range) -> PastIds:
        entry = replace(read_settings().generators["default"], layout=self.layout)
        return PastIds(entry, self.book, workers)

    def note(self, ids: Sequence[int]) -> None:
        """Take note of ids; none of them was there before, and no window has their tick."""
        assert not self.made & set(ids)
        self.made |= set(ids)
        assert not self.windows & {self.place(each) for each in ids}

    def place(self, number: int) -> tuple[int, int]:
        """The worker id and the tick of an id."""
        parts = self.layout.unpack(number)
        return parts.worker, parts.tick

    def lease(self) -> None:
        """A process gets a worker id; all of its window may be in use."""
        registry = MemoryLeases(self.namespace, marks=self.marks, read_now_us=self.now_us)
        try:
            lease = registry.acquire(holder="web:1 gunicorn").lease
        except NoFreeWorker:
            return
        window = {(lease.worker, tick) for tick in range(lease.start, lease.until)}
        assert not window & self.windows
        assert not window & {self.place(each) for each in self.made}
        self.windows |= window

    def move(self, lent: range) -> None:
        """As idgen_doctor, after the operator changed ``workers``."""
        book = self.book
        self.lent = lent

        def change(stored: Stored, _now_us: int) -> Successor:
            eras = (*stored.eras, *([stored.era] if stored.fingerprint else []))
            made = [era for era in eras if not era.closes]
            fence = first_tick(self.layout, lent, made)
            assert fence is not None
            return Successor(dict(self.namespace.fingerprint), fence, WINDOW, lent, eras)

        book.rewrite(change)

    def lose(self, lent: range, *, record: bool = True, eras: bool = True) -> None:
        """The record is lost, or another server goes on; maybe eras are. ``workers`` may change."""
        found = self.stored.record()
        if eras:
            self.stored.save_eras([])
        if record:
            self.lent = lent
            self.stored._record = None
        elif found is not None:
            self.stored.save_record(replace(found, server="the one before"))


BATCHES = st.lists(st.integers(0, 100), min_size=1, max_size=8).map(sorted)
"""Percents of the time until now."""
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 2), BATCHES),
        st.tuples(st.just("again"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("lease"), st.integers(0, 3 * WINDOW), st.none()),
        st.tuples(st.just("move"), st.sampled_from(RANGES), st.none()),
        st.tuples(
            st.just("lose"), st.sampled_from(RANGES), st.tuples(st.booleans(), st.booleans())
        ),
    ),
    max_size=30,
)


@example(
    [
        ("move", range(6), None),
        *[("lease", 0, None)] * 6,
        ("move", range(4), None),
        ("take", 2, [100]),
    ]
)
@example(
    [
        ("move", range(6), None),
        *[("lease", 0, None)] * 6,
        ("lose", range(4), (True, True)),
        ("lease", WINDOW, None),
        ("take", 2, [75]),
    ]
)
@given(STEPS)
def test_no_id_comes_twice_in_any_history(steps: list[Any]) -> None:
    """Several tables and runs, crashes, leases, moves of the range of worker ids, and losses."""
    world = World()
    world.now = WINDOW
    runs = list(map(world.past, WORKERS))
    for what, which, value in steps:
        if what == "lease":
            world.lease()
            world.now += which
        elif what == "move":
            world.move(which)
        elif what == "lose":
            record, eras = value
            world.lose(which, record=record, eras=eras)
            if record:  # the fleet starts anew, with these settings
                runs = list(map(world.past, WORKERS))
        elif what == "again":  # after a crash, the next run sees its column, or not even that
            runs[which] = world.past(WORKERS[which])
            if value and world.made:
                runs[which].begin_above(max(world.made), 0)
        elif world.lent.stop <= WORKERS[which].start:  # else the settings refuse it
            try:
                take_in_order(world, runs[which], value)
            except (ConfigurationError, NamespaceMismatch):
                runs[which] = world.past(WORKERS[which])


def take_in_order(world: World, past: PastIds, percents: list[int]) -> None:
    """Take ids for moments in ``percents`` of the time until now; they have these moments."""
    ticks = [world.now * percent // 100 for percent in percents]
    ids = past.take([tick * 1000 for tick in ticks])
    world.note(ids)
    assert ids == sorted(ids)
    for number, tick in zip(ids, ticks, strict=True):
        assert 0 <= LAYOUT.unpack(number).tick - tick <= HOUR + len(world.made)


def test_rows_of_one_moment_fill_ticks_and_go_on_in_later_ones() -> None:
    """A tick has two ids here: five rows take three ticks, and the next batch the fourth."""
    past = World().past(range(7, 8))
    ids = [*past.take([7_000] * 5), *past.take([7_000, 9_000, 20_000])]
    assert [LAYOUT.unpack(each).tick for each in ids] == [7, 7, 8, 8, 9, 10, 10, 20]
    assert all(earlier < later for earlier, later in pairwise(ids))


def test_a_burst_of_rows_keeps_its_worker_id() -> None:
    """However far its ticks reach past its moment, also in a new run; the next id is unused."""
    world = World(SECONDS)
    past, ids = world.past(range(6, 8)), []
    for _ in range(3):
        ids += past.take([1_000_000] * 8000)
    again = world.past(range(6, 8))
    again.begin_above(max(ids), 1_000_000)
    again.check(1_000_000, 1_000_000)
    ids += again.take([1_000_000] * 8000)
    assert all(earlier < later for earlier, later in pairwise(ids))
    assert {world.place(each)[0] for each in ids} == {7}
    assert world.place(max(ids))[1] == 16_000
    world.note([*ids, *world.past(range(6, 8)).take([1_000_000])])


def test_a_row_that_comes_late_gets_a_later_tick_but_no_more_than_an_hour() -> None:
    """A worker id goes on past its last tick; older rows need another one, or are refused."""
    world = World()
    past = world.past(range(6, 8))
    past.take([HOUR * 1000])
    (late,) = past.take([1000 * (HOUR - 5)])
    assert LAYOUT.unpack(late).tick == HOUR + 1
    (older,) = past.take([0])
    assert world.place(older) == (6, 1)
    assert world.place(late)[0] == 7
    with pytest.raises(ConfigurationError, match="Name others with --workers"):
        world.past(range(7, 8)).take([1])


def test_two_tables_at_once_have_no_tick_in_common() -> None:
    """Each claim begins past all others of its worker id."""
    world = World()
    one, two = world.past(range(6, 8)), world.past(range(6, 8))
    for tick in range(100, 1000, 100):
        world.note(one.take([tick * 1000]))
        world.note(two.take([tick * 1000]))


def test_a_registry_that_was_set_back_repeats_no_id_of_the_column() -> None:
    """The book has forgotten the claims: the run goes on above what the column has."""
    world = World()
    past = world.past(range(7, 8))
    ids = past.take([5_000, 6_000, 6_000, 6_000])
    world.stored.save_eras([])
    again = world.past(range(7, 8))
    again.begin_above(max(ids), 6_000)
    assert min(again.take([6_000, 6_000])) > max(ids)
    # So does the run that was under way.
    world.stored.save_eras([])
    assert min(past.take([6_000])) > max(ids)


def test_ids_of_the_future_are_refused() -> None:
    """Also where more rows of one moment than there is time for would reach into it."""
    past = World().past(range(7, 8))
    with pytest.raises(ConfigurationError, match="s in the future"):
        past.take([NOW * 1000] * 100_000)
    with pytest.raises(ConfigurationError, match=r"Correct the row, or name another column"):
        past.check(0, 2**53)


def test_what_a_former_layout_made_is_not_repeated() -> None:
    """An era of other fields has ids up to its highest: a claim of the past is refused there."""
    world = World()
    other = BitLayout((("time", 24), ("worker", 3), ("sequence", 0)), tick_us=1000, epoch_us=0)
    world.book.claim(lambda _stored, _now_us: Era(LAYOUT, range(7, 8), 1))
    world.stored.save_eras([era_words(Era(other, range(8), 3_000_000))])
    with pytest.raises(ConfigurationError, match="may have made ids of later moments"):
        world.past(range(7, 8)).take([1_000_000])
    (number,) = world.past(range(7, 8)).take([3_500_000_000])
    assert number > 3_000_000 << 3


# --- after a loss -----------------------------------------------------------------------


@pytest.mark.parametrize("eras", [False, True], ids=["a lost record", "a lost installation"])
def test_a_range_of_worker_ids_that_was_forgotten(eras: bool) -> None:
    """The record was lost, and ``workers`` changed: what it lent of before can't be claimed.

    Nothing is refused then, and nothing says which worker ids were lent. Later moments are free.
    """
    world = World()
    world.lent = range(8)
    for _ in range(8):
        world.lease()
    world.lose(range(4), eras=eras)
    world.lease()
    world.now += 10 * WINDOW
    with pytest.raises(ConfigurationError, match="which closes the past"):
        world.past(range(6, 8)).take([(NOW + 5) * 1000])
    with pytest.raises(ConfigurationError, match="which closes the past"):
        world.past(range(6, 8)).check((NOW + 5) * 1000, world.now_us())
    world.note(world.past(range(6, 8)).take([world.now_us()]))


def test_a_replica_that_lacks_the_last_claims() -> None:
    """It took over as the server: another table with the same worker ids repeats no id."""
    world = World()
    world.lease()
    world.note(world.past(range(7, 8)).take([5_000_000]))
    world.lose(world.lent, record=False)
    with pytest.raises(ConfigurationError, match="which closes the past"):
        world.past(range(7, 8)).take([5_000_000])


def test_what_a_loss_closes_says_nothing_of_ids_that_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An id with a worker id that was never lent stays doubtful; a claim is known as before."""
    world = World()
    world.lease()
    world.lose(world.lent)
    world.lease()
    world.now += 10 * WINDOW
    (number,) = world.past(range(7, 8)).take([world.now_us()])
    entry = replace(read_settings().generators["default"], layout=LAYOUT, workers=world.lent)

    class Known:
        stored_book = staticmethod(lambda: world.book)

    monkeypatch.setattr(snowflakes, "registries", {entry.alias: Known})
    found = snowflakes.Registries()
    assert found.era(LAYOUT.pack(NOW - 5, 6), entry) is None
    claimed = found.era(number, entry)
    assert claimed is not None
    assert claimed.workers == range(7, 8)


# --- what is asked of the book ----------------------------------------------------------


class Counting(dict[str, Any]):
    """Counts how often its layout is read."""

    reads = 0

    def __getitem__(self, key: str) -> Any:
        self.reads += key == "fields"
        return super().__getitem__(key)


def test_many_claims_and_worker_ids_are_read_once() -> None:
    """Other processes wait meanwhile. It is what asking for each worker id alone would say."""
    words = Counting(LAYOUT.fingerprint(), workers=[0, 2])
    other = BitLayout((("time", 20), ("worker", 3), ("sequence", 0)), tick_us=1000, epoch_us=0)
    eras = [Era(LAYOUT, range(worker, worker + 1), worker * 10) for worker in (3, 5, 6)]
    wide = [Era(LAYOUT, range(2, 5), 35), Era(other, range(8), 500)]
    stored = Stored(words, 1, 0, 900, WINDOW, (*eras, *wide))
    found = unused_from(stored, range(1, 7))
    assert words.reads == 1
    # Its tick 500 begins at id 4000, in tick 250 here.
    assert found == {1: 900, 2: 250, 3: 250, 4: 250, 5: 250, 6: 250}
    later = replace(stored, eras=(*eras, Era(LAYOUT, range(2, 5), 2000)))
    assert unused_from(later, range(1, 7)) == {1: 900, 2: 2000, 3: 2000, 4: 2000, 5: 50, 6: 60}


def test_one_namespace_in_two_places_is_refused(tmp_path: Path, django_db_blocker: Any) -> None:
    """Neither would know the other's claims. Two aliases of one book are fine."""
    given: dict[str, Any] = {"NAMESPACE": "ids", "LEASES": {"OPTIONS": {"workers": [0, 500]}}}
    static = {
        "BACKEND": "django_idgen.leases.static.StaticLeases",
        "OPTIONS": {"workers": [500, 1000], "directory": str(tmp_path)},
    }
    workers = range(1000, 1002)
    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "shop.sqlite3"):
        with override_settings(IDGEN={"GENERATORS": {"one": given, "two": given}}):
            past_ids("one", workers)
        other = {"NAMESPACE": "ids", "LEASES": static}
        with (
            override_settings(IDGEN={"GENERATORS": {"one": given, "two": other}}),
            pytest.raises(ConfigurationError, match="'one' and 'two' share NAMESPACE 'ids', but"),
        ):
            past_ids("one", workers)


TAKEN: Mapping[str, dict[str, Any]] = {
    "lends 0 to 1000": {"LEASES": {"OPTIONS": {"workers": [0, 1001]}}},
    "has degraded_worker 1001": {
        "LEASES": {"OPTIONS": {"workers": [0, 1000]}},
        "OPTIONS": {"degraded_worker": 1001},
    },
}


@pytest.mark.parametrize("words", TAKEN)
def test_worker_ids_that_the_settings_need_are_refused(words: str) -> None:
    """With the way out: a namespace in use can't give them up for the past."""
    given = {"NAMESPACE": "ids", **TAKEN[words]}
    with (
        override_settings(IDGEN={"GENERATORS": {"default": given, "two": given}}),
        pytest.raises(ConfigurationError, match=words) as refused,
    ):
        past_ids("default", range(1000, 1002))
    assert "a generator with a NAMESPACE of its own" in str(refused.value)
    assert "idgen_doctor" not in str(refused.value)

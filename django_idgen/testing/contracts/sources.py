"""What every segment source must do, whatever it keeps its rows in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.errors import ConfigurationError, InvalidTag, SegmentExhausted
from ...core.segment import LONGEST_STEP, MAX_ID, MAX_STEP, Demand, Segment
from ...core.source import Source
from .lenders import at_once

DEFAULT_STEP = 10


class Shop(ABC):
    """The store behind the sources of one test."""

    tells_alike_tags_apart = True
    """Whether the store compares tags exactly, not by a collation."""

    failover_skip = 0
    """Fetches that are skipped where a row stands below the floor: on servers."""

    def __init__(self) -> None:
        self._made: list[Source] = []

    def source(self, default_step: int = DEFAULT_STEP) -> Source:
        """One more source on this store, as another process would have."""
        made = self.make(default_step)
        self._made.append(made)
        return made

    def first_id(self, floor: int, longest: int) -> int:
        """Where a row goes on that stands below ``floor``; no fetch had over ``longest`` ids."""
        return floor + self.failover_skip * 2 * longest

    @abstractmethod
    def make(self, default_step: int) -> Source: ...

    @abstractmethod
    def set_step(self, tag: str, step: int) -> None:
        """Edit the row of ``tag``, as an administrator does."""

    @abstractmethod
    def forget(self) -> None:
        """Delete the row of every tag behind the source's back."""

    def lose(self) -> None:
        """As :meth:`forget`, and what stands before the rows is lost, too."""
        self.forget()

    @abstractmethod
    def tags(self) -> list[str]:
        """The tag of every row."""

    def close(self) -> None:
        for made in self._made:
            made.close()


class FloorContract:
    """What a process was granted passes through whatever stands before the rows (hazard 100)."""

    fetches_from: Callable[..., Shop]
    needs: tuple[str, ...] = ()
    """The fixtures that a shop is made of."""

    @contextmanager
    def new_shop(self) -> Iterator[Shop]:
        yield self.fetches_from(*self.backing)

    @pytest.fixture
    def shop(self, _backing: None) -> Iterator[Shop]:
        with self.new_shop() as shop:
            yield shop
            shop.close()

    @pytest.fixture
    def _backing(self, request: pytest.FixtureRequest) -> None:
        self.backing = [request.getfixturevalue(name) for name in self.needs]

    def test_deleted_rows_do_not_bring_ids_back(self, shop: Shop) -> None:
        """With the floor of what it holds, a process never gets a range again (hazard 61)."""
        source = shop.source()
        held = [source.fetch("t") for _ in range(5)][-1]
        shop.forget()
        after = source.fetch("t", floor=held.stop)
        assert after.start >= held.stop
        assert source.fetch("t").start >= after.stop

    def test_a_newcomer_gets_nothing_that_an_older_process_holds(self, shop: Shop) -> None:
        """All is lost but what the older one knows, which fetches first."""
        source = shop.source()
        held = [source.fetch("t") for _ in range(5)][-1]
        shop.lose()
        after = source.fetch("t", floor=held.stop)
        newcomer = shop.source()
        got = [newcomer.fetch("t") for _ in range(3)]
        check_disjoint([Segment("t", 1, held.stop, held.step), after, *got])

    def test_a_floor_at_loaded_rows_is_no_loss(self, shop: Shop) -> None:
        """What lies between the last grant and the floor was not lost: nothing more is skipped."""
        source = shop.source()
        held = source.fetch("t")
        found = source.fetch("t", floor=1_000_000, demand=Demand(granted=held.stop))
        assert found.start == 1_000_000


class SourceContract(FloorContract):
    """Subclass it, name it ``Test...``, and say what it :attr:`fetches_from`."""

    examples = 20
    """Random histories to try, :attr:`effort` times as many."""
    effort = 1
    fetchers = 16
    """Threads that fetch at once."""

    def test_a_new_tag_starts_at_one(self, shop: Shop) -> None:
        """The first segment of a tag is 1 to its step, the next one follows at once."""
        source = shop.source()
        assert source.fetch("orders") == Segment("orders", 1, 1 + DEFAULT_STEP, DEFAULT_STEP)
        assert source.fetch("orders").ids() == range(11, 21)

    def test_many_threads_on_first_use_make_one_row(self, shop: Shop) -> None:
        """Threads that use a tag for the first time make one row and disjoint segments."""
        segments = at_once(self.fetchers, lambda _: shop.source().fetch("new"))
        starts = sorted(segment.start for segment in segments)
        assert starts == list(range(1, 1 + DEFAULT_STEP * self.fetchers, DEFAULT_STEP))
        assert shop.tags() == ["new"]

    def test_an_edited_step_counts_from_the_next_fetch(self, shop: Shop) -> None:
        """A running process sees a step edited in the row with its next fetch (hazard 24)."""
        source = shop.source()
        source.fetch("t")
        shop.set_step("t", 500)
        assert source.fetch("t") == Segment("t", 11, 511, 500)
        shop.set_step("t", 1)
        assert source.fetch("t") == Segment("t", 511, 512, 1)

    def test_the_default_step_leaves_existing_rows_alone(self, shop: Shop) -> None:
        """The step of a row is the row's, whatever a later process is configured with."""
        shop.source(default_step=5).fetch("t")
        assert shop.source(default_step=900).fetch("t") == Segment("t", 6, 11, 5)

    def test_a_step_out_of_range_is_refused(self, shop: Shop) -> None:
        """No source can be made with a step that no segment can have."""
        step: Any
        for step in (0, -1, MAX_STEP + 1, 2**63, True, 1.5, "10", None):
            with pytest.raises(ConfigurationError):
                shop.make(step)

    def test_a_demand_is_a_multiple_of_the_rows_step(self, shop: Shop) -> None:
        """So many times the step that the row has at the fetch; an edit of it counts."""
        source = shop.source()
        length = len(source.fetch("t", demand=Demand(times=4)).ids())
        assert length == 4 * DEFAULT_STEP
        shop.set_step("t", 7)
        assert source.fetch("t", demand=Demand(times=4)) == Segment("t", 41, 41 + 28, 7)
        assert source.fetch("t") == Segment("t", 69, 76, 7)

    def test_a_demand_is_at_least_what_a_caller_waits_for(self, shop: Shop) -> None:
        """More than the step in one fetch; less than that is just the step."""
        source = shop.source()
        assert source.fetch("t", demand=Demand(at_least=1234)).ids() == range(1, 1235)
        assert source.fetch("t", demand=Demand(at_least=3)).ids() == range(1235, 1245)
        both = Demand(times=2, at_least=15)
        first = shop.first_id(5000, longest=1234)
        assert source.fetch("t", demand=both, floor=5000).ids() == range(first, first + 20)

    def test_a_demand_does_not_grow_past_the_longest_step(self, shop: Shop) -> None:
        """What follows consumption has a bound; the row's own step and a caller's need don't."""
        source = shop.source()
        source.fetch("t")
        shop.set_step("t", LONGEST_STEP - 1)
        assert len(source.fetch("t", demand=Demand(times=64)).ids()) == LONGEST_STEP
        shop.set_step("t", 2 * LONGEST_STEP)
        assert len(source.fetch("t", demand=Demand(times=64)).ids()) == 2 * LONGEST_STEP
        need = Demand(at_least=3 * LONGEST_STEP)
        assert len(source.fetch("t", demand=need).ids()) == 3 * LONGEST_STEP

    def test_a_demand_makes_a_row_with_the_default_step(self, shop: Shop) -> None:
        """The first fetch of a tag may want more; the row says what the settings say."""
        source = shop.source()
        assert source.fetch("t", demand=Demand(8, 500)).ids() == range(1, 501)
        assert source.fetch("t") == Segment("t", 501, 501 + DEFAULT_STEP, DEFAULT_STEP)

    def test_what_is_given_back_is_never_granted_below_the_floor(self, shop: Shop) -> None:
        """A source may hand it out again, though to no one who has come past it; it never fails."""
        source = shop.source()
        held = source.fetch("t", demand=Demand(at_least=40))
        source.give_back("t", [held.ids()[5:9], held.ids()[20:]])
        source.give_back("t", [])
        source.give_back("never used", [range(1, 2)])
        assert source.fetch("t", floor=held.stop).start >= held.stop
        again = [shop.source().fetch("t") for _ in range(4)]
        check_disjoint([*again, Segment("t", 1, 6, 10), Segment("t", 10, 21, 10)])

    def test_a_floor_below_changes_nothing(self, shop: Shop) -> None:
        """A floor that the row is already past is no skip."""
        source = shop.source()
        source.fetch("t")
        assert source.fetch("t", floor=3).start == 11

    def test_a_floor_above_skips(self, shop: Shop) -> None:
        """The segment lies at or above the floor, for other processes too."""
        first = shop.first_id(1_000_000, longest=DEFAULT_STEP)
        assert shop.source().fetch("t", floor=1_000_000).start == first
        assert shop.source().fetch("t").start == first + DEFAULT_STEP

    def test_the_end_of_the_ids_is_an_error(self, shop: Shop) -> None:
        """Near 2**63 a segment stays within the ids, and then there are none."""
        source = shop.source()
        with pytest.raises(SegmentExhausted):
            self._to_the_end(source, MAX_ID - 25)
        with pytest.raises(SegmentExhausted):
            source.fetch("end", floor=MAX_ID - 1)
        assert source.fetch("other").start == 1

    def _to_the_end(self, source: Source, floor: int) -> None:
        for _ in range(5):
            segment = source.fetch("end", floor=floor)
            assert floor <= segment.start < segment.stop <= MAX_ID + 1
            floor = segment.stop

    def test_a_floor_past_every_id_is_an_error(self, shop: Shop) -> None:
        """A floor of 2**63 and more leaves nothing to give out."""
        source = shop.source()
        source.fetch("t")
        for floor in (MAX_ID + 1, 2**64):
            with pytest.raises(SegmentExhausted):
                source.fetch("t", floor=floor)
        assert source.fetch("t").start == 11

    def test_any_printable_tag_works(self, shop: Shop) -> None:
        """Tags of 128 characters, and of any script, are rows that count each for itself."""
        source = shop.source()
        tags = ["x" * 128, "größe", "日本語", "a'b\"c;--", "a%s", "A", "🎟"]
        for tag in tags:
            assert source.fetch(tag).start == 1
            assert source.fetch(tag).start == 11
        assert shop.tags() == sorted(tags)

    def test_tags_that_look_alike_never_share_an_id_by_mistake(self, shop: Shop) -> None:
        """Case, accents and width make other tags, or ones that a database's collation refuses."""
        source = shop.source()
        segments = [source.fetch("tag")]
        for tag in ("TAG", "täg", "ｔａｇ"):
            try:
                segments.append(source.fetch(tag))
            except InvalidTag:
                assert not shop.tells_alike_tags_apart
        assert [segment.start for segment in segments] == [1] * len(shop.tags())

    def test_a_tag_that_cannot_be_stored_is_refused(self, shop: Shop) -> None:
        """A tag of 129 characters, and any that no row can hold, leaves no row."""
        tag: Any
        for tag in ("x" * 129, "", " a", "a\n", "a\0b", "\ud800", None, 7):
            with pytest.raises(InvalidTag):
                shop.source().fetch(tag)
        assert shop.tags() == []

    def test_segments_are_disjoint_under_many_fetchers(self, shop: Shop) -> None:
        """Threads over two tags whose steps change never get an id twice (hazard 44)."""

        def fetch_some(number: int) -> list[Segment]:
            source = shop.source()
            tag = "even" if number % 2 == 0 else "odd"
            found = [source.fetch(tag) for _ in range(3)]
            shop.set_step(tag, 1 + number)
            return [*found, source.fetch(tag)]

        found = [each for some in at_once(16, fetch_some) for each in some]
        for tag in ("even", "odd"):
            check_disjoint([segment for segment in found if segment.tag == tag])

    @pytest.mark.usefixtures("_backing")
    def test_random_fetches_rise_and_never_overlap(self) -> None:
        """Over random steps, floors and deletions a process' own segments only rise."""

        @settings(
            max_examples=self.examples * self.effort,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            st.lists(
                st.one_of(
                    st.tuples(st.just("fetch"), st.integers(0, 300)),
                    st.tuples(st.just("step"), st.integers(1, 100)),
                    st.tuples(st.just("forget"), st.just(0)),
                ),
                max_size=20,
            )
        )
        def check(history: list[tuple[str, int]]) -> None:
            with self.new_shop() as shop:
                self._play(shop, history)
                shop.close()

        check()

    def _play(self, shop: Shop, history: list[tuple[str, int]]) -> None:
        source = shop.source()
        end, step = 1, DEFAULT_STEP
        for deed, number in history:
            if deed == "forget":
                shop.forget()
                step = 0
            elif deed == "step" and "t" in shop.tags():
                shop.set_step("t", number)
                step = number
            elif deed == "fetch":
                segment = source.fetch("t", floor=max(end, number))
                assert segment.start >= max(end, number)
                # What step a row made anew has is for the source to say.
                assert len(segment.ids()) == segment.step == (step or segment.step)
                end, step = segment.stop, segment.step


def check_disjoint(segments: list[Segment]) -> None:
    """Assert that no id is in two of ``segments``."""
    ordered = sorted(segments, key=lambda segment: segment.start)
    for one, other in pairwise(ordered):
        assert one.stop <= other.start, (one, other)

"""What the database lends to a registry that can forget: no tick to two lives of it (L6, L7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from django_idgen.core.book import SubLease, reaching
from django_idgen.core.lease import Namespace, loss_fence

STRIDE = 360
SPACE = Namespace("shop", 0, 1000, 2**41, range(4), window_ticks=180, skew_ticks=10)
NEW = SubLease("me", 1, 0, 0)
PICK = st.integers(0, 10**6)


def test_a_first_charter_begins_where_nothing_was_lent() -> None:
    """No fence ahead of the time, and a stride of room."""
    assert NEW.opened("a", now=500, stride=STRIDE) == SubLease("me", 1, 0, 500 + STRIDE, "a")


def test_opening_twice_is_opening_once() -> None:
    """Whoever comes second adopts what the first opened, as long as nothing was lost again."""
    once = NEW.opened("a", now=500, stride=STRIDE)
    assert once.opened("a", now=900, stride=STRIDE) == once


def test_a_new_life_begins_at_the_ceiling_of_the_old_one() -> None:
    """Or at the present, where that is later."""
    old = SubLease("me", 3, 100, 900, "a")
    assert old.opened("b", now=500, stride=STRIDE) == SubLease("me", 4, 900, 900 + STRIDE, "b")
    assert old.opened("b", now=2000, stride=STRIDE) == SubLease("me", 4, 2000, 2360, "b")


def test_only_the_current_generation_is_raised() -> None:
    """One of another life, generation or fence stays with what it has."""
    kept = SubLease("me", 3, 100, 900, "b")
    for seen in (
        replace(kept, incarnation="a"),
        replace(kept, generation=2),
        replace(kept, fence=50),
    ):
        assert kept.raised_for(seen, now=800, wanted=800, stride=STRIDE) == kept
    raised = kept.raised_for(replace(kept, ceiling=600), now=800, wanted=800, stride=STRIDE)
    assert raised == replace(kept, ceiling=800 + STRIDE)


def test_a_ceiling_never_falls() -> None:
    """Also where the clock went back."""
    kept = SubLease("me", 3, 100, 900, "b")
    assert kept.raised_for(kept, now=1, wanted=1, stride=STRIDE) == kept


def test_what_the_borrower_still_knows_is_reckoned_with() -> None:
    """A database that knows nothing any more begins past what its borrower was lent."""
    seen = SubLease("me", 4, 900, 1260, "a")
    for forgetful in (NEW, SubLease("me", 2, 700, 400, "")):
        begun = forgetful.raised_for(seen, now=1000, wanted=1000, stride=STRIDE)
        assert begun.fence >= seen.ceiling
        assert begun.ceiling == begun.fence + STRIDE


def test_a_raise_and_a_generation_that_were_missed_lie_below_the_fence() -> None:
    """A replica of the database that lags by long has missed both; the registry lost its data."""
    known = NEW.opened("a", now=1000, stride=STRIDE)
    window = reaching(SPACE, STRIDE).reach_ticks
    late = 1000 + 20 * STRIDE
    raised = known.raised_for(known, now=late, wanted=late, stride=STRIDE)
    missed = raised.opened("b", now=late, stride=STRIDE)
    assert missed.ceiling == late + 2 * STRIDE
    fence = loss_fence(SPACE, now=late, fence=known.ceiling, largest_window=window)
    assert fence >= missed.ceiling


def test_takeovers_in_a_row_add_up_and_do_not_double() -> None:
    """A database whose servers take turns costs a step each time, not the life of the layout."""
    kept, window = NEW.opened("a", now=1000, stride=STRIDE), reaching(SPACE, STRIDE).reach_ticks
    for _ in range(100):
        fence = loss_fence(SPACE, now=1000, fence=kept.ceiling, largest_window=window)
        empty = replace(kept, fence=fence, ceiling=0, generation=kept.generation + 1)
        kept = empty.raised_for(kept, now=1000, wanted=1000, stride=STRIDE)
    assert kept.ceiling < 1000 + 101 * (window + SPACE.skew_ticks + STRIDE)


@dataclass
class Life:
    """A life of the registry's data, and the charter that it knows."""

    name: str
    charter: SubLease | None = None
    alive: bool = True


class Histories(RuleBasedStateMachine):
    """Flushes, lives that go on unseen, and a database that forgets its last commits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.kept, self.window = NEW, SPACE.reach_ticks
        self.commits = [(self.kept, self.window)]
        self.lives = [Life("0")]
        self.spans: dict[tuple[str, int, int], int] = {}
        self.missed = 0

    @rule(ticks=st.integers(0, 3 * STRIDE))
    def time_passes(self, ticks: int) -> None:
        self.now += ticks

    @rule()
    def a_new_life(self) -> None:
        self.lives.append(Life(str(len(self.lives))))

    @rule(pick=PICK)
    def open(self, pick: int) -> None:
        life = self.lives[pick % len(self.lives)]
        if life.charter is None:
            life.charter = self._commit(self.kept.opened(life.name, now=self.now, stride=STRIDE))

    @rule(pick=PICK, wanted=st.integers(-500, 500))
    def ask_for_more(self, pick: int, wanted: int) -> None:
        life = self.lives[pick % len(self.lives)]
        if life.charter is None:
            return
        # Nobody uses a tick that was not lent.
        latest = min(max(self.now, life.charter.fence) + max(wanted, 0), life.charter.ceiling)
        charter = self._commit(
            self.kept.raised_for(
                life.charter, now=self.now, wanted=max(latest, self.now), stride=STRIDE
            )
        )
        if charter.incarnation == life.name and charter.fence >= life.charter.fence:
            life.charter = charter

    @rule(back=st.integers(1, 2))
    def a_stale_replica_takes_the_database_over(self, back: int) -> None:
        """It missed the last commits, as much as one generation's opening among them."""
        before = self.commits[max(0, len(self.commits) - 1 - back) :]
        generations = {(kept.generation, kept.fence) for kept, _ in before}
        if len(generations) > 2 or not before[0][0].ceiling:
            return  # more was missed than can be made good
        self.kept, self.window = before[0]
        fence = max(self.kept.fence, self.kept.ceiling)
        fence = loss_fence(SPACE, now=self.now, fence=fence, largest_window=self.window)
        generation = self.kept.generation + 1
        self.kept = replace(self.kept, fence=fence, generation=generation)
        self.commits = [(self.kept, self.window)]

    def _commit(self, charter: SubLease) -> SubLease:
        if charter != self.kept:
            self.kept = charter
            self.window = reaching(SPACE, STRIDE).reach_ticks
            self.commits.append((self.kept, self.window))
        if charter.is_laid:
            key = (charter.incarnation, charter.generation, charter.fence)
            self.spans[key] = max(self.spans.get(key, 0), charter.ceiling)
        return charter

    @invariant()
    def no_tick_is_lent_to_two(self) -> None:
        ends = sorted((fence, ceiling) for (_, _, fence), ceiling in self.spans.items())
        for (_, ceiling), (fence, _) in pairwise(ends):
            assert ceiling <= fence


TestHistories = Histories.TestCase
TestHistories.settings = settings(stateful_step_count=30, deadline=None)

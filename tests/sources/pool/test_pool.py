"""What the pool gives out, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_idgen.core.errors import ConfigurationError, SegmentExhausted
from django_idgen.core.segment import LONGEST_STEP, MAX_ID, STEP, Demand, Segment
from django_idgen.sources.pool.scripts import MAX_RANGES, key_of
from django_idgen.sources.pool.source import PoolSource

from .shop import STEP_LENGTH, Claims, OwnedSource, events_of

Process = Callable[..., PoolSource]


def test_what_was_left_over_is_given_out_next(process: Process, source: OwnedSource) -> None:
    """The rest of one process' segment goes to the next one: a restart leaves no gap."""
    first = process()
    first.fetch("t")
    first.give_back("t", [range(4, 11)])
    second = process()
    assert second.fetch("t") == Segment("t", 4, 11, 10)
    assert second.fetch("t") == Segment("t", 11, 21, 10)
    assert len(source.fetches) == 2


def test_it_gives_a_process_only_what_lies_above_its_floor(process: Process) -> None:
    """Ids rise within a process; what lies below is left for newcomers (I2)."""
    old, new = process(), process()
    for _ in range(3):
        old.fetch("t")
    old.give_back("t", [range(1, 21)])
    assert old.fetch("t", floor=31).start == 31
    assert old.fetch("t", floor=15).ids() == range(15, 21)
    assert new.fetch("t").ids() == range(1, 11)
    assert new.fetch("t", floor=11).ids() == range(11, 15)
    assert new.fetch("t", floor=15).ids() == range(41, 51)


def test_it_gives_as_many_as_a_caller_waits_for(process: Process) -> None:
    """Who needs more than any piece has, or uses up several steps at a time, gets a segment."""
    some = process()
    some.fetch("t")
    some.give_back("t", [range(5, 11)])
    assert some.fetch("t", demand=Demand(at_least=11)).ids() == range(11, 22)
    assert some.fetch("t", demand=Demand(times=4)).ids() == range(22, 62)
    assert some.fetch("t", demand=Demand(at_least=6)).ids() == range(5, 11)


def test_a_long_range_is_given_out_by_the_step(process: Process, source: OwnedSource) -> None:
    """What was preloaded in one go is given out as the processes ask for it."""
    some = process()
    assert some.refill("t", 100) == 100
    assert some.fetch("t").ids() == range(1, 11)
    assert some.fetch("t", demand=Demand(times=4)).ids() == range(11, 51)
    assert some.fetch("t", demand=Demand(at_least=15)).ids() == range(51, 66)
    assert some.stocks(["t"])["t"].ids == 35
    assert len(source.fetches) == 1


def test_adjoining_ranges_become_one(process: Process, source: OwnedSource) -> None:
    """Pieces given back in any order make whole ranges again."""
    some = process()
    some.fetch("t", demand=Demand(times=100))
    for start in [*range(1, 1000, 20), *range(11, 1000, 20)]:
        some.give_back("t", [range(start, start + 10)])
    assert some.stocks(["t"])["t"].ids == 1000
    assert some.fetch("t", demand=Demand(at_least=1000)).ids() == range(1, 1001)


def test_ids_of_several_databases_keep_their_distance(process: Process) -> None:
    """Ranges by a delta are joined, split and given out as such, each remainder for itself."""
    some = process(source=Shared())
    pieces = [some.fetch("t").ids() for _ in range(6)]
    some.give_back("t", pieces)
    assert some.stocks(["t"])["t"].ids == 60
    claims = Claims()
    above = some.fetch("t", floor=5).ids()
    assert above == range(7, 35, 3)
    claims.use(above)
    while some.stocks(["t"])["t"].ids:
        ids = some.fetch("t").ids()
        assert ids.step == 3
        claims.use(ids)
    claims.check()
    assert sorted(claims.ids) == list(range(1, 61))


def test_ranges_that_follow_by_another_delta_stay_apart(process: Process) -> None:
    """Joined they would have other ids: 10 and 13 where 8 and 9 were given back."""
    some = process()
    some.fetch("t")
    some.give_back("t", [range(1, 5, 3), range(7, 10)])
    assert some.fetch("t").ids() == range(1, 5, 3)
    assert some.fetch("t").ids() == range(7, 10)


class Shared(OwnedSource):
    """Three databases, each with the ids that leave its remainder, asked in turn."""

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        turn = len(self.fetches)
        first = turn // 3 * 30 + turn % 3 + 1
        self.fetches.append(Segment(tag, first, first + 28, 10, 3))
        return self.fetches[-1]


def test_ids_of_19_digits_are_exact(process: Process, source: OwnedSource) -> None:
    """Past 2^53, where Lua's numbers have gaps, no id is lost, made up or given twice."""
    source._max_ids["t"] = start = MAX_ID - 55
    some = process()
    ids = some.fetch("t", demand=Demand(times=5)).ids()
    assert ids == range(start, start + 50)
    some.give_back("t", [ids[30:], ids[:13], ids[13:30]])
    assert some.fetch("t", floor=start + 7).ids() == ids[7:17]
    assert some.fetch("t").ids() == ids[:7]
    assert some.fetch("t", floor=start + 17, demand=Demand(times=3)).ids() == ids[17:47]
    assert some.fetch("t").ids() == ids[47:]
    last = some.fetch("t").ids()
    assert last[-1] == MAX_ID
    some.give_back("t", [last])
    assert some.fetch("t", floor=start).ids() == last
    with pytest.raises(SegmentExhausted):
        some.fetch("t")


def test_what_is_there_already_is_not_added_again(process: Process) -> None:
    """A range that meets one in the pool is refused: whoever pushed it is mistaken."""
    some = process()
    some.fetch("t", demand=Demand(times=3))
    some.give_back("t", [range(11, 21)])
    for again in (range(11, 21), range(20, 31), range(5, 12), range(1, 31), range(14, 15)):
        some.give_back("t", [again])
    assert some.stocks(["t"])["t"].ids == 10


def test_the_pool_is_bounded(process: Process) -> None:
    """No more than max_ids of a tag, and no more ranges than a script can go through."""
    some = process(max_ids=25)
    some.fetch("t", demand=Demand(times=1000))
    some.give_back("t", [range(1, 21)])
    some.give_back("t", [range(101, 107)])
    some.give_back("t", [range(201, 206)])
    assert some.stocks(["t"])["t"].ids == 25
    many = process()
    many.fetch("u", demand=Demand(times=1000))
    many.give_back("u", [range(n, n + 1) for n in range(1, 4000, 2)])
    assert many.stocks(["u"])["u"].ids == MAX_RANGES
    many.give_back("u", [range(5001, 5004)])  # crumbs give way to what is longer
    assert many.stocks(["u"])["u"].ids == MAX_RANGES + 2


def test_a_refill_tops_up(process: Process, source: OwnedSource) -> None:
    """What is wanted is made up by whole steps; what is there is not fetched again."""
    some = process()
    assert some.refill("t", 25) == 25
    assert some.refill("t", 25) == 0
    assert some.refill("t", 26) == 10
    assert [each.ids for each in some.stocks(["t", "other"]).values()] == [35, 0]
    assert [len(segment.ids()) for segment in source.fetches] == [25, 10]


def test_what_only_newcomers_can_use_is_not_ready(process: Process, source: OwnedSource) -> None:
    """A refill is for the processes that are there: what lies below their floors is no stock."""
    old = process()
    old.refill("t", 100)
    old.fetch("t")
    assert old.stocks(["t"])["t"].ready == old.stocks(["t"])["t"].ids == 90
    far = old.fetch("t", demand=Demand(at_least=95))
    old.fetch("t", floor=far.stop)  # it asks the pool first, in vain
    stock = old.stocks(["t"])["t"]
    assert (stock.ids, stock.ready) == (90, 0)
    assert old.refill("t", 100) == 100
    stock = old.stocks(["t"])["t"]
    assert (stock.ids, stock.ready) == (190, 100)
    assert process().fetch("t").start == 11
    assert old.refill("t", 100) == 0


def test_leftovers_do_not_pile_up_without_end(process: Process) -> None:
    """Of what only newcomers can use there is as much as of what is ready, and no more."""
    some = process(max_ids=100)
    floor = 0
    for _ in range(9):
        some.refill("t", 100)
        floor = some.fetch("t", demand=Demand(at_least=101), floor=floor).stop
        floor = some.fetch("t", floor=floor).stop
    assert some.stocks(["t"])["t"].ids <= 200 + STEP_LENGTH


def test_a_large_refill_comes_in_portions(process: Process, source: OwnedSource) -> None:
    """No fetch is longer than the longest step; max_ids bounds what is wanted."""
    some = process(max_ids=2_500_000)
    assert some.refill("t", 10**9) == 2_500_000
    assert max(len(segment.ids()) for segment in source.fetches) == LONGEST_STEP


def test_an_edited_step_comes_with_the_next_fetch(process: Process, source: OwnedSource) -> None:
    """What the pool gives out follows the step that a refill has brought."""
    some, other = process(), process()
    some.refill("t", 100)
    source.set_step("t", 40)
    some.refill("t", 101)
    assert other.fetch("t") == Segment("t", 1, 41, 40)


def test_owners_do_not_meet(redis: str, process: Process) -> None:
    """What was pooled for one database is never given out for another."""
    mine, theirs = process(source=OwnedSource()), process(source=OwnedSource())
    mine.fetch("t")
    mine.give_back("t", [range(5, 11)])
    assert theirs.fetch("t").ids() == range(1, 11)


def test_a_database_that_was_replaced_takes_nothing_along(
    process: Process, source: OwnedSource
) -> None:
    """What a process had of the old database does not go into the pool of the new one."""
    some = process()
    some.fetch("t")
    source.whose, old = OwnedSource().whose, source.whose
    some.give_back("t", [range(5, 11)])
    new = some.fetch("t", floor=11)
    some.give_back("t", [range(5, 11), range(new.start + 5, new.stop)])
    assert some.stocks(["t"])["t"].ids == 5
    source.whose = old
    assert some.stocks(["t"])["t"].ids == 0


def test_a_restored_table_gives_out_nothing_that_was_pooled(
    process: Process, source: OwnedSource
) -> None:
    """What was ever in the pool lies below the floor of later fetches (hazard 61)."""
    some = process()
    some.refill("t", 100)
    source.flush()  # the table is back at the start
    claims = Claims()
    for _ in range(3):
        claims.use(some.fetch("t", demand=Demand(at_least=60)).ids())
    some.refill("t", 200)
    for _ in range(30):
        claims.use(process().fetch("t").ids())
    claims.check()


def test_a_refill_of_a_restored_table_is_above_what_was_pooled(
    process: Process, source: OwnedSource
) -> None:
    """The one who fills the pool goes by what it ever had, though nothing is left there."""
    some = process()
    some.refill("t", 50)
    taken = some.fetch("t", demand=Demand(at_least=50))
    source.flush()  # the table is back at the start
    assert some.refill("t", 50) == 50
    assert process().fetch("t").start >= taken.stop


def test_ids_of_this_process_alone_are_not_pooled(process: Process, source: OwnedSource) -> None:
    """In a test whose database is in memory nothing goes to Redis, or comes from there."""
    some = process()
    some.refill("t", 50)
    source.whose, whose = "", source.whose
    alone = process()
    assert alone.fetch("t").start == 51
    alone.give_back("t", [range(55, 61)])
    assert alone.refill("t", 100) == 0
    assert alone.stocks(["t"])["t"].ids == 0
    source.whose = whose
    assert alone.stocks(["t"])["t"].ids == 50


def test_clear_throws_away(process: Process) -> None:
    """An administrator who lowered max_id can empty a tag's pool, floor included."""
    some = process()
    some.refill("t", 50)
    some.clear(["t", "never used"])
    assert some.stocks(["t"])["t"].ids == 0
    some.clear([])


def test_only_what_came_from_here_can_be_given_back(process: Process) -> None:
    """A tag that this process has never fetched is nothing to it; empty ranges are nothing."""
    some = process()
    some.give_back("t", [range(1, 11)])
    some.fetch("t")
    some.give_back("t", [range(3, 3)])
    some.give_back("t", [])
    assert some.stocks(["t"])["t"].ids == 0


def test_rubbish_in_the_hash_is_not_given_out(
    redis: str, process: Process, source: OwnedSource
) -> None:
    """A field that somebody wrote by hand is no range; without its stamp all is void."""
    some = process()
    some.refill("t", 30)
    client, key = some._own.client, key_of(source.whose, "t")
    client.hset(key, "0000000000000000001x", "11:1:0:10")
    client.hset(key, "0000000000000000099", "never")
    assert some.stocks(["t"])["t"].ids == 30
    assert some.fetch("t").ids() == range(1, 11)
    client.hdel(key, "incarnation")
    assert some.fetch("t").ids() == range(31, 41)
    assert events_of(some) == ["pool_dropped"]


def test_another_kind_of_key_is_no_pool(process: Process, source: OwnedSource) -> None:
    """Where something else lies under our key, ids come from the source."""
    some = process()
    some._own.client.set(key_of(source.whose, "t"), "a string")
    assert some.fetch("t").ids() == range(1, 11)
    assert events_of(some) == ["pool_unavailable"]


def test_an_unused_pool_does_not_stay_for_ever(process: Process, source: OwnedSource) -> None:
    """The pool of a database that is gone, a test's for example, leaves Redis by itself."""
    some = process()
    some.refill("t", 30)
    assert 0 < some._own.client.ttl(key_of(source.whose, "t")) <= 30 * 24 * 3600


def test_bounds_out_of_range_are_refused(redis: str) -> None:
    """The message names the setting, the value and what is allowed."""
    bad: dict[str, list[Any]] = {
        "'timeout' must be 0.01 to 60 seconds": [0, 61, -1, True, "1", None],
        "'max_ids' must be a whole number": [0, 10**9 + 1, True, 1.5, None],
    }
    for said, values in bad.items():
        for value in values:
            with pytest.raises(ConfigurationError, match=said):
                PoolSource(alias=redis, source=OwnedSource(), **{said.split("'")[1]: value})

"""Segments kept ready in Redis: nothing comes out of it twice, and nothing comes back."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

LUA = "django_idgen/sources/pool/lua"
POOL = "django_idgen/sources/pool/source.py"
TESTS = "tests/sources/pool/test_pool.py"
LOSSES = "tests/sources/pool/test_losses.py"
COUNTED = "tests/contracts/test_server.py::TestRedisIncrOverServer"
PAUSING = "tests/ops/tags/test_pausing.py"

BREAKS = (
    Break(
        "the pool of another life of the server is used",
        "I1, hazard 17",
        f"{LUA}/pool.lua",
        "pool.void = #fields > 0 and pool.header.incarnation ~= incarnation",
        "pool.void = false",
        (f"{LOSSES}::test_restarted_with_an_old_copy",),
    ),
    Break(
        "a range of another life is kept in the hash",
        "I1, hazard 17",
        f"{LUA}/pool.lua",
        "    redis.call('DEL', key)\n    redis.call('HSET', key, 'incarnation', incarnation,",
        "    redis.call('HSET', key, 'incarnation', incarnation,",
        (f"{LOSSES}::test_restarted_with_an_old_copy",),
    ),
    Break(
        "what was popped stays in the pool",
        "I1",
        f"{LUA}/pop.lua",
        "  redis.call('HDEL', pool.key, range.start)\n",
        "",
        (f"{TESTS}::test_what_was_left_over_is_given_out_next",),
    ),
    Break(
        "a pop gives more than it takes",
        "I1",
        f"{LUA}/pop.lua",
        "kept[#kept + 1] = plus(from, count * range.delta)",
        "kept[#kept + 1] = plus(from, (count - 1) * range.delta)",
        (f"{TESTS}::test_a_long_range_is_given_out_by_the_step",),
    ),
    Break(
        "the pool gives ids below a process' floor",
        "I2",
        f"{LUA}/pool.lua",
        "if range.start >= floor then return range.start, 0 end",
        "if range.start >= ZERO then return range.start, 0 end",
        (f"{TESTS}::test_it_gives_a_process_only_what_lies_above_its_floor",),
    ),
    Break(
        "what is cut at a floor begins below it",
        "I2",
        f"{LUA}/pool.lua",
        "(distance - rest) / range.delta + (rest > 0 and 1 or 0)",
        "(distance - rest) / range.delta",
        (f"{TESTS}::test_ids_of_several_databases_keep_their_distance",),
    ),
    Break(
        "ids past 2^53 are rounded",
        "I1, I7",
        f"{LUA}/pool.lua",
        "  local sum = low + more\n",
        "  local sum = (high * LOW + low + more) - high * LOW\n",
        (f"{TESTS}::test_ids_of_19_digits_are_exact",),
    ),
    Break(
        "a range is put in twice",
        "I1, hazard 53",
        f"{LUA}/push.lua",
        "\n    and not meets_any(range) then",
        " then",
        (f"{TESTS}::test_what_is_there_already_is_not_added_again",),
    ),
    Break(
        "ranges of different deltas are joined",
        "I1",
        f"{LUA}/push.lua",
        "one.next == other.start and one.delta == other.delta and one.residue == other.residue",
        "one.next == other.start",
        (f"{TESTS}::test_ranges_that_follow_by_another_delta_stay_apart",),
    ),
    Break(
        "the pool forgets the highest that it ever had",
        "hazard 61",
        f"{LUA}/push.lua",
        "  if stop > pool.highest then pool.highest = stop end\n",
        "",
        (f"{TESTS}::test_a_restored_table_gives_out_nothing_that_was_pooled",),
    ),
    Break(
        "a fetch past the pool goes below what was pooled",
        "hazard 61",
        POOL,
        "self._fetch_past(tag, floor, demand, popped.highest)",
        "self._fetch_past(tag, floor, demand, 0)",
        (f"{TESTS}::test_a_restored_table_gives_out_nothing_that_was_pooled",),
    ),
    Break(
        "a refill fetches below what was pooled",
        "hazard 61",
        POOL,
        "self._fetch_past(tag, floor, demand, stock.highest)",
        "self._fetch_past(tag, floor, demand, 0)",
        (f"{TESTS}::test_a_refill_of_a_restored_table_is_above_what_was_pooled",),
    ),
    Break(
        "a refill forgets the floor of the caller that it is for",
        "hazard 100",
        POOL,
        "taken = self._fetch_and_push(tag, stock, wanted - put_in, floor, caller)",
        "taken = self._fetch_and_push(tag, stock, wanted - put_in, 0, caller)",
        (
            "tests/contracts/test_server.py::TestRedisIncrOverServer"
            "::test_a_newcomer_gets_nothing_that_an_older_process_holds",
        ),
    ),
    Break(
        "a pool forgets what was granted to the caller",
        "hazard 100",
        POOL,
        "granted = max(highest, demand.had(floor))",
        "granted = None",
        (
            "tests/contracts/test_server.py::TestPoolOverServer"
            "::test_a_floor_at_loaded_rows_is_no_loss",
        ),
    ),
    Break(
        "ids of the old database go into the new one's pool",
        "I1, L8",
        POOL,
        "whole = joined(each for each in ranges if each and each[0] >= known.since)",
        "whole = joined(each for each in ranges if each)",
        (f"{TESTS}::test_a_database_that_was_replaced_takes_nothing_along",),
    ),
    Break(
        "ids go back into the pool of another owner",
        "I1, L8",
        POOL,
        "or self.source.owner(tag) != known.owner:",
        "or not self.source.owner(tag):",
        (f"{TESTS}::test_a_database_that_was_replaced_takes_nothing_along",),
    ),
    Break(
        "two projects on one Redis share a pool",
        "I1, L8",
        "django_idgen/sources/pool/scripts.py",
        'return f"django_idgen:pool1:{{{owner}}}:{tag}"',
        'return f"django_idgen:pool1:{{x}}:{tag}"',
        (f"{TESTS}::test_owners_do_not_meet",),
    ),
    Break(
        "a copy of a database is the same owner",
        "I1, L8",
        "django_idgen/db/installation.py",
        'sha256(f"{identity}/{name}".encode())',
        "sha256(identity.encode())",
        ("tests/sources/pool/test_project.py::test_a_copy_of_a_database_is_another_owner",),
    ),
    Break(
        "a database that was made anew keeps its owner",
        "I1, L8",
        POOL,
        "owner = self.source.owner(tag, max_age=OWNER_AGE)\n        self._note(",
        "owner = self.source.owner(tag)\n        self._note(",
        ("tests/sources/pool/test_project.py::test_a_database_made_anew_is_noticed",),
    ),
    Break(
        "the pool of a paused tag is not cleared",
        "I6",
        "django_idgen/ops/tags/edits.py",
        "        source_in_use().clear([tag], keep_highest=True)",
        "        pass",
        (f"{PAUSING}::test_what_lies_there_is_thrown_away",),
    ),
    Break(
        "a preload fills the pool of a tag that was paused meanwhile",
        "I6",
        f"{LUA}/push.lua",
        "if read(KEYS[1], incarnation).life ~= life then return {'none'} end",
        "",
        (
            f"{PAUSING}::test_a_preload_that_a_pause_overtakes_puts_nothing_in",
            f"{PAUSING}::test_a_tail_that_a_pause_overtakes_is_not_put_in",
        ),
    ),
    Break(
        "what a process has left comes back into the pool of a paused tag",
        "I6",
        POOL,
        "            if self.source.is_paused(tag):\n                return Pushed()\n",
        "",
        (f"{PAUSING}::test_what_comes_back_is_a_gap",),
    ),
    Break(
        "a pause forgets what was pooled",
        "I1, hazard 61",
        f"{LUA}/clear.lua",
        "redis.call('HGET', key, 'highest') or ZERO",
        "ZERO",
        (f"{PAUSING}::test_what_was_fetched_above_it_stays_above_it",),
    ),
    Break(
        "a block is shorter than a caller needs",
        "I1",
        "django_idgen/sources/redis_incr.py",
        "max(self._block, demand.at_least)",
        "self._block",
        (f"{COUNTED}::test_a_block_is_as_long_as_a_caller_needs",),
    ),
    Break(
        "a block is of the life before it",
        "L4",
        "django_idgen/sources/redis_incr.py",
        "return again.segment, again.life",
        "return again.segment, popped.life",
        (f"{COUNTED}::test_ids_of_a_new_block_can_be_given_back",),
    ),
)

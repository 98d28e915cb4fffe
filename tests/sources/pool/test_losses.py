"""Whatever a Redis forgets, or brings back: no id is given out twice (hazards 17, 53)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_idgen.core.errors import ConfigurationError
from django_idgen.core.segment import Demand
from django_idgen.sources.pool.scripts import key_of
from django_idgen.sources.pool.source import PoolSource
from tests.redis_servers import RedisFarm, RedisServer

from .shop import Claims, OwnedSource, events_of

On = Callable[..., PoolSource]


def take(process: PoolSource, claims: Claims, fetches: int = 1) -> None:
    """Fetch, as a newcomer does, and give all of it out."""
    for _ in range(fetches):
        claims.use(process.fetch("t").ids())


def stocked(process: PoolSource, claims: Claims) -> None:
    """A pool of which some was given out, some not."""
    process.refill("t", 100)
    take(process, claims, 3)


def pair(farm: RedisFarm) -> tuple[RedisServer, RedisServer]:
    """Two servers of which either may follow the other."""
    first, second = (farm.server(repl_diskless_sync_delay=0) for _ in range(2))
    return first, second


def test_flushed(farm: RedisFarm, on: On) -> None:
    """FLUSHALL, as an eviction, leaves a gap."""
    server, claims = farm.server(), Claims()
    process = on(server)
    stocked(process, claims)
    server.run("FLUSHALL")
    take(process, claims, 3)
    assert min(claims.ids[30:]) == 101
    claims.check()


@pytest.mark.parametrize(
    "persistence",
    [{"save": "3600 1"}, {"appendonly": "yes", "appendfsync": "always"}],
    ids=["rdb", "aof"],
)
def test_restarted_with_an_old_copy(farm: RedisFarm, on: On, persistence: dict[str, str]) -> None:
    """What a file brings back had been given out since: none of it is used."""
    server, claims = farm.server(**persistence), Claims()
    process = on(server)
    process.refill("t", 100)
    server.run("SAVE" if "save" in persistence else "PING")
    take(process, claims, 3)
    server.kill()
    server.start()
    assert process.source.fetches  # type: ignore[attr-defined]
    again = on(server)
    assert server.run("EXISTS", key_of(process.source.owner("t"), "t"))
    assert again.stocks(["t"])["t"].ids == 0
    take(again, claims, 3)
    assert events_of(again) == ["pool_dropped"]
    claims.check()


def test_restarted_empty_under_load(farm: RedisFarm, on: On) -> None:
    """Killed and started anew, twice, with ranges pushed and popped in between."""
    server, claims = farm.server(), Claims()
    for _ in range(3):
        process = on(server)
        stocked(process, claims)
        kept = process.fetch("t").ids()
        claims.use(kept[:4])
        process.give_back("t", [kept[4:]])
        server.restart_empty()
        claims.use(on(server).fetch("t").ids())
    claims.check()


def test_a_promoted_replica_that_missed_pops(farm: RedisFarm, on: On) -> None:
    """It still has what its primary gave out meanwhile: all of it is void."""
    (primary, replica), claims = pair(farm), Claims()
    process = on(primary)
    replica.follow(primary)
    process.refill("t", 100)
    replica.catch_up(primary)
    replica.pause()
    take(process, claims, 3)
    primary.kill()
    replica.resume()
    replica.promote()
    other = on(replica)
    take(other, claims, 3)
    assert events_of(other) == ["pool_dropped"]
    claims.check()


def test_a_cut_off_primary_that_goes_on_serving(farm: RedisFarm, on: On) -> None:
    """Two servers have the same ranges, and both are asked: only the first gives them out."""
    (primary, replica), claims = pair(farm), Claims()
    old = on(primary)
    replica.follow(primary)
    old.refill("t", 200)
    old.refill("seldom", 100)
    replica.catch_up(primary)
    replica.promote()
    seldom = Claims()
    seldom.use(old.fetch("seldom").ids())
    new = on(replica)
    assert old.stocks(["t"])["t"].ids == 200
    for _ in range(5):
        take(old, claims)
        take(new, claims)
        mine = new.fetch("t").ids()
        claims.use(mine[:3])
        new.give_back("t", [mine[3:]])
        old.refill("t", 100)
    # And back: the old primary comes to be a replica, and is promoted again.
    primary.follow(replica)
    primary.promote()
    back = on(primary)
    take(back, claims, 12)
    take(new, claims, 12)
    claims.check()
    # It has got back what it had given out itself, under its very own run_id.
    seldom.use(back.fetch("seldom").ids())
    seldom.check()
    assert "pool_dropped" in events_of(new)
    assert "pool_dropped" in events_of(back)


def test_the_first_replica_empties_the_pool(farm: RedisFarm, on: On) -> None:
    """Redis begins a new life of its data then (a new replid): a gap, as documented."""
    (primary, replica), claims = pair(farm), Claims()
    process = on(primary)
    stocked(process, claims)
    replica.follow(primary)
    take(process, claims, 2)
    assert events_of(process) == ["pool_dropped"]
    claims.check()


def test_a_replica_is_not_asked(farm: RedisFarm, on: On) -> None:
    """An alias that leads to a replica costs ids nothing: they come from the source."""
    (primary, replica), claims = pair(farm), Claims()
    replica.follow(primary)
    on(primary).refill("t", 100)
    replica.catch_up(primary)
    process = on(replica)
    take(process, claims)
    assert events_of(process) == ["pool_unavailable"]
    assert "replica" in str(process._emit[0][1]["error"])  # type: ignore[attr-defined]
    assert min(claims.ids) == 101


def test_full(farm: RedisFarm, on: On) -> None:
    """Without room nothing can be pushed; what is there can still be taken, and only once."""
    server, claims = farm.server(maxmemory_policy="noeviction"), Claims()
    process = on(server)
    stocked(process, claims)
    server.run("CONFIG", "SET", "maxmemory", "1")
    full = on(server)
    for _ in range(3):
        claims.use(full.fetch("t").ids())
    rest = full.fetch("t").ids()
    full.give_back("t", [rest])
    assert "pool_unavailable" in events_of(full)
    server.run("CONFIG", "SET", "maxmemory", "0")
    take(on(server), claims, 5)
    claims.check()


def test_fields_deleted_by_hand(farm: RedisFarm, on: On, source: OwnedSource) -> None:
    """Any field of the hash may go: what is left repeats nothing."""
    server, claims = farm.server(), Claims()
    process = on(server)
    process.fetch("t", demand=Demand(times=30))
    for number in range(4):
        pieces = [range(n, n + 10) for n in range(1 + 80 * number, 80 * number + 80, 20)]
        process.give_back("t", pieces[:2])
        key = key_of(source.whose, "t")
        for field in server.run("HKEYS", key)[number::4]:
            server.run("HDEL", key, field)
        take(on(server), claims, 2)
    take(on(server), claims, 20)
    claims.check()


def test_a_server_that_refuses_info_is_named(farm: RedisFarm, on: On) -> None:
    """The first use says which rule the user's access list lacks."""
    server = farm.server()
    process = on(server)
    server.run("ACL", "SETUSER", "default", "-info")
    with pytest.raises(ConfigurationError, match=r"\+info"):
        process.fetch("t")
    server.run("ACL", "SETUSER", "default", "+info", "-evalsha", "-eval")
    with pytest.raises(ConfigurationError, match=r"\+eval"):
        process.fetch("t")
    server.run("ACL", "SETUSER", "default", "+evalsha", "+eval")
    assert process.fetch("t").start == 1
    server.run("ACL", "SETUSER", "default", "-info")
    assert process.fetch("t").start == 11  # one that had been of use is no reason to stop
    process.give_back("t", [range(15, 21)])
    assert events_of(process) == ["pool_unavailable"]


def test_the_rules_that_are_asked_for_are_enough(farm: RedisFarm, on: On) -> None:
    """A user with the rules that the error names can do everything, in a database of its own."""
    server = farm.server()
    process = on(server, db=1)
    rules = process._own.rule().split()
    server.run("ACL", "SETUSER", "default", "reset", "on", "nopass", *rules)
    process.refill("t", 50)
    process.give_back("t", [process.fetch("t").ids()])
    process.fetch("t", floor=7)
    process.clear(["t"])
    assert process.stocks(["t"])["t"].ids == 0
    assert events_of(process) == []


def test_scripts_that_were_flushed_are_sent_anew(farm: RedisFarm, on: On) -> None:
    """The server forgets scripts at will: nobody notices."""
    server, claims = farm.server(), Claims()
    process = on(server)
    stocked(process, claims)
    server.run("SCRIPT", "FLUSH")
    take(process, claims, 7)
    assert sorted(claims.ids) == list(range(1, 101))

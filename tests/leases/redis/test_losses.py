"""Whatever Redis forgets, no worker id stamps a tick twice (I1, L6; hazards 1, 17, 49 to 52)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from django_idgen.core.errors import RegistryUnavailable
from django_idgen.models import NamespaceRecord
from tests.contracts.loss_contract import LossContract
from tests.leases.redis.fleet import HOLDERS, STRIDE, WINDOW, Fleet
from tests.own_servers import eventually
from tests.redis_servers import RedisFarm, RedisServer, cache_alias, sentinel_options


def flush(server: RedisServer) -> None:
    server.run("FLUSHALL")


def restart_empty(server: RedisServer) -> None:
    server.restart_empty()


def delete_key(server: RedisServer) -> None:
    (key,) = server.run("KEYS", "django_idgen:*")
    server.run("DEL", key)


def rename_away(server: RedisServer) -> None:
    (key,) = server.run("KEYS", "django_idgen:*")
    server.run("RENAME", key, "elsewhere")


def swap_databases(server: RedisServer) -> None:
    server.run("SWAPDB", 0, 1)


def garble(server: RedisServer) -> None:
    """Every mark becomes something else."""
    (key,) = server.run("KEYS", "django_idgen:*")
    for name in server.run("HKEYS", key):
        if name.startswith(b"w:"):
            server.run("HSET", key, name, "rubbish")


LOSSES = [flush, restart_empty, delete_key, rename_away, swap_databases, garble]


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest, fleet: Fleet, farm: RedisFarm) -> Callable[[], None]:
    return partial(request.param, farm.first)


@pytest.fixture
def losses(fleet: Fleet, farm: RedisFarm) -> list[Callable[[], None]]:
    return [partial(flush, farm.first), partial(restart_empty, farm.first)]


class TestLosses(LossContract):
    pass


FIELDS = ["protocol", "installation", "fingerprint", "incarnation", "generation", "fence"]
FIELDS += ["ceiling", "fields", "highest", "w:", "h:"]


def test_a_single_field_that_was_deleted_is_noticed(fleet: Fleet, farm: RedisFarm) -> None:
    """HDEL of any one field of the hash, a worker's mark as well as a header, is a loss."""
    for generation, name in enumerate(FIELDS, 2):
        fleet.close()
        fleet.holders.clear()
        fleet.work(4)
        (key,) = farm.first.run("KEYS", "django_idgen:*")
        field = min(f for f in farm.first.run("HKEYS", key) if f.startswith(name.encode()))
        assert farm.first.run("HDEL", key, field) == 1
        held = list(fleet.holders)
        assert not any(holder.renew() for holder in held), name
        newcomers = fleet.hire(4)
        assert {each.lease.generation for each in newcomers if each.lease} == {generation}, name
        fleet.check()
        fleet.pass_ticks(3 * STRIDE)


def test_a_crash_that_loses_the_last_writes(fleet: Fleet, farm: RedisFarm) -> None:
    """After kill -9 Redis loads its last snapshot, of before the last grants."""
    fleet.work(HOLDERS // 2)
    farm.first.run("SAVE")
    fleet.work(HOLDERS // 2)
    before = max(each.lease.generation for each in fleet.holders if each.lease)
    farm.first.kill()
    with pytest.raises(RegistryUnavailable):
        fleet.holder(timeout=2.0).start()
    fleet.holders.pop()
    farm.first.start()
    assert farm.first.run("KEYS", "django_idgen:*")
    newcomers = fleet.hire(HOLDERS // 4)
    assert {each.lease.generation for each in newcomers if each.lease} == {before + 1}
    fleet.go_on()
    fleet.check()
    fleet.settle()


def test_worker_ids_held_before_a_loss_can_be_lent_at_once(fleet: Fleet, farm: RedisFarm) -> None:
    """What Redis still knows of an earlier generation holds nobody up: the fence is past it."""
    fleet.space = replace(fleet.space, workers=range(4))
    fleet.hire(4)
    farm.first.run("SAVE")
    farm.first.kill()
    farm.first.start()
    fleet.hire(4)
    fleet.check(ahead=STRIDE)


def test_a_restart_keeps_the_worker_ids_of_their_holders(fleet: Fleet, farm: RedisFarm) -> None:
    """Whoever comes back after a loss has the same worker id, whether Redis remembers it or not."""
    fleet.work(8)
    had = {holder.name: holder.lease.worker for holder in fleet.holders if holder.lease}
    for loss in (flush, restart_empty):
        loss(farm.first)
        fleet.go_on()
        now = {holder.name: holder.lease.worker for holder in fleet.holders if holder.lease}
        assert now == had


def test_many_who_notice_a_loss_open_one_generation(fleet: Fleet, farm: RedisFarm) -> None:
    """Holders that find the hash gone at once: one opens a generation, the others adopt it."""
    from django_idgen.testing.contracts.lenders import at_once

    holders = fleet.hire()
    flush(farm.first)
    at_once(HOLDERS, lambda number: holders[number].go_on())
    assert {holder.lease.generation for holder in holders if holder.lease} == {2}
    record = NamespaceRecord.objects.using(fleet.database).get(pk=fleet.space.name)
    assert record.generation == 2
    fleet.check(ahead=STRIDE)


def test_eviction(farm: RedisFarm, postgres: str) -> None:
    """A Redis that throws away what was not used of late is a Redis that forgot."""
    server = farm.server(maxmemory_policy="allkeys-random")
    with cache_alias("idgen", server.url) as alias:
        fleet = Fleet(alias, postgres)
        fleet.work()
        with server.client() as client:
            client.config_set("maxmemory", client.info("memory")["used_memory"] + 2**20)
            (key,) = client.keys("django_idgen:*")
            for number in range(100_000):
                client.set(f"other {number}", "x" * 20_000)
                if number % 10 == 0 and not client.exists(key):
                    break
            assert not client.exists(key)
            client.config_set("maxmemory", 0)
        fleet.hire(HOLDERS // 2)
        fleet.go_on()
        fleet.check()
        fleet.settle()
        fleet.close()


def test_a_full_redis_grants_nothing_by_halves(farm: RedisFarm, postgres: str) -> None:
    """Under noeviction a Redis without memory refuses, and goes on when it has some."""
    server = farm.server(maxmemory="100mb", maxmemory_policy="noeviction")
    with cache_alias("idgen", server.url) as alias:
        fleet = Fleet(alias, postgres)
        (holder,) = fleet.hire(1)
        server.run("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(RegistryUnavailable, match=r"CACHES\['idgen'\] refused.*memory"):
            fleet.holder().start()
        with pytest.raises(RegistryUnavailable, match="memory"):
            holder.renew()
        server.run("CONFIG", "SET", "maxmemory", "100mb")
        assert holder.renew()
        fleet.holders[-1].start()
        fleet.check(ahead=0)
        fleet.close()


# --- another server takes over ----------------------------------------------------


def a_replica_that_missed_the_last(fleet: Fleet, farm: RedisFarm) -> RedisServer:
    """A replica of the first server, stopped from following before the last grants."""
    replica = farm.server(replica_read_only="yes")
    replica.follow(farm.first)
    fleet.work(HOLDERS // 2)
    replica.catch_up(farm.first)
    replica.run("REPLICAOF", "127.0.0.1", "1")  # it follows nobody who is there
    fleet.work(HOLDERS // 2)
    for holder in fleet.holders[::3]:
        holder.stop()
    fleet.holders = [holder for holder in fleet.holders if holder.lease is not None]
    return replica


def test_a_promoted_replica_that_missed_writes(fleet: Fleet, farm: RedisFarm) -> None:
    """What only the dead primary knew is not lent again (hazard 17)."""
    replica = a_replica_that_missed_the_last(fleet, farm)
    farm.first.kill()
    replica.promote()
    with cache_alias(fleet.alias, replica.url):
        old, fleet.holders = fleet.holders, []
        fleet.hire(HOLDERS)
        for holder in old:
            # The address now leads to the other server.
            holder.registry = fleet.registry()
            fleet.holders.append(holder)
            holder.go_on()
        fleet.check()
        fleet.settle()


def test_a_replica_itself_lends_nothing(fleet: Fleet, farm: RedisFarm) -> None:
    """Neither a read-only nor a writable one, whose writes nobody gets."""
    replica = farm.server()
    replica.follow(farm.first)
    fleet.hire(1)
    replica.catch_up(farm.first)
    with cache_alias("replica", replica.url):
        for writable in ("no", "yes"):
            replica.run("CONFIG", "SET", "replica-read-only", writable)
            with pytest.raises(RegistryUnavailable, match="replica"):
                fleet.holder("replica").start()
            fleet.holders.pop().registry.close()


def test_a_primary_that_was_cut_off_goes_on_serving(fleet: Fleet, farm: RedisFarm) -> None:
    """Some processes still reach the old primary, others the new one: their windows never meet."""
    replica = a_replica_that_missed_the_last(fleet, farm)
    replica.promote()
    cut_off, old = list(fleet.holders), set[int]()
    with cache_alias("promoted", replica.url):
        fleet.holders = []
        for _ in range(HOLDERS // 2):
            holder = fleet.holder("promoted")
            holder.start()
        refusals: list[str] = []
        for _ in range(12):
            fleet.pass_ticks(WINDOW // 3)
            fleet.go_on()
            for holder in list(cut_off):
                try:
                    holder.renew()
                    old.add(holder.lease.generation if holder.lease else 0)
                except RegistryUnavailable as error:
                    refusals.append(str(error))
                    cut_off.remove(holder)
        assert refusals
        assert all("another server has taken over" in words for words in refusals)
        assert old == {1}
        fleet.alias = "promoted"
        assert fleet.generations() == {2}
        fleet.check()
        fleet.settle()


def test_the_old_primary_may_serve_again_when_the_new_one_is_given_up(
    fleet: Fleet, farm: RedisFarm
) -> None:
    """Going back by hand, to a server that kept its data, works once the ceiling is passed."""
    replica = a_replica_that_missed_the_last(fleet, farm)
    replica.promote()
    with cache_alias("promoted", replica.url):
        fleet.holder("promoted").start()
        fleet.holders.pop()
    fleet.pass_ticks(STRIDE // 2)
    fleet.pass_ticks(STRIDE // 2)
    late = fleet.holder()
    with pytest.raises(RegistryUnavailable, match="may lend again in"):
        late.start()
    fleet.pass_ticks(2 * STRIDE)
    (back,) = fleet.hire(1)
    assert back.lease is not None
    assert back.lease.generation == 3
    assert back.lease.start == fleet.now
    fleet.check()


@pytest.mark.long
def test_a_failover_by_sentinel(farm: RedisFarm, postgres: str) -> None:
    """The cache names Sentinels; the primary dies, and holders go on with the one promoted."""
    primary, replica = farm.server(), farm.server()
    replica.follow(primary)
    sentinel = farm.sentinel(primary)
    eventually(lambda: sentinel.knows_replicas(1), "the Sentinel knows the replica")
    eventually(lambda: sentinel.sees(primary), "the Sentinel sees the primary")
    with cache_alias("idgen", sentinel.url, **sentinel_options(sentinel)) as alias:
        fleet = Fleet(alias, postgres)
        fleet.work(HOLDERS // 2)
        replica.catch_up(primary)
        replica.pause()  # so that it misses what comes now
        fleet.work(HOLDERS // 2)
        primary.kill()
        replica.resume()
        eventually(lambda: sentinel.sees(replica), "the Sentinel's decision")
        eventually(lambda: replica.info("replication")["role"] == "master", "the promotion")

        def hired() -> bool:
            holder = fleet.holder()
            try:
                holder.start()
            except RegistryUnavailable:
                fleet.holders.pop()
            return holder.lease is not None

        for _ in range(HOLDERS // 2):
            # A Sentinel that is kept waiting takes the server for dead, for a moment.
            eventually(hired, "a lease from the new primary")
        fleet.go_on()
        assert fleet.generations() == {2}
        fleet.check()
        fleet.settle()
        fleet.close()

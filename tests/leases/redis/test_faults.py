"""A Redis that is down, slow, deaf, or refuses; and a database that is (L4, L6, L8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from django_idgen.core.errors import (
    ConfigurationError,
    LeaseLost,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
)
from django_idgen.leases.redis import registry as redis_scripts
from django_idgen.leases.redis.registry import RedisLeases
from django_idgen.models import NamespaceRecord
from django_idgen.testing.contracts.lenders import HOUR_US
from tests.contracts.loss_contract import another_server
from tests.leases.redis.fleet import SHOP, STRIDE, Fleet, new_space
from tests.places import empty_sqlite
from tests.redis_servers import RedisFarm, RedisServer, cache_alias
from tests.segment_tools import in_child
from tests.wires import SCRIPT, LossyWire

# --- Redis ------------------------------------------------------------------


def test_a_redis_that_is_down_is_named(fleet: Fleet, farm: RedisFarm) -> None:
    """The error names the alias and the way out, at once; renewals go on when it is back."""
    (holder,) = fleet.hire(1)
    farm.first.kill()
    with pytest.raises(RegistryUnavailable, match=r"CACHES\['idgen'\] did not answer: .*refused"):
        holder.renew()
    with pytest.raises(RegistryUnavailable, match="Check that the server is up"):
        holder.registry.release(holder.lease, last_tick=None)  # type: ignore[arg-type]
    farm.first.start()
    assert holder.renew() is False  # it came back empty
    holder.go_on()
    fleet.check()


def test_a_redis_that_says_nothing_is_given_up(fleet: Fleet, farm: RedisFarm) -> None:
    """A stopped server (SIGSTOP) holds neither an open connection nor a new one for ever."""
    fleet.hire(1)  # the first use makes tables, for which a short timeout is too short
    old, new = fleet.holder(timeout=2.0), fleet.holder(timeout=2.0)
    old.start()
    farm.first.pause()
    try:
        for ask in (old.renew, new.start):
            with pytest.raises(RegistryUnavailable, match="Timeout"):
                ask()
    finally:
        farm.first.resume()
    # What was sent to the stopped server is done by now: a lost answer is a lost grant.
    assert old.renew()
    new.start()
    fleet.check(ahead=0)


@contextmanager
def deaf_wire(server: RedisServer) -> Iterator[LossyWire]:
    """``deaf`` leads to ``server`` over a wire that can lose the answers of scripts."""
    wire = LossyWire(("127.0.0.1", server.port), SCRIPT)
    try:
        with cache_alias("deaf", f"redis://127.0.0.1:{wire.port}/0"):
            yield wire
    finally:
        wire.close()


def scripts_run(server: RedisServer) -> int:
    stats = server.info("commandstats")
    names = ("cmdstat_evalsha", "cmdstat_eval")
    return sum(stats[name]["calls"] for name in names if name in stats)


def test_a_script_whose_answer_was_lost_is_not_sent_again(fleet: Fleet, farm: RedisFarm) -> None:
    """L4, hazard 53: the link is cut after the script was applied; it ran once, and its grant
    is lost: the worker id stays taken until the window is over."""
    (before_all,) = fleet.hire(1)
    before_all.renew()
    before_all.stop()  # the server knows each script by now
    with deaf_wire(farm.first) as wire:
        holder = fleet.holder("deaf")
        holder.start()
        for job in (holder.start, holder.renew, holder.stop):
            before, sent = scripts_run(farm.first), wire.sent
            wire.losing = True
            with pytest.raises(RegistryUnavailable, match="did not answer"):
                job()
            wire.losing = False
            assert (scripts_run(farm.first) - before, wire.sent - sent) == (1, 1)
        holder.registry.close()
    # The holder's own was given back, as it turns out; the one that nobody heard of is lent.
    free = len(fleet.space.workers) - 1
    registry = fleet.registry()
    held = {registry.acquire(holder="other").lease.worker for _ in range(free)}
    assert len(held) == free
    with pytest.raises(NoFreeWorker):
        registry.acquire(holder="other")
    registry.close()


def test_a_lost_opening_opens_no_second_generation(fleet: Fleet, farm: RedisFarm) -> None:
    """Whichever of the first scripts is not answered, asking again gives one generation."""
    with deaf_wire(farm.first) as wire:
        wire.losing = True
        for _ in range(3):
            with pytest.raises(RegistryUnavailable):
                fleet.holder("deaf").start()
            wire.losing = not wire.losing
            fleet.holder("deaf").start()
            wire.losing = not wire.losing
        for holder in fleet.holders:
            holder.registry.close()
    fleet.holders = [holder for holder in fleet.holders if holder.lease]
    assert fleet.generations() == {1}
    fleet.check(ahead=0)


def test_an_access_list_that_lacks_a_rule_is_told_it(fleet: Fleet, farm: RedisFarm) -> None:
    """The message names the rule to add, such as +info; with it the registry works."""
    user = ("ACL", "SETUSER", "shop", "on", ">secret", "~django_idgen:*", "+@all")
    url = f"redis://shop:secret@127.0.0.1:{farm.first.port}/1"
    rules = {"info": "info", "time": "time", "hset": "@hash", "evalsha": "evalsha"}
    for what, rule in rules.items():
        farm.first.run("FLUSHALL")
        farm.first.run("SCRIPT", "FLUSH")
        farm.first.run(*user, f"-{what}")
        with cache_alias("limited", url):
            holder = fleet.holder("limited", read_now_us=None)
            with pytest.raises(ConfigurationError, match=rf"CACHES\['limited'\].*ACL.*\+{rule}"):
                holder.start()
            farm.first.run("ACL", "SETUSER", "shop", f"+{rule}")
            holder.start()
            holder.registry.close()


def test_the_rules_that_are_named_are_enough(fleet: Fleet, farm: RedisFarm) -> None:
    """A user with nothing but the rules of the message can lend, renew and give back."""
    rules = RedisLeases(SHOP, alias="idgen")._own.rule().split()
    farm.first.run("ACL", "SETUSER", "shop", "on", ">secret", *rules)
    with cache_alias("limited", f"redis://shop:secret@127.0.0.1:{farm.first.port}/0"):
        holder = fleet.holder("limited")
        holder.start()
        assert holder.renew()
        assert holder.registry.renew_seen(idle_after=60) == 1
        farm.first.run("FLUSHALL")
        holder.go_on()
        holder.stop()
        holder.registry.close()
    fleet.check()


def test_a_cache_that_is_no_redis_is_refused(fleet: Fleet) -> None:
    """An alias that isn't there, or of another backend, is named with what it has to be."""
    for alias in ("nowhere", "default"):
        with pytest.raises(ConfigurationError, match=rf"CACHES\['{alias}'\].*django_redis"):
            fleet.registry(alias).acquire(holder="a")


def test_options_that_cannot_work_are_refused() -> None:
    """Each is named when the registry is made, before anything is asked.

    More than 52 time bits are not exact in Redis' scripts.
    """
    refused: list[tuple[dict[str, Any], str]] = [
        ({"timeout": 0}, "timeout"),
        ({"timeout": "1"}, "timeout"),
        ({"stride": 0.5}, "at least a window of 1 s"),
        ({"stride": True}, "stride"),
        ({"after_loss": "never"}, "'ahead' or 'wait'"),
        ({"server_identity": 1}, "server_identity"),
        ({"database": "nowhere"}, "nowhere"),
    ]
    for options, words in refused:
        with pytest.raises(ConfigurationError, match=words):
            RedisLeases(SHOP, **options)
    RedisLeases(replace(SHOP, max_ticks=2**52))
    with pytest.raises(ConfigurationError, match="53 time bits"):
        RedisLeases(replace(SHOP, max_ticks=2**53))


# --- the database -----------------------------------------------------------


def test_how_far_redis_may_lend_is_known_without_the_record(fleet: Fleet, farm: RedisFarm) -> None:
    """L7: each loss moves the ceiling a stride further ahead; the installation remembers that."""
    for _ in range(3):
        farm.first.run("FLUSHALL")
        fleet.hire(1)
    ceiling = fleet.check_ceiling()
    records = NamespaceRecord.objects.using(fleet.database).filter(pk=fleet.space.name)
    records.delete()
    fleet.hire(1)
    assert records.get().fence >= ceiling


def test_the_database_may_forget_while_its_clock_is_behind(fleet: Fleet) -> None:
    """The new generation begins past the old ceiling, whatever any clock says."""
    fleet.hire(4)
    ceiling = fleet.check_ceiling()
    fleet.time.now_us -= HOUR_US
    another_server(fleet)
    (newcomer,) = fleet.hire(1)
    assert newcomer.renew()
    fleet.time.now_us += HOUR_US
    fleet.pass_ticks(2 * STRIDE)
    fleet.go_on()
    record = NamespaceRecord.objects.using(fleet.database).get(pk=fleet.space.name)
    assert record.generation > 1
    assert record.fence >= ceiling
    fleet.claims.check()


# --- settings that differ ---------------------------------------------------


def test_the_hash_knows_whose_it_is(fleet: Fleet, farm: RedisFarm) -> None:
    """L8: a hash of other settings, another project or another version is refused."""
    (holder,) = fleet.hire(1)
    (key,) = farm.first.run("KEYS", "django_idgen:*")
    with farm.first.client() as client:
        sound = client.hgetall(key)
    for name, other, error, words in (
        ("fingerprint", '{"layout": []}', NamespaceMismatch, "layout"),
        ("installation", "f" * 32, NamespaceMismatch, "installation='ffff"),
        ("protocol", "99", ConfigurationError, "protocol 99"),
        ("protocol", "0", ConfigurationError, "protocol 0"),
        ("protocol", "1b", ConfigurationError, "protocol 1b"),
    ):
        farm.first.run("HSET", key, name, other)
        with pytest.raises(error, match=words):
            holder.renew()
        with pytest.raises(error, match=words):
            fleet.holder().start()
        farm.first.run("HSET", key, name, sound[name.encode()])
    assert holder.renew()


def test_moving_from_the_database_to_redis_under_a_fleet_is_refused(fleet: Fleet) -> None:
    """Hazard 55: the same namespace, opened with the registry in the database."""
    from tests.leases.server.shop import ServerLeases

    fingerprint = {**SHOP.fingerprint, "registry": "database"}
    ServerLeases(replace(fleet.space, fingerprint=fingerprint), alias=fleet.database).acquire(
        holder="a"
    )
    with pytest.raises(NamespaceMismatch) as caught:
        fleet.holder().start()
    assert (caught.value.stored, caught.value.configured) == ("database", "redis")


def test_two_projects_share_a_redis(fleet: Fleet, tmp_path: Path, django_db_blocker: Any) -> None:
    """Namespaces of one name in two projects have hashes of their own."""
    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "other.sqlite3") as database:
        other = Fleet(fleet.alias, database, space=fleet.space, time=fleet.time)
        fleet.hire(4)
        other.hire(4)
        for holder in (*fleet.holders, *other.holders):
            assert holder.renew()
            holder.stop()
        other.close()


# --- processes --------------------------------------------------------------


def test_a_child_has_connections_of_its_own(fleet: Fleet) -> None:
    """L9: a forked child talks to Redis on sockets of its own, told of the fork or not."""
    (holder,) = fleet.hire(1)
    lease = holder.lease
    assert lease is not None
    (worker,) = in_child(lambda: [holder.registry.acquire(holder="child").lease.worker])
    assert worker != lease.worker
    assert holder.renew()


def test_another_worker_of_a_service_takes_back_what_one_has_lent(fleet: Fleet) -> None:
    """It has lent nothing itself so far; the worker id is free at once."""
    (holder,) = fleet.hire(1)
    lease = holder.lease
    assert lease is not None
    other = fleet.registry()
    assert other.release(lease, last_tick=lease.start)
    assert not other.release(lease, last_tick=lease.start)
    assert fleet.registry().acquire(holder=holder.name).lease.worker == lease.worker


def test_a_short_wait_is_waited_for(farm: RedisFarm, postgres: str) -> None:
    """A fence that is nearer than the timeout only makes the caller sleep."""
    space = new_space(window_ticks=200)
    server = farm.server()
    with cache_alias("idgen", server.url) as alias:
        given = {"alias": alias, "database": postgres, "after_loss": "wait", "timeout": 20}
        leases = RedisLeases(space, **given)  # type: ignore[arg-type]
        old = leases.acquire(holder="a").lease
        server.run("FLUSHALL")
        with pytest.raises(LeaseLost):
            leases.renew(old, last_tick=old.start)
        grant = leases.acquire(holder="a")
        assert grant.lease.start == space.tick_at(grant.reading.registry_us)
        assert grant.lease.start >= old.until
        leases.close()


SENSELESS = [[], ["ok"], ["ok", "x"], ["ok", "1", "2", "w"], ["raise", "1"], ["wait", "1"]]


@pytest.mark.parametrize("reply", SENSELESS, ids=" ".join)
def test_a_reply_that_no_script_gives_is_named(
    fleet: Fleet, reply: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy between may answer anything: nothing is lent, and the error says what came."""
    registry = fleet.holder().registry
    monkeypatch.setattr(redis_scripts, "run_script", lambda *_words: reply)
    with pytest.raises(RegistryUnavailable, match="answered"):
        registry.acquire(holder="a")

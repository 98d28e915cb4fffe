"""Real failovers: a replica that missed the last fetches takes over, and no id comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.db import connections

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.core.segment import LONGEST_STEP, Demand, Segment
from django_idgen.db import dialects
from django_idgen.models import Installation, LeafAlloc
from django_idgen.signals import segment_skipped
from django_idgen.sources.server import FAILOVER_SKIP, ServerSource
from tests.faults.failover import mariadb_pair as maria
from tests.leaf import leaf_fetch
from tests.leases.server import test_promotion as postgresql
from tests.leases.server.shop import SHOP, ServerLeases
from tests.own_servers import pointing_at
from tests.private_postgres import PostgresServer
from tests.server_tools import execute, make_tables

pair = postgresql.pair
STEP = 10


def source_of(alias: str) -> ServerSource:
    """A process that knows nothing of the past: its floors are 0."""
    return ServerSource(alias=alias, default_step=STEP, timeout=30)


@contextmanager
def skips() -> Iterator[list[dict[str, Any]]]:
    """What ``segment_skipped`` says during the block."""
    heard: list[dict[str, Any]] = []

    def hear(sender: object, signal: object, **values: Any) -> None:
        heard.append(values)

    segment_skipped.connect(hear)
    try:
        yield heard
    finally:
        segment_skipped.disconnect(hear)


def assert_disjoint(segments: list[Segment]) -> None:
    """Ranges may be long: compared by their ends."""
    tags = {segment.tag for segment in segments}
    for tag in tags:
        of_tag = sorted((s for s in segments if s.tag == tag), key=lambda s: s.start)
        assert all(one.stop <= other.start for one, other in pairwise(of_tag)), of_tag


def fetch_before(alias: str) -> list[Segment]:
    """What reaches the replica: tags that were used, made by Leaf, made and never used."""
    source = source_of(alias)
    found = [source.fetch(tag) for tag in ("orders", "orders", "bills")]
    LeafAlloc.objects.using(alias).create(biz_tag="made", max_id=500)
    execute(alias, "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('leaf', 1, 10)")
    found.append(leaf_fetch(connections[alias], "leaf"))
    return [*found, source.fetch("leaf")]


def fetch_lost(alias: str) -> list[Segment]:
    """What does not: a step that grew, tags used for the first time, a tag lost whole."""
    found = [source_of(alias).fetch("orders") for _ in range(40)]
    found += [source_of(alias).fetch("orders", demand=Demand(times)) for times in (2, 4, 8)]
    found += [source_of(alias).fetch(tag) for tag in ("bills", "made", "leaf") for _ in range(5)]
    return found + [source_of(alias).fetch("whole") for _ in range(30)]


def fetch_after(alias: str) -> list[Segment]:
    tags = ("orders", "bills", "made", "leaf", "whole", "brand new")
    return [source_of(alias).fetch(tag) for tag in tags for _ in range(3)]


def check_after(alias: str, before: list[Segment], after: list[Segment]) -> None:
    """I1; and what was skipped is skipped once."""
    assert_disjoint(before + after)
    for tag in ("orders", "bills"):
        starts = [segment.start for segment in after if segment.tag == tag]
        assert starts == list(range(starts[0], starts[0] + 3 * STEP, STEP))
    row = Installation.objects.using(alias).get(pk=1)
    assert row.first_id > 1
    assert row.server == LeafAlloc.objects.using(alias).get(pk="orders").server


def test_a_promoted_replica_of_postgresql(
    pair: tuple[PostgresServer, PostgresServer], postgres: str
) -> None:
    """I1, L7, hazards 34, 59, 60: the last commits are lost, and none of their ids comes again."""
    primary, replica = pair
    with pointing_at(primary, postgres):
        before = fetch_before(postgres)
        (position,) = execute(postgres, "SELECT pg_current_wal_lsn()::text")[0]
    with pointing_at(replica, postgres):
        caught_up = f"SELECT pg_last_wal_replay_lsn() >= '{position}'"
        postgresql.eventually(caught_up, postgres)
        with pytest.raises(SegmentUnavailable, match="read-only"):
            source_of(postgres).fetch("orders")
        execute(postgres, "ALTER SYSTEM SET primary_conninfo = ''")
        execute(postgres, "SELECT pg_reload_conf()")
        postgresql.eventually("SELECT count(*) = 0 FROM pg_stat_wal_receiver", postgres)
    with pointing_at(primary, postgres):
        before += fetch_lost(postgres)
    primary.stop()
    replica.promote()
    with pointing_at(replica, postgres), skips() as heard:
        after = fetch_after(postgres)
        check_after(postgres, before, after)
    assert {skip["tag"] for skip in heard} >= {"orders", "bills", "leaf", "whole"}


@pytest.mark.long
def test_a_promoted_replica_of_mariadb(mariadb: str) -> None:
    """I1, L7, hazards 34, 59, 60, on a real pair."""
    with maria.mariadb_pair(mariadb) as (primary, replica):
        with maria.pointing_at(primary, mariadb):
            before = fetch_before(mariadb)
        maria.follow_up(primary, replica, mariadb)
        with maria.pointing_at(primary, mariadb):
            before += fetch_lost(mariadb)
        primary.kill()
        maria.promote(replica, mariadb)
        with maria.pointing_at(replica, mariadb), skips() as heard:
            after = fetch_after(mariadb)
            check_after(mariadb, before, after)
        assert {skip["tag"] for skip in heard} >= {"orders", "bills", "leaf", "whole"}


# --- the same, with an identity that is made up ----------------------------------------------


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``become(alias, name)``: from then on the server of ``alias`` says that it is ``name``."""
    quoted = {"postgres": "'{}'::text", "mariadb": "'{}'"}

    def change(alias: str, name: str) -> None:
        monkeypatch.setattr(dialects, "_identities", lambda _: (quoted[alias].format(name),))

    return change


def test_the_longest_range_ever_counts(server_alias: str, become: Any) -> None:
    """Not the row's present step: hazard 60, after the step had grown to a million."""
    become(server_alias, "a")
    grown = source_of(server_alias).fetch("t", demand=Demand(10**6))
    assert len(grown.ids()) == LONGEST_STEP
    LeafAlloc.objects.using(server_alias).update(step=1)
    become(server_alias, "b")
    with skips() as heard:
        after = source_of(server_alias).fetch("t")
    assert after.start >= grown.stop + FAILOVER_SKIP * LONGEST_STEP
    (skip,) = [skip for skip in heard if skip["tag"] == "t"]
    assert (skip["start"], skip["stop"]) == (grown.stop, after.start)
    assert skip["database"] == server_alias
    assert "a was followed by b" in skip["why"]


def test_the_longest_range_is_written_before_it_is_used(server_alias: str) -> None:
    """In an earlier transaction than the fetch, and outside of the row, which may be lost."""
    source = source_of(server_alias)
    source.fetch("t")
    rows = LeafAlloc.objects.using(server_alias)
    assert rows.get().largest_step == 2 * STEP
    source.fetch("t", demand=Demand(2))
    assert rows.get().largest_step == 4 * STEP
    assert Installation.objects.using(server_alias).get().largest_step == 4 * STEP
    rows.update(largest_step=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_take", partial(_refuse, source._take))
        with pytest.raises(ConnectionError):
            source.fetch("t", demand=Demand(5))
    assert (rows.get().largest_step, rows.get().max_id) == (10 * STEP, 1 + 3 * STEP)


def _refuse(take: Any, *args: Any) -> Any:
    """The first fetch finds that the row has to be mended; the second one never happens."""
    taken = take(*args)
    if taken.segment is not None:
        raise ConnectionError
    return taken


def test_each_change_of_the_server_is_followed(server_alias: str, become: Any) -> None:
    """Forth and back: a server that was the primary before may have missed what came between."""
    found = []
    for name in ("a", "b", "a", "b"):
        become(server_alias, name)
        found += [source_of(server_alias).fetch(tag) for tag in ("t", "t", name)]
    assert_disjoint(found)
    jumps = [b.start - a.stop for a, b in pairwise(s for s in found if s.tag == "t")]
    assert [jump > 0 for jump in jumps] == [False, True] * 3 + [False]


def test_a_tag_made_after_a_failover_starts_past_the_skip(server_alias: str, become: Any) -> None:
    """It may be one that was lost whole; one made by hand may have lost all its fetches."""
    become(server_alias, "a")
    source_of(server_alias).fetch("t")
    become(server_alias, "b")
    new = source_of(server_alias).fetch("new")
    assert new.start >= FAILOVER_SKIP * STEP
    LeafAlloc.objects.using(server_alias).create(biz_tag="by hand", max_id=7000)
    assert source_of(server_alias).fetch("by hand").start >= 7000 + FAILOVER_SKIP * STEP


@pytest.mark.parametrize("leases_first", [False, True])
def test_the_first_tag_of_all_may_have_been_lost(
    server_alias: str, become: Any, leases_first: bool
) -> None:
    """Right after ``migrate``: nothing of any tag reached the new server."""
    become(server_alias, "a")
    make_tables(server_alias)
    lost = [source_of(server_alias).fetch("t") for _ in range(5)]
    assert lost[0].start == 1
    LeafAlloc.objects.using(server_alias).all().delete()
    Installation.objects.using(server_alias).update(server="", largest_step=0)
    become(server_alias, "b")
    if leases_first:
        ServerLeases(SHOP, alias=server_alias).acquire(holder="notices it, too")
    assert source_of(server_alias).fetch("t").start >= FAILOVER_SKIP * 2 * STEP > lost[-1].stop


def test_a_tag_from_before_the_first_server_was_known_is_not_skipped(server_alias: str) -> None:
    """Leaf's table, taken over: its ids go on where they were."""
    off = ServerSource(alias=server_alias, default_step=STEP, server_identity=False)
    off.fetch("t")
    assert LeafAlloc.objects.using(server_alias).get().server == ""
    assert source_of(server_alias).fetch("t").start == 1 + STEP
    assert LeafAlloc.objects.using(server_alias).get().server != ""


def test_it_can_be_switched_off(server_alias: str, become: Any) -> None:
    """Behind a balancer over servers that commit in step, the identity changes all the time."""
    source = ServerSource(alias=server_alias, default_step=STEP, server_identity=False)
    starts = []
    for name in ("a", "b", "a"):
        become(server_alias, name)
        starts.append(source.fetch("t").start)
    assert starts == [1, 11, 21]


def test_a_server_that_may_not_be_asked_is_none(server_alias: str, become: Any) -> None:
    """A managed service that refuses the question: ids go on, without a skip."""
    become(server_alias, "")
    assert [source_of(server_alias).fetch("t").start for _ in range(2)] == [1, 11]


def test_how_much_is_skipped_can_be_set(server_alias: str, become: Any) -> None:
    """``failover_skip`` times the longest range, which has room for one that doubled."""
    become(server_alias, "a")
    source_of(server_alias).fetch("t")
    become(server_alias, "b")
    source = ServerSource(alias=server_alias, default_step=STEP, failover_skip=1)
    assert source.fetch("t").start in range(11 + 2 * STEP, 11 + 4 * STEP)


def test_the_skip_ends_with_the_ids(server_alias: str, become: Any) -> None:
    """Near 2**63 nothing overflows."""
    become(server_alias, "a")
    source_of(server_alias).fetch("t")
    LeafAlloc.objects.using(server_alias).update(max_id=2**63 - 1 - 3000)
    become(server_alias, "b")
    after = source_of(server_alias).fetch("t")
    assert after.stop <= 2**63 - 1


def test_a_floor_that_makes_the_table_jump_is_signalled(server_alias: str) -> None:
    """A table that was restored, or flushed, shows at the next fetch (hazard 61).

    As much is skipped as a failover would: other processes were granted ids, too.
    """
    source = source_of(server_alias)
    first = source.fetch("t").stop
    with skips() as heard:
        held = source.fetch("t", floor=first).stop
        assert heard == []
        LeafAlloc.objects.using(server_alias).update(max_id=1)
        restored = source.fetch("t", floor=held)
        LeafAlloc.objects.using(server_alias).all().delete()
        flushed = source.fetch("t", floor=restored.stop)
    assert restored.start == held + FAILOVER_SKIP * 2 * STEP
    assert flushed.start == restored.stop + FAILOVER_SKIP * 2 * STEP
    told = [(skip["start"], skip["stop"]) for skip in heard]
    assert told == [(1, restored.start), (1, flushed.start)]
    assert all("restored" in skip["why"] for skip in heard)


@pytest.mark.parametrize("remade", [False, True])
def test_an_installation_that_was_deleted_counts_as_a_loss(server_alias: str, remade: bool) -> None:
    """Nobody knows then which tags there were: new ones start past what one may have taken.

    Nor does it help that a registry of leases came first to make the row anew.
    """
    source_of(server_alias).fetch("t")
    Installation.objects.using(server_alias).all().delete()
    if remade:
        Installation.objects.using(server_alias).create(identity="anew", protocol=1)
    assert source_of(server_alias).fetch("new").start >= FAILOVER_SKIP * STEP
    assert source_of(server_alias).fetch("t").start == 1 + STEP

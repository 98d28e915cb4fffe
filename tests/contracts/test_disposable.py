"""Registries that lend a worker id once: the contract, and what they promise besides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pytest

from django_idgen.core.errors import LeaseLost, NoFreeWorker
from django_idgen.core.inspection import WorkerState, drawn
from django_idgen.leases.disposable import DisposableLeases, machine_type
from django_idgen.models import NamespaceRecord, WorkerLease
from django_idgen.testing.contracts import NAMESPACE, WINDOW, WORKERS, LeaseContract, Lender
from django_idgen.testing.contracts.lenders import HOUR_US
from tests.places import make_tables

from .test_memory import MemoryLender
from .test_server import ServerLender

Unused = Literal["first", "only"]


class Disposing(MemoryLender):
    def __init__(self, unused: Unused = "first", workers: int = WORKERS) -> None:
        super().__init__()
        self.namespace = replace(self.namespace, unused=unused, workers=range(workers))


class DisposingServer(ServerLender):
    def __init__(self, alias: str, unused: Unused = "only") -> None:
        make_tables(alias)
        super().__init__(alias)
        self.namespace = replace(self.namespace, unused=unused)


class TestRecyclingLeases(LeaseContract):
    """With ``recycle``. Where the contract has a holder come back, there is one worker id only."""

    shared_by_processes = False
    lends = Disposing

    def test_a_holder_comes_back_to_its_worker_id(self, lender: Lender) -> None:
        """Not here: the one that is free longest is next."""
        registry = lender.registry()
        leases = [registry.acquire(holder=f"h{n}").lease for n in range(WORKERS)]
        order = [2, 0, 3, 1]
        for after, n in enumerate(order, start=1):
            lender.time.pass_ticks(1)
            registry.release(leases[n], last_tick=leases[n].start + after)
        again = [registry.acquire(holder=f"h{n}").lease.worker for n in range(WORKERS)]
        assert again == [leases[n].worker for n in order]

    def test_a_host_comes_back_to_its_worker_id_as_another_process(self, lender: Lender) -> None:
        """Not here: each start has a worker id of its own, as long as there are some."""
        got = []
        for pid in range(WORKERS):
            registry = lender.registry()
            lease = registry.acquire(holder=f"web-1:{pid} gunicorn").lease
            assert registry.release(lease, last_tick=None)
            got.append(lease.worker)
        assert got == list(range(WORKERS))

    @pytest.mark.parametrize(
        "name",
        [
            "test_renewal_by_a_scheduler_does_not_count_as_seen",
            "test_a_late_release_frees_nothing",
        ],
    )
    def test_with_one_worker_id(self, name: str) -> None:
        """What the contract says of who gets the same one again."""
        getattr(LeaseContract, name)(self, Disposing(workers=1))

    def test_a_worker_id_that_is_lent_again_starts_at_its_mark(self, lender: Lender) -> None:
        """Its last holder has used ticks that are still to come."""
        registry = lender.registry()
        used = {}
        for n in range(WORKERS):
            lease = registry.acquire(holder=f"h{n}").lease
            used[lease.worker] = lease.until - 2
            assert registry.release(lease, last_tick=used[lease.worker])
        for lease in self._all(lender):
            assert lease.start > used[lease.worker]

    def test_renewal_by_a_scheduler_does_not_count_as_seen(self, lender: Lender) -> None:
        """A holder that is gone expires, and its worker id is the last to be lent again."""
        holder, scheduler = lender.registry(), lender.registry()
        lease = holder.acquire(holder="gone").lease
        for _ in range(6):
            lender.time.pass_ticks(WINDOW // 2)
            scheduler.renew_seen(idle_after=1.2)
        got = [scheduler.acquire(holder=f"h{n}").lease for n in range(WORKERS)]
        assert got[-1].worker == lease.worker
        assert got[-1].start >= lease.until

    def test_a_late_release_frees_nothing(self, lender: Lender) -> None:
        """Neither of the worker id that was lent again, nor of one that has a new holder."""
        slow = lender.registry()
        old = [slow.acquire(holder=f"h{n}").lease for n in range(WORKERS)]
        lender.time.pass_ticks(WINDOW)
        new = self._all(lender)
        for lease in old:
            assert slow.release(lease, last_tick=lease.start) is False
        for lease in new:
            assert slow.renew(lease, last_tick=lease.start).lease.token == lease.token

    def test_a_release_leaves_no_mark_before_its_window(self, lender: Lender) -> None:
        """The mark alone says where the next window may start: see the contract's own."""
        slow, quick = lender.registry(), lender.registry()
        old = {lease.worker: lease for lease in self._all(lender)}
        lender.time.pass_ticks(WINDOW)
        unused = quick.acquire(holder="a").lease
        lender.time.now_us -= HOUR_US
        stale = old[unused.worker]
        assert quick.release(unused, last_tick=stale.start) is True
        assert slow.acquire(holder="b").lease.start >= stale.until

    def test_a_holder_that_runs_ahead_after_a_loss_is_not_refused(self, lender: Lender) -> None:
        """It goes on behind its ticks, or acquires once more where the loss shows only then."""
        registry = lender.registry()
        lender.time.now_us += HOUR_US
        lease = registry.acquire(holder="a").lease
        lender.time.now_us -= HOUR_US
        for _ in range(WORKERS + 1):
            lender.forget()
            following = registry.acquire(holder="a", not_before=lease.until).lease
            assert following.start >= lease.until
            try:
                lease = registry.renew(following, last_tick=following.until).lease
            except LeaseLost:
                lease = registry.acquire(holder="a", not_before=following.until).lease

    def test_rows_deleted_after_the_clock_went_back(self, lender: Lender) -> None:
        """What is lent for the first time needs no row; the rest start past every window (L7)."""
        registry = lender.registry()
        lender.time.now_us += HOUR_US
        held = [registry.acquire(holder=f"h{n}").lease for n in range(WORKERS)]
        lender.time.now_us -= HOUR_US
        lender.forget()
        assert all(lease.start >= held[0].until for lease in self._all(lender))


# --- once only ------------------------------------------------------------------------


def test_no_worker_id_is_lent_twice() -> None:
    """Whatever becomes of its holder and its row; then the error says what to do."""
    lender = Disposing("only")
    registry = lender.registry()
    got = []
    for number in range(WORKERS):
        lease = registry.acquire(holder="same", avoid=0).lease
        got.append(lease.worker)
        if number % 2:
            registry.release(lease, last_tick=None)
        lender.forget()
        lender.time.pass_ticks(2 * WINDOW)
    assert got == list(range(WORKERS))
    with pytest.raises(NoFreeWorker, match=r"All 4 .* were used, each by one process.*'recycle'"):
        registry.acquire(holder="same")


@pytest.mark.parametrize("recycle", [False, True])
def test_an_option_says_whether_worker_ids_come_again(postgres: str, *, recycle: bool) -> None:
    """Off unless it is given: where they do, a table of nodes names two hosts by one number."""
    make_tables(postgres)
    space = replace(NAMESPACE, name=f"nodes-{recycle}", workers=range(1))
    options = {"recycle": True} if recycle else {}
    registry = DisposableLeases(space, database=postgres, **options)
    lease = registry.acquire(holder="a").lease
    registry.release(lease, last_tick=None)
    if recycle:
        assert registry.acquire(holder="b").lease.worker == lease.worker
    else:
        with pytest.raises(NoFreeWorker):
            registry.acquire(holder="b")


def test_a_holder_keeps_its_lease_though_rows_are_deleted() -> None:
    """A row that is missing voids no other lease: its worker id is not lent again anyway."""
    lender = Disposing("only")
    registry = lender.registry()
    registry.acquire(holder="a")
    lender.forget()
    second = registry.acquire(holder="b").lease
    assert registry.renew(second, last_tick=second.start).lease.token == second.token


@pytest.fixture
def server(server_alias: str) -> Iterator[DisposingServer]:
    lender = DisposingServer(server_alias)
    yield lender
    lender.close()


def test_a_row_that_is_missing_when_all_were_used(server_alias: str) -> None:
    """With ``recycle``: noticed where nothing else is free; then all begin past every window."""
    server = DisposingServer(server_alias, "first")
    registry = server.registry()
    leases = [registry.acquire(holder=f"h{n}").lease for n in range(WORKERS)]
    rows = WorkerLease.objects.using(server_alias).filter(namespace=server.namespace.name)
    rows.filter(worker=1).delete()
    again = [registry.acquire(holder=f"n{n}").lease for n in range(WORKERS)]
    assert sorted(lease.worker for lease in again) == list(range(WORKERS))
    assert min(lease.start for lease in again) >= max(lease.until for lease in leases)
    server.close()


def test_a_lost_record_is_made_again_above_its_rows(server: DisposingServer) -> None:
    """Rows that are left show how far it had come, though one in between is gone."""
    first = [server.registry().acquire(holder=f"h{n}").lease for n in range(3)]
    name = server.namespace.name
    NamespaceRecord.objects.using(server.alias).filter(pk=name).delete()
    rows = WorkerLease.objects.using(server.alias).filter(namespace=name)
    rows.filter(worker=first[1].worker).delete()
    after = server.registry().acquire(holder="after").lease
    assert after.worker == 3
    assert after.start >= max(lease.until for lease in first)


def test_a_lost_server_lends_no_worker_id_again(server: DisposingServer) -> None:
    """After a failover a new generation begins past all windows; the count goes on (L7)."""
    registry = server.registry()
    first = [registry.acquire(holder=f"h{n}").lease for n in range(2)]
    records = NamespaceRecord.objects.using(server.alias).filter(pk=server.namespace.name)
    records.update(server="another")
    after = registry.acquire(holder="after").lease
    assert after.worker == 2
    assert after.generation > first[0].generation
    assert after.start >= max(lease.until for lease in first)


def test_the_map_shows_what_is_used_up(server: DisposingServer) -> None:
    """A worker id that was given back, or whose row was deleted, is used; one outside reserved."""
    registry = server.registry()
    first, second, _third = [registry.acquire(holder=f"h{n}").lease for n in range(3)]
    registry.release(first, last_tick=None)
    rows = WorkerLease.objects.using(server.alias).filter(namespace=server.namespace.name)
    rows.filter(worker=second.worker).delete()
    found = drawn("nodes", "disposable", range(WORKERS + 2), registry.inspect())
    states = [found.state(worker) for worker in found.workers]
    assert states == [
        *[WorkerState.USED] * 2,
        WorkerState.HELD,
        *[WorkerState.FREE] * (WORKERS - 3),
        *[WorkerState.RESERVED] * 2,
    ]
    assert found.counts() == {state: states.count(state) for state in WorkerState}
    narrow = replace(registry.inspect(), workers=range(1, WORKERS))
    assert drawn("", "", range(WORKERS), narrow).state(first.worker) is WorkerState.RESERVED


# --- in a project ---------------------------------------------------------------------


def test_a_row_says_where_a_worker_id_was_used(postgres: str) -> None:
    """uid-generator's WORKER_NODE: host, process, type and launch date, one row a start."""
    make_tables(postgres)
    space = replace(Disposing("only").namespace, name="nodes", unused="")
    for pid in (7, 8):
        registry = DisposableLeases(space, database=postgres)
        registry.acquire(holder=f"web-1:{pid} gunicorn")
        registry.close()
    rows = list(WorkerLease.objects.using(postgres).filter(namespace="nodes"))
    kind = machine_type()
    assert [row.holder for row in rows] == [
        f"web-1:7 gunicorn ({kind})",
        f"web-1:8 gunicorn ({kind})",
    ]
    assert all(row.acquired_at for row in rows)


def test_a_container_is_known_by_its_environment() -> None:
    """Kubernetes', Baidu's own, and what podman and systemd set."""
    for variable in ("KUBERNETES_SERVICE_HOST", "JPAAS_HOST", "container"):
        assert machine_type({variable: "x"}) == "container"

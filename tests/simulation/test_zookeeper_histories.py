"""Random histories of a fleet on ZooKeeper: whatever it and the database forget or lose."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_idgen.core.book import Book
from django_idgen.core.errors import RegistryUnavailable
from django_idgen.core.layout import BitLayout
from django_idgen.leases import zookeeper
from django_idgen.leases.memory import MemoryStore
from tests.simulation import test_histories as plain
from tests.simulation.ensemble import Ensemble, Node, Session
from tests.simulation.test_histories import slots, spans
from tests.simulation.world import Host, World

T = TypeVar("T")
REQUESTS = st.sampled_from([2, 2, 2, 0, 1, 3, 4, 5, 6, 7])
"""How many are done before something happens: after two the node was read, and is not written."""
NEW = st.booleans()


class Database(MemoryStore):
    """The root, which can be down, and lose an answer."""

    fault = ""

    def run(self, job: Callable[[Book], T]) -> T:
        fault, self.fault = self.fault, self.fault if self.fault == "down" else ""
        if fault == "down":
            raise RegistryUnavailable("the database is down")
        result = super().run(job)
        if fault == "lost":
            raise RegistryUnavailable("the database's answer was lost")
        return result


class ZooKeeperWorld(World):
    """One ensemble, whose ticks come from a database that keeps all."""

    after_loss = "ahead"
    database_us: Callable[[], int] | None = None
    """The database's clock, if there are two."""

    def __init__(self, layout: BitLayout, window: int) -> None:
        super().__init__(layout, window)
        self.ensemble = Ensemble(lambda: self.registry_us() // 1000)
        self.sessions = 0

    def registry(self, host: Host) -> zookeeper.ZooKeeperLeases:
        """One of a new process."""
        self.sessions += 1
        session = Session(self.ensemble, self.sessions)
        with mock.patch.object(zookeeper, "_session", return_value=session):
            made = zookeeper.ZooKeeperLeases(
                self.namespace,
                after_loss=self.after_loss,
                clock=host.clock,
                read_now_us=None if self.database_us else self.registry_us,
            )
        read_now_us = self.database_us or self.registry_us
        database = Database(self.namespace.name, self.marks, host.clock, read_now_us)
        made.store.root._stores = SimpleNamespace(current=lambda: database)  # type: ignore[assignment]
        return made

    def top(self) -> str:
        """The node of the namespace."""
        return f"/django_idgen/{self.marks.identity}/simulated"

    def change(self, change: Callable[[dict[str, object]], object]) -> None:
        """Somebody with a client edits the node."""
        node = self.ensemble.nodes.get(self.top())
        if node is not None and node.data:
            words = json.loads(node.data)
            change(words)
            self.ensemble.set_async(self.top(), json.dumps(words).encode())


class Process(plain.Process):
    """It has one connection; other settings are those of its successor."""

    def __init__(self, number: int, host: Host, **options: object) -> None:
        self.made = host.world.registry(host)
        super().__init__(number, host, **options)
        self.link.registry = lambda: self.made  # type: ignore[method-assign]

    @property
    def session(self) -> Session:
        return self.made.store.node.session

    @property
    def database(self) -> Database:
        return self.made.store.root.current()

    def kill(self) -> None:
        super().kill()
        self.session.close()


class Histories(plain.Histories):
    """The same, and what can happen to requests, to nodes and to an ensemble."""

    process = Process

    def __init__(self) -> None:
        super().__init__()
        self.stack.enter_context(mock.patch.object(zookeeper, "_random", random))

    def world_of(self, layout: BitLayout, window: int) -> World:
        return ZooKeeperWorld(layout, window)

    # --- requests ---------------------------------------------------------------------

    @rule(slot=slots, after=REQUESTS, fault=st.sampled_from(["down", "lost", "late"]), new=NEW)
    def one_request_fails(self, slot: int, after: int, fault: str, new: bool) -> None:
        self.ask(slot, [None] * after + [fault], new)

    @rule(slot=slots, other=slots, after=REQUESTS, seconds=spans, new=NEW, renews=NEW)
    def others_come_between_two_requests(
        self, slot: int, other: int, after: int, seconds: float, new: bool, renews: bool
    ) -> None:
        def meanwhile() -> None:
            self.world.pass_seconds(seconds)
            if not self.is_in_a_call(other):
                self.ask(other, [], not renews)
            self.issue(other, 3, batch=False)

        if other != slot:
            self.ask(slot, [None] * after + [meanwhile], new)
            self.all_issue(2)

    def ask(self, slot: int, faults: list[str | Callable[[], None] | None], new: bool) -> None:
        """Have a process renew, or a new one start; ``faults`` befall its requests."""
        if new:
            self.kill(slot)
            self.start(slot)
        process = self.processes[slot]
        if process is not None:
            process.session.faults = faults
            process.generator.keeper.renew_in_background()
            self.issue(slot, 3, batch=False)

    @rule()
    def what_was_on_its_way_arrives(self) -> None:
        self.world.ensemble.deliver()

    @rule(slot=slots)
    def a_session_expires(self, slot: int) -> None:
        process = self.processes[slot]
        if process is not None:
            self.world.ensemble.end_session(process.session.id)
            process.session.faults = ["down"]

    @rule(slot=slots, seconds=spans, fault=st.sampled_from(["down", "lost"]))
    def the_database_fails(self, slot: int, seconds: float, fault: str) -> None:
        """For one process, until it has issued."""
        process = self.processes[slot]
        if process is not None:
            process.database.fault = fault
            self.world.pass_seconds(seconds)
            self.issue(slot, 5, batch=False)
            process.database.fault = ""

    # --- nodes -------------------------------------------------------------------------

    @rule()
    def all_rows_are_deleted(self) -> None:
        self.world.change(lambda words: words.update(workers={}))

    @rule(data=st.data())
    def a_row_is_deleted(self, data: st.DataObject) -> None:
        def drop_one(words: dict[str, dict[str, object]]) -> None:
            if words.get("workers"):
                del words["workers"][data.draw(st.sampled_from(sorted(words["workers"])))]

        self.world.change(drop_one)

    @rule()
    def the_node_is_garbled(self) -> None:
        self.world.ensemble.nodes.get(self.world.top(), Node(b"")).data = b"{}"

    @rule(count=st.integers(0, 5))
    def the_node_is_deleted(self, count: int) -> None:
        self.world.ensemble.delete(self.world.top())
        self.all_issue(count)

    # --- the ensemble --------------------------------------------------------------------

    @rule(count=st.integers(0, 8))
    def a_leader_is_elected(self, count: int) -> None:
        self.world.ensemble.elect()
        self.all_issue(count)

    @rule(slot=slots, other=slots, past=st.integers(-3, -1), count=st.integers(0, 8))
    def the_ensemble_is_set_back(self, slot: int, other: int, past: int, count: int) -> None:
        """To what its disks were before the last lease, or earlier still."""
        self.world.ensemble.save()
        self.restart(slot, 0.001, 3, cleanly=True)
        self.world.ensemble.elect(past)
        self.ask(other, [], new=True)
        self.all_issue(count)

    @rule(count=st.integers(0, 8))
    def it_restarts_empty(self, count: int) -> None:
        self.world.ensemble.nodes.clear()
        self.world.ensemble.election = 0
        self.world.ensemble.elect()
        self.all_issue(count)


class TestZooKeeperHistories(Histories.TestCase):
    """I1 disjoint, I2 ordered, I3 bounded: ZooKeeper may forget all, and lose any answer."""

    settings = plain.TestHistories.settings


class WaitingHistories(Histories):
    """The same, where no id may run ahead after a loss."""

    def world_of(self, layout: BitLayout, window: int) -> World:
        world = super().world_of(layout, window)
        world.after_loss = "wait"  # type: ignore[attr-defined]
        return world


class TestWaitingHistories(WaitingHistories.TestCase):
    """The invariants hold while a registry waits, too."""

    settings = plain.TestHistories.settings


def test_the_databases_clock_counts_and_zookeepers_continues_it() -> None:
    """Though an hour lies between them, and also while the database is down."""
    world = ZooKeeperWorld(plain.SMALL["time on top"], 200)
    world.registry_offset_us = -3_600_000_000  # ZooKeeper's
    world.database_us = lambda: world.ns // 1000
    process = Process(1, world.host())
    lease = process.made.acquire(holder="a").lease
    assert lease.start == world.namespace.tick_at(world.database_us())
    process.database.fault = "down"
    world.pass_seconds(0.1)
    now_us = process.made.renew(lease, last_tick=lease.start).reading.registry_us
    assert abs(now_us - world.database_us()) < 2000


def test_a_request_that_arrives_in_another_life_changes_nothing() -> None:
    """I1: the node was deleted and made again meanwhile, and its versions have caught up."""
    world = ZooKeeperWorld(plain.SMALL["time on top"], 200)
    slow, quick = (Process(number, world.host()) for number in range(2))
    lease = slow.made.acquire(holder="slow").lease
    version = world.ensemble.nodes[world.top()].version
    world.pass_seconds(0.005)
    slow.session.faults = [None, None, "late"]
    with pytest.raises(RegistryUnavailable):
        slow.made.renew(lease, last_tick=lease.start)
    held = [quick.made.acquire(holder="quick").lease for _ in range(3)]
    world.ensemble.delete(world.top())
    fourth = quick.made.acquire(holder="quick").lease
    while world.ensemble.nodes[world.top()].version < version:
        world.pass_seconds(0.001)
        quick.made.renew(fourth, last_tick=fourth.start)
    assert world.ensemble.nodes[world.top()].version == version
    world.ensemble.deliver()
    later = [quick.made.acquire(holder="quick").lease for _ in range(3)]
    assert min(each.start for each in later) >= max(each.until for each in [lease, *held])

"""Whatever ZooKeeper forgets, no worker id stamps a tick twice (I1, L6; hazards 1, 49 to 52)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.core.management import call_command
from django.test import override_settings
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from django_idgen import generators
from django_idgen.core import book as rules
from django_idgen.core.book import Book
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    ConfigurationError,
    LeaseExpired,
    NoFreeWorker,
    RegistryUnavailable,
)
from django_idgen.core.layout import parse_layout
from django_idgen.core.lease import Lease
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases import zookeeper as zookeeper_module
from django_idgen.leases.zookeeper import ZooKeeperLeases
from django_idgen.process import maps
from tests.contracts.loss_contract import LossContract
from tests.leases.redis.fleet import STRIDE, WINDOW, Fleet
from tests.leases.zookeeper.conftest import ZooKeeperFleet, zookeeper_space
from tests.tiers import long
from tests.wires import CutWire
from tests.zookeeper_servers import ZooKeeper, ensemble

T = TypeVar("T")
LAYOUT = parse_layout("standard")
# kazoo leaves sockets of refused connections open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def node_of(client: KazooClient, fleet: Fleet) -> str:
    for installation in client.get_children("/django_idgen"):
        path = f"/django_idgen/{installation}/{fleet.space.name}"
        if client.exists(path):
            return path
    raise AssertionError(fleet.space.name)


def change_node(fleet: Fleet, server: ZooKeeper, change: Callable[[dict[str, Any]], Any]) -> None:
    """Have ``change`` make something else of the node's words."""
    with server.client() as client:
        path = node_of(client, fleet)
        words = json.loads(client.get(path)[0])
        changed = change(words)
        client.set(path, json.dumps(words if changed is None else changed).encode())


def delete_node(fleet: Fleet, server: ZooKeeper) -> None:
    with server.client() as client:
        client.delete(node_of(client, fleet), recursive=True)


def end_the_life(fleet: Fleet, server: ZooKeeper) -> None:
    """Only the child by which late requests of another life are known."""
    with server.client() as client:
        path = node_of(client, fleet)
        (life,) = [each for each in client.get_children(path) if each.startswith("life_")]
        client.delete(f"{path}/{life}")


def garble(fleet: Fleet, server: ZooKeeper) -> None:
    change_node(fleet, server, lambda words: [words])


def drop_a_mark(fleet: Fleet, server: ZooKeeper) -> None:
    change_node(fleet, server, lambda words: words["workers"].popitem() and None)


def drop_the_ceiling(fleet: Fleet, server: ZooKeeper) -> None:
    change_node(fleet, server, lambda words: words.pop("ceiling") and None)


def restart_empty(fleet: Fleet, server: ZooKeeper) -> None:
    server.kill()
    server.wipe()
    server.start()


LOSSES = [delete_node, end_the_life, drop_a_mark]
OTHER_LOSSES = [restart_empty, garble, drop_the_ceiling]


@pytest.fixture(params=[*LOSSES, *long(*OTHER_LOSSES)])
def loss(request: pytest.FixtureRequest, fleet: Fleet, server: ZooKeeper) -> Callable[[], None]:
    return partial(request.param, fleet, server)


@pytest.fixture
def losses(fleet: Fleet, server: ZooKeeper) -> list[Callable[[], None]]:
    return [partial(each, fleet, server) for each in (delete_node, restart_empty)]


class TestLosses(LossContract):
    outlives_its_installation = False  # a process' next call fails, and the one after it goes on

    @pytest.mark.long
    def test_two_losses_within_a_window(
        self, fleet: Fleet, losses: list[Callable[[], object]]
    ) -> None:
        """As for Redis, which has it on push."""
        super().test_two_losses_within_a_window(fleet, losses)


@pytest.mark.long
def test_a_crash_that_loses_nothing_costs_nothing(fleet: Fleet, server: ZooKeeper) -> None:
    """A server that is killed and started again has all on its disk: every lease goes on."""
    fleet.work()
    server.kill()
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        fleet.registry(timeout=1).acquire(holder="in between")
    server.start()
    for holder in fleet.holders:
        assert holder.renew()
    fleet.check(ahead=1)


@pytest.mark.long
def test_a_server_that_is_cut_off(fleet: Fleet, server: ZooKeeper) -> None:
    """A stopped server is an error in time; what it was asked meanwhile repeats nothing."""
    fleet.work()
    held = list(fleet.holders)
    server.pause()
    try:
        late = fleet.registry(timeout=1)
        for _ in range(2):
            with pytest.raises(RegistryUnavailable):
                late.acquire(holder="late")
    finally:
        server.resume()
    for holder in held:
        assert holder.renew()
    fleet.hire()
    fleet.check(ahead=1)


@pytest.mark.long
def test_a_holder_that_is_cut_off_while_others_go_on(zookeeper: ZooKeeper, postgres: str) -> None:
    """I1, I3: it stops by its window, before which no other has its worker id.

    What it sent meanwhile arrives when the line is mended, and changes nothing.
    """
    wire = CutWire(("127.0.0.1", zookeeper.port))
    space = replace(zookeeper_space(), workers=range(1), window_ticks=6000)

    def generator(hosts: str, timeout: float) -> SnowflakeGenerator:
        registry = ZooKeeperLeases(space, hosts=hosts, database=postgres, timeout=timeout)
        return SnowflakeGenerator(LAYOUT, registry, holder=hosts, background=False)

    # The first use makes tables and a generation, for which the short timeout is too short.
    first = generator(zookeeper.hosts, 60)
    ids = first.next_ids(1)
    first.close()
    far, near = generator(f"127.0.0.1:{wire.port}", 3), generator(zookeeper.hosts, 60)
    ids += far.next_ids(100)
    lease = far.keeper.lease
    assert lease is not None
    wire.cut()
    taken: list[int] = []
    stopped = False
    while not (taken and stopped):
        try:
            ids += far.next_ids(10)
        except LeaseExpired:
            stopped = True
        if not taken:
            with suppress(NoFreeWorker):
                taken = near.next_ids(10)
        SYSTEM_CLOCK.sleep(0.1)
    assert max(LAYOUT.unpack(value).tick for value in ids) < lease.until
    assert min(LAYOUT.unpack(value).tick for value in taken) >= lease.until
    wire.mend()
    for _ in range(3):
        with pytest.raises(LeaseExpired):
            far.next_id()
        taken += near.next_ids(10)
    near.close()
    while True:
        with suppress(LeaseExpired):
            ids += far.next_ids(10)
            break
        SYSTEM_CLOCK.sleep(0.1)
    assert len({*ids, *taken}) == len(ids) + len(taken)
    far.close()
    for generator in (far, near):
        generator.keeper.registry.close()
    wire.close()


def test_a_caller_does_not_wait_for_the_end_of_a_session(
    zookeeper: ZooKeeper, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no server answers, kazoo ends a session in ten seconds or more: ``timeout`` holds."""
    ended = threading.Event()
    stop = KazooClient.stop
    monkeypatch.setattr(KazooClient, "stop", lambda client: (ended.wait(), stop(client)))
    wire = CutWire(("127.0.0.1", zookeeper.port))
    wire.cut()
    hosts = f"127.0.0.1:{wire.port}"
    registry = ZooKeeperLeases(zookeeper_space(), hosts=hosts, database=postgres, timeout=1)
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        registry.acquire(holder="a")
    ended.set()
    wire.close()


class Client:
    """As kazoo's, of a session that was established and has lost its server since."""

    def __init__(self, *, connected: bool) -> None:
        self.connected = connected
        self.handler = SequentialThreadingHandler()
        self.asked = 0

    def start_async(self) -> threading.Event:
        live = threading.Event()
        live.set()
        return live

    def stop(self) -> None: ...

    close = stop

    def get_children(self) -> Any:
        self.asked += 1
        answer = self.handler.async_result()
        answer.set([])
        return answer


@pytest.mark.parametrize("connected", [False, True])
def test_nothing_is_sent_when_a_connection_returns(*, connected: bool) -> None:
    """L4: kazoo would keep a request for then. The caller was told that there was no answer."""
    session = zookeeper_module._Session("127.0.0.1:1", None, {})
    made: list[Client] = []

    def client() -> Client:
        made.append(Client(connected=connected))
        return made[-1]

    session._made = client  # type: ignore[method-assign]
    ask = partial(session.ask, lambda found: found.get_children(), 5.0)
    if connected:
        assert ask() == []
    else:
        with pytest.raises(RegistryUnavailable, match="no connection"):
            ask()
    assert sum(each.asked for each in made) == connected


def test_a_fork_without_hooks_has_a_session_of_its_own() -> None:
    """L9: what a child sent on its parent's connection would be read by either."""
    session = zookeeper_module._Session("127.0.0.1:1", None, {})
    made: list[Client] = []

    def client() -> Client:
        made.append(Client(connected=True))
        return made[-1]

    session._made = client  # type: ignore[method-assign]
    for pid in (os.getpid(), os.getpid() + 1):
        session._pid = pid  # as C code's fork leaves it
        session.ask(lambda found: found.get_children(), 5.0)
    assert [each.asked for each in made] == [1, 1]


def test_a_late_answer_of_the_database_lowers_no_ceiling(
    fleet: Fleet, zookeeper: ZooKeeper
) -> None:
    """L6: two processes raise it at once, and the lower one comes last."""
    fleet.hire(1)
    node = fleet.registry().store.node
    with zookeeper.client() as client:
        installation = node_of(client, fleet).split("/")[2]
    book, _ = node.load(installation)
    late = replace(book.sub_lease, installation=installation, ceiling=book.sub_lease.ceiling - 1)
    node.install(late)
    after, _ = node.load(installation)
    assert after.sub_lease.ceiling == book.sub_lease.ceiling


def test_a_session_that_is_lost(fleet: Fleet, zookeeper: ZooKeeper) -> None:
    """A lease outlives the session; Leaf's passing node comes back with the next renewal."""
    (holder,) = fleet.hire(1)
    assert holder.lease is not None
    session = holder.registry.store.node.session
    with zookeeper.client() as client:
        top = node_of(client, fleet)
        passing = f"{top}/leaf_temporary/{holder.lease.worker:010d}"
        assert client.get(passing)[1].ephemeralOwner == session.id
        thief = KazooClient(zookeeper.hosts, client_id=session._client.client_id)
        thief.start()
        thief.stop()  # ends the session
        assert not client.exists(passing)
        assert holder.renew()
        data, stat = client.get(passing)
        assert stat.ephemeralOwner == session.id
        assert json.loads(data)["holder"] == holder.name
        lasting = f"{top}/leaf_forever/{holder.lease.worker:010d}"
        assert json.loads(client.get(lasting)[0])["timestamp"] > 1.7e12
        holder.stop()
        assert client.exists(lasting)
        assert not client.exists(passing)
    fleet.check(ahead=1)


# --- an ensemble ------------------------------------------------------------------------


@pytest.fixture
def three() -> Iterator[list[ZooKeeper]]:
    with ensemble() as made:
        yield made


def once_it_answers(job: Callable[[], T]) -> T:
    """What ``job`` gives as soon as the ensemble has elected."""
    while True:
        with suppress(RegistryUnavailable):
            return job()


@pytest.mark.long
def test_an_ensemble_that_elects_and_is_set_back(three: list[ZooKeeper], postgres: str) -> None:
    """An election begins a new generation: the disks of its members may be older.

    Here they are, at last: what was lent since lies below the fence.
    """
    fleet = ZooKeeperFleet(three[0].hosts, postgres, space=zookeeper_space())
    fleet.work()
    for each in three:
        each.kill()
    for each in three:
        each.save()
        each.launch()
    once_it_answers(lambda: fleet.hire(1))
    assert fleet.holders[-1].lease is not None
    assert fleet.holders[-1].lease.generation == 2
    fleet.work()
    for each in three:
        each.kill()
    for each in three:
        each.set_back()
        each.launch()
    before = list(fleet.holders)
    newcomers = once_it_answers(lambda: fleet.hire(1)) + fleet.hire(3)
    fleet.check_past(before, newcomers)
    for holder in before:
        holder.go_on()
    fleet.check(ahead=3 * (STRIDE + WINDOW))
    fleet.close()


def test_a_leader_that_is_cut_off_with_a_holder(three: list[ZooKeeper], postgres: str) -> None:
    """The others elect, and lend past all that the lost half can have lent; then it comes back."""
    leader = next(each for each in three if each.leads())
    others = ",".join(each.host for each in three if each is not leader)
    fleet = ZooKeeperFleet(others, postgres, space=zookeeper_space())
    near = fleet.hire()
    far = [fleet.holder(leader.host, timeout=1.0) for _ in range(2)]
    for holder in far:
        holder.start()
    leader.pause()
    for holder in far:
        with pytest.raises(RegistryUnavailable):
            holder.renew()
    once_it_answers(lambda: fleet.hire(1))
    newcomers = fleet.hire()
    fleet.check_past([*near, *far], newcomers)
    for holder in near:
        holder.go_on()
    leader.resume()
    for holder in far:
        once_it_answers(holder.go_on)
    assert {holder.lease.generation for holder in [*near, *far] if holder.lease} == {2}
    fleet.check(ahead=2 * (STRIDE + WINDOW))
    fleet.close()


# --- the database -----------------------------------------------------------------------


def test_no_lease_is_shorter_than_a_window(fleet: Fleet) -> None:
    """A first use after a long pause finds the ceiling behind it: it is raised, not run into."""
    fleet.hire(1)
    for ticks in (STRIDE - WINDOW // 2, 3 * STRIDE, STRIDE - 1):
        fleet.pass_ticks(ticks)
        newcomer = fleet.holder()
        newcomer.start()
        assert newcomer.lease is not None
        assert newcomer.lease.until - newcomer.lease.start == WINDOW
    fleet.check(ahead=1)


# --- bad input --------------------------------------------------------------------------


def test_nodes_that_need_a_login(zookeeper: ZooKeeper, postgres: str) -> None:
    """What one login has made another can't read; the error says what to give."""
    space = zookeeper_space()
    options = {"hosts": zookeeper.hosts, "path": "/closed", "database": postgres, "timeout": 60.0}
    mine = ZooKeeperLeases(space, auth="shop:secret", **options)  # type: ignore[arg-type]
    mine.acquire(holder="a")
    for auth in ("shop:wrong", None):
        other = ZooKeeperLeases(space, auth=auth, **options)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="auth"):
            other.acquire(holder="b")
        other.close()
    mine.close()


@pytest.mark.parametrize("protocol", [0, 2, 99, "1b", None])
def test_a_node_of_another_version_is_refused(
    fleet: Fleet, zookeeper: ZooKeeper, protocol: object
) -> None:
    """In words, by those that have a lease and by new ones; the node is left alone."""
    (holder,) = fleet.hire(1)
    change_node(fleet, zookeeper, lambda words: words.update(protocol=protocol))
    for ask in (holder.renew, fleet.holder().start):
        with pytest.raises(ConfigurationError, match=f"with protocol {protocol}; this one knows 1"):
            ask()


def test_more_worker_ids_than_a_node_holds(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the size and the way out; what stands in the node stays."""
    fleet.hire(3)
    monkeypatch.setattr(zookeeper_module, "MOST_BYTES", 1000)
    with pytest.raises(ConfigurationError, match="takes 1000 in a node"):
        fleet.hire(6)
    monkeypatch.undo()
    assert all(holder.renew() for holder in fleet.holders if holder.lease)


# --- in a project -----------------------------------------------------------------------


@pytest.mark.long
def test_ids_of_a_project(
    server: ZooKeeper, postgres: str, tmp_path: Path, django_db_blocker: Any
) -> None:
    """The settings name it; with a checkpoint ids go on while ZooKeeper is down (Leaf's file)."""
    leases = {
        "BACKEND": "django_idgen.leases.checkpointed.CheckpointedLeases",
        "OPTIONS": {
            "directory": str(tmp_path),
            "registry": {
                "BACKEND": "django_idgen.leases.zookeeper.ZooKeeperLeases",
                "OPTIONS": {"hosts": server.hosts, "database": postgres, "timeout": 2},
            },
        },
    }
    name = zookeeper_space().name
    setting = {"GENERATORS": {"default": {"NAMESPACE": name, "LEASES": leases}}}
    with override_settings(IDGEN=setting), django_db_blocker.unblock():
        try:
            ids = [generators["default"].next_id() for _ in range(1000)]
            out = StringIO()
            call_command("idgen_status", stdout=out)
            assert "1 held" in out.getvalue()
            server.kill()
            ids += generators["default"].next_ids(1000)
        finally:
            maps.reset()
    assert ids == sorted(set(ids))


def test_options_that_can_not_work() -> None:
    """A bad option is refused at once, by its name."""
    refused: list[tuple[str, Any]] = [
        ("hosts", ""),
        ("hosts", 2181),
        ("path", "shop"),
        ("auth", "shop"),
        ("connection", "tls"),
        ("stride", 0.1),
        ("after_loss", "pray"),
        ("timeout", 0),
    ]
    for name, value in refused:
        with pytest.raises(ConfigurationError, match=name):
            ZooKeeperLeases(zookeeper_space(), **{name: value})


def test_an_argument_that_kazoo_does_not_know(zookeeper: ZooKeeper, postgres: str) -> None:
    """It is named at the first use."""
    registry = ZooKeeperLeases(
        zookeeper_space(), hosts=zookeeper.hosts, connection={"tls": True}, database=postgres
    )
    with pytest.raises(ConfigurationError, match="tls"):
        registry.acquire(holder="a")


def test_a_node_that_changed_meanwhile_is_read_again(fleet: Fleet) -> None:
    """What another process has lent between a read and its write stays (I1)."""
    one, other = fleet.registry(), fleet.registry()
    one.acquire(holder="one")
    reads: list[int] = []

    def read_and_lend(book: Book) -> Lease:
        reads.append(book.count())
        if len(reads) == 1:
            other.acquire(holder="other")
        return rules.lend(book, fleet.space, holder="two")

    one.store.run(read_and_lend)
    assert reads == [1, 2]
    found = one.inspect()
    assert {each.mark.holder for each in found.marks} == {"one", "other", "two"}

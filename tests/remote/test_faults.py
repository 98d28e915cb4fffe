"""Answers that are lost, services without their database, threads, forks and clocks."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import override_settings

from django_idgen.client import Client
from django_idgen.client import _close_all as close_clients
from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.errors import (
    GeneratorClosed,
    NamespaceMismatch,
    RegistryUnavailable,
    SegmentUnavailable,
)
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.http import HttpLeases
from django_idgen.models import LeafAlloc, WorkerLease
from django_idgen.process import maps
from django_idgen.remote.link import HttpLink, leases_path
from django_idgen.sources.http import HttpSource
from django_idgen.testing.contracts.lenders import at_once
from tests.faults.processes import eventually
from tests.segment_tools import in_child
from tests.server_tools import unreachable
from tests.tiers import long

from .scripted import Wire, wire
from .service import SECRET, installation_of, service

STEP = 20
LOSSES = {"cut": 30.0, "half": 30.0, "silent": 1.0, "drip": 1.0}
"""How an answer may be lost, and the client's timeout, which the last two wait out."""
LOST = "does not use what that answer"


@pytest.fixture
def url(postgres: str) -> Iterator[str]:
    """A service whose database is PostgreSQL."""
    options = {"OPTIONS": {"database": postgres}}
    idgen = {
        "REST": {"make_tags": True},
        "GENERATORS": {"default": {"LEASES": options, "OPTIONS": {"max_ahead": 1}}},
        "SEGMENTS": {"SOURCE": options, "OPTIONS": {"default_step": STEP}},
    }
    with service(idgen) as url:
        # So that tables are made while there is time for it.
        HttpSource(base_urls=url, token=SECRET, timeout=60).fetch("first")
        yield url


@pytest.fixture
def wired(url: str) -> Iterator[Wire]:
    """A wire before the service that can lose its answers."""
    with wire(url) as made:
        yield made


def max_id(alias: str, tag: str) -> int:
    row = LeafAlloc.objects.using(alias).get(pk=tag)
    return int(row.max_id)


def registry_at(url: str, timeout: float = 30) -> HttpLeases:
    """A registry for the service's default generator, as the client makes it."""
    with client_of(url) as client:
        namespace = client.generators["default"].keeper.registry.namespace
    options = {"generator": "default", "token": SECRET, "timeout": timeout}
    return HttpLeases(namespace, base_urls=url, **options)


def client_of(url: str, **options: Any) -> Client:
    """A client that waits for as long as a busy machine may take."""
    return Client(url, token=SECRET, wait=30, timeout=30, **options)


@contextmanager
def losing(wired: Wire, mode: str) -> Iterator[None]:
    """The answer to the call in the block is lost, after the service has given it."""
    wired.mode, answers = mode, wired.answers
    yield
    eventually(lambda: wired.answers == answers + 1)
    wired.mode = "pass"


@pytest.mark.parametrize("mode", ["cut", "half", "drip", *long("silent")])
def test_a_lost_answer_is_a_lost_grant(postgres: str, url: str, wired: Wire, mode: str) -> None:
    """The service granted once, the client has an error and a gap, and goes on above it.

    Of a lost lease the worker id stays taken until its window is over.
    """
    deaf = HttpSource(base_urls=wired.url, token=SECRET, timeout=LOSSES[mode])
    with losing(wired, mode), pytest.raises(SegmentUnavailable, match=LOST):
        deaf.fetch("t")
    deaf.close()
    assert max_id(postgres, "t") == 1 + STEP
    with closing(HttpSource(base_urls=wired.url, token=SECRET, timeout=30)) as source:
        assert source.fetch("t").start == 1 + STEP

    unheard, registry = registry_at(wired.url, LOSSES[mode]), registry_at(wired.url, 30)
    with losing(wired, mode), pytest.raises(RegistryUnavailable, match=LOST):
        unheard.acquire(holder="deaf")
    rows = WorkerLease.objects.using(postgres)
    (lost,) = rows.values_list("worker", flat=True)
    lease = registry.acquire(holder="deaf").lease
    assert lease.worker != lost
    # A renewal, too: what the registry has done counts, what we hear does not.
    with losing(wired, mode), pytest.raises(RegistryUnavailable):
        unheard.renew(lease, last_tick=lease.until + 5)
    assert registry.renew(lease, last_tick=lease.start).lease.until > lease.until
    assert registry.release(lease, last_tick=lease.start) is True
    assert rows.exclude(token="").count() == 1
    unheard.close()
    registry.close()


def test_after_a_lost_answer_another_address_is_asked_first(wired: Wire, url: str) -> None:
    """The call itself fails, as its grant may exist; the next one does not go there again."""
    owner = installation_of(url)
    source = HttpSource(base_urls=[wired.url, url], installation=owner, token=SECRET, timeout=30)
    held = source.fetch("t")
    wired.mode = "cut"
    with pytest.raises(SegmentUnavailable):
        source.fetch("t")
    answers = wired.answers
    assert source.fetch("t", floor=held.stop).start == held.stop + STEP
    assert wired.answers == answers
    source.close()


def test_a_service_without_its_database_says_so_and_recovers(postgres: str, url: str) -> None:
    """503 becomes SegmentUnavailable, and RegistryUnavailable, with the cause; then ids again."""
    source = HttpSource(base_urls=url, token=SECRET, timeout=30)
    registry = registry_at(url)
    held, lease = source.fetch("t"), registry.acquire(holder="a").lease
    with unreachable(postgres):
        with pytest.raises(SegmentUnavailable, match="503 unavailable") as caught:
            source.fetch("t", floor=held.stop)
        assert caught.value.__cause__ is not None
        with pytest.raises(RegistryUnavailable, match="503 unavailable"):
            registry.renew(lease, last_tick=lease.start)
    assert source.fetch("t", floor=held.stop).start == held.stop
    assert registry.renew(lease, last_tick=lease.start).lease.token == lease.token
    source.close()
    registry.close()


def test_many_threads_share_a_client(url: str) -> None:
    """64 threads of one client, from the very first use on: every id once."""
    with client_of(url) as client:

        def take(number: int) -> tuple[list[int], list[int]]:
            return client.next_ids(200), client.segments["orders"].next_ids(200)

        found = at_once(64, take)
        assert client.generators["default"].stats().renewals == 0
    for kind in (0, 1):
        values = [value for each in found for value in each[kind]]
        assert len(set(values)) == len(values) == 64 * 200


def test_a_forked_child_has_grants_of_its_own(url: str) -> None:
    """Parent and child go on at once with other ids, and other worker ids (I5)."""
    with client_of(url) as client:
        generator, tag = client.generators["default"], client.segments["orders"]
        before = [*generator.next_ids(10), *tag.next_ids(5)]
        theirs = in_child(lambda: _of_child(client))
        ours = [*generator.next_ids(200), *tag.next_ids(60)]
        assert len({*before, *theirs, *ours}) == len(before) + len(theirs) + len(ours)
        workers = {generator.layout.unpack(value).worker for value in (before[0], theirs[0])}
        assert len(workers) == 2
        # The child's end gave nothing of the parent's back.
        assert generator.keeper.registry.renew(
            generator.keeper.lease, last_tick=generator.keeper.last_tick
        )


def test_a_generator_outlives_its_client(url: str) -> None:
    """Who keeps a generator alone keeps its client: both still hear of forks and of the end."""
    generator = client_of(url).generators["default"]
    tag = client_of(url).segments["orders"]
    gc.collect()
    before = [generator.next_id(), tag.next_id()]

    def work() -> list[int]:
        taken = [generator.next_id(), *tag.next_ids(60)]
        close_clients()
        return taken

    theirs = in_child(work)
    ours = [generator.next_id(), *tag.next_ids(60)]
    assert len({*before, *theirs, *ours}) == len(before) + len(theirs) + len(ours)
    workers = {generator.layout.unpack(value).worker for value in (before[0], theirs[0])}
    assert len(workers) == 2
    close_clients()
    assert generator.keeper.lease is None
    with pytest.raises(GeneratorClosed):
        tag.next_id()


def test_a_client_that_is_closed_half_still_hears_of_a_fork(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I5: after a close that was interrupted, as while another thread closes."""
    client = client_of(url)
    generator, tag = client.generators["default"], client.segments["orders"]
    ids = [generator.next_id(), tag.next_id()]

    def interrupted(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SnowflakeGenerator, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.close()
    with pytest.raises(GeneratorClosed):
        tag.next_id()

    def work() -> list[int]:
        taken = [generator.next_id()]
        client.close()
        return taken

    theirs = in_child(work)
    workers = {generator.layout.unpack(value).worker for value in (ids[0], theirs[0])}
    assert len(workers) == 2
    client.close()
    assert generator.keeper.lease is None


def test_a_child_without_hooks_has_a_connection_of_its_own(url: str) -> None:
    """L9: under uWSGI nobody tells the child to drop its parent's, on which answers would mix."""
    source = HttpSource(base_urls=url, token=SECRET, timeout=30)
    before = source.fetch("orders")

    def work() -> list[int]:
        segment = source.fetch("orders", floor=before.stop)
        return [segment.start, segment.stop, int(source._link._connected() is inherited)]

    inherited = source._link._connected()
    start, stop, shared = in_child(work)
    ours = source.fetch("orders", floor=before.stop)
    assert not shared
    assert not {*range(start, stop)} & {*ours.ids()}
    source.close()


def _of_child(client: Client) -> list[int]:
    ids = [*client.next_ids(200), *client.segments["orders"].next_ids(60)]
    client.close()
    return ids


def test_the_clock_of_the_client_does_not_matter(url: str) -> None:
    """Its host's clock is stepped by an hour: ids rise, none comes twice, stamps stay right."""
    offset = [0]
    clock = replace(SYSTEM_CLOCK, wall_ns=lambda: SYSTEM_CLOCK.wall_ns() + offset[0])
    registry = registry_at(url)
    with client_of(url) as client:
        layout = client.generators["default"].layout
    made = SnowflakeGenerator(layout, registry, max_ahead=1, clock=clock)
    ids = made.next_ids(100)
    for step in (-3600, 3600):
        offset[0] = step * 10**9
        ids += made.next_ids(10_000)
        lease = made.keeper.acquire()
        ids += made.next_ids(100)
        now = SYSTEM_CLOCK.wall_ns() // 1_000_000_000
        assert abs(layout.unpack(ids[-1]).created.timestamp() - now) < 600
        assert lease.start <= layout.unpack(ids[-1]).tick < lease.until
    made.close()
    registry.close()
    assert ids == sorted(set(ids))


def test_a_client_that_was_closed_gives_no_ids(postgres: str, url: str) -> None:
    """Its worker id is free, and asking is an error; closing twice is none."""
    client = client_of(url)
    client.next_id()
    held = client.generators["default"]
    tag = client.segments["orders"]
    tag.next_id()
    client.close()
    client.close()
    for take in (client.next_id, held.next_id, tag.next_id):
        with pytest.raises(GeneratorClosed):
            take()
    assert not WorkerLease.objects.using(postgres).exclude(token="").exists()


def test_coroutines_take_ids_of_a_client(url: str) -> None:
    """``anext_id`` and ``anext_ids`` of both kinds, and an id is taken apart."""

    async def take(client: Client) -> list[int]:
        some = await asyncio.gather(*(client.anext_id() for _ in range(20)))
        tags = await asyncio.gather(*(client.segments["a"].anext_id() for _ in range(50)))
        assert sorted(tags) == list(range(1, 51))
        return [*some, *await client.anext_ids(5)]

    with client_of(url) as client:
        ids = asyncio.run(take(client))
        assert len(set(ids)) == 25
        parts = client.decode(str(ids[0]))
        assert parts == client.decode(ids[0])
        assert parts.worker == client.generators["default"].keeper.lease.worker
        assert repr(client).count(url) == 1


def test_a_service_whose_settings_changed_lends_no_more(postgres: str, url: str) -> None:
    """A client that was set up for another epoch is refused, with both values (I8)."""
    with client_of(url) as client:
        generator = client.generators["default"]
        leases = {"LEASES": {"OPTIONS": {"database": postgres}}, "NAMESPACE": "anew"}
        moved = {"GENERATORS": {"default": {**leases, "EPOCH": "2025-06-01T00:00:00Z"}}}
        with override_settings(IDGEN=moved), pytest.raises(NamespaceMismatch) as caught:
            generator.next_id()
        assert (caught.value.setting, caught.value.configured) == ("epoch_us", 1735689600000000)


def test_a_connection_that_the_server_closed_loses_nothing(url: str) -> None:
    """Idle connections are not used again for long; one that is gone is seen before the request."""
    source = HttpSource(base_urls=url, token=SECRET)
    starts = []
    for _ in range(5):
        starts.append(source.fetch("t").start)
        made = source._link._wire
        assert made is not None
        for each in made[1]._client._transport._pool.connections:
            stream = each._connection._network_stream
            stream.get_extra_info("socket").shutdown(2)
    assert starts == [1 + STEP * number for number in range(5)]
    source.close()


def test_a_hung_service_holds_up_no_other_tag_for_long(url: str, wired: Wire) -> None:
    """A request under way at a silent address ends by itself; meanwhile others go elsewhere."""
    wired.mode = "silent"
    owner = installation_of(url)
    link = HttpLink([wired.url, url], installation=owner, token=SECRET, timeout=1)
    asking = partial(link.ask, unavailable=SegmentUnavailable)
    with pytest.raises(SegmentUnavailable):
        asking("tags/a/segment", {"tag": "a"}, of="tag 'a'")
    link._timeout = 30  # which those that are answered may take
    assert asking("tags/b/segment", {"tag": "b"}, of="tag 'b'").body["start"] == "1"
    assert asking(leases_path("default"), of="worker ids").body["workers"]
    link.close()


def test_a_listener_that_fails_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """No caller gets its exception, whatever the event; all ids are given out."""
    told = []

    def listen(name: str, /, **_values: object) -> None:
        told.append(name)
        raise ValueError(name)

    with client_of(url, on_event=listen) as client:
        assert client.segments["orders"].next_ids(30) == list(range(1, 31))
        client.next_id()
    assert {"segment_loaded", "lease_acquired", "lease_released"} <= set(told)
    failed = [each.getMessage() for each in caplog.records if "'on_event'" in each.getMessage()]
    assert len(failed) == len(told)


def test_no_secret_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Hazard 26: neither the access token nor a lease's, whatever goes wrong, on either side."""
    caplog.set_level(0)
    with client_of(url) as client:
        client.next_id()
        lease = client.generators["default"].keeper.lease
        registry = client.generators["default"].keeper.registry
        registry.renew(lease, last_tick=lease.start)
        with pytest.raises(Exception, match="no longer knows"):
            registry.renew(replace(lease, token="0" * 32), last_tick=lease.start)
    texts = [caplog.text, repr(lease), repr(client)]
    assert "idgen/generators/default/leases" in caplog.text
    for secret in (SECRET, lease.token):
        assert not any(secret in text for text in texts)
    assert maps.current_settings().rest.make_tags


def test_before_a_fork_of_uwsgi_nothing_is_held(
    postgres: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call in uWSGI's master takes a grant of its own and gives it back (hazard 56)."""
    held = WorkerLease.objects.using(postgres).exclude(token="")
    with client_of(url) as client:
        master = SimpleNamespace(worker_id=lambda: 0, masterpid=os.getpid)
        monkeypatch.setitem(sys.modules, "uwsgi", master)
        early = [client.next_id(), *client.next_ids(3), client.segments["t"].next_id()]
        generator, tag = client.generators["default"], client.segments["t"]
        early.append(tag.next_id())
        assert not held.exists()
        assert not client._allocator.segments["t"].stats().remaining
        monkeypatch.delitem(sys.modules, "uwsgi")
        later = [
            generator.next_id(),
            client.next_id(),
            tag.next_id(),
            client.segments["t"].next_id(),
        ]
        assert held.count() == 1
    assert len({*early, *later}) == len(early) + len(later)

"""What the database forgets is not lent again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.core.management import call_command

from django_idgen.core.errors import LeaseLost
from django_idgen.core.layout import BitLayout
from django_idgen.core.stored import Era, Successor, unused_from
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord
from django_idgen.sources.server import ServerSource
from tests.leases.server.shop import (
    LOSSES,
    SHOP,
    SKEW,
    WINDOW,
    ServerLeases,
    Time,
    changed,
    forget_everything,
    forget_first_use,
    forget_installation,
    forget_namespace,
    forget_server,
    forget_workers,
    record_of,
    rows_of,
)

LAYOUT = BitLayout(
    (("time", 41), ("worker", 10), ("sequence", 12)), tick_us=SHOP.tick_us, epoch_us=SHOP.epoch_us
)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_opens_a_new_generation(
    leases: ServerLeases, time: Time, loss: Callable[[ServerLeases], None]
) -> None:
    """After it no window starts before the fence, which is past every window of before."""
    before = [leases.acquire(holder=str(number)).lease for number in range(5)]
    loss(leases)
    after = [leases.acquire(holder=str(number)).lease for number in SHOP.workers]
    assert {lease.generation for lease in after} == {2}
    ends = max(lease.until for lease in before)
    if loss is forget_workers:
        # The record is whole: it knows the end of the last window.
        assert {lease.start for lease in after} == {ends}
    else:
        assert min(lease.start for lease in after) >= max(ends, time.tick + SKEW + WINDOW)
        assert max(lease.start for lease in after) <= max(ends, time.tick + SKEW) + WINDOW


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_voids_older_tokens(
    leases: ServerLeases, loss: Callable[[ServerLeases], None]
) -> None:
    """Whoever held a worker id then can neither renew nor release it, whatever comes first."""
    lease = leases.acquire(holder="a").lease
    loss(leases)
    with pytest.raises(LeaseLost):
        leases.renew(lease, last_tick=lease.start)
    newer = leases.acquire(holder="b").lease
    assert not leases.release(lease, last_tick=None)
    with pytest.raises(LeaseLost):
        leases.renew(lease, last_tick=lease.start)
    leases.renew(newer, last_tick=newer.start)


def test_a_scheduler_does_not_renew_what_a_loss_has_voided(
    leases: ServerLeases, time: Time
) -> None:
    """Its mark stays where it was: whoever held it may not go on, and is told so."""
    void = leases.acquire(holder="a").lease
    forget_server(leases)
    newer = leases.acquire(holder="b", avoid=void.worker).lease
    assert newer.worker != void.worker
    time.tick = void.until - 1
    assert leases.renew_seen(idle_after=WINDOW) == 1
    assert rows_of(leases).get(worker=void.worker).until == void.until


def test_a_book_that_was_rewritten_voids_older_tokens(leases: ServerLeases, time: Time) -> None:
    """A fence that somebody lays by hand is a new generation as well (L6)."""
    shop = changed(leases, time, fingerprint=LAYOUT.fingerprint())
    lease = shop.acquire(holder="a").lease
    fence = lease.until + WINDOW
    book = shop.stored_book()
    book.rewrite(lambda stored, _now_us: Successor.after(stored, fence, SHOP.workers))
    with pytest.raises(LeaseLost):
        shop.renew(lease, last_tick=lease.start)
    assert shop.release(lease, last_tick=None) is False
    assert shop.acquire(holder="a").lease.start == fence


# Where everything is gone nothing remembers the first fence: a documented limit.
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss is not forget_everything])
def test_losses_in_a_row_raise_the_fence_each_time(
    leases: ServerLeases, loss: Callable[[ServerLeases], None]
) -> None:
    """The holders of a generation that was itself fenced ahead are not overtaken."""
    ends = []
    for _ in range(4):
        lease = leases.acquire(holder="a").lease
        assert not ends or lease.start >= ends[-1]
        ends.append(lease.until)
        loss(leases)


def test_the_fence_reckons_with_the_longest_window(leases: ServerLeases, time: Time) -> None:
    """A process with a short window still waits out those that had a long one."""
    long = changed(leases, time, window_ticks=9000).acquire(holder="a").lease
    forget_namespace(leases)
    assert leases.acquire(holder="b").lease.start >= long.until


def test_one_row_deleted_among_many_is_noticed(leases: ServerLeases, time: Time) -> None:
    """Its worker id, which looks as if never lent, is not lent without a fence."""
    held = [leases.acquire(holder=str(number)).lease for number in SHOP.workers]
    rows_of(leases).filter(worker=7).delete()
    again = leases.acquire(holder="new").lease
    assert again.generation == 2
    assert again.start >= max(lease.until for lease in held)


def test_a_namespace_opened_after_the_installation_was_lost_is_fenced(
    leases: ServerLeases, time: Time
) -> None:
    """It can't be told any more whether it is new, so it counts as lost.

    The installation's row is made anew, with another identity, which the record takes over.
    """
    leases.acquire(holder="a")
    installation = Installation.objects.using(leases.alias)
    old = installation.get().identity
    forget_installation(leases)
    leases.acquire(holder="a")
    assert record_of(leases).installation == installation.get().identity != old
    other = changed(leases, time, name="other").acquire(holder="a").lease
    assert other.start >= time.tick + SKEW + WINDOW


def test_a_lost_first_use_is_not_lent_again(leases: ServerLeases, time: Time) -> None:
    """Servers that take over never heard of the namespace, while its first holders go on (L7)."""
    ends = []
    for number in range(4):
        lent = [leases.acquire(holder=str(worker)).lease for worker in SHOP.workers]
        assert not ends or min(lease.start for lease in lent) >= ends[-1]
        ends.append(
            max(leases.renew(held, last_tick=held.start + SKEW).lease.until for held in lent)
        )
        forget_first_use(leases, f"server {number}")
    leases.acquire(holder="a")  # notices the last one
    time.tick = ends[-1] + SKEW + WINDOW
    words = {**LAYOUT.fingerprint(), "workers": [0, 16]}
    other = changed(leases, time, name="other", fingerprint=words)
    assert other.acquire(holder="a").lease.start == time.tick
    book = other.stored_book()
    assert book is not None
    stored = book.read()
    assert stored is not None
    assert unused_from(stored, range(20, 22)) == {20: 0, 21: 0}


def test_claims_of_a_lost_first_use_may_be_lost_too(leases: ServerLeases, time: Time) -> None:
    """Who comes back right after the failover finds the past closed."""
    words = {**LAYOUT.fingerprint(), "workers": [0, 16]}
    shop = changed(leases, time, fingerprint=words)
    shop.acquire(holder="a")
    forget_first_use(leases, "another server")
    shop.acquire(holder="a")
    book = shop.stored_book()
    assert book is not None
    stored = book.read()
    assert stored is not None
    assert unused_from(stored, range(20, 21)) == {20: record_of(leases).fence}


def test_a_namespace_of_a_server_that_lost_nothing_begins_now(
    leases: ServerLeases, time: Time
) -> None:
    """No id is dated ahead, neither on the first server nor where it can't be told."""
    assert leases.acquire(holder="a").lease.start == time.tick
    silent = ServerLeases(
        replace(SHOP, name="silent"), alias=leases.alias, read_now=time, server_identity=False
    )
    forget_first_use(leases, "another server")
    assert silent.acquire(holder="a").lease.start == time.tick


def test_an_installation_that_others_made_anew_is_a_loss(leases: ServerLeases, time: Time) -> None:
    """Segments came first after its row was deleted: the record is of another identity (L7)."""
    leases.acquire(holder="a")
    forget_installation(leases)
    ServerSource(alias=leases.alias).fetch("t")
    again = leases.acquire(holder="b").lease
    assert again.generation == 2
    assert again.start >= time.tick + SKEW + WINDOW


def test_worker_rows_alone_tell_of_a_loss(leases: ServerLeases) -> None:
    """A record that nobody remembers, but whose worker rows are there, was lost."""
    held = leases.acquire(holder="a").lease
    record_of(leases).delete(using=leases.alias)
    Installation.objects.using(leases.alias).update(namespaces="{}")
    again = leases.acquire(holder="b").lease
    assert again.generation == 2
    assert again.start >= held.until


def test_a_change_of_server_can_be_ignored(leases: ServerLeases, time: Time) -> None:
    """Behind a balancer over servers that commit in step, every server is the same one."""
    balanced = ServerLeases(SHOP, alias=leases.alias, read_now=time, server_identity=False)
    lease = leases.acquire(holder="a").lease
    forget_server(leases)
    assert balanced.renew(lease, last_tick=lease.start).lease.generation == 1
    assert record_of(leases).server == "another server"


def test_a_server_that_was_silent_before_is_no_loss(leases: ServerLeases) -> None:
    """An identity that can be had at last is noted, and nobody loses a lease over it."""
    lease = leases.acquire(holder="a").lease
    NamespaceRecord.objects.using(leases.alias).update(server="")
    leases.renew(lease, last_tick=lease.start)
    assert record_of(leases).server


def test_flush_forgets_nothing(leases: ServerLeases) -> None:
    """``manage.py flush``, and each TransactionTestCase, leaves leases and tags alone."""
    lease = leases.acquire(holder="a").lease
    call_command("migrate", "django_idgen", database=leases.alias, verbosity=0)
    ServerSource(alias=leases.alias).fetch("a")
    options = {"interactive": False, "inhibit_post_migrate": True, "verbosity": 0}
    call_command("flush", database=leases.alias, **options)
    assert LeafAlloc.objects.using(leases.alias).exists()
    assert leases.renew(lease, last_tick=lease.start).lease.generation == 1


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss is not forget_workers])
def test_the_fence_reckons_with_holders_that_run_ahead(
    leases: ServerLeases, time: Time, loss: Callable[[ServerLeases], None]
) -> None:
    """One with ``max_ahead`` was lent more than a window; a promoted replica may not know it."""
    ahead = 10 * WINDOW
    running_ahead = changed(leases, time, ahead_ticks=ahead)
    lease = running_ahead.acquire(holder="a").lease
    known = [(row, row.until) for row in rows_of(leases)], record_of(leases).highest_until
    held = lease
    while held.until < time.tick + ahead:
        held = running_ahead.renew(held, last_tick=held.until).lease
    rows_of(leases).update(until=known[0][0][1])  # the renewal did not come through
    NamespaceRecord.objects.using(leases.alias).update(highest_until=known[1])
    loss(leases)
    after = [running_ahead.acquire(holder="").lease for _ in SHOP.workers]
    assert min(lease.start for lease in after) >= held.until


def test_the_fence_reckons_with_those_who_were_ahead_before(
    leases: ServerLeases, time: Time
) -> None:
    """Two losses in a row: who runs ahead since the first was promised more since than is known."""
    leases.acquire(holder="first")
    NamespaceRecord.objects.using(leases.alias).update(fence=time.tick + 5 * WINDOW)
    promised = leases.acquire(holder="ahead").lease
    rows_of(leases).exclude(worker=promised.worker).update(token="")
    (known,) = rows_of(leases).filter(worker=promised.worker).values("until", "seen_at")
    for _ in range(20):
        time.tick += WINDOW
        promised = leases.renew(promised, last_tick=time.tick + 5 * WINDOW).lease
    # The replica missed that.
    rows_of(leases).filter(worker=promised.worker).update(**known)
    NamespaceRecord.objects.using(leases.alias).update(highest_until=known["until"])
    forget_server(leases)
    assert leases.acquire(holder="newcomer").lease.start >= promised.until


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_closes_the_past(
    leases: ServerLeases, time: Time, loss: Callable[[ServerLeases], None]
) -> None:
    """Claims may be lost, and earlier ranges of worker ids: below the fence no tick is free.

    Also where a scheduler is the first to notice. What is known of later ticks stays.
    """
    words = {**LAYOUT.fingerprint(), "workers": [0, 16]}
    shop = changed(leases, time, fingerprint=words)
    others, book = range(20, 23), shop.stored_book()
    assert book is not None

    def left() -> dict[int, int]:
        stored = book.read()
        assert stored is not None
        return unused_from(stored, others)

    lease = shop.acquire(holder="a").lease
    book.claim(lambda _stored, _now_us: Era(LAYOUT, range(20, 21), 500))
    assert left() == {20: 500, 21: 0, 22: 0}
    loss(leases)
    shop.renew_seen(idle_after=WINDOW)
    again = shop.acquire(holder="b").lease
    fence = record_of(leases).fence
    assert set(left().values()) == {fence}
    assert lease.until <= fence <= again.start
    # A second loss leaves one more era, not one for each.
    count = len(Installation.objects.using(leases.alias).get().namespaces)
    loss(leases)
    shop.acquire(holder="c")
    assert set(left().values()) == {record_of(leases).fence}
    assert len(Installation.objects.using(leases.alias).get().namespaces) <= count + 20


def test_a_namespace_that_lost_nothing_has_an_open_past(leases: ServerLeases, time: Time) -> None:
    """Nothing is closed when it is new, by its holders, nor by a fence that a command lays."""
    words = {**LAYOUT.fingerprint(), "workers": [0, 16]}
    shop = changed(leases, time, fingerprint=words)
    book = shop.stored_book()
    assert book is not None
    for number in range(3):
        lease = shop.acquire(holder=str(number)).lease
        shop.renew(lease, last_tick=lease.start)
        shop.renew_seen(idle_after=WINDOW)
        stored = book.read()
        assert stored is not None
        assert stored.eras == ()
        assert unused_from(stored, range(20, 22)) == {20: 0, 21: 0}
        fence = lease.until + WINDOW
        book.rewrite(lambda stored, _now_us: Successor.after(stored, fence, SHOP.workers))  # noqa: B023

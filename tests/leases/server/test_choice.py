"""Which worker id is lent, and what its holders must agree on."""

from __future__ import annotations

import json

import pytest

from django_idgen.core.errors import ConfigurationError, NamespaceMismatch, NoFreeWorker
from django_idgen.core.stored import ALL
from django_idgen.models import Installation, NamespaceRecord
from tests.leases.server.shop import (
    SHOP,
    ServerLeases,
    Time,
    changed,
    record_of,
    rows_of,
)


def test_a_gap_beside_the_avoided_worker_id_is_found(
    leases: ServerLeases, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan passes over the avoided id and still finds the missing one behind it."""
    monkeypatch.setattr("django_idgen.core.book.RANDOM_TRIES", 0)
    workers = [leases.acquire(holder=str(n), avoid=1).lease.worker for n in range(3)]
    assert workers == [0, 2, 3]
    small = changed(leases, time, workers=range(2))
    with pytest.raises(NoFreeWorker):
        small.acquire(holder="x", avoid=1)


def test_ids_outside_the_range_are_never_lent(leases: ServerLeases, time: Time) -> None:
    """Rows outside of this registry's part of the range are left alone, expired or not."""
    lease = leases.acquire(holder="me").lease
    leases.release(lease, last_tick=None)
    one = range(lease.worker) if lease.worker else range(1, 16)
    part = changed(leases, time, workers=one)
    for _ in range(len(one)):
        assert part.acquire(holder="me").lease.worker in one
    with pytest.raises(NoFreeWorker):
        part.acquire(holder="me")


def test_a_long_label_is_cut(leases: ServerLeases) -> None:
    """A label is only a label: one of 300 characters is stored short, and found again."""
    lease = leases.acquire(holder="é" * 300).lease
    leases.release(lease, last_tick=None)
    assert leases.acquire(holder="é" * 300).lease.worker == lease.worker
    assert rows_of(leases).get().holder == "é" * 200


def test_other_settings_are_refused(leases: ServerLeases, time: Time) -> None:
    """The setting that differs is named with both of its values; the record stays as it was.

    A key that only one side has is a difference, too.
    """
    leases.acquire(holder="a")
    other = changed(leases, time, fingerprint={"layout": "39/16/8", "workers": [0, 16]})
    with pytest.raises(NamespaceMismatch) as caught:
        other.acquire(holder="b")
    error = caught.value
    assert (error.setting, error.stored, error.configured) == ("layout", "41/10/12", "39/16/8")
    assert json.loads(record_of(leases).fingerprint) == SHOP.fingerprint
    with pytest.raises(NamespaceMismatch, match="workers"):
        changed(leases, time, fingerprint={"layout": "41/10/12"}).acquire(holder="b")


def test_a_newer_protocol_is_refused(leases: ServerLeases) -> None:
    """A record that a later version wrote is not touched by this one."""
    leases.acquire(holder="a")
    NamespaceRecord.objects.using(leases.alias).update(protocol=99)
    with pytest.raises(ConfigurationError, match="protocol 99"):
        leases.acquire(holder="b")


def test_namespaces_are_apart(leases: ServerLeases, time: Time) -> None:
    """The same worker ids are lent once in each namespace."""
    other = changed(leases, time, name="other")
    assert {leases.acquire(holder=str(n)).lease.worker for n in range(16)} == set(range(16))
    assert other.acquire(holder="a").lease.generation == 1
    memory = json.loads(Installation.objects.using(leases.alias).get().namespaces)
    assert set(memory) == {ALL, "shop", "other"}


def test_a_longer_window_is_noted_before_it_is_used(leases: ServerLeases, time: Time) -> None:
    """The record, and the installation's memory of it, know the longest window ever."""
    leases.acquire(holder="a")
    changed(leases, time, window_ticks=9000).acquire(holder="b")
    leases.acquire(holder="c")
    memory = json.loads(Installation.objects.using(leases.alias).get().namespaces)
    assert record_of(leases).largest_window == memory["shop"]["largest_window"] == 9000

"""What is said of the rows of worker leases: the same as the map says, whatever became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F

from django_idgen import generators, next_id
from django_idgen.core.inspection import WorkerEntry, WorkerState
from django_idgen.models import NamespaceRecord, WorkerLease
from django_idgen.ops.workers import entries_from_rows, worker_map
from django_idgen.process import maps
from tests.places import place

__all__ = ["place"]


@pytest.fixture
def held(place: str) -> Iterator[int]:
    """A worker id that this process holds; there is a row of it."""
    next_id()
    yield generators["default"].keeper.lease.worker  # type: ignore[attr-defined]
    maps.reset()


def rows(place: str) -> list[WorkerLease]:
    return list(WorkerLease.objects.using(place).all())


def as_ever(place: str) -> None:
    """Nothing happened."""


def expire(place: str) -> None:
    """The holder is long gone."""
    assert WorkerLease.objects.using(place).update(start=1, until=5) == 1


def fall_behind(place: str) -> None:
    """The holder was not seen for two thirds of its window."""
    seen = WorkerLease.objects.using(place)
    assert seen.update(seen_at=datetime.now(UTC) - timedelta(seconds=120)) == 1


def begin_anew(place: str) -> None:
    """A loss was noticed: the generation that lent it is over."""
    records = NamespaceRecord.objects.using(place)
    assert records.update(generation=F("generation") + 1) == 1


@pytest.mark.parametrize(
    ("become", "state"),
    [
        (as_ever, WorkerState.HELD),
        (expire, WorkerState.EXPIRED),
        (fall_behind, WorkerState.OVERDUE),
        (begin_anew, WorkerState.EXPIRED),
    ],
)
def test_a_list_of_rows_and_the_map_never_disagree(
    place: str, held: int, become: Callable[[str], None], state: WorkerState
) -> None:
    """The state is that of the map, and so are the moments."""
    become(place)
    (row,) = rows(place)
    (entry,) = worker_map("default").entries.values()
    found = entries_from_rows([row], place)[row.pk]
    assert found.state is entry.state is state
    assert (found.until, found.seen_at, found.lease) == (entry.until, entry.seen_at, entry.lease)


def test_rows_that_nobody_lends_from_are_told_by_themselves(place: str, held: int) -> None:
    """By the same rule; without a record nobody could renew, without ticks nothing is over."""
    (row,) = rows(place)
    record = NamespaceRecord.objects.using(place).get()
    row.namespace = record.name = "another"
    row.id = row.key_of("another", row.worker)

    def now() -> WorkerEntry:
        return entries_from_rows([row], place)[row.pk]

    assert (now().state, now().namespace) == (WorkerState.EXPIRED, "another")
    record.save(using=place, force_insert=True)
    assert now().state is WorkerState.HELD
    assert now().window_left is not None
    for generation, expected in ((5, WorkerState.HELD), (4, WorkerState.EXPIRED)):
        row.generation = generation
        NamespaceRecord.objects.using(place).filter(pk="another").update(
            generation=5, fingerprint="{}"
        )
        assert now().state is expected
        assert (now().until, now().window_left) == (None, None)
    row.token = ""
    assert (now().state, now().lease) == (WorkerState.FREE, "")

"""Who issued an id that lay in the pool: the last row says it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import DatabaseError, connections
from django.test import override_settings

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.core.lease import process_label
from django_idgen.models import SegmentHistory
from django_idgen.sources import history
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.pool.scripts import history_of
from django_idgen.sources.pool.source import BATCH, PoolSource

from .shop import PATIENT, OwnedSource, pool


@pytest.fixture
def noted(server_alias: str, redis: str) -> Iterator[PoolSource]:
    """A pool before a database that keeps a history."""
    source = DatabaseSource(default_step=10, database=server_alias, history=True)
    made = PoolSource(alias=redis, source=source, timeout=PATIENT)
    yield made
    made.close()


def holders(process: PoolSource, number: int) -> list[str]:
    """Who had the id, the last one first."""
    (alias,) = process.source.owners()
    return [row.holder for row in history.who_issued("t", number, database=alias)]


def test_the_last_row_is_of_who_issued_it(noted: PoolSource) -> None:
    """First whoever fetched it, then the pool, then whoever took it from there."""
    me = process_label()
    noted.fetch("t")
    noted.give_back("t", [range(4, 11)])
    assert noted.drain_history() == 1
    assert holders(noted, 3) == [me]
    assert holders(noted, 5) == ["pool", me]
    noted.fetch("t")
    noted.refill("t", 20)
    assert noted.drain_history() == 2
    assert holders(noted, 5) == [me, "pool", me]
    assert holders(noted, 15) == ["pool", me]
    assert noted.drain_history() == 0


def test_what_was_carried_over_before_is_not_doubled(
    noted: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the rows were written and before Redis heard of it: each is there once."""
    noted.refill("t", 50)
    for _ in range(3):
        noted.fetch("t")
    with monkeypatch.context() as patched:
        patched.setattr(noted._scripts, "noted", _fail)
        with pytest.raises(SegmentUnavailable):
            noted.drain_history()
    noted._link.reset()
    assert noted.drain_history() == 0
    (alias,) = noted.source.owners()
    assert SegmentHistory.objects.using(alias).filter(holder="pool").count() == 1
    assert SegmentHistory.objects.using(alias).exclude(holder="pool").count() == 4


def _fail(*_args: object) -> None:
    raise SegmentUnavailable("as if killed here")


def test_what_cannot_be_written_stays_in_redis(
    noted: PoolSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is away loses no note."""
    noted.refill("t", 50)
    with monkeypatch.context() as patched:
        patched.setattr("django_idgen.sources.pool.source._insert", _database_fails)
        with pytest.raises(DatabaseError):
            noted.drain_history()
    assert noted.fetch("t").start == 1  # and the pool itself is as good as ever
    assert noted.drain_history() == 2


def _database_fails(*_args: object) -> int:
    raise DatabaseError("away")


def test_more_than_a_batch_is_carried_over(noted: PoolSource) -> None:
    """All of it, in order, in several transactions; other tags' too."""
    noted.refill("t", BATCH * 2)
    noted.source.owners()
    for _ in range(2 * BATCH // 10):
        noted.fetch("t")
    noted.refill("größe 🎟", 10)
    assert noted.drain_history() == 2 * BATCH // 10 + 2


def test_times_are_those_of_the_project(noted: PoolSource) -> None:
    """With USE_TZ or without, a note's time lies between those of the database's own rows."""
    noted.refill("t", 50)
    with override_settings(USE_TZ=False):
        (alias,) = noted.source.owners()
        connections[alias].close()
        noted.drain_history()
    connections[alias].close()
    assert SegmentHistory.objects.using(alias).filter(holder="pool").count() == 1


def test_notes_are_bounded(redis: str) -> None:
    """Where nobody carries them over the oldest go."""
    made = pool(redis, Kept())
    made.refill("t", 50)
    owner = made.source.owner("t")
    made._own.client.hset(history_of(owner), "next", 50_000)  # as after so many
    made.fetch("t")
    assert not made._own.client.hexists(history_of(owner), "1")
    assert len(made._scripts.notes(owner, 60_000).words) == 1
    made.close()


def test_notes_are_begun_anew(redis: str) -> None:
    """What is struck out after a flush is never a note of the new list."""
    made = pool(redis, Kept())
    made.refill("t", 50)
    owner = made.source.owner("t")
    notes = made._scripts.notes(owner, 10)
    made._own.client.delete(history_of(owner))
    made.fetch("t")
    made._scripts.noted(owner, notes)
    assert [words[1] for words in made._scripts.notes(owner, 10).words] == [f"{1:019d}"]
    made.close()


class Kept(OwnedSource):
    history = True


def test_without_history_nothing_is_noted(redis: str) -> None:
    """No key is made, and there is nothing to drain."""
    made = pool(redis, OwnedSource())
    made.refill("t", 50)
    made.fetch("t")
    assert made.drain_history() == 0
    assert not made._own.client.exists(history_of(made.source.owner("t")))
    made.close()

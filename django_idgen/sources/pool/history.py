"""Who popped which ids: from the notes in Redis into the rows of the history.

A pop must not wait for the database, so that the script writes a note in Redis, and
the process that fills the pool carries the notes over. A note that is carried over
twice, as when a process was killed in between, is still one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction
from django.utils.timezone import get_default_timezone, make_naive

from ...db.connection import home_of
from ...models import SegmentHistory
from .link import PoolLink
from .scripts import Notes, PoolScripts

__all__ = ["BATCH", "carry_over"]

BATCH = 500


def carry_over(link: PoolLink, scripts: PoolScripts, owner: str, alias: str) -> int:
    """Move the notes of ``owner`` into the rows of database ``alias``; returns how many.

    In the calling thread, on its ordinary connection, a transaction for each
    :data:`BATCH`. Raises what Redis (:class:`SegmentUnavailable`) and the database say.
    """
    moved = 0
    while (notes := link.demand(partial(scripts.notes, owner, BATCH))).upto:
        moved += _insert(notes, alias) if notes.words else 0
        link.demand(partial(scripts.noted, owner, notes))
    return moved


def _insert(notes: Notes, alias: str) -> int:
    rows = [_row(words) for words in notes.words]
    times = [row.taken_at for row in rows]
    with transaction.atomic(using=home_of(alias)):
        there = SegmentHistory.objects.using(alias).filter(taken_at__range=(min(times), max(times)))
        known = set(there.values_list("tag", "start", "stop", "holder", "taken_at"))
        new = [
            row
            for row in rows
            if (row.tag, row.start, row.stop, row.holder, row.taken_at) not in known
        ]
        SegmentHistory.objects.using(alias).bulk_create(new)
    return len(new)


def _row(words: Sequence[str]) -> SegmentHistory:
    tag, start, stop, delta, seconds, micros, holder = words
    return SegmentHistory(
        tag=tag,
        start=int(start),
        stop=int(stop),
        delta=int(delta),
        holder=holder,
        taken_at=_moment(int(seconds), int(micros)),
    )


def _moment(seconds: int, micros: int) -> datetime:
    moment = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
    return moment if settings.USE_TZ else make_naive(moment, get_default_timezone())

"""Segments out of ``LeafAlloc`` on a database server.

A fetch is one transaction on a connection of our own: one UPDATE moves the
row's ``max_id`` up by its ``step``, and keeps the row locked while we read what
it moved it to (Leaf's scheme).
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import BigIntegerField, F, QuerySet, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Greatest, Least, Now

from ..connection import OwnConnection, own_connection
from ..core.errors import SegmentExhausted, SegmentUnavailable
from ..core.loader import Loader
from ..core.segment import (
    LONGEST_STEP,
    MAX_ID,
    MAX_STEP,
    STEP,
    Demand,
    Segment,
    check_step,
    check_tag,
)
from ..models import DEFAULT_STEP, LeafAlloc
from ..row_writes import insert_row
from ..transactions import Transactions

__all__ = ["ServerSource"]


class ServerSource:
    """A segment source in the ``leaf_alloc`` table of database ``alias``. Thread-safe.

    ``default_step`` (ids) is given to tags that are made on first use; ``timeout``
    (seconds) bounds each fetch that comes from outside of ``loader``.

    Raises what :class:`~django_idgen.core.segment.SegmentSource` says.
    """

    def __init__(
        self,
        *,
        alias: str,
        default_step: int = DEFAULT_STEP,
        timeout: float = 5.0,
        own: OwnConnection | None = None,
    ) -> None:
        self.alias = alias
        self.default_step = check_step(default_step)
        self._own = own or own_connection(alias)
        self._transactions = Transactions(
            self._own, timeout=timeout, models=("LeafAlloc",), unavailable=SegmentUnavailable
        )

    @property
    def loader(self) -> Loader:
        """The loader whose thread owns the connection; a fetch from its jobs runs inline."""
        return self._own.loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        check_tag(tag)
        if floor >= MAX_ID:
            raise _exhausted(tag, self.alias)
        lowest = max(floor, 1)  # whatever a row says, ids are positive
        return self._transactions.run(lambda _connection: self._fetch(tag, lowest, demand))

    def give_back(self, tag: str, ranges: Sequence[range]) -> None:
        """There is no place for them: they are a gap."""

    def abandon(self) -> None:
        self._own.reset()

    def close(self) -> None:
        """Nothing to free: the connection closes by itself when there is nothing to do."""

    def _rows(self, tag: str) -> QuerySet[LeafAlloc]:
        return LeafAlloc.objects.using(self.alias).filter(pk=tag)

    def _fetch(self, tag: str, lowest: int, demand: Demand) -> Segment:
        sound = {"step__range": (1, MAX_STEP), "max_id__lte": MAX_ID - MAX_STEP}
        if lowest <= MAX_ID - MAX_STEP and self._rows(tag).filter(**sound).update(
            max_id=Greatest(F("max_id"), _big(lowest)) + _length(demand),
            update_time=Now(),
        ):
            max_id, step = self._rows(tag).values_list("max_id", "step").get()
            return Segment(tag, max_id - demand.length(step), max_id, step)
        return self._fetch_carefully(tag, lowest, demand)

    def _fetch_carefully(self, tag: str, lowest: int, demand: Demand) -> Segment:
        """For a tag that is missing, near the end of the ids, or edited by hand."""
        row = self._rows(tag).select_for_update().first()
        step = self.default_step if row is None else row.step
        if not 1 <= step <= MAX_STEP:
            raise SegmentUnavailable(
                f"Tag {tag!r} has step {step} in leaf_alloc of database {self.alias!r}; it must "
                f"be 1 to {MAX_STEP}. Correct the row, in the admin for example."
            )
        start = max(lowest, 1 if row is None else row.max_id)
        stop = min(
            start + demand.length(step), MAX_ID
        )  # the table's BIGINT holds no exclusive end past it
        if start >= stop:
            raise _exhausted(tag, self.alias)
        if row is None:
            # Two at once: the second one's whole transaction fails and is run again.
            # Going on after the error would risk a deadlock on MySQL.
            insert_row(LeafAlloc(biz_tag=tag, max_id=stop, step=step), self.alias)
        else:
            self._rows(tag).update(max_id=stop, update_time=Now())
        return Segment(tag, start, stop, step)


def _length(demand: Demand) -> Combinable:
    """:meth:`Demand.length` of the row's step, in SQL."""
    step = Cast("step", BigIntegerField())
    if demand == STEP:
        return step
    most = Greatest(step, _big(LONGEST_STEP))
    return Greatest(_big(demand.at_least), Least(step * _big(demand.times), most))


def _big(value: int) -> Value:
    return Value(value, BigIntegerField())


def _exhausted(tag: str, alias: str) -> SegmentExhausted:
    return SegmentExhausted(
        f"Tag {tag!r} of database {alias!r} has come to 2**63-1: there are no higher ids. "
        f"Lower max_id in leaf_alloc if it was raised by mistake, or use another tag."
    )

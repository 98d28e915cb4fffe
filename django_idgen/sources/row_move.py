"""The one UPDATE of an ordinary fetch."""

from __future__ import annotations

from django.db.models import BigIntegerField, F, QuerySet, TextField, Value
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Cast, Greatest, Least, Now, Substr

from ..core.segment import LONGEST_STEP, MAX_ID, MAX_STEP, STEP, Demand
from ..core.shard import MAX_DELTA
from ..db.dialects import IDENTITY_LENGTH
from ..models import LeafAlloc

__all__ = ["move"]

_LONGEST_MOVE = MAX_STEP * MAX_DELTA


def move(
    row: QuerySet[LeafAlloc],
    lowest: int,
    demand: Demand,
    *,
    identity: str,
    shared: bool,
    holder: str,
) -> bool:
    """Move ``max_id`` of ``row`` up, and lock it; False if it is not as it should be.

    It should not be paused, have a sound step and grid, know of ranges twice as long as
    this one, stand at or above ``lowest`` and not near the end of the ids, and know the
    server, which the SQL expression ``identity`` names (unless empty). A ``shared`` tag
    stands at another height in each database, so that passing ids over is nothing to
    tell. ``holder``: who is given the ids.
    """
    if lowest > MAX_ID - _LONGEST_MOVE or demand.at_least > MAX_STEP:
        return False
    ids = _length(demand)
    length = ids * Cast("delta", BigIntegerField())
    sound = row.filter(
        # Here, so that no fetch is granted anything once a pause is committed.
        paused=False,
        step__range=(1, MAX_STEP),
        delta__range=(1, MAX_DELTA),
        remainder__lt=F("delta"),
        max_id__range=(1 if shared else lowest, MAX_ID - _LONGEST_MOVE),
        # Both the row and the installation's know of it, by the careful way: were the row
        # lost with a fetch that had grown, nobody would know how far the tag came.
        largest_step__gte=length * _big(2),
    )
    if identity:
        server = RawSQL(identity, (), TextField())  # noqa: S611  # nosec B611  # a constant
        sound = sound.filter(server=Substr(server, 1, IDENTITY_LENGTH))
    moved = sound.update(
        max_id=(Greatest(F("max_id"), _big(lowest)) if shared else F("max_id")) + length,
        update_time=Now(),
        holder=holder,
        fetched_at=Now(),
        fetched_ids=ids,
    )
    return bool(moved)


def _length(demand: Demand) -> Combinable:
    """:meth:`Demand.length` of the row's step, in SQL."""
    step = Cast("step", BigIntegerField())
    if demand == STEP:
        return step
    most = Greatest(step, _big(LONGEST_STEP))
    return Greatest(_big(demand.at_least), Least(step * _big(demand.times), most))


def _big(value: int) -> Value:
    return Value(value, BigIntegerField())

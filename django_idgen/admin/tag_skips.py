"""A skip before it is done: where each tag would go on, and what that loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import QueryDict
from django.utils.translation import gettext as _

from ..core.errors import IdgenError
from ..core.segment import MAX_ID
from ..models import LeafAlloc
from .error_words import error_words
from .tag_forms import SkipForm
from .tag_list import PageOutlooks
from .tag_losses import Loss, Standing, standing
from .tag_words import pool_words

__all__ = ["SkipPlan", "plans_of", "read_targets"]


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """One tag of the page."""

    tag: str
    stands: int | None
    """Where it stands; None if that can't be told."""
    to: int | None = None
    """Where it would go on; None as long as nobody said."""
    losses: Sequence[Loss] = ()
    pooled: int | None = None
    refusal: str = ""
    is_shared: bool = False

    @property
    def is_possible(self) -> bool:
        return self.to is not None and not self.refusal

    @property
    def pool(self) -> str:
        """What lies in the pool, for people."""
        return pool_words(self.pooled)


def plans_of(rows: Sequence[LeafAlloc], form: SkipForm) -> list[SkipPlan]:
    """What the skip of ``form``, if it is filled in, means for each of ``rows``."""
    pools = PageOutlooks(rows)
    return [_plan(row, form, pools) for row in rows]


def _plan(row: LeafAlloc, form: SkipForm, pools: PageOutlooks) -> SkipPlan:
    try:
        stand = standing(row)
    except IdgenError as error:
        return SkipPlan(row.pk, None, refusal=error_words(error))
    found = pools.of(row)
    pooled = found.pooled if found else None
    if not form.is_bound or not form.is_valid():
        return SkipPlan(row.pk, stand.stands, pooled=pooled)
    target = form.target(stand.stands)
    if not stand.can_go_on_at(target):
        return SkipPlan(row.pk, stand.stands, pooled=pooled, refusal=_refusal(stand, target))
    return SkipPlan(
        row.pk,
        stand.stands,
        target,
        stand.lost(target),
        pooled,
        is_shared=stand.is_shared,
    )


def _refusal(stand: Standing, target: int) -> str:
    if target <= stand.stands:
        return _(
            "It stands at %(stands)d already, and never goes back to %(target)d: the ids "
            "between were handed out and would come again."
        ) % {"stands": stand.stands, "target": target}
    return _("Ids end at %(end)d (2⁶³ − 1): it can't go on at %(target)d.") % {
        "end": MAX_ID,
        "target": target,
    }


def read_targets(posted: QueryDict) -> Mapping[str, int]:
    """Where each tag is to go on, as the page said that was confirmed."""
    pairs = zip(posted.getlist("tag"), posted.getlist("to"), strict=False)
    return {tag: int(to) for tag, to in pairs if to.isdecimal() and len(to) < 20}

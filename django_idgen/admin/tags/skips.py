"""A skip before it is done: where each tag stands, where it would go on, and what that loses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.http import QueryDict
from django.utils.translation import gettext as _

from ...core.errors import IdgenError
from ...core.segment import MAX_ID
from ...models import LeafAlloc
from ...ops.tags.outlook import TagOutlook
from ...process.tags import is_fetched_from, known_tag, source_of_tags
from ..base import database_of
from ..words import count_words, error_words, pool_words
from .forms import SkipForm

__all__ = ["Loss", "Part", "SkipPlan", "Standing", "plans_of", "read_targets", "standing"]

OutlookOf = Callable[[LeafAlloc], TagOutlook | None]


@dataclass(frozen=True, slots=True)
class Part:
    """What one database has of a tag."""

    database: str
    max_id: int
    delta: int = 1
    remainder: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Ids of one database that are never given out."""

    database: str
    first: int
    last: int
    count: int

    @property
    def ids(self) -> str:
        """How many they are, for people."""
        return count_words(self.count)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a tag stands. Frozen; processes move it on meanwhile."""

    tag: str
    parts: Sequence[Part]
    mark: int = 0
    """The mark outside of the row (a database in memory), which the row may lag behind."""

    @property
    def stands(self) -> int:
        """The first id that none of its databases gave out yet."""
        return max(self.mark, *(part.max_id for part in self.parts))

    @property
    def is_shared(self) -> bool:
        """Whether several databases give out its ids."""
        return len(self.parts) > 1

    def can_go_on_at(self, target: int) -> bool:
        """Whether that lies ahead, or brings a database up that was left behind."""
        lagging = any(part.max_id < self.stands for part in self.parts) and self.is_shared
        return self.stands - lagging < target <= MAX_ID

    def lost(self, target: int) -> list[Loss]:
        """What is never given out once the tag goes on at ``target``."""
        losses = (_loss(part, max(part.max_id, self._floor), target) for part in self.parts)
        return [loss for loss in losses if loss.count]

    @property
    def _floor(self) -> int:
        return 0 if self.is_shared else self.mark


def _loss(part: Part, start: int, target: int) -> Loss:
    ids = range(start + (part.remainder - start) % part.delta, target, part.delta)
    return Loss(part.database, ids.start, ids[-1] if ids else ids.start, _length(ids))


def _length(ids: range) -> int:
    # len() ends at 2**63 - 1.
    return max(0, -(-(ids.stop - ids.start) // ids.step))


def standing(row: LeafAlloc) -> Standing:
    """Where the tag of ``row`` stands, in all databases that its ids come from.

    Raises :class:`IdgenError`: a database does not answer, or a router fails.
    """
    shown = database_of(LeafAlloc)
    if not is_fetched_from(row.pk, shown):
        return Standing(row.pk, [_part(shown, row)])
    source = source_of_tags()
    rows = known_tag(row.pk).rows
    parts = [
        _part(alias, found) if (found := rows.get(alias)) else Part(alias, 1)
        for alias in source.route(row.pk)
    ]
    return Standing(row.pk, parts, source.marks(row.pk).max_id(row.pk))


def _part(alias: str, row: LeafAlloc) -> Part:
    return Part(alias, row.max_id, row.delta, row.remainder)


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """One tag of the page."""

    tag: str
    stands: int | None
    """Where it stands; None if that can't be told."""
    to: int | None = None
    """Where it would go on; None before the form says."""
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


def plans_of(rows: Sequence[LeafAlloc], form: SkipForm, outlook_of: OutlookOf) -> list[SkipPlan]:
    """What the skip of ``form``, if it is filled in, means for each of ``rows``."""
    return [_plan(row, form, outlook_of) for row in rows]


def _plan(row: LeafAlloc, form: SkipForm, outlook_of: OutlookOf) -> SkipPlan:
    try:
        stand = standing(row)
    except IdgenError as error:
        return SkipPlan(row.pk, None, refusal=error_words(error))
    found = outlook_of(row)
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

"""What a skip of a tag loses: which ids are never given out, in which database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.segment import MAX_ID
from ..models import LeafAlloc
from ..ops.tags.rows import is_fetched_from, known_tag, source_of_tags
from .base import database_of
from .tag_words import count_words

__all__ = ["Loss", "Standing", "standing"]


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
    """The mark outside of the row (SQLite), which the row may lag behind."""

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

    Raises :class:`IdgenError`: a database is away, a router that fails.
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

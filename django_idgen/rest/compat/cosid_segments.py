"""Ranges of ids for CosId's clients, out of a tag's own row."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotFound

from ... import tag_edits
from ...core.errors import ConfigurationError, SegmentExhausted
from ...core.segment import Demand, check_tag
from ...handlers import segments
from ..access import Caller
from ..known_tags import UnknownTag
from .taking import Tags

__all__ = ["Distributor"]

ADD = "django_idgen.add_leafalloc"


class Distributor:
    """What CosId calls an IdSegmentDistributor: one for each tag. Thread-safe."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags

    def open(self, caller: Caller | None, tag: str, offset: int, step: int) -> int:
        """See that ``tag`` is there; a new one begins above ``offset``. The last id given out.

        Raises :class:`UnknownTag` where the caller may not make it.
        """
        self._tags.check(caller, tag, may_make=True)
        found = tag_edits.find_tag(tag)
        if found is None:
            if not self._tags.makes() and not (caller and caller.has_perm(ADD)):
                raise UnknownTag(tag)
            found = _made(tag, offset, step)
        return found.max_id - 1

    def take(self, caller: Caller | None, tag: str, step: int) -> int:
        """The last id of a range of ``step`` ids, which is the caller's alone.

        Not out of a pool: a CosId client wants each range to be above the one before.
        """
        self._tags.check(caller, tag)
        allocator = segments.allocator()
        allocator.check_process()
        source: Any = allocator.source
        while hasattr(source, "source"):
            source = source.source
        segment = source.fetch(tag, demand=Demand(at_least=step))
        ids = segment.ids()
        if segment.delta != 1:
            raise ConfigurationError(
                f"Tag {tag!r} comes from {segment.delta} databases, each of which gives out "
                f"every {segment.delta}th id: CosId's clients know ranges without gaps alone."
            )
        if len(ids) < step:
            raise SegmentExhausted(f"Tag {tag!r} has {len(ids)} ids left, fewer than {step}.")
        # The row's step may be longer than what was asked for.
        if ids[step:]:
            allocator.give_back(tag, [ids[step:]])
        return int(ids[step - 1])


def _made(tag: str, offset: int, step: int) -> tag_edits.Tag:
    try:
        return tag_edits.make_tag(check_tag(tag), step=step, max_id=offset + 1)
    except tag_edits.TagExists:
        found = tag_edits.find_tag(tag)
    if found is None:
        raise NotFound(f"Tag {tag!r} could not be made.")
    return found

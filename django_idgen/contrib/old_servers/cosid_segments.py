"""Ranges of ids for CosId's clients, out of a tag's own row."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from rest_framework.exceptions import NotFound, PermissionDenied

from ...core.errors import ConfigurationError, IdgenError, InvalidTag, SegmentExhausted
from ...core.segment import Demand, Segment, check_tag
from ...ops.tags import edits as tag_edits
from ...ops.tags.rows import Tag, find_tag
from ...ops.tags.trail import record
from ...process.handlers import current_settings, segments
from ...rest.access import Caller
from ...rest.known_tags import UnknownTag
from .taking import Tags

__all__ = ["Distributor", "checked_namespace", "tag_of"]

ADD = "django_idgen.add_leafalloc"


def tag_of(namespace: str, name: str) -> str:
    """The tag of CosId's IdSegmentDistributor ``name``; CosId joins the two likewise."""
    return f"{namespace}.{name}"


def checked_namespace(namespace: object) -> str:
    """``namespace``, if a tag can begin with it; raises :class:`ImproperlyConfigured`."""
    try:
        return check_tag(namespace)
    except InvalidTag as error:
        raise ImproperlyConfigured(
            f"namespace must be a CosId namespace, such as 'cosid': {error}"
        ) from error


class Distributor:
    """What CosId calls an IdSegmentDistributor: one for each tag. Thread-safe."""

    def __init__(self, tags: Tags) -> None:
        self._tags = tags

    def open(self, caller: Caller | None, tag: str, offset: int, step: int) -> int:
        """See that ``tag`` is there; a new one begins above ``offset``. The last id given out.

        Raises :class:`UnknownTag` where the caller may not make it.
        """
        self._tags.check(caller, tag, may_make=True)
        found = find_tag(tag)
        if found is None:
            most, may_add = current_settings().rest.max_skip, caller and caller.has_perm(ADD)
            if not self._tags.makes() and not may_add:
                raise UnknownTag(tag)
            if offset > most and not may_add:
                raise PermissionDenied(
                    f"An offset of {offset} would skip that many ids of the new tag {tag!r}, and a "
                    f"request may skip {most} (max_skip). A user who may add tags can make it."
                )
            found = _made(tag, offset, step)
            user = caller.user if caller else "anybody"
            record(user, tag, "added", step=(None, step), max_id=(None, offset + 1))
        return found.max_id - 1

    def take(self, caller: Caller | None, tag: str, step: int) -> int:
        """The last id of a range of ``step`` ids, which is the caller's alone.

        Not out of a pool: a CosId client wants each range to be above the one before.
        """
        self._tags.check_segments(caller, tag)
        allocator = segments.allocator()
        allocator.check_process()
        segment = allocator.source.behind.fetch(tag, demand=Demand(times=0, at_least=step))
        refusal = _refusal(segment, step)
        if refusal:
            allocator.give_back(tag, [segment.ids()])
            raise refusal
        return int(segment.ids()[-1])


def _refusal(segment: Segment, step: int) -> IdgenError | None:
    """Why a client that takes any range for ``step`` ids without a gap can't have this one."""
    if segment.delta != 1:
        return ConfigurationError(
            f"Tag {segment.tag!r} comes from {segment.delta} databases, each of which gives out "
            f"every {segment.delta}th id: CosId's clients know ranges without gaps alone."
        )
    left = len(segment.ids())
    if left < step:
        return SegmentExhausted(
            f"Tag {segment.tag!r} gave {left} ids, fewer than {step}: it is near its end, or comes "
            f"from a service that lends no more at a time (max_segment)."
        )
    return None


def _made(tag: str, offset: int, step: int) -> Tag:
    try:
        return tag_edits.make_tag(check_tag(tag), step=step, max_id=offset + 1)
    except tag_edits.TagExists:
        found = find_tag(tag)
    if found is None:
        raise NotFound(f"Tag {tag!r} could not be made.")
    return found

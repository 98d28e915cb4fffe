"""Whole segments over HTTP: ``POST tags/<tag>/segment``.

The segment comes out of the configured source itself, never out of what this process
has loaded for its own ids. A client that never hears the answer has lost it: a gap.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from shlex import quote
from typing import Any
from weakref import WeakKeyDictionary

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from ..core.errors import IdgenError, SegmentUnavailable
from ..core.segment import LONGEST_STEP, MAX_ID, Demand, Segment
from ..core.segment_allocator import SegmentAllocator
from ..ops.tags.change_log import record
from ..process.handlers import current_settings, segments
from ..process.tags import find_tag, source_behind_pool
from .known_tags import check_known
from .lending_base import LendingRefused, LendingView
from .lending_input import SegmentInput
from .lending_registries import installation_of_source
from .throttles import ids_throttles

__all__ = ["SegmentView"]

PATIENCE = 5.0
"""Seconds that a request waits for the source."""
MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class _Seen:
    """What this process has seen of a tag."""

    end: int
    """Of the highest segment that was taken: the tag stands there, or above."""
    step: int


class SegmentView(LendingView):
    """A whole segment of a tag, for a client that gives its ids out by itself."""

    def get_throttles(self) -> list[BaseThrottle]:
        return [kind() for kind in ids_throttles()]

    def check_permissions(self, request: Request) -> None:
        # Before any throttle counts it against those who may.
        super().check_permissions(request)
        if "tag" in self.kwargs:  # a schema is made without one
            self.caller.check_segments_of(self.kwargs["tag"])

    def get(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Whose ids a segment of the tag would be; nothing is taken."""
        check_known(tag)
        installation = installation_of_source(segments.allocator().source, tag)
        most = current_settings().rest.max_segment
        return Response({"tag": tag, "installation": installation, "max_segment": most})

    def post(self, request: Request, tag: str, **_kwargs: str) -> Response:  # noqa: ARG002
        """Take one. Answered late, or sent twice by a proxy, it is another one each time."""
        asked = self.read(SegmentInput)
        most = current_settings().rest.max_segment
        _check(tag, asked, most)
        check_known(tag)
        allocator = segments.allocator()
        allocator.check_process()
        installation = installation_of_source(allocator.source, tag)
        self.check_installation(asked, installation)
        lending = Lending(allocator, tag, most)
        stood = lending.stands_below(asked["floor"])
        segment = lending.take(Demand(asked["times"], asked["at_least"]), asked["floor"])
        if stood is not None:
            record(self.caller.user, tag, "skipped", max_id=(stood, segment.start))
        return self.answer(
            asked,
            tag=segment.tag,
            start=str(segment.start),
            stop=str(segment.stop),
            step=segment.step,
            delta=segment.delta,
            installation=installation,
            max_segment=most,
        )


def _check(tag: str, asked: dict[str, Any], most: int) -> None:
    if asked.get("tag", tag) != tag:
        # A proxy has merged slashes, or decoded once too often: not the tag that was meant.
        raise ValidationError({"tag": [f"The URL says {tag!r}, the body {asked['tag']!r}."]})
    if asked["at_least"] > most:
        raise ValidationError({"at_least": [f"A segment has {most} ids at most (max_segment)."]})


class SkipTooFar(LendingRefused):
    """403: a tag that stands at ``max_id`` would skip more than ``max_skip`` ids for a floor."""

    status = 403

    def __init__(self, tag: str, *, max_id: int, floor: int, max_skip: int) -> None:
        super().__init__(
            "skip_too_far",
            f"Tag {tag!r} stands at {max_id}. To give only ids from {floor} on it would skip "
            f"{floor - max_id}, and a request may skip {max_skip} (max_skip). If the database was "
            f"put back to an earlier state, an operator runs 'manage.py idgen_skip "
            f"{quote(tag)} --to {floor}'.",
            tag=tag,
            max_id=str(max_id),
            floor=str(floor),
            max_skip=str(max_skip),
        )


class Lending:
    """One segment out of the source of ``allocator``, of ``most`` ids at the most."""

    def __init__(self, allocator: SegmentAllocator, tag: str, most: int) -> None:
        self._allocator = allocator
        self._tag = tag
        self._most = most

    def take(self, demand: Demand, floor: int) -> Segment:
        """Raises :class:`SkipTooFar` for a floor that would skip more than ``max_skip``."""
        demand = self._bounded(demand)
        if floor <= MAX_ID:  # past it the source says so itself
            reached = self._checked(floor)
            if reached is not None:
                return self._cut(reached)
        return self._cut(self._fetched(floor, demand))

    def stands_below(self, floor: int) -> int | None:
        """Where the tag stands, if ``floor`` moves it; None if not, or if it can't be known here.

        Databases that share a tag stand at different heights, which moves none of them.
        """
        seen = _seen_of(self._allocator, self._tag)
        if floor <= (seen.end if seen else 1):
            return None
        try:
            source = source_behind_pool()
            if not source.keeps_rows or len(source.route(self._tag)) > 1:
                return None
            found = find_tag(self._tag)
        except IdgenError:
            return None  # whether there are ids is said by the fetch
        stands = 1 if found is None else found.max_id
        return stands if stands < floor else None

    def _bounded(self, demand: Demand) -> Demand:
        """``demand`` with no more ids than may be lent, as far as the step is known."""
        if self._most >= LONGEST_STEP:
            return demand
        seen = _seen_of(self._allocator, self._tag)
        times = 1 if seen is None else max(1, self._most // seen.step)
        return Demand(min(demand.times, times), demand.at_least)

    def _checked(self, floor: int) -> Segment | None:
        """See that ``floor`` lies not too far above what was taken of the tag.

        Whoever does not know where the tag stands takes a segment to find out, which
        may do already.
        """
        skip = current_settings().rest.max_skip
        seen = _seen_of(self._allocator, self._tag)
        if floor <= (seen.end if seen else 1) + skip:
            return None
        # Not from a pool: what lies there may be old.
        probe = self._fetched(0, Demand(), behind=True)
        if probe.start >= floor:
            return probe
        if floor > probe.stop + skip:
            raise SkipTooFar(self._tag, max_id=probe.stop, floor=floor, max_skip=skip)
        return None

    def _fetched(self, floor: int, demand: Demand, *, behind: bool = False) -> Segment:
        source = self._allocator.source.behind if behind else self._allocator.source
        job = partial(source.fetch, self._tag, floor=floor, demand=demand)
        segment = _awaited(self._allocator.loader.submit(job, urgent=True), self._tag)
        _note(self._allocator, segment)
        return segment

    def _cut(self, segment: Segment) -> Segment:
        ids = segment.ids()
        if len(ids) <= self._most:
            return segment
        kept = ids[: self._most]
        # To the pool where there is one, else a gap: the row's step is more than may be lent.
        self._allocator.give_back(self._tag, [ids[self._most :]])
        return Segment(segment.tag, kept.start, kept[-1] + 1, segment.step, segment.delta)


def _awaited(future: Future[Segment], tag: str) -> Segment:
    try:
        return future.result(PATIENCE)
    except FutureTimeout:
        future.cancel()  # one that has not begun takes nothing
        raise SegmentUnavailable(
            f"The source of tag {tag!r} did not answer for {PATIENCE:g} s. See what holds it up."
        ) from None


_seen: WeakKeyDictionary[SegmentAllocator, dict[str, _Seen]] = WeakKeyDictionary()
"""By tag, of the allocator that the settings of now have made."""


def _seen_of(allocator: SegmentAllocator, tag: str) -> _Seen | None:
    return _seen.get(allocator, {}).get(tag)


def _note(allocator: SegmentAllocator, segment: Segment) -> None:
    known = _seen.setdefault(allocator, {})
    before = known.pop(segment.tag, None)
    end = segment.stop if before is None else max(segment.stop, before.end)
    while len(known) >= MOST_KNOWN:
        with suppress(KeyError, StopIteration, RuntimeError):  # another thread is at it
            del known[next(iter(known))]
    known[segment.tag] = _Seen(end, segment.step)

"""Whole segments from a service: this process needs no database.

The service's native API lends segments (``POST tags/<tag>/segment``), and this process gives
their ids out. The service decides on steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import (
    ConfigurationError,
    InvalidTag,
    SegmentExhausted,
    SegmentRefused,
    SegmentUnavailable,
    TagPaused,
    sentence,
)
from ..core.loader import Loader
from ..core.segment import LONGEST_STEP, MAX_ID, STEP, Demand, Segment, check_step, check_tag
from ..core.source import Source
from ..remote.link import (
    HttpLink,
    LinkOptions,
    Refused,
    number_of,
    shows_link_options,
    way_out,
)


@shows_link_options
class HttpSource(Source):
    """Segments from the services at ``base_urls``. Thread-safe.

    For the options see :class:`HttpLink`.

    Raises :class:`ConfigurationError` for options that can't work.
    """

    can_be_pooled = True

    def __init__(
        self,
        *,
        base_urls: str | Sequence[str],
        clock: Clock = SYSTEM_CLOCK,
        **link: Unpack[LinkOptions],
    ) -> None:
        self._link = HttpLink(base_urls, clock=clock, **link)
        self._loader = Loader("idgen-http")
        self._most = LONGEST_STEP
        """Most ids that the service lends in one segment."""

    @property
    def loader(self) -> Loader:
        """A thread of its own."""
        return self._loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        """See :meth:`Source.fetch`.

        The segment has no more ids than the service lends at once.
        Raises :class:`ConfigurationError` for a service of another database.
        """
        if floor > MAX_ID:
            raise self._exhausted(check_tag(tag))
        body = {"tag": check_tag(tag), "floor": str(floor), "times": demand.times}
        if demand.granted is not None:
            body["granted"] = str(demand.granted)
        try:
            answer = self._ask(tag, {**body, "at_least": min(demand.at_least, self._most)})
        except Refused as error:
            if "at_least" not in error.body:
                raise self._refusal(tag, error) from error
            # One step: the answer has the service's limit.
            answer = self._asked(tag, {**body, "at_least": 1})
        return self._granted(tag, floor, answer)

    def owner(self, tag: str, *, max_age: float = 0.0) -> str:  # noqa: ARG002
        """See :meth:`Source.owner`. "" if no service answers.

        Raises :class:`ConfigurationError` where the services have different databases.
        """
        what = _words_for(check_tag(tag))
        try:
            if self._link.installation_of(what) is None:
                self._ask(tag)
        except (SegmentUnavailable, Refused):
            return ""
        return self._link.installation_of(what) or ""

    def check_access(self, tag: str) -> None:
        self._asked(check_tag(tag))

    def next_free_id(self, tag: str) -> int:
        """See :meth:`Source.next_free_id`. A segment may come from the service's pool, below it."""
        try:
            answer = self._asked(check_tag(tag), query="?max_id=1")
            return number_of(answer, "max_id", least=1, most=MAX_ID + 1)
        except ValueError as error:
            raise ConfigurationError(
                f"The service does not say how far tag {tag!r} is: {error}. It may be older than "
                "this project. Update it."
            ) from error

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By service, a function that raises unless it answers. One service is enough."""
        return self._link.probes(unavailable=SegmentUnavailable)

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        # The link still knows whose ids these were: the floors stay, too.
        self._link.abandon()
        self._loader.forget()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._link.close()

    # --------------------------------------------------------------------------------

    def _ask(
        self, tag: str, body: Mapping[str, Any] | None = None, query: str = ""
    ) -> Mapping[str, Any]:
        return self._link.ask(
            path_of(tag) + query, body, of=_words_for(tag), unavailable=SegmentUnavailable
        ).body

    def _asked(
        self, tag: str, body: Mapping[str, Any] | None = None, query: str = ""
    ) -> Mapping[str, Any]:
        try:
            return self._ask(tag, body, query)
        except Refused as error:
            raise self._refusal(tag, error) from error

    def _granted(self, tag: str, floor: int, body: Mapping[str, Any]) -> Segment:
        try:
            segment = _segment(tag, floor, body)
            self._most = number_of(body, "max_segment", least=1)
        except (ValueError, ConfigurationError) as error:
            raise SegmentUnavailable(
                f"The service's answer for tag {tag!r} is not a segment of the tag: "
                f"{sentence(error)} This process does not use it, because ids could repeat."
            ) from error
        return segment

    def _refusal(self, tag: str, error: Refused) -> Exception:
        if error.code == "exhausted":
            return self._exhausted(tag)
        if error.code == "paused":
            return TagPaused(tag)
        if error.status == 400 and error.code == "invalid_tag":
            return InvalidTag(tag, f"the service refuses it ({error.detail})")
        kind = SegmentRefused if error.is_final else SegmentUnavailable
        return kind(f"The service lends no segment of tag {tag!r}: {error}{way_out(error)}")

    def _exhausted(self, tag: str) -> SegmentExhausted:
        return SegmentExhausted(
            f"Tag {tag!r} has reached 2**63-1: there are no higher ids. Use another tag, with a "
            "table of its own."
        )


def path_of(tag: str) -> str:
    """The path of a tag's segments. A tag may have slashes, or only dots."""
    quoted = quote(tag, safe="")
    return f"tags/{quoted.replace('.', '%2E') if not tag.strip('.') else quoted}/segment"


def _segment(tag: str, floor: int, body: Mapping[str, Any]) -> Segment:
    if body.get("tag") != tag:
        raise ValueError(f"it is of tag {body.get('tag')!r:.80}")
    start = number_of(body, "start", least=max(floor, 1), most=MAX_ID)
    stop = number_of(body, "stop", least=start + 1, most=MAX_ID + 1)
    step = check_step(number_of(body, "step", least=1))
    return Segment(tag, start, stop, step, number_of(body, "delta", least=1, most=MAX_ID))


def _words_for(tag: str) -> str:
    return f"tag {tag!r}"

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
    Pin,
    Refused,
    number_of,
    other_installation,
    shows_link_options,
    way_out,
)


@shows_link_options
class HttpSource(Source):
    """Segments from the services at ``base_urls``. Thread-safe.

    For the options see :class:`HttpLink`. All services must have the same databases: segments
    of another database are refused. ``installation``, if given, is the one that
    ``GET tags/<tag>/segment`` of the service returns.

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
        self._start_over()

    def _start_over(self) -> None:
        self._pins: dict[str, Pin] = {}
        """By tag, since a router may spread the tags over databases."""
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
        pin = self._pin(check_tag(tag))
        try:
            body = self._ask(pin, tag, floor, demand, min(demand.at_least, self._most))
        except Refused as error:
            if "at_least" not in error.body:
                raise self._refusal(tag, error) from error
            body = self._again(pin, tag, floor, demand)
        return self._granted(pin, tag, floor, body)

    def owner(self, tag: str, *, max_age: float = 0.0) -> str:  # noqa: ARG002
        """See :meth:`Source.owner`. "" if no service answers.

        Raises :class:`ConfigurationError` where the services have different databases.
        """
        try:
            pin = self._pin(check_tag(tag))
            return pin.installation or self._agreed(pin, tag)
        except (SegmentUnavailable, Refused):
            return ""

    def check_access(self, tag: str) -> None:
        pin = self._pin(check_tag(tag))
        try:
            answer = self._link.ask(path_of(tag), None, unavailable=SegmentUnavailable)
        except Refused as error:
            raise self._refusal(tag, error) from error
        _check_owner(pin, tag, answer.body)

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By service, a function that raises unless it answers. One service is enough."""
        return self._link.probes(unavailable=SegmentUnavailable)

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        # Keeps the installation of the ids: the floors stay, too.
        self._link.abandon()
        self._loader.forget()

    def close(self) -> None:
        """Close the connections. May be called twice."""
        self._link.close()

    # --------------------------------------------------------------------------------

    def _ask(
        self, pin: Pin, tag: str, floor: int, demand: Demand, at_least: int
    ) -> Mapping[str, Any]:
        body = {"tag": tag, "floor": str(floor), "at_least": at_least, "times": demand.times}
        if demand.granted is not None:
            body["granted"] = str(demand.granted)
        if pin.installation is not None:
            body["installation"] = pin.installation
        return self._link.ask(path_of(tag), body, unavailable=SegmentUnavailable).body

    def _again(self, pin: Pin, tag: str, floor: int, demand: Demand) -> Mapping[str, Any]:
        """Ask for one step only, after a refusal: the answer has the service's limit."""
        try:
            return self._ask(pin, tag, floor, demand, 1)
        except Refused as error:
            raise self._refusal(tag, error) from error

    def _pin(self, tag: str) -> Pin:
        found = self._pins.get(tag)
        if found is None:
            pin = Pin(self._link.installation)
            if len(self._link.base_urls) > 1:
                self._agreed(pin, tag)
            found = self._pins.setdefault(tag, pin)
        return found

    def _agreed(self, pin: Pin, tag: str) -> str:
        """Check that all services that answer lend the same ids, before the first fetch."""
        for body in self._link.each(path_of(tag)):
            _check_owner(pin, tag, body)
        return pin.installation or ""

    def _granted(self, pin: Pin, tag: str, floor: int, body: Mapping[str, Any]) -> Segment:
        _check_owner(pin, tag, body)
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
        if error.code == "installation_mismatch":
            body = error.body
            return other_installation(
                f"tag {tag!r}", body.get("expected"), body.get("installation")
            )
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


def _check_owner(pin: Pin, tag: str, body: Mapping[str, Any]) -> None:
    pin.check(body.get("installation"), f"tag {tag!r}", unavailable=SegmentUnavailable)

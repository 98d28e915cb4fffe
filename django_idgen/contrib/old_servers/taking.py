"""Which tags and generators an old server's URLs give ids of, and to whom."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import ImproperlyConfigured
from rest_framework.exceptions import PermissionDenied

from ...core.generator import Generator
from ...core.segment import STEP, Segment, check_tag
from ...process.handlers import current_settings, generators, segments
from ...rest.access import Caller
from ...rest.known_tags import KNOWN_TAGS, UnknownTag
from ...rest.lending_segments import Lending
from ...rest.tokens import fits
from .mounting import throttle

__all__ = ["Tags", "checked_alias", "of_generator"]


class Tags:
    """The tags that match one of ``patterns`` (“*” stands for any characters).

    ``make``: whether a request for an unknown one makes it; None: as the setting
    ``IDGEN["REST"]["make_tags"]`` says.
    """

    def __init__(self, patterns: Iterable[str], make: bool | None) -> None:
        self._patterns = _patterns(patterns)
        self._serves_all = "*" in self._patterns
        if make is not None and not isinstance(make, bool):
            raise ImproperlyConfigured(f"make_tags must be True, False or None, not {make!r}.")
        self._make = make

    def generator(self, caller: Caller | None, tag: str) -> Generator:
        """What gives ids of ``tag``, once it is clear that ``caller`` may have some.

        Raises :class:`UnknownTag`, DRF's exceptions and :class:`IdgenError`.
        """
        self.check(caller, tag)
        return segments.get(tag) or segments.open(tag)

    def segment(self, caller: Caller | None, tag: str) -> Segment:
        """A whole segment out of the source, which nobody else has; raises likewise.

        As long as the row's step says, but not longer than ``max_segment``.
        """
        self.check_segments(caller, tag)
        allocator = segments.allocator()
        allocator.check_process()
        return Lending(allocator, tag, current_settings().rest.max_segment).take(STEP, 0)

    def makes(self) -> bool:
        """Whether an unknown tag is made by a request for it."""
        return current_settings().rest.make_tags if self._make is None else self._make

    def check(self, caller: Caller | None, tag: str, *, may_make: bool = False) -> None:
        """Raise unless ``caller`` (None: anybody) may take ids of ``tag``, and there is one.

        With ``may_make`` there need not be one: the caller sees to that.
        """
        check_tag(tag)
        if caller is not None and not caller.may_take_of_tag(tag):
            raise PermissionDenied(caller.refusal("tag"))
        throttle(tag=tag)
        if not self.serves(tag):
            raise UnknownTag(tag)
        if not may_make and not self.makes() and not KNOWN_TAGS.has(tag):
            raise UnknownTag(tag)

    def check_segments(self, caller: Caller | None, tag: str, *, may_make: bool = False) -> None:
        """As :meth:`check`, for whole segments."""
        self.check(caller, tag, may_make=may_make)
        if caller is not None:
            caller.check_segments_of(tag)

    def serves(self, tag: str) -> bool:
        return self._serves_all or any(fits(each, tag) for each in self._patterns)


def of_generator(caller: Caller | None, alias: str) -> Generator:
    """What gives ids of the generator ``alias``; raises as :meth:`Tags.generator`."""
    if caller is not None and not caller.may_take_of_generator(alias):
        raise PermissionDenied(caller.refusal("generator"))
    throttle(alias=alias)
    return generators[alias]


def checked_alias(alias: object) -> str:
    """``alias``, if ``IDGEN["GENERATORS"]`` has it; raises :class:`ImproperlyConfigured`."""
    known = current_settings().generators
    if not isinstance(alias, str) or alias not in known:
        raise ImproperlyConfigured(
            f"There is no generator {alias!r} in IDGEN['GENERATORS']. There are "
            f"{', '.join(map(repr, known))}."
        )
    return alias


def _patterns(given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ImproperlyConfigured(
            f"tags must be a list of patterns, such as ['*'], not {given!r}."
        )
    found = tuple(given)
    if not all(isinstance(each, str) and each for each in found):
        raise ImproperlyConfigured(
            f"tags must be a list of patterns, such as ['*'], not {given!r}."
        )
    return found

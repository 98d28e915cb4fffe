"""What became of an action on several tags, told in a few messages at most."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import ngettext

__all__ = ["Outcomes"]

MOST_LINES = 10
"""Messages of one kind; the rest is counted."""


@dataclass(slots=True)
class Outcomes:
    """Gathers a line for each tag, and tells them. For one request."""

    _lines: dict[int, list[str]] = field(default_factory=dict)

    def good(self, line: str) -> None:
        self._add(messages.SUCCESS, line)

    def warn(self, line: str) -> None:
        self._add(messages.WARNING, line)

    def bad(self, line: str) -> None:
        self._add(messages.ERROR, line)

    def tell(self, request: HttpRequest) -> None:
        """As messages of the next page: what went wrong first."""
        for level in sorted(self._lines, reverse=True):
            lines = self._lines[level]
            for line in lines[:MOST_LINES]:
                messages.add_message(request, level, line)
            if (rest := len(lines) - MOST_LINES) > 0:
                text = ngettext("… and %(count)d tag more.", "… and %(count)d tags more.", rest)
                messages.add_message(request, level, text % {"count": rest})

    def _add(self, level: int, line: str) -> None:
        self._lines.setdefault(level, []).append(line)

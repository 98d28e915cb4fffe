"""Notes of what the admin changed, in each tag's history, and how that shows them.

A page that changes a row runs in a transaction; what it had others change on
connections of their own stays, whatever becomes of it. So notes wait for its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from django.http import HttpRequest

from ..ops.tags import trail
from ..ops.tags.trail import Change

__all__ = ["note", "notes_kept", "translate_notes"]

WAITING = "idgen_notes"


def note(request: HttpRequest, tag: str, action: str, **changes: Change) -> None:
    """Write that the request's user did ``action`` to ``tag``: see ``ops.tags.trail``."""
    waiting = request.__dict__.get(WAITING)
    if waiting is None:
        trail.record(request.user, tag, action, **changes)
    else:
        waiting.append((tag, action, changes))


@contextmanager
def notes_kept(request: HttpRequest) -> Iterator[None]:
    """Around a transaction of the page: notes are written after it, also if it fails."""
    waiting: list[tuple[str, str, dict[str, Change]]] = []
    request.__dict__[WAITING] = waiting
    try:
        yield
    finally:
        del request.__dict__[WAITING]
        for tag, action, changes in waiting:
            trail.record(request.user, tag, action, **changes)


def translate_notes(entries: Iterable[Any]) -> None:
    """Have rows of the admin's log, where they are notes, say it in the active language."""
    for entry in entries:
        if trail.told(entry.change_message) is not None:
            entry.get_change_message = partial(trail.told, entry.change_message)

"""Names of other libraries that are replaced, in one go, and put back for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Hooks"]

_ABSENT: Any = object()


class Hooks:
    """``(owner, name, make)``: each ``name`` of a class or module becomes ``make(original)``.

    What was inherited is not put back, but uncovered. Not for several threads at once.
    """

    def __init__(self, *hooks: tuple[Any, str, Callable[[Any], Any]]) -> None:
        self._hooks = hooks
        self._originals: list[tuple[Any, str, Any]] = []

    def put(self) -> None:
        """Replace the names, once."""
        if self._originals:
            return
        for owner, name, make in self._hooks:
            self._originals.append((owner, name, vars(owner).get(name, _ABSENT)))
            setattr(owner, name, make(getattr(owner, name, None)))

    def release(self) -> None:
        """Put the originals back."""
        while self._originals:
            owner, name, original = self._originals.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

"""What a break is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Break", "Unported"]


class Unported(Exception):
    """The code has changed under a break: its old text is not there exactly once."""


@dataclass(frozen=True, slots=True)
class Break:
    """One line of safety taken away. Frozen."""

    name: str
    """What goes wrong then; unique."""
    rule: str
    """The invariant, rule or hazard that is broken: ``I1``, ``L2``, ``hazard 31``."""
    file: str
    """Where, from the project's root."""
    old: str
    """The text that is there exactly once."""
    new: str
    """What stands in its place."""
    tests: tuple[str, ...]
    """Those that have to turn red, as pytest names them; one of them is enough."""
    late: str = ""
    """Why none of them runs on push, such as a failover; empty if one does."""

    def broken(self, root: Path) -> str:
        """The text of the file below ``root`` with the break in it. Raises :class:`Unported`."""
        text = (root / self.file).read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise Unported(
                f"The old text of break {self.name!r} occurs {count} times in {self.file}, and "
                f"should once. Port the break: say what the line is now."
            )
        return text.replace(self.old, self.new)

"""The next stage of an adoption, and what to say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .files import MigrationFile

__all__ = ["Plan", "Report"]

Report = Callable[[str], None]


@dataclass(slots=True)
class Plan:
    """One stage: what it does, and what the user does after it."""

    does: list[str]
    """What there is, and what this stage changes, in words."""
    migration: MigrationFile | None = None
    edit: str = ""
    """A diff of the models, for the user to make."""
    work: Callable[[Report], str] | None = None
    """What is done in the database at once; returns what came of it."""
    after: list[str] = field(default_factory=list)
    """What to do next, step by step."""

    @property
    def is_empty(self) -> bool:
        return self.migration is None and self.work is None

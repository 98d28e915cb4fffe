"""Questions to databases and Redis, each in a thread of its own, waited for briefly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import DatabaseError, connections

from ...core.errors import SegmentUnavailable
from ...db.connection import place_of
from ..readiness import Probes

__all__ = ["Answer", "Questions", "must_be_asked_here"]

Question = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a question. Frozen."""

    value: Any
    error: str | None
    """Why there is no value; None if there is one."""


class Questions:
    """Asks, and keeps the answers for a while. Thread-safe.

    One that hangs is not asked again beside it: it costs a thread, however often it
    is asked.
    """

    def __init__(self) -> None:
        self._probes = Probes()
        self._values: dict[str, Any] = {}

    def ask(
        self, questions: Mapping[str, Question], *, max_age: float, within: float
    ) -> dict[str, Answer]:
        """The answers by name, waited for ``within`` seconds in all. Never raises.

        ``max_age`` (seconds): how old an answer may be.
        """
        wanted = {name: partial(self._keep, name, each) for name, each in questions.items()}
        outcomes = self._probes.outcomes(wanted, max_age=max_age, within=within)
        return {
            name: Answer(self._values.get(name) if outcome.error is None else None, outcome.error)
            for name, outcome in outcomes.items()
        }

    def _keep(self, name: str, question: Question) -> None:
        try:
            self._values[name] = asked(question)
        finally:
            connections.close_all()  # those of this thread


def asked(question: Question) -> Any:
    """What it returns; what a database says instead, in our words."""
    try:
        return question()
    except DatabaseError as error:
        raise SegmentUnavailable(
            f"{' '.join(str(error).split())} If a table or a column is missing, run 'manage.py "
            f"migrate django_idgen'."
        ) from error


def must_be_asked_here(aliases: set[str]) -> bool:
    """Whether another thread would see other databases than the calling one does.

    So it is in a transaction, as tests have around them, and with a database in memory.
    """
    return any(connections[each].in_atomic_block or place_of(each).in_process for each in aliases)

"""A bar, and what was measured against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from .timing import interleaved

__all__ = ["AT_LEAST", "AT_MOST", "Row", "Skipped", "at_least", "at_most", "paired"]

AT_MOST = "<="
AT_LEAST = ">="


class Skipped(Exception):
    """A group can't be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One bar of the table in the design."""

    what: str
    sense: str
    bar: float
    measured: float
    unit: str
    note: str = ""

    @property
    def passed(self) -> bool:
        if self.sense == AT_MOST:
            return self.measured <= self.bar
        return self.measured >= self.bar

    def __str__(self) -> str:
        bar = f"{self.sense} {self.bar:g} {self.unit}"
        measured = f"{self.measured:.4g} {self.unit}"
        verdict = "pass" if self.passed else "SHORT"
        return f"{self.what:<62} {bar:>15} {measured:>15}  {verdict:<5}  {self.note}".rstrip()


def at_most(what: str, bar: float, measured: float, unit: str = "x", note: str = "") -> Row:
    return Row(what, AT_MOST, bar, measured, unit, note)


def at_least(what: str, bar: float, measured: float, unit: str = "x", note: str = "") -> Row:
    return Row(what, AT_LEAST, bar, measured, unit, note)


def paired(jobs: Sequence[Callable[[], float]], rounds: int) -> tuple[list[float], list[float]]:
    """The median of each job, and the median of its ratios to the first job of the same round."""
    figures = interleaved(jobs, rounds)
    ratios = [
        median(own / first for own, first in zip(rows, figures[0], strict=True)) for rows in figures
    ]
    return [median(rows) for rows in figures], ratios

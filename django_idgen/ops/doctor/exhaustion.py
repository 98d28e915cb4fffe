"""Examination ``exhaustion``: when ids, or the columns that hold them, come to their end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Q

from ...core.clock import moment
from ...core.segment import MAX_ID
from ...models import LeafAlloc
from ...process.tags import is_row_of, source_behind_pool
from .columns import Narrow, narrow_in
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

__all__ = ["ERROR_YEARS", "NAME", "WARNING_YEARS", "examine"]

NAME = "exhaustion"
WARNING_YEARS = 5.0
ERROR_YEARS = 1.0
YEAR = 365.25 * 86_400
HIGH = MAX_ID // 2
"""A tag past it is looked at whether its rate is known or not."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each layout, tag or column that is used up within a few years."""
    yield from _layouts(project)
    if not source_behind_pool().keeps_rows:
        return
    narrow = _narrow_by_tag(project)
    for alias in project.up():
        if project.has(alias, "LeafAlloc"):
            yield from attempt(NAME, f"database {alias!r}", _tags(alias, narrow))


def _layouts(project: Project) -> Iterator[Finding]:
    now = moment(project.now_us())
    for entry in project.generators():
        end = entry.layout.exhausted_at
        years = (end - now) / timedelta(seconds=YEAR)
        if years < WARNING_YEARS:
            longer = entry.layout.longer
            yield Finding(
                NAME,
                _severity(years),
                f"generator {entry.alias!r}",
                f"It has no ids after {end:%Y-%m-%d}: the time bits of its layout "
                f"({entry.layout}) end there.",
                "From then on no id can be had.",
                "Choose a later EPOCH, or a LAYOUT with more time bits or longer ticks"
                f"{longer and f', such as {longer}'}, in time, and have idgen_doctor --fix move "
                "the namespace. An alias that only decodes old ids can stay as it is.",
            )


def _narrow_by_tag(project: Project) -> dict[str, list[Narrow]]:
    found: dict[str, list[Narrow]] = defaultdict(list)
    for alias in project.up():
        for narrow in narrow_in(project, alias):
            if isinstance(narrow, Narrow) and narrow.tag is not None:
                found[narrow.tag].append(narrow)
    return found


def _tags(alias: str, narrow: dict[str, list[Narrow]]) -> Iterator[Finding]:
    wanted = Q(rate__gt=0) | Q(max_id__gt=HIGH) | Q(pk__in=list(narrow))
    rows = LeafAlloc.objects.using(alias).filter(wanted)
    names = ("biz_tag", "max_id", "rate", "delta")
    for tag, max_id, rate, delta in rows.values_list(*names).iterator(chunk_size=2000):
        if not is_row_of(tag, alias):
            continue
        pace = rate * max(delta, 1) * YEAR
        yield from _end_of(tag, alias, (MAX_ID - max_id), pace, max_id)
        for each in narrow.get(tag, ()):
            yield from _end_of_column(tag, each, each.highest - max_id, pace)


def _end_of(tag: str, alias: str, left: int, pace: float, max_id: int) -> Iterator[Finding]:
    years = _years(left, pace)
    if max_id <= HIGH and (years is None or years >= WARNING_YEARS):
        return
    lasts = "" if years is None else f", which last {_span(years)} at its present rate"
    yield Finding(
        NAME,
        Severity.WARNING if years is None else _severity(years),
        f"tag {tag!r} in database {alias!r}",
        f"It stands at {max_id}, and has {left} ids left{lasts}.",
        "Ids end at 2**63-1.",
        "If it was raised by mistake, see the examination 'marks'; else plan for another tag.",
    )


def _end_of_column(tag: str, narrow: Narrow, left: int, pace: float) -> Iterator[Finding]:
    years = _years(left, pace)
    if years is not None and left >= 0 and years < WARNING_YEARS:
        yield Finding(
            NAME,
            _severity(years),
            narrow.words,
            f"It holds ids up to {narrow.highest}; tag {tag!r} comes to that in {_span(years)}.",
            "From then on no row can be written.",
            "Change the column to bigint before that.",
        )


def _years(left: int, pace: float) -> float | None:
    return left / pace if pace > 0 else None


def _span(years: float) -> str:
    return f"{years:.1f} years" if years >= 1 else f"{years * 365.25:.0f} days"


def _severity(years: float) -> Severity:
    return Severity.ERROR if years < ERROR_YEARS else Severity.WARNING

"""Examination ``exhaustion``: layouts, tags and columns that run out of ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Q

from ...core.clock import moment
from ...core.segment import MAX_ID
from ...models import LeafAlloc
from ...process.tags import is_row_of, source_behind_pool
from .columns import NarrowColumn, narrow_columns_in
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

WARNING_YEARS = 5.0
ERROR_YEARS = 1.0
YEAR = 365.25 * 86_400
HIGH = MAX_ID // 2
"""A tag above it is reported even if its rate is unknown."""


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each layout, tag or column that runs out within a few years."""
    yield from _layouts(project)
    if not source_behind_pool().keeps_rows:
        return
    narrow: dict[str, list[NarrowColumn]] = defaultdict(list)
    for alias in project.reachable():
        for each in narrow_columns_in(project, alias):
            if isinstance(each, NarrowColumn) and each.tag is not None:
                narrow[each.tag].append(each)
    for alias in project.reachable():
        if project.has(alias, "LeafAlloc"):
            yield from attempt(f"database {alias!r}", _tags(alias, narrow))


def _layouts(project: Project) -> Iterator[Finding]:
    now = moment(project.now_us())
    for entry in project.generators:
        end = entry.layout.exhausted_at
        years = (end - now) / timedelta(seconds=YEAR)
        if years < WARNING_YEARS:
            longer = entry.layout.longer
            yield Finding(
                _severity(years),
                f"generator {entry.alias!r}",
                f"It has no ids after {end:%Y-%m-%d}: the time bits of its layout "
                f"({entry.layout}) end there.",
                "After that it gives out no ids.",
                "Before then, choose a later EPOCH, or a LAYOUT with more time bits or longer "
                f"ticks{longer and f', such as {longer}'}, and run idgen_doctor --fix to move "
                "the namespace. A generator that only decodes old ids needs no change.",
            )


def _tags(alias: str, narrow: dict[str, list[NarrowColumn]]) -> Iterator[Finding]:
    wanted = Q(rate__gt=0) | Q(max_id__gt=HIGH) | Q(pk__in=list(narrow))
    rows = LeafAlloc.objects.using(alias).filter(wanted)
    names = ("biz_tag", "max_id", "rate", "delta")
    for tag, max_id, rate, delta in rows.values_list(*names).iterator(chunk_size=2000):
        if not is_row_of(tag, alias):
            continue
        a_year = rate * max(delta, 1) * YEAR
        years = (MAX_ID - max_id) / a_year if a_year else None
        if max_id > HIGH or (years is not None and years < WARNING_YEARS):
            lasts = "" if years is None else f", which last {_span(years)} at its present rate"
            yield Finding(
                Severity.WARNING if years is None else _severity(years),
                f"tag {tag!r} in database {alias!r}",
                f"Its next id is {max_id}, and {MAX_ID - max_id} ids are left{lasts}.",
                "Ids end at 2**63-1.",
                "If it was raised by mistake, run 'manage.py idgen_doctor --only marks'. "
                "Otherwise plan to use another tag.",
            )
        for each in narrow.get(tag, ()):
            left = each.highest - max_id
            if a_year and 0 <= left < WARNING_YEARS * a_year:
                years = left / a_year
                yield Finding(
                    _severity(years),
                    str(each),
                    f"It holds ids up to {each.highest}; tag {tag!r} reaches that in "
                    f"{_span(years)}.",
                    "After that no row can be written.",
                    "Change the column to bigint before that.",
                )


def _span(years: float) -> str:
    return f"{years:.1f} years" if years >= 1 else f"{years * 365.25:.0f} days"


def _severity(years: float) -> Severity:
    return Severity.ERROR if years < ERROR_YEARS else Severity.WARNING

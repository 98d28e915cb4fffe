"""Leaf's two pages: what this process holds of each tag, and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.http import HttpResponse
from django.utils.html import format_html, format_html_join

from ...core.segment import Segment
from ...db.stores import catch_up
from ...models import LeafAlloc
from ...ops.tags.rows import is_row_of, tag_databases
from ...process.handlers import segments

__all__ = ["PERMISSION", "cache", "db"]

PERMISSION = "django_idgen.view_leafalloc"
MOST_ROWS = 1000
"""Rows that a page shows; the admin has them all, by pages."""
SHOWN = ("biz_tag", "max_id", "step", "description", "update_time", "delta", "remainder", "rate")


def cache(serves: Callable[[str], bool]) -> HttpResponse:
    """The tags that this process has used, with the segments that it holds."""
    made = sorted((tag, each) for tag, each in segments.made().items() if serves(tag))
    rows = [_held(tag, generator.stats()) for tag, generator in made[:MOST_ROWS]]
    header = ("tag", "segment", "remaining", "ahead", "issued", "loads", "failures")
    return _page("Segments of this process", header, rows, len(made))


def db(serves: Callable[[str], bool]) -> HttpResponse:
    """The rows of ``leaf_alloc``, in every database that has tags."""
    found: list[Sequence[object]] = []
    for alias in tag_databases():
        catch_up(alias)
        rows = LeafAlloc.objects.using(alias).order_by("biz_tag").values_list(*SHOWN)
        found.extend((alias, *row) for row in rows if serves(row[0]) and is_row_of(row[0], alias))
    return _page("leaf_alloc", ("database", *SHOWN), found[:MOST_ROWS], len(found))


def _held(tag: str, stats: Any) -> Sequence[object]:
    names = ("remaining", "ahead", "issued", "loads", "failures")
    current: Segment | None = getattr(stats, "current", None)
    span = "" if current is None else f"[{current.start}, {current.stop})"
    return (tag, span, *(getattr(stats, name, "") for name in names))


def _page(
    title: str, header: Iterable[str], rows: Sequence[Sequence[object]], count: int
) -> HttpResponse:
    cells = ((format_html_join("", "<td>{}</td>", ((each,) for each in row)),) for row in rows)
    html = format_html(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        "<style>body{{font:14px sans-serif;margin:2em}}table{{border-collapse:collapse}}"
        "th,td{{border:1px solid #ccc;padding:.3em .7em;text-align:left}}</style></head>\n"
        "<body><h1>{title}</h1><p>{shown} of {count}</p>\n"
        "<table><thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody></table></body></html>\n",
        title=title,
        shown=len(rows),
        count=count,
        header=format_html_join("", "<th>{}</th>", ((each,) for each in header)),
        rows=format_html_join("", "<tr>{}</tr>\n", cells),
    )
    return HttpResponse(html)

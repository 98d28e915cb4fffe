"""The segment that an id came from, by the history, or by the ids given out so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import DatabaseError, transaction
from django.utils.functional import cached_property

from ...core.errors import IdgenError, one_line
from ...core.segment import check_tag
from ...core.source import POOL
from ...db.connection import home_of
from ...db.tables import is_missing
from ...models import LeafAlloc, SegmentHistory
from ...process import maps
from ...process.tags import is_row_of, source_in_use, tag_databases
from .snowflakes import utc_text

MOST_TAGS = 50
"""Tags shown for an id; with thousands of tags, a small id may belong to most of them."""
NO_HISTORY = "Which process got it is not recorded: the history does not have its range."
FROM_POOL = "Which process took it from the pool is not recorded."
GIVEN_BACK = "If that process gave it back to the pool, who took it from there is not recorded."

Document = dict[str, Any]


class Tags:
    """Reads numbers as ids of tags. Not thread-safe.

    A database that does not answer becomes a note, and is not asked again.
    """

    def __init__(self) -> None:
        self._notes: list[str] = []

    @cached_property
    def _aliases(self) -> list[str]:
        """The databases that have tags, and answer."""
        try:
            found = list(tag_databases())
        except (DatabaseError, IdgenError) as error:
            self._notes.append(one_line(error))
            return []
        if not found:
            self._notes.append("No database of this project has tags; a service may keep them.")
        return found

    def read(self, number: int, tags: Iterable[str] | None) -> Document:
        """The tags (among ``tags``, if given) that gave out ``number``, or may have.

        Those of the history first, then those of installed models. Raises :class:`InvalidTag`.
        """
        wanted = None if tags is None else [check_tag(tag) for tag in tags]
        rows: dict[str, list[LeafAlloc]] = {tag: [] for tag in wanted or ()}
        grants: dict[str, list[tuple[str, SegmentHistory]]] = defaultdict(list)
        more = 0
        for alias in list(self._aliases):
            try:
                # A savepoint, so that an error does not break the caller's transaction.
                with transaction.atomic(using=home_of(alias)):
                    found, further = _rows(alias, number, wanted)
                    names = [row.pk for row in found] if wanted is None else wanted
                    granted = _grants(alias, number, names)
            except (DatabaseError, IdgenError) as error:
                self._aliases.remove(alias)
                self._notes.append(f"Database “{alias}” can't be queried: {one_line(error)}")
                continue
            more = max(more, further)
            for row in found:
                rows.setdefault(row.pk, []).append(row)
            for grant in granted:
                grants[grant.tag].append((alias, grant))
        each = [_reading(tag, number, rows[tag], grants[tag]) for tag in rows]
        shown = [one for one in each if wanted is not None or one["standing"] != "ahead"]
        return {"tags": sorted(shown, key=_rank), "more_tags": more, "notes": list(self._notes)}


def _rows(alias: str, number: int, wanted: list[str] | None) -> tuple[list[LeafAlloc], int]:
    """The rows of the tags, first those that fields name, and how many more there are."""
    rows = LeafAlloc.objects.using(alias).only("pk", "max_id", "delta", "remainder")
    if wanted is not None:
        return [row for row in rows.filter(pk__in=wanted) if is_row_of(row.pk, alias)], 0
    past = rows.filter(max_id__gt=number)
    own = list(past.filter(pk__in=list(maps.segments.fields))[:MOST_TAGS])
    others = past.exclude(pk__in=[row.pk for row in own])
    room = MOST_TAGS - len(own)
    found = own + list(others.order_by("max_id", "pk")[:room])
    total = past.count()
    return [row for row in found if is_row_of(row.pk, alias)], max(0, total - len(found))


def _grants(alias: str, number: int, tags: Sequence[str]) -> list[SegmentHistory]:
    if is_missing("SegmentHistory", alias):
        return []
    # A replica has the rows of another database, too.
    here = [tag for tag in tags if is_row_of(tag, alias)]
    rows = SegmentHistory.objects.using(alias).filter(
        tag__in=here, start__lte=number, stop__gt=number
    )
    return [row for row in rows if (number - row.start) % row.delta == 0]


def _reading(
    tag: str,
    number: int,
    rows: Sequence[LeafAlloc],
    grants: Sequence[tuple[str, SegmentHistory]],
) -> Document:
    # More than one grant is a repeat: see ``history.who_issued``.
    latest = sorted(grants, key=lambda grant: grant[1].taken_at, reverse=True)
    standing = "granted" if grants else _standing(number, rows)
    return {
        "tag": tag,
        "standing": standing,
        "max_id": str(max((row.max_id for row in rows), default=1)),
        "fields": list(map(str, maps.segments.fields.get(tag, ()))),
        "grants": [_grant(*each) for each in latest],
        "not_recorded": _not_recorded(standing, [row.holder for _, row in latest]),
    }


def _grant(alias: str, row: SegmentHistory) -> Document:
    return {
        "database": alias,
        "holder": row.holder,
        "start": str(row.start),
        "stop": str(row.stop),
        "last": str(range(row.start, row.stop, row.delta)[-1]),
        "delta": row.delta,
        "taken_at": utc_text(row.taken_at),
    }


def _standing(number: int, rows: Sequence[LeafAlloc]) -> str:
    if not rows:
        return "unknown"
    given = any(
        number < row.max_id and number % row.delta == row.remainder % row.delta for row in rows
    )
    return "possible" if given else "ahead"


def _not_recorded(standing: str, holders: Sequence[str]) -> str:
    if standing == "possible":
        return NO_HISTORY
    if POOL in holders:
        return FROM_POOL
    return GIVEN_BACK if holders and source_in_use().is_pool else ""


def _rank(reading: Document) -> tuple[bool, bool, int, str]:
    granted = reading["standing"] == "granted"
    return (not granted, not reading["fields"], int(reading["max_id"]), reading["tag"])

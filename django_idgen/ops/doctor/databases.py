"""Checks of the rows of tags, of databases that share them, and of SQLite's second file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.checks import CheckMessage, Error, Info, Warning  # noqa: A004
from django.db import transaction
from django.db.models import Count, Q

from ...core.segment import ALONE, MAX_ID, Shard
from ...db import dialects
from ...db.connection import Place, home_connection, home_of, place_of
from ...db.rows import is_any, read_aggregate, read_first, read_values, rows_of
from ...db.sqlite import database_of, file_beside
from ...models import Installation, LeafAlloc
from ...process.tags import is_row_of, source_behind_pool
from .project import Project, attempt
from .tables import in_years, years_left

NOTICE_YEARS = 5.0
HIGH = MAX_ID // 2
"""A tag above it is reported even if its rate is unknown."""
SHOWN = 5
_USED = Q(max_id__gt=1) | Q(largest_step__gt=0)


def examine_exhaustion(project: Project) -> Iterator[CheckMessage]:
    """W024, E024: tags that run out of ids within a few years."""
    if source_behind_pool().keeps_rows:
        for alias in project.reachable():
            if project.has(alias, "LeafAlloc"):
                yield from attempt(f"database {alias!r}", _used_up(alias))


def _used_up(alias: str) -> Iterator[CheckMessage]:
    wanted = LeafAlloc.objects.using(alias).filter(Q(rate__gt=0) | Q(max_id__gt=HIGH))
    for row in wanted.only("biz_tag", "max_id", "rate", "delta").iterator(chunk_size=2000):
        years = years_left(row, MAX_ID)
        if (row.max_id > HIGH or years < NOTICE_YEARS) and is_row_of(row.pk, alias):
            left = MAX_ID - row.max_id
            yield (Error if years < 1 else Warning)(
                f"Its next id is {row.max_id}. Of the ids up to 2**63-1, {left} are left; at the "
                f"present rate they end{in_years(years) or ' at an unknown time'}.",
                hint="If it was raised by mistake, run 'manage.py idgen_doctor --only marks'. "
                "Otherwise plan to use another tag.",
                obj=f"tag {row.pk!r} in database {alias!r}",
                id=f"django_idgen.{'E024' if years < 1 else 'W024'}",
            )


# --- databases that share tags --------------------------------------------------------


def examine_databases(project: Project) -> Iterator[CheckMessage]:
    """W027, E028, I029: databases that disagree about a tag, or whose server changed."""
    source: Any = source_behind_pool()
    if source.keeps_rows:
        shared = [] if source.is_routed else list(source.databases())
        for alias in source.databases():
            is_server = alias in project.reachable() and place_of(alias) is Place.SERVER
            if is_server and project.has(alias, "LeafAlloc", "Installation"):
                yield from attempt(f"database {alias!r}", _agrees(alias, shared))


def _agrees(alias: str, shared: Sequence[str]) -> Iterator[CheckMessage]:
    subject = f"database {alias!r}"
    installation = read_first(rows_of(Installation, alias).filter(pk=1))
    if installation is None:
        yield Warning(
            "The installation's row is gone: the tables were emptied. The next fetch or lease "
            "skips ahead, as after a loss.",
            hint="Find out what emptied them; 'manage.py flush' leaves these tables alone.",
            obj=subject,
            id="django_idgen.W027",
        )
        return
    used = rows_of(LeafAlloc, alias).order_by("pk").filter(_USED)
    shard = Shard(installation.delta, installation.remainder)
    wanted = Shard(len(shared), shared.index(alias)) if len(shared) > 1 else shard
    if shard != wanted and not (shard == ALONE and not is_any(used)):
        yield Error(
            f"Its tags are made with {shard}, but 'databases' in the settings gives it {wanted}: "
            f"processes with these settings are refused, since ids would repeat.",
            hint="Restore the list, in its order; 'manage.py idgen_grow' moves the rows to a "
            "longer one.",
            obj=subject,
            id="django_idgen.E028",
        )
    others = used.exclude(delta=shard.delta, remainder=shard.remainder)
    if rows := read_values(others[: SHOWN + 1], "pk", "delta", "remainder"):
        shown = "; ".join(f"{tag!r} has {Shard(delta, rest)}" for tag, delta, rest in rows[:SHOWN])
        yield Error(
            f"Tags have other values than its {shard}, so their ids may repeat those of another "
            f"database: {shown}{' and more' if len(rows) > SHOWN else ''}.",
            hint="Find out where the rows come from.",
            obj=subject,
            id="django_idgen.E028",
        )
    with transaction.atomic(using=home_of(alias)):
        server = dialects.server_identity(home_connection(alias))
    elsewhere = rows_of(LeafAlloc, alias).exclude(server__in=["", server])
    if server and (count := read_aggregate(elsewhere, Count("pk"))):
        yield Info(
            f"Tags that were last used on another server than {server}: {count}. It may have "
            f"missed fetches, so the next fetch of each of them skips ahead.",
            hint="If it is a restored backup, run 'manage.py idgen_skip --all' now.",
            obj=subject,
            id="django_idgen.I029",
        )


# --- SQLite ---------------------------------------------------------------------------


def examine_files(project: Project) -> Iterator[CheckMessage]:
    """W033, E033: an id file beside a SQLite database that is gone, or can't be used."""
    for alias in project.reachable():
        database = database_of(alias)
        if database is not None and "django_idgen_identity" in project.tables(alias):
            yield from attempt(f"database {alias!r}", _file(f"database {alias!r}", database))


def _file(subject: str, database: Path) -> Iterator[CheckMessage]:
    path = file_beside(database)
    if not path.exists():
        yield Warning(
            f"Its id file {str(path)!r} is gone. The next process makes a new one, in which tags "
            f"begin a distance above the rows of their tables, because some ids may be in no row.",
            hint="Move the file along with the database; find out what deletes it.",
            obj=subject,
            id="django_idgen.W033",
        )
        return
    refused = [str(each) for each in (path, path.parent) if not os.access(each, os.W_OK)]
    if refused:
        yield Error(
            f"This user may not write to {', '.join(map(repr, refused))}. Ids need write access to "
            f"the file and, for SQLite's journal, to its directory.",
            hint="Give the user of the site both rights.",
            obj=subject,
            id="django_idgen.E033",
        )
    if path.stat().st_dev != database.stat().st_dev:
        yield Warning(
            f"The id file {str(path)!r} is on another file system than the database: a snapshot or "
            f"backup of one does not contain the other.",
            hint="Keep both on one file system.",
            obj=subject,
            id="django_idgen.W033",
        )

"""Examination ``databases``: databases that disagree about a tag, or whose server changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Count, Q

from ...core.segment import ALONE, Shard
from ...db import dialects
from ...db.connection import Place, home_of, place_of
from ...db.rows import is_any, read_aggregate, read_first, read_values, rows_of
from ...models import Installation, LeafAlloc
from ...process.tags import source_behind_pool
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

_USED = Q(max_id__gt=1) | Q(largest_step__gt=0)
SHOWN = 5


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """A finding for each database that disagrees with the settings, its rows or the others."""
    source: Any = source_behind_pool()
    if not source.keeps_rows:
        return
    aliases = [
        alias
        for alias in source.databases()
        if alias in project.reachable()
        and place_of(alias) is Place.SERVER
        and project.has(alias, "LeafAlloc", "Installation")
    ]
    shared = [] if source.is_routed else list(source.databases())
    for alias in aliases:
        yield from attempt(f"database {alias!r}", _of_database(project, alias, shared))
    if len(shared) > 1 and set(shared) == set(aliases):
        yield from _missing_rows(shared)


def _of_database(project: Project, alias: str, shared: Sequence[str]) -> Iterator[Finding]:
    subject = f"database {alias!r}"
    installation = read_first(rows_of(Installation, alias).filter(pk=1))
    if installation is None:
        yield Finding(
            Severity.WARNING,
            subject,
            "The installation's row is gone: the tables were emptied.",
            "The next fetch or lease skips ahead, as after a loss.",
            "Find out what emptied them; 'manage.py flush' leaves these tables alone.",
        )
        return
    shard = Shard(installation.delta, installation.remainder)
    wanted = Shard(len(shared), shared.index(alias)) if len(shared) > 1 else shard
    if shard != wanted and not (shard == ALONE and not is_any(_rows(alias).filter(_USED))):
        yield Finding(
            Severity.ERROR,
            subject,
            f"Its tags are made with {shard}, but 'databases' in the settings gives it {wanted}.",
            "Processes with these settings are refused: ids would repeat.",
            "Restore the list, in its order; 'manage.py idgen_grow' moves the rows to a longer "
            "one.",
        )
    yield from _rows_of_another_shard(alias, shard)
    yield from _rows_of_another_server(project, alias)


def _rows(alias: str) -> Any:
    return rows_of(LeafAlloc, alias).order_by("pk")


def _rows_of_another_shard(alias: str, shard: Shard) -> Iterator[Finding]:
    others = _rows(alias).filter(_USED).exclude(delta=shard.delta, remainder=shard.remainder)
    rows = read_values(others[: SHOWN + 1], "pk", "delta", "remainder")
    if rows:
        shown = "; ".join(f"{tag!r} has {Shard(delta, rest)}" for tag, delta, rest in rows[:SHOWN])
        yield Finding(
            Severity.ERROR,
            f"database {alias!r}",
            f"Tags have other values than its {shard}: "
            f"{shown}{' and more' if len(rows) > SHOWN else ''}.",
            "Their ids may repeat those of another database.",
            "Find out where the rows come from.",
        )


def _rows_of_another_server(project: Project, alias: str) -> Iterator[Finding]:
    with project.reading(home_of(alias)) as connection:
        server = dialects.server_identity(connection)
    others = _rows(alias).exclude(server="").exclude(server=server)
    count = read_aggregate(others, Count("pk")) if server else 0
    if count:
        yield Finding(
            Severity.INFO,
            f"database {alias!r}",
            f"Tags that were last used on another server than {server}: {count}.",
            "A server that took over may have missed fetches, so the next fetch of each tag skips "
            "ahead.",
            "If it is a restored backup, run 'manage.py idgen_skip --all' now.",
        )


def _missing_rows(shared: Sequence[str]) -> Iterator[Finding]:
    tags = {
        alias: {tag for (tag,) in read_values(_rows(alias).filter(_USED), "pk")} for alias in shared
    }
    for alias in shared:
        lacking = sorted(set().union(*tags.values()) - tags[alias])
        if lacking:
            yield Finding(
                Severity.INFO,
                f"database {alias!r}",
                f"Tags that others have, and of which it has given out no ids: {len(lacking)}, "
                f"such as {', '.join(map(repr, lacking[:SHOWN]))}.",
                "The first fetch from it makes the row. If it had rows before, they were lost.",
            )

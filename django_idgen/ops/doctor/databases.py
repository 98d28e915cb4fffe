"""Examination ``databases``: rows of tags that don't agree with their database, or each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Q

from ...core.segment import ALONE, Shard
from ...db import dialects
from ...db.connection import Place, home_of, place_of
from ...models import Installation, LeafAlloc
from ...process.tags import source_behind_pool
from .findings import Finding, Severity, Unexamined
from .project import Project, attempt

__all__ = ["NAME", "examine"]

NAME = "databases"
_USED = Q(max_id__gt=1) | Q(largest_step__gt=0)
SHOWN = 5


def examine(project: Project) -> Iterator[Finding | Unexamined]:
    """What differs between databases that share tags, or that took over from another server."""
    source: Any = source_behind_pool()
    if not source.keeps_rows:
        return
    aliases = [
        alias
        for alias in source.databases()
        if alias in project.up()
        and place_of(alias) is Place.SERVER
        and project.has(alias, "LeafAlloc", "Installation")
    ]
    shared = [] if source.is_routed else list(source.databases())
    for alias in aliases:
        yield from attempt(NAME, f"database {alias!r}", _of_database(project, alias, shared))
    if len(shared) > 1 and set(shared) == set(aliases):
        yield from _missing(shared)


def _of_database(project: Project, alias: str, shared: Sequence[str]) -> Iterator[Finding]:
    installation = Installation.objects.using(alias).filter(pk=1).first()
    if installation is None:
        yield _emptied(alias)
        return
    shard = Shard(installation.delta, installation.remainder)
    wanted = Shard(len(shared), shared.index(alias)) if len(shared) > 1 else shard
    if shard != wanted and not (shard == ALONE and not _rows(alias).filter(_USED).exists()):
        yield _other_shard(alias, shard, wanted)
    yield from _other_rows(alias, shard)
    yield from _other_server(project, alias)


def _rows(alias: str) -> Any:
    return LeafAlloc.objects.using(alias)


def _emptied(alias: str) -> Finding:
    return Finding(
        NAME,
        Severity.WARNING,
        f"database {alias!r}",
        "The row of the installation is gone: the tables were emptied.",
        "The next fetch, or lease, reckons with a loss: it skips ahead.",
        "See who did it; 'manage.py flush' leaves these tables alone.",
    )


def _other_shard(alias: str, shard: Shard, wanted: Shard) -> Finding:
    return Finding(
        NAME,
        Severity.ERROR,
        f"database {alias!r}",
        f"Its tags are made with {shard}, but by 'databases' of the settings it has {wanted}.",
        "Processes with these settings are refused: ids would repeat.",
        "Restore the list, in its order; 'manage.py idgen_grow' moves the rows to a longer one.",
    )


def _other_rows(alias: str, shard: Shard) -> Iterator[Finding]:
    others = _rows(alias).filter(_USED).exclude(delta=shard.delta, remainder=shard.remainder)
    rows = list(others.values_list("pk", "delta", "remainder")[: SHOWN + 1])
    if rows:
        words = "; ".join(f"{tag!r} has {Shard(delta, rest)}" for tag, delta, rest in rows[:SHOWN])
        yield Finding(
            NAME,
            Severity.ERROR,
            f"database {alias!r}",
            f"Tags don't have its {shard}: {words}{' and more' if len(rows) > SHOWN else ''}.",
            "Their ids may be those of another database.",
            "See where the rows come from. 'manage.py idgen_grow' goes on where it stopped.",
        )


def _other_server(project: Project, alias: str) -> Iterator[Finding]:
    with project.reading(home_of(alias)) as connection:
        server = dialects.server_identity(connection)
    others = _rows(alias).exclude(server="").exclude(server=server)
    count = others.count() if server else 0
    if count:
        yield Finding(
            NAME,
            Severity.INFO,
            f"database {alias!r}",
            f"{count} tags were last used on another server than {server}.",
            "A server that took over may have missed fetches: the next one of each tag skips "
            "ahead on its own.",
            "If it is a backup that was put back, run 'manage.py idgen_skip --all' now.",
        )


def _missing(shared: Sequence[str]) -> Iterator[Finding]:
    tags = {alias: set(_rows(alias).filter(_USED).values_list("pk", flat=True)) for alias in shared}
    every = set().union(*tags.values())
    for alias in shared:
        lacking = sorted(every - tags[alias])
        if lacking:
            yield Finding(
                NAME,
                Severity.INFO,
                f"database {alias!r}",
                f"It has given out no ids of {len(lacking)} tags that others have, such as "
                f"{', '.join(map(repr, lacking[:SHOWN]))}.",
                "It makes the row when it is first asked; if it had one, it was lost.",
                "",
            )

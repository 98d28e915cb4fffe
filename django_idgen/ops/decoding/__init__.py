"""Decoding: what a number, or its text, can be an id of.

>>> for reading in readings("ord_0ISQUWhLyEa"):
...     print(reading["id"], reading["why"])

A reading is one number that the text may mean, as a dictionary of what JSON can hold. The command
prints it, ``--json`` writes it, and the admin shows it::

    {"id", "text", "form", "prefix", "why", "fields": [the fields that have the prefix],
     "rows": [{"field", "exists": true, false, or null with a "problem", "row": its title}],
     "generators": [
       {"generator", "namespace", "plausible", "doubts": [why it is hardly one of its ids],
        "parts": null if the layout has no such id, or {"id", "time", "time_ms", "tick", "worker",
                 "worker_parts", "sequence", "batch"},
        "fields": [{"name", "bits", "offset": bits below it, "value", "digits", "parts"}],
        "layout": {"name", "bits", "tick_ms", "epoch", "text"},
        "held_by": null or {"holder", "acquired_at"}, "held_by_unknown": why it is null}],
     "tags": [
       {"tag", "standing": "granted", "possible", "ahead" or "unknown",
        "max_id": the first id that was not given out, "fields": [those with this tag],
        "grants": [{"database", "holder", "start", "stop": exclusive, "last", "delta", "taken_at"}],
        "not_recorded": what nothing says of its holder}],
     "more_tags": how many others are past it, "notes": [what could not be read, and why]}

Ids are strings: JavaScript reads numbers past 2**53 wrong. Times are in ISO 8601, UTC. Rows are
looked up in the models whose prefix the text has, and only their generators and tags are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db import DatabaseError, OperationalError, router, transaction

from ...core.errors import IdgenError, one_line
from ...core.segment import check_tag
from ...fields import SegmentSource, SnowflakeSource
from .grants import Tags
from .snowflakes import Registries, layout_document, parts_document, snowflake_readings
from .spellings import FORMS, Spelling, spellings

__all__ = ["FORMS", "layout_document", "parts_document", "readings", "spellings"]

Reading = dict[str, Any]


def readings(
    given: object,
    *,
    generator: str | None = None,
    tag: str | None = None,
    form: str | None = None,
    now: datetime | None = None,
    offline: bool = False,
) -> list[Reading]:
    """All readings of ``given``, as above; the likeliest first.

    ``generator`` and ``tag``: only these. ``form`` (one of :data:`FORMS`): only this way to read
    the text. ``now`` decides whether an id lies in the future. ``offline`` asks no database,
    Redis or service, and reads everything by today's layouts. Otherwise an id made before a
    change of layout is read by its own layout, and a reading names what does not answer.

    Raises :class:`InvalidId` for what is not an id, :class:`SettingsError` for an unknown
    generator, and :class:`InvalidTag`.
    """
    moment = datetime.now(UTC) if now is None else now
    if tag is not None:
        check_tag(tag)
    # They remember what does not answer, for all spellings.
    registries, known_tags = (None, None) if offline else (Registries(), Tags())
    found = []
    for spelling in spellings(given, form=form):
        aliases, tags = _candidates(spelling, generator, tag)
        reading: Reading = {
            "id": str(spelling.id),
            "text": spelling.text,
            "form": spelling.form,
            "prefix": spelling.prefix,
            "why": spelling.why,
            "fields": list(map(str, spelling.fields)),
            "rows": [],
            "generators": snowflake_readings(
                spelling.id, aliases, now=moment, registries=registries
            ),
            "tags": [],
            "more_tags": 0,
            "notes": [],
        }
        if known_tags is not None and tags != []:
            reading |= known_tags.read(spelling.id, tags)
        if not offline and spelling.prefix:
            reading["rows"] = list(_rows(spelling))
        found.append(reading)
    return found


def _candidates(
    spelling: Spelling, generator: str | None, tag: str | None
) -> tuple[list[str] | None, list[str] | None]:
    """The aliases and tags that the id may come from; None for all."""
    if generator is not None or tag is not None:
        return [generator] if generator else [], [tag] if tag else []
    if not spelling.prefix:
        return None, None
    aliases = (field.generator for field in spelling.fields if isinstance(field, SnowflakeSource))
    tags = (field.resolved_tag for field in spelling.fields if isinstance(field, SegmentSource))
    return list(dict.fromkeys(aliases)), list(dict.fromkeys(tags))


def _rows(spelling: Spelling) -> Iterator[Reading]:
    """Whether the models with the prefix have a row with the id."""
    away: set[str] = set()  # databases that don't answer are asked once
    for field in spelling.fields:
        alias = router.db_for_read(field.model)
        if alias not in away:
            found: Reading = {"field": str(field), "exists": None, "row": "", "problem": ""}
            try:
                # A savepoint, so that an error does not break the caller's transaction.
                with transaction.atomic(using=alias):
                    rows = field.model._base_manager.using(alias)
                    row = rows.filter(**{field.attname: spelling.id}).first()
                found |= {"exists": row is not None, "row": "" if row is None else str(row)}
            except (DatabaseError, IdgenError) as error:
                if isinstance(error, OperationalError):
                    away.add(alias)
                table = field.model._meta.db_table
                found["problem"] = f"“{table}” can't be queried: {one_line(error)}"
            yield found

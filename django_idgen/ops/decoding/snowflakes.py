"""An id read by each generator of the settings: its parts, its bits, its holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DatabaseError

from ...core.clock import moment
from ...core.errors import IdgenError, InvalidId, RegistryUnavailable, one_line
from ...core.layout import BitLayout, IdParts, Pairs
from ...core.stored import Era
from ...db.dialects import aware_moment
from ...process.maps import current_settings, generator_settings, registries
from ...settings.config import GeneratorSettings
from ..workers import who_held

Document = dict[str, Any]

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
AT_THE_EPOCH = timedelta(hours=1)
"""Any small number reads as a time in that hour, in which a project makes few ids."""
WINDOWS_AHEAD = 4
"""How many windows a stamp may be ahead of the time: after a loss, by the stride and its own."""
IN_THE_LOG = "not recorded; the log says who had it then (lease_acquired)"
NOT_LENT = "its worker id is not lent now: the log says who had it then, or idgen_adopt made the id"


def snowflake_readings(
    number: int,
    aliases: Iterable[str] | None = None,
    *,
    now: datetime,
    registries: Registries | None = None,
) -> list[Document]:
    """``number`` read by each generator (of ``aliases``, or all that make snowflakes).

    First the plausible readings, and of those first the ones whose holder is known.
    ``registries`` know the holders, and former layouts and epochs. A reading names a registry
    that does not answer. Raises :class:`SettingsError` for an unknown alias.
    """
    settings = current_settings().generators
    chosen = settings if aliases is None else aliases
    entries = [generator_settings(alias) for alias in chosen]
    found = [
        _reading(number, entry, now, registries)
        for entry in entries
        if aliases is not None or has_parts(entry)
    ]
    return sorted(found, key=lambda each: (not each["plausible"], each["held_by"] is None))


def has_parts(entry: GeneratorSettings) -> bool:
    return bool(entry.backend.load().has_parts)


def _reading(
    number: int, entry: GeneratorSettings, now: datetime, registries: Registries | None
) -> Document:
    era = registries.era(number, entry) if registries else None
    moved = era is not None and era.layout.fingerprint() != entry.layout.fingerprint()
    layout = era.layout if era and moved else entry.layout  # today's names worker parts
    reading: Document = {
        "generator": entry.alias,
        "namespace": entry.namespace,
        "plausible": False,
        "doubts": [],
        "parts": None,
        "fields": [],
        "layout": {**layout_document(layout), "text": str(layout)},
        "held_by": None,
        "held_by_unknown": "",
    }
    try:
        parts = layout.unpack(number)
    except InvalidId as error:
        return {**reading, "doubts": [str(error)]}
    workers = era.workers if era else entry.workers
    doubts = list(_doubts(parts, layout, workers, now + _ahead(entry)))
    if registries and moved:
        reading["held_by_unknown"] = IN_THE_LOG  # the ticks of the leases are of today's layout
    elif registries and not doubts:
        reading |= registries.holder(entry.alias, parts)
    if reading["held_by_unknown"] == IN_THE_LOG and parts.worker not in entry.workers:
        reading["held_by_unknown"] = NOT_LENT
    return reading | {
        "plausible": not doubts,
        "doubts": doubts,
        "parts": {**parts_document(parts), "tick": parts.tick},
        "fields": _fields(layout, number),
    }


def _doubts(parts: IdParts, layout: BitLayout, workers: range, latest: datetime) -> Iterator[str]:
    """Why it is hardly an id of the generator."""
    created = parts.created
    if created > latest:
        yield f"its time is in the future: {utc_text(created)}"
    elif created - moment(layout.epoch_us) < AT_THE_EPOCH:
        yield "its time is within an hour of the epoch, as for any small number"
    if parts.worker not in workers:
        lent = f"{workers.start} to {workers.stop - 1}"
        yield f"worker id {parts.worker} is not one of {lent}, which are lent here"


def _ahead(entry: GeneratorSettings) -> timedelta:
    return timedelta(seconds=WINDOWS_AHEAD * entry.window + entry.skew_limit)


# --- what registries know -----------------------------------------------------------------


class Registries:
    """Asks the registries of generators. One that does not answer is only tried once.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._unavailable: dict[str, str] = {}
        self._eras: dict[str, tuple[Era, ...]] = {}

    def era(self, number: int, entry: GeneratorSettings) -> Era | None:
        """What was made under earlier settings, or claimed for old rows, that can be ``number``.

        Today's registry lends none of its ids: see :mod:`...core.stored`.
        """
        if entry.alias not in self._eras:
            self._eras[entry.alias] = self._read(entry)
        return next((era for era in self._eras[entry.alias] if _has(era, number)), None)

    def holder(self, alias: str, parts: IdParts) -> Document:
        """Who holds the lease that the id was made under; or why that is unknown."""
        if alias in self._unavailable:
            return {"held_by_unknown": self._unavailable[alias]}
        try:
            found = who_held(alias, parts.worker, parts.tick)
        except (IdgenError, DatabaseError) as error:
            return {"held_by_unknown": self._note(alias, error)}
        if found is None:
            return {"held_by_unknown": IN_THE_LOG}
        since = found.acquired_at
        acquired_at = None if since is None else utc_text(since)
        return {"held_by": {"holder": found.mark.holder, "acquired_at": acquired_at}}

    def _read(self, entry: GeneratorSettings) -> tuple[Era, ...]:
        try:
            book = registries[entry.alias].stored_book()
            stored = book.read() if book else None
        except (IdgenError, DatabaseError) as error:
            self._note(entry.alias, error)
            return ()
        return tuple(era for era in stored.eras if not era.closes) if stored else ()

    def _note(self, alias: str, error: Exception) -> str:
        text = one_line(error)
        if isinstance(error, RegistryUnavailable):
            self._unavailable[alias] = text
        return text


def _has(era: Era, number: int) -> bool:
    with suppress(InvalidId):
        parts = era.layout.unpack(number)
        return parts.tick < era.until and parts.worker in era.workers
    return False


# --- bits -----------------------------------------------------------------------------------


def _bits(number: int, columns: Pairs, lowest: int = 0) -> Iterator[Document]:
    """The fields ``columns`` of an id, highest bits first; the last one ends at bit ``lowest``."""
    offset = lowest + sum(bits for _, bits in columns)
    for name, bits in columns:
        offset -= bits
        value = number >> offset & (1 << bits) - 1
        if bits:
            digits = f"{value:0{bits}b}"
            yield {"name": name, "bits": bits, "offset": offset, "value": value, "digits": digits}


def _fields(layout: BitLayout, number: int) -> list[Document]:
    """The fields of an id, and the named parts of its worker id."""
    fields = list(_bits(number, layout.fields))
    for field in fields:
        if field["name"] == "worker":
            field["parts"] = list(_bits(number, layout.worker_parts, field["offset"]))
    return fields


# --- as JSON ----------------------------------------------------------------------------


def parts_document(parts: IdParts) -> dict[str, Any]:
    """The parts of an id for JSON: the id as text, its time in ISO 8601 and in ms."""
    return {
        "id": str(parts.id),
        "time": utc_text(parts.created),
        "time_ms": (parts.created - _UNIX) // timedelta(milliseconds=1),
        "worker": parts.worker,
        "worker_parts": dict(parts.worker_parts),
        "sequence": parts.sequence,
        "batch": parts.batch,
    }


def layout_document(layout: BitLayout) -> Mapping[str, Any]:
    """A layout for JSON: the bits of its fields, highest first."""
    return {
        "name": layout.name,
        "bits": dict(layout.fields),
        "tick_ms": layout.tick_us / 1000,
        "epoch": utc_text(moment(layout.epoch_us)),
    }


def utc_text(when: datetime) -> str:
    """A time in ISO 8601, UTC; a naive one is of the project's time zone."""
    return aware_moment(when).astimezone(UTC).isoformat().replace("+00:00", "Z")

"""An id read by each generator of the settings: its parts, its bits, its holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import DatabaseError
from django.utils.translation import gettext as _

from ...core.clock import moment
from ...core.errors import IdgenError, InvalidId, RegistryUnavailable, one_line
from ...core.inspection import InspectedMark
from ...core.layout import BitLayout, IdParts
from ...core.stored import Era
from ...process.maps import current_settings, generator_settings, registries
from ...settings.config import GeneratorSettings
from ..workers import who_held

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
AT_THE_EPOCH = timedelta(hours=1)
"""Any small number reads as a time in that hour, in which a project makes few ids."""
WINDOWS_AHEAD = 4
"""How many windows a stamp may be ahead of the time: after a loss, by the stride and its own."""


@dataclass(frozen=True, slots=True)
class BitField:
    """A field of a layout, with its bits in an id."""

    name: str
    bits: int
    offset: int
    """The number of bits below it."""
    value: int
    parts: tuple[BitField, ...] = ()
    """The named parts of a worker id, highest first."""

    @property
    def digits(self) -> str:
        """Its bits as text."""
        return f"{self.value:0{self.bits}b}" if self.bits else ""


@dataclass(frozen=True, slots=True)
class SnowflakeReading:
    """An id, read as one of the generator ``alias``."""

    alias: str
    namespace: str
    layout: BitLayout
    """Today's layout, or the earlier one that the id was made with."""
    parts: IdParts | None
    """None if the layout has no such id."""
    fields: tuple[BitField, ...]
    """Highest bits first; empty without ``parts``."""
    doubts: tuple[str, ...]
    """Why it is hardly an id of this generator."""
    lease: InspectedMark | None = None
    """The worker id's stored lease, if the id lies in its window."""
    holder_unknown: str = ""
    """Why there is no such lease."""

    @property
    def is_plausible(self) -> bool:
        return not self.doubts


def snowflake_readings(
    number: int,
    aliases: Iterable[str] | None = None,
    *,
    now: datetime,
    registries: Registries | None = None,
) -> tuple[SnowflakeReading, ...]:
    """``number`` read by each generator (of ``aliases``, or all that make snowflakes).

    First the plausible readings, and of those first the ones whose holder is known.
    ``registries`` know the holders, and former layouts and epochs. A reading names a registry
    that does not answer. Raises :class:`SettingsError` for an unknown alias.
    """
    settings = current_settings().generators
    chosen = settings if aliases is None else aliases
    entries = [generator_settings(alias) for alias in chosen]
    found = [
        snowflake_reading(number, entry, now=now, registries=registries)
        for entry in entries
        if aliases is not None or has_parts(entry)
    ]
    return tuple(sorted(found, key=lambda each: (not each.is_plausible, each.lease is None)))


def has_parts(entry: GeneratorSettings) -> bool:
    return bool(entry.backend.load().has_parts)


def snowflake_reading(
    number: int, entry: GeneratorSettings, *, now: datetime, registries: Registries | None = None
) -> SnowflakeReading:
    """``number`` read by the generator of ``entry``; see :func:`snowflake_readings`."""
    era = registries.era(number, entry) if registries else None
    moved = era is not None and era.layout.fingerprint() != entry.layout.fingerprint()
    layout = era.layout if era and moved else entry.layout  # today's names worker parts
    try:
        parts = layout.unpack(number)
    except InvalidId as error:
        return SnowflakeReading(entry.alias, entry.namespace, layout, None, (), (str(error),))
    workers = era.workers if era else entry.workers
    doubts = tuple(_doubts(parts, layout, workers, now + _ahead(entry)))
    lease, unknown = None, ""
    if registries and moved:
        unknown = _in_the_log()  # the ticks of the leases are of today's layout
    elif registries and not doubts:
        lease, unknown = registries.lease(entry.alias, parts)
    fields = bit_fields(layout, parts)
    return SnowflakeReading(
        entry.alias, entry.namespace, layout, parts, fields, doubts, lease, unknown
    )


def _doubts(parts: IdParts, layout: BitLayout, workers: range, latest: datetime) -> Iterator[str]:
    created = parts.created
    if created > latest:
        yield _("its time is in the future: %(moment)s") % {"moment": _text(created)}
    elif created - moment(layout.epoch_us) < AT_THE_EPOCH:
        yield _("its time is within an hour of the epoch, as for any small number")
    if parts.worker not in workers:
        yield _("worker id %(worker)d is not one of %(first)d to %(last)d, which are lent here") % {
            "worker": parts.worker,
            "first": workers.start,
            "last": workers.stop - 1,
        }


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
        """The earlier settings of the namespace that can have made ``number``, if any.

        Ids of today's settings are never among their ids: see :mod:`...core.stored`.
        """
        if entry.alias not in self._eras:
            self._eras[entry.alias] = self._read(entry)
        return next((era for era in self._eras[entry.alias] if _has(era, number)), None)

    def lease(self, alias: str, parts: IdParts) -> tuple[InspectedMark | None, str]:
        """The lease that the id was made under; or why that is unknown."""
        if alias in self._unavailable:
            return None, self._unavailable[alias]
        try:
            found = who_held(alias, parts.worker, parts.tick)
        except (IdgenError, DatabaseError) as error:
            return None, self._note(alias, error)
        return found, "" if found else _in_the_log()

    def _read(self, entry: GeneratorSettings) -> tuple[Era, ...]:
        try:
            book = registries[entry.alias].stored_book()
            stored = book.read() if book else None
        except (IdgenError, DatabaseError) as error:
            self._note(entry.alias, error)
            return ()
        return stored.eras if stored else ()

    def _note(self, alias: str, error: Exception) -> str:
        text = one_line(error)
        if isinstance(error, RegistryUnavailable):
            self._unavailable[alias] = text
        return text


def _in_the_log() -> str:
    return _("the log says who had it then (lease_acquired)")


def _has(era: Era, number: int) -> bool:
    with suppress(InvalidId):
        parts = era.layout.unpack(number)
        return parts.tick < era.until and parts.worker in era.workers
    return False


# --- bits -----------------------------------------------------------------------------------


def bit_fields(layout: BitLayout, parts: IdParts) -> tuple[BitField, ...]:
    """The fields of an id, highest bits first."""
    offset, found = layout.bits, []
    for name, bits in layout.fields:
        offset -= bits
        value = parts.id >> offset & (1 << bits) - 1
        named = _worker_parts(layout, parts, offset) if name == "worker" else ()
        if bits:
            found.append(BitField(name, bits, offset, value, named))
    return tuple(found)


def _worker_parts(layout: BitLayout, parts: IdParts, offset: int) -> tuple[BitField, ...]:
    offset += sum(bits for _, bits in layout.worker_parts)
    found = []
    for name, bits in layout.worker_parts:
        offset -= bits
        if bits:
            found.append(BitField(name, bits, offset, parts.worker_parts[name]))
    return tuple(found)


# --- as JSON ----------------------------------------------------------------------------


def parts_document(parts: IdParts) -> dict[str, Any]:
    """The parts of an id for JSON: the id as text, its time in ISO 8601 and in ms."""
    return {
        "id": str(parts.id),
        "time": _text(parts.created),
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
        "epoch": _text(moment(layout.epoch_us)),
    }


def _text(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")

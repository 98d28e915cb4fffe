"""What the rows of :class:`WorkerLease` mean: the same as the map of worker ids says.

The window is in the settings, not in the rows. So the registry that lends from the rows is
asked. Rows from which no registry lends (any more) are read alone, by the same rule.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.utils.timezone import is_aware, make_aware

from ..core.clock import SYSTEM_CLOCK, unix_us
from ..core.errors import IdgenError
from ..core.inspection import InspectedMark, Inspection, Ticks, WorkerEntry, entries_of, entry_of
from ..core.lease import Mark
from ..core.registry import Registry
from ..db.connection import home_connection
from ..db.tables import missing_tables
from ..models import NamespaceRecord, WorkerLease
from ..process.handlers import current_settings
from .worker_map import registry_in_use

__all__ = ["told", "told_by_themselves"]

Told = dict[str, WorkerEntry]
"""By the key of the row."""


def told(rows: Iterable[WorkerLease], alias: str) -> Told:
    """What each of ``rows``, of the database ``alias``, means just now.

    Asks the registries that lend from there, each for these worker ids alone.
    """
    found = told_by_themselves(rows, alias)
    wanted: dict[str, set[int]] = defaultdict(set)
    for entry in found.values():
        wanted[entry.namespace].add(entry.worker)
    for inspection in _inspections(wanted, alias):
        for entry in entries_of(inspection):
            key = WorkerLease.key_of(entry.namespace, entry.worker)
            if key in found:
                found[key] = entry
    return found


def _inspections(wanted: Mapping[str, Collection[int]], alias: str) -> Iterator[Inspection]:
    asked: set[str] = set()
    try:
        for entry in current_settings().generators.values():
            for part in registry_in_use(entry).parts():
                name = part.namespace.name
                if name in wanted and name not in asked and _lends_from(part, alias):
                    asked.add(name)
                    yield from part.inspect(wanted[name])
    except (IdgenError, ImproperlyConfigured, DatabaseError):
        return  # the map says why; what the rows say is shown all the same


def _lends_from(registry: Registry, alias: str) -> bool:
    return registry.uses_database and registry.database == alias


def told_by_themselves(rows: Iterable[WorkerLease], alias: str) -> Told:
    """As :func:`told`, by the rows and the records of their namespaces alone.

    By this host's clock: a lease that expires just now may be either.
    """
    found = list(rows)
    records = _records({row.namespace for row in found}, alias)
    now_us = SYSTEM_CLOCK.wall_ns() // 1000
    return {row.pk: _entry(row, records.get(row.namespace), alias, now_us) for row in found}


def _records(names: Collection[str], alias: str) -> Mapping[str, NamespaceRecord]:
    if not names or missing_tables(home_connection(alias), ["NamespaceRecord"]):
        return {}
    return NamespaceRecord.objects.using(alias).in_bulk(list(names))


def _entry(
    row: WorkerLease, record: NamespaceRecord | None, alias: str, now_us: int
) -> WorkerEntry:
    mark = Mark(row.worker, row.token, row.start, row.until, row.generation, row.holder)
    inspected = InspectedMark(
        mark,
        seen_us=_unix_us(row.seen_at),
        acquired_us=_unix_us(row.acquired_at),
        offset_us=row.clock_offset_us,
        void=record is None or record.generation != row.generation,
    )
    return entry_of(
        inspected,
        None if record is None else _ticks(record),
        now_us=now_us,
        namespace=row.namespace,
        registry="database",
        place=alias,
    )


def _ticks(record: NamespaceRecord) -> Ticks | None:
    try:
        found = json.loads(record.fingerprint or "{}")
        return Ticks(int(found["epoch_us"]), int(found["tick_us"]), record.largest_window)
    except (ValueError, TypeError, KeyError):
        return None


def _unix_us(at: datetime) -> int:
    return unix_us(at if is_aware(at) else make_aware(at))

"""The worker ids of a generator: who holds which, and freeing one by hand.

The registry (``LEASES`` of the generator's settings) decides what can be seen. A registry in a
database or in Redis shows the worker ids of all processes. One with a configured worker id shows
those of this host. A service that lends over HTTP shows none.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from ..core.clock import SYSTEM_CLOCK, unix_us
from ..core.errors import WorkerOutOfRange
from ..core.inspection import (
    InspectedMark,
    Ticks,
    WorkerEntry,
    WorkerMap,
    drawn,
    entry_of,
)
from ..core.lease import Mark
from ..core.registry import Registry
from ..db.dialects import aware_moment
from ..db.tables import is_missing
from ..models import NamespaceRecord, WorkerLease
from ..process import maps
from ..process.factory import registry_kind
from ..process.maps import registries
from ..settings.config import GeneratorSettings


def worker_map(alias: str) -> WorkerMap:
    """All worker ids of generator ``alias``. Takes none, changes nothing.

    One round trip (or transaction), and memory for the worker ids that were ever lent.

    Raises :class:`SettingsError` for an unknown alias, :class:`RegistryUnavailable` if the
    registry does not answer, and :class:`NotSeenFromHere`.
    """
    entry = maps.generator_settings(alias)
    found = _registry_in_use(entry).inspect()
    return drawn(alias, registry_kind(entry.leases), entry.layout.workers, found)


def release_worker(alias: str, worker: int, lease: str | None = None) -> bool:
    """Free ``worker`` by hand, as after its holder was killed; False if it is not held.

    ``lease``: the :attr:`~..core.inspection.WorkerEntry.lease` that was shown. If another lease
    has the worker id by now, nothing changes, and the result is False. Without ``lease`` any
    holder loses it.

    A living holder notices at its next renewal. It uses up its window and takes another lease.
    The next holder of ``worker`` starts after that window, so that no id repeats.

    Raises as :func:`worker_map`, and :class:`WorkerOutOfRange`.
    """
    entry = maps.generator_settings(alias)
    return _registry_in_use(entry).free(_checked(entry, worker), lease)


def who_held(alias: str, worker: int, tick: int) -> InspectedMark | None:
    """The stored lease of ``worker``, if ``tick`` (of the layout) is in its window.

    ``None`` for any other tick. A registry stores the last lease of each worker id; the log has
    the earlier ones (``lease_acquired``). Raises as :func:`release_worker`.
    """
    entry = maps.generator_settings(alias)
    found = _registry_in_use(entry).inspect([_checked(entry, worker)])
    return next((each for each in found.marks if each.mark.start <= tick < each.mark.until), None)


def _registry_in_use(entry: GeneratorSettings) -> Registry:
    # The generator's own, if there is one: a registry in memory only knows what itself lent.
    made = maps.generators.made().get(entry.alias)
    return made.keeper.registry if made and made.keeper else registries[entry.alias]


def _checked(entry: GeneratorSettings, worker: object) -> int:
    workers = entry.layout.workers
    if isinstance(worker, bool) or not isinstance(worker, int) or worker not in workers:
        raise WorkerOutOfRange(worker, workers)
    return worker


# --- rows of WorkerLease --------------------------------------------------------------------

Entries = dict[str, WorkerEntry]
"""By the primary key of the row."""


def entries_from_rows(rows: Iterable[WorkerLease], alias: str) -> Entries:
    """The present state of ``rows`` of the database ``alias``, without asking a registry.

    It goes by the rows, the records of their namespaces and this host's clock. So a lease that is
    about to expire may be shown either way.
    """
    found = list(rows)
    records = _records({row.namespace for row in found}, alias)
    now_us = SYSTEM_CLOCK.wall_ns() // 1000
    return {row.pk: _entry(row, records.get(row.namespace), alias, now_us) for row in found}


def _records(names: Collection[str], alias: str) -> Mapping[str, NamespaceRecord]:
    if not names or is_missing("NamespaceRecord", alias):
        return {}
    return NamespaceRecord.objects.using(alias).in_bulk(list(names))


def _entry(
    row: WorkerLease, record: NamespaceRecord | None, alias: str, now_us: int
) -> WorkerEntry:
    inspected = InspectedMark(
        Mark(row.worker, row.token, row.start, row.until, row.generation, row.holder),
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
    return unix_us(aware_moment(at))

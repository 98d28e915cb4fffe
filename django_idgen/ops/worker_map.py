"""The worker ids of a generator: who holds which, who held it when, and freeing one by hand.

What can be seen depends on the registry (``LEASES`` of the generator's settings). One in a
database or in Redis shows everything, of all processes; one of a configured worker id
knows this host's; what a service lends over HTTP can't be seen from here.
"""

from __future__ import annotations

from ..core.errors import WorkerOutOfRange
from ..core.inspection import PastLease, WorkerEntry, WorkerMap, WorkerState, drawn
from ..core.registry import Registry
from ..process import handlers
from ..process.factory import registry_kind, registry_of
from ..settings.config import GeneratorSettings

__all__ = [
    "PastLease",
    "WorkerEntry",
    "WorkerMap",
    "WorkerState",
    "registry_in_use",
    "release_worker",
    "who_held",
    "worker_map",
]


def worker_map(alias: str) -> WorkerMap:
    """All worker ids of generator ``alias``. Takes none, changes and makes nothing.

    Costs one round trip (or transaction) for each registry, and memory for the worker ids
    that were ever lent. Where only some of a fallback's registries can be asked, the map has
    their worker ids.

    Raises :class:`SettingsError` for an alias that is not configured,
    :class:`RegistryUnavailable` where nothing can be asked, and
    :class:`NotSeenFromHere`.
    """
    entry = handlers.generator_settings(alias)
    found = registry_in_use(entry).inspect()
    return drawn(alias, registry_kind(entry.leases), entry.layout.workers, found)


def release_worker(alias: str, worker: int, lease: str | None = None) -> bool:
    """Free ``worker`` by hand, as after its holder was killed; False if it is not held.

    ``lease``: the :attr:`~..core.inspection.WorkerEntry.lease` that was shown. If another one has
    the worker id by now, nothing is changed, and the answer is False, too. Without ``lease``
    any holder loses it.

    A holder that lives learns of it at its next renewal. It goes on to the end of its
    window, and takes another lease. The next holder of ``worker`` starts after that end, so
    that no id comes twice.

    Raises as :func:`worker_map`, and :class:`WorkerOutOfRange`.
    """
    entry = handlers.generator_settings(alias)
    return registry_in_use(entry).free(_checked(entry, worker), lease)


def who_held(alias: str, worker: int, tick: int) -> PastLease | None:
    """Who was lent ``worker`` when ``tick`` was promised; ``None`` if that isn't known.

    That is so where the registry's option ``history`` is off, or was then; where the rows
    are pruned; and for a tick that was not promised yet. ``tick`` counts from the
    layout's epoch. Raises as :func:`release_worker`.
    """
    entry = handlers.generator_settings(alias)
    return registry_in_use(entry).past_lease(_checked(entry, worker), tick)


def registry_in_use(entry: GeneratorSettings) -> Registry:
    """The registry of a generator's settings, as this process has it."""
    # That of the generator, if there is one: in memory, no other one knows what it lent.
    made = handlers.generators.made().get(entry.alias)
    return made.keeper.registry if made and made.keeper else registry_of(entry)


def _checked(entry: GeneratorSettings, worker: object) -> int:
    workers = entry.layout.workers
    if isinstance(worker, bool) or not isinstance(worker, int) or worker not in workers:
        raise WorkerOutOfRange(worker, workers)
    return worker

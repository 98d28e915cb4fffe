"""The worker ids of a generator: who holds which, who held it when, and freeing one by hand.

What can be seen depends on the registry (``LEASES`` of the generator's settings). One in a
database or in Redis shows everything, of all processes; one of a configured worker id
knows this host's; what a service lends over HTTP can't be seen from here.
"""

from __future__ import annotations

from typing import Any

from ..core.errors import NotSeenFromHere, WorkerOutOfRange
from ..core.survey import Overseen, Tenure, WorkerEntry, WorkerMap, WorkerState, drawn
from ..process import handlers
from ..process.registries import registry_of
from ..settings.config import GeneratorSettings

__all__ = [
    "Tenure",
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
    surveys = _overseen(entry).survey()
    return drawn(alias, _kind_of(entry), entry.layout.workers, surveys)


def release_worker(alias: str, worker: int, lease: str | None = None) -> bool:
    """Free ``worker`` by hand, as after its holder was killed; False if it is not held.

    ``lease``: the :attr:`~..core.survey.WorkerEntry.lease` that was shown. If another one has
    the worker id by now, nothing is changed, and the answer is False, too. Without ``lease``
    any holder loses it.

    A holder that lives learns of it at its next renewal. It goes on to the end of its
    window, and takes another lease. The next holder of ``worker`` starts after that end, so
    that no id comes twice.

    Raises as :func:`worker_map`, and :class:`WorkerOutOfRange`.
    """
    entry = handlers.generator_settings(alias)
    return _overseen(entry).free(_checked(entry, worker), lease)


def who_held(alias: str, worker: int, tick: int) -> Tenure | None:
    """Who was lent ``worker`` when ``tick`` was promised; ``None`` if that isn't known.

    That is so where the registry's option ``history`` is off, or was then; where the rows
    are pruned; and for a tick that was not promised yet. ``tick`` counts from the
    layout's epoch. Raises as :func:`release_worker`.
    """
    entry = handlers.generator_settings(alias)
    return _overseen(entry).tenure(_checked(entry, worker), tick)


def registry_in_use(entry: GeneratorSettings) -> Any:
    """The registry of a generator's settings, as this process has it."""
    # That of the generator, if there is one: in memory, no other one knows what it lent.
    generator: Any = handlers.generators.made().get(entry.alias)
    keeper = getattr(generator, "keeper", None)
    return getattr(keeper, "registry", None) or registry_of(entry)


def _overseen(entry: GeneratorSettings) -> Overseen:
    registry = registry_in_use(entry)
    if not hasattr(registry, "oversight"):
        raise NotSeenFromHere(
            f"The registry of generator {entry.alias!r} ({entry.leases.path}) does not tell who "
            f"holds its worker ids: it has no oversight()."
        )
    overseen: Overseen = registry.oversight()
    return overseen


def _checked(entry: GeneratorSettings, worker: object) -> int:
    workers = entry.layout.workers
    if isinstance(worker, bool) or not isinstance(worker, int) or worker not in workers:
        raise WorkerOutOfRange(worker, workers)
    return worker


def _kind_of(entry: GeneratorSettings) -> str:
    return str(getattr(entry.leases.load(), "kind", entry.leases.path))

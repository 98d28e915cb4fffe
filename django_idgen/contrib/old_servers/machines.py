"""Machine ids for CosId's instances: the worker ids of a generator.

A CosId client sends its instance id and its access token, but no lease. So each request looks up
the instance's lease and changes it by the lease's own token: of two requests at once, also in two
server processes, one comes first and voids what the other one knew. The process itself keeps
nothing that matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...core.bounded import keep_newest
from ...core.clock import SYSTEM_CLOCK
from ...core.errors import IdgenError, LeaseLost, RegistryUnavailable
from ...core.lease import Grant, Lease, Namespace
from ...core.registry import Registry
from ...process.maps import RegistryMap
from ...rest.clients import MOST_LABEL, OPEN, Owner, check_quota
from ...rest.failures import Refusal
from ...settings.config import GeneratorSettings, SettingsError
from ...signals import lease_acquired, log_event

ATTEMPTS = 4
MOST_REMEMBERED = 10_000
ACCEPTED = 0.5
"""Seconds: a CosId client refuses a time that is further ahead of its own clock."""
PATIENCE = 3.0
"""Seconds that a request waits at most until its client accepts the answer."""


class MachineNotFound(IdgenError):
    """The instance has no machine id."""


class MachineLost(IdgenError):
    """The instance had a machine id, which may have another holder now."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A CosId instance. ``name``: its instance id, which each owner may use for another one."""

    namespace: str
    name: str
    stable: bool
    owner: Owner = OPEN

    @property
    def label(self) -> str:
        """The holder's name in the registry. No process of this project has such a name."""
        return self.owner.instance_label(self.namespace, self.name)

    @property
    def fits(self) -> bool:
        printable = (
            self.name.isascii() and self.name.isprintable() and self.name == self.name.strip()
        )
        return bool(self.name) and printable and len(self.label) <= MOST_LABEL


@dataclass(frozen=True, slots=True)
class MachineState:
    """The answer to a client."""

    machine_id: int
    last_ms: int
    """Milliseconds since 1970: every stamp of an earlier holder is before it."""


class MachineIds:
    """Lends the worker ids of generator ``alias``. Thread-safe.

    ``guard``: seconds for which a silent instance keeps its machine id. ``skew``: seconds by which
    a client's clock may differ from the registry's. ``late``: seconds that a DELETE may take to
    arrive. Raises :class:`NoFreeWorker`, :class:`RegistryUnavailable` and other errors of
    registries.
    """

    def __init__(self, alias: str, *, guard: float, skew: float, late: float) -> None:
        self.alias = alias
        self.longest_guard = guard
        self._skew = skew
        self._late = late
        self._registries = _Registries(guard + skew)
        self._known: dict[str, None] = {}
        """Instances that had a machine id; only tells MachineLost from MachineNotFound."""

    @property
    def workers(self) -> range:
        """The machine ids that may be lent."""
        return self._space.workers

    def distribute(self, instance: Instance) -> MachineState:
        """The machine id of ``instance``: the one it has, else another that is free.

        Waits until CosId's clients accept its time. Refuses if that takes longer than
        :data:`PATIENCE`.
        """
        avoid, ahead = None, 0.0
        for _ in range(ATTEMPTS):
            try:
                kept = self._again(instance)
                grant, is_new = (kept, False) if kept else self._anew(instance, avoid)
            except LeaseLost:
                continue  # another request of the instance was faster
            state = self._state(grant, is_new=is_new)
            ahead = self._ahead(state, grant)
            if ahead <= PATIENCE:
                SYSTEM_CLOCK.sleep(max(0.0, ahead))
                keep_newest(self._known, instance.label, None, most=MOST_REMEMBERED)
                return state
            if is_new:
                self._registry.release(grant.lease, last_tick=None)
            avoid = grant.lease.worker
        if ahead:
            raise Refusal(
                503,
                "unavailable",
                f"The worker ids of generator {self.alias!r} are lent up to {ahead:.1f} s past "
                f"now: the database was changed or has lost rows, or a clock was ahead. CosId's "
                f"clients refuse more than {ACCEPTED:g} s. Start the instance again in "
                f"{ahead:.0f} s.",
                wait=ahead,
            )
        raise RegistryUnavailable(
            f"Several requests of instance {instance.name!r} ran at once. Try again."
        )

    def guard(self, instance: Instance) -> MachineState:
        """Renew the machine id of ``instance``.

        Raises :class:`MachineNotFound` and :class:`MachineLost`.
        """
        kept = [
            grant
            for lease in self._registry.held_by(instance.label)
            if (grant := self._renewed(lease))
        ]
        if not kept:
            kind = MachineLost if instance.label in self._known else MachineNotFound
            raise kind(f"Instance {instance.name!r} has no machine id. Ask for one.")
        keep_newest(self._known, instance.label, None, most=MOST_REMEMBERED)
        return self._state(kept[0], is_new=False)

    def revert(self, instance: Instance) -> MachineState:
        """Take back the machine id of ``instance``. Raises :class:`MachineNotFound`.

        A DELETE that arrives late, after the instance was started again, looks like a new one. So
        a machine id that was registered within ``late`` seconds expires on its own instead, and so
        does a stable instance's: the living instance still guards it. The next lease begins
        where the guard would have ended, since a client may stamp until its DELETE arrives.
        """
        found = None
        for lease in self._registry.held_by(instance.label):
            grant = self._renewed(lease)
            if grant is None:
                continue
            found = found or grant
            if not instance.stable and self._is_settled(grant):
                self._registry.release(grant.lease, last_tick=self._space.max_ticks)
        if found is None:
            raise MachineNotFound(f"Instance {instance.name!r} has no machine id.")
        return self._state(found, is_new=False)

    def _again(self, instance: Instance) -> Grant | None:
        """The lease that ``instance`` has, renewed; None if there is none to go on with.

        A stable instance's lease is renewed. Another's is released, so that :meth:`_anew` takes the
        same worker id with a start that tells when the instance was last registered.
        """
        held = self._registry.held_by(instance.label)
        if not held:
            return None
        grant: Grant = self._registry.renew(held[0], last_tick=held[0].start)
        if not instance.stable:
            self._registry.release(grant.lease, last_tick=self._latest(grant))
            return None
        return grant

    def _anew(self, instance: Instance, avoid: int | None) -> tuple[Grant, bool]:
        """A lease, and whether it is new."""
        check_quota(self._registry, self.alias, instance.owner)
        grant: Grant = self._registry.acquire(holder=instance.label, avoid=avoid)
        first = self._registry.held_by(instance.label)[:1]
        if not first or first[0].token == grant.lease.token:
            log_event(lease_acquired, lease=grant.lease, holder=instance.label)
            return grant, True
        # Of two requests of one instance at once, both get the first one's lease.
        self._registry.release(grant.lease, last_tick=None)
        return self._registry.renew(first[0], last_tick=first[0].start), False

    def _renewed(self, lease: Lease) -> Grant | None:
        try:
            grant: Grant = self._registry.renew(lease, last_tick=lease.start)
        except LeaseLost:
            return None
        return grant

    def _state(self, grant: Grant, *, is_new: bool) -> MachineState:
        """Stamps begin where a new lease does, or after those of the past life."""
        space = self._space
        tick = grant.lease.start
        if not is_new:
            tick = max(tick, self._latest(grant) + 1)
        unix_us = space.epoch_us + tick * space.tick_us
        return MachineState(grant.lease.worker, -(-unix_us // 1000))

    def _ahead(self, state: MachineState, grant: Grant) -> float:
        """Seconds until the slowest clock accepts ``state``; negative if it already does."""
        ahead_us = state.last_ms * 1000 - grant.reading.registry_us
        return ahead_us / 1e6 + self._skew - ACCEPTED

    def _latest(self, grant: Grant) -> int:
        """The latest tick that a client can have stamped by now."""
        return self._space.tick_at(grant.reading.registry_us + int(self._skew * 1e6))

    def _is_settled(self, grant: Grant) -> bool:
        since = self._space.tick_at(grant.reading.registry_us - int(self._late * 1e6))
        return grant.lease.start <= since

    @property
    def _space(self) -> Namespace:
        space: Namespace = self._registry.namespace
        return space

    @property
    def _registry(self) -> Any:
        return self._registries[self.alias]


class _Registries(RegistryMap):
    """Registries whose window is the guard by a clock that is ahead."""

    def __init__(self, window: float) -> None:
        super().__init__()
        self._window = window

    def open(self, entry: GeneratorSettings) -> Registry:
        # One tick more, since a window does not include its end.
        window = self._window + entry.layout.tick_us / 1e6
        registry = super().open(replace(entry, window=window))
        if not registry.knows_holders:
            raise SettingsError(
                f"CosId's machine ids can't come from generator {entry.alias!r}: its leases are "
                f"those of {entry.leases.path}, which can't tell what an instance holds. Name "
                f"a generator with django_idgen.leases.database.DatabaseLeases."
            )
        return registry

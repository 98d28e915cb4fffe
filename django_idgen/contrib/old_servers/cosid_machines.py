"""Machine ids for CosId's clients: worker ids, each with a real lease.

A CosId client has an instance id and the name of its access token, and sends no lease. So
each request looks up the lease in the instance's name, and changes it by the lease's own
token: of two requests at once, also in two server processes, one comes first, and what the
other knew is void. The process keeps nothing that counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rest_framework.exceptions import APIException

from ...core.bounded import keep_newest
from ...core.clock import SYSTEM_CLOCK
from ...core.errors import IdgenError, LeaseLost, RegistryUnavailable
from ...core.lease import Grant, Lease, Namespace
from ...core.registry import Registry
from ...rest.clients import MOST_LABEL, OPEN, Owner, RegistryMap
from ...rest.quota import check_quota
from ...settings.config import GeneratorSettings, SettingsError

__all__ = [
    "Instance",
    "MachineIds",
    "MachineLost",
    "MachineNotFound",
    "MachineState",
    "NotYet",
    "Rules",
]

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


class NotYet(APIException):
    """All that can be lent begins at a time that a CosId client refuses. 503."""

    status_code = 503
    default_code = "unavailable"

    def __init__(self, alias: str, ahead: float) -> None:
        self.wait = ahead
        super().__init__(
            f"The worker ids of generator {alias!r} are lent up to {ahead:.1f} s past now: the "
            f"database was changed or has lost rows, or a clock was ahead. CosId's clients refuse "
            f"more than {ACCEPTED:g} s. Start the instance again in {ahead:.0f} s."
        )


@dataclass(frozen=True, slots=True)
class Instance:
    """Who asks. ``name`` is the client's instance id; another owner's is another instance."""

    namespace: str
    name: str
    stable: bool
    owner: Owner = OPEN

    @property
    def label(self) -> str:
        """The holder's name in the registry; no process of this project has such a name."""
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


@dataclass(frozen=True, slots=True)
class Rules:
    """How leases fit what CosId's clients do; all in seconds."""

    guard: float
    """How long a silent instance keeps its machine id."""
    skew: float
    """How far a client's clock may run ahead of the registry's, or behind it."""
    late: float
    """How long a DELETE may be on its way."""


class MachineIds:
    """Lends the worker ids of generator ``alias``. Thread-safe.

    Raises :class:`NoFreeWorker`, :class:`RegistryUnavailable` and what
    registries do besides.
    """

    def __init__(self, alias: str, rules: Rules) -> None:
        self.alias = alias
        self.rules = rules
        self._registries = _Registries(rules)
        self._known: dict[str, None] = {}

    @property
    def workers(self) -> range:
        """The machine ids that may be lent."""
        return self._space.workers

    def distribute(self, instance: Instance) -> MachineState:
        """The machine id of ``instance``: the one it has, else another that is free.

        Waits until CosId's clients accept its time. Raises :class:`NotYet` where that takes
        longer than :data:`PATIENCE`.
        """
        avoid, ahead = None, 0.0
        for _ in range(ATTEMPTS):
            try:
                grant, is_new = self._again(instance) or self._anew(instance, avoid)
            except LeaseLost:
                continue  # another request of that instance was quicker
            state = self._state(grant, is_new=is_new)
            ahead = self._ahead(state, grant)
            if ahead <= PATIENCE:
                SYSTEM_CLOCK.sleep(max(0.0, ahead))
                self._remember(instance)
                return state
            if is_new:
                self._registry.release(grant.lease, last_tick=None)
            avoid = grant.lease.worker
        if ahead:
            raise NotYet(self.alias, ahead)
        raise RegistryUnavailable(
            f"Requests of instance {instance.name!r} got in each other's way. Try again."
        )

    def guard(self, instance: Instance) -> MachineState:
        """Keep what ``instance`` has. Raises :class:`MachineNotFound`, :class:`MachineLost`."""
        kept = [grant for lease in self._held(instance) if (grant := self._renewed(lease))]
        if not kept:
            kind = MachineLost if instance.label in self._known else MachineNotFound
            raise kind(f"Instance {instance.name!r} has no machine id. Ask for one.")
        self._remember(instance)
        return self._state(kept[0], is_new=False)

    def revert(self, instance: Instance) -> MachineState:
        """Take back what ``instance`` has. Raises :class:`MachineNotFound`.

        A DELETE that was held up on its way, and comes after the instance was started again,
        looks like one that was just sent. So what was registered within ``late`` seconds
        expires in its own time, and so does a stable instance's: the living one goes on
        guarding it. The next lease begins where the guard would have ended, since a client
        may still stamp while its DELETE is on its way.
        """
        found = None
        for lease in self._held(instance):
            grant = self._renewed(lease)
            if grant is None:
                continue
            found = found or grant
            if not instance.stable and self._is_settled(grant):
                self._registry.release(grant.lease, last_tick=self._space.max_ticks)
        if found is None:
            raise MachineNotFound(f"Instance {instance.name!r} has no machine id.")
        return self._state(found, is_new=False)

    # --- leases -----------------------------------------------------------------------

    def _again(self, instance: Instance) -> tuple[Grant, bool] | None:
        """The lease that ``instance`` has, if any, kept for it under the same number; not new.

        A stable one's is renewed. Another's begins anew, so that its start says when it
        was last registered.
        """
        held = self._held(instance)
        if not held:
            return None
        grant: Grant = self._registry.renew(held[0], last_tick=held[0].start)
        if not instance.stable:
            self._registry.release(grant.lease, last_tick=self._latest(grant))
            return None
        return grant, False

    def _anew(self, instance: Instance, avoid: int | None) -> tuple[Grant, bool]:
        """A lease, and whether it is new."""
        check_quota(self._registry, self.alias, instance.owner)
        grant: Grant = self._registry.acquire(holder=instance.label, avoid=avoid)
        first = self._held(instance)[:1]
        if not first or first[0].token == grant.lease.token:
            return grant, True
        # Two requests of one instance at once: both get what the first one got.
        self._registry.release(grant.lease, last_tick=None)
        return self._registry.renew(first[0], last_tick=first[0].start), False

    def _held(self, instance: Instance) -> list[Lease]:
        found: list[Lease] = self._registry.held_by(instance.label)
        return found

    def _renewed(self, lease: Lease) -> Grant | None:
        try:
            grant: Grant = self._registry.renew(lease, last_tick=lease.start)
        except LeaseLost:
            return None
        return grant

    # --- time -------------------------------------------------------------------------

    def _state(self, grant: Grant, *, is_new: bool) -> MachineState:
        """Stamps may begin where a new lease does, else after those of the instance's past life."""
        space = self._space
        tick = grant.lease.start
        if not is_new:
            tick = max(tick, self._latest(grant) + 1)
        unix_us = space.epoch_us + tick * space.tick_us
        return MachineState(grant.lease.worker, -(-unix_us // 1000))

    def _ahead(self, state: MachineState, grant: Grant) -> float:
        """Seconds until the slowest clock accepts ``state``; negative if it does already."""
        ahead_us = state.last_ms * 1000 - grant.reading.registry_us
        return ahead_us / 1e6 + self.rules.skew - ACCEPTED

    def _latest(self, grant: Grant) -> int:
        """The latest tick that a client can have stamped by now."""
        return self._space.tick_at(grant.reading.registry_us + int(self.rules.skew * 1e6))

    def _is_settled(self, grant: Grant) -> bool:
        since = self._space.tick_at(grant.reading.registry_us - int(self.rules.late * 1e6))
        return grant.lease.start <= since

    # --- what serves ------------------------------------------------------------------

    def _remember(self, instance: Instance) -> None:
        # Only for the words of an error: that it had one, as far as this process knows.
        keep_newest(self._known, instance.label, None, most=MOST_REMEMBERED)

    @property
    def _space(self) -> Namespace:
        space: Namespace = self._registry.namespace
        return space

    @property
    def _registry(self) -> Any:
        return self._registries[self.alias]


class _Registries(RegistryMap):
    """Registries whose windows are the guard, and what CosId's clients stamp until its end."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules

    def open(self, entry: GeneratorSettings) -> Registry:
        # Up to the last moment of the guard, by a clock that is ahead; the end is no part of it.
        reach = self._rules.guard + self._rules.skew + entry.layout.tick_us / 1e6
        registry = super().open(replace(entry, window=reach))
        if not registry.knows_holders:
            raise SettingsError(
                f"CosId's machine ids can't come from generator {entry.alias!r}: its leases are "
                f"those of {entry.leases.path}, which can't tell what an instance holds. Name "
                f"a generator with django_idgen.leases.database.DatabaseLeases."
            )
        return registry

"""Two registries: the second one lends while the first does not answer.

They have separate worker ids, so that no two processes share one, whatever the registries know
of each other. A holder whose registry does not answer uses up its window and continues under a
worker id of the second; once the first one answers again, it returns in the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import (
    ConfigurationError,
    LeaseError,
    LeaseLost,
    NoFreeWorker,
    RegistryUnavailable,
    TooFarAhead,
)
from ..core.inspection import Inspection
from ..core.lease import Grant, Lease, Namespace
from ..core.options import check_seconds
from ..core.registry import Registry

RETRY_AFTER: Final = 30.0
"""Seconds to wait before asking a registry that failed again."""
_SUFFIX: Final = "/fallback"


class FallbackLeases(Registry):
    """Lends from ``primary``, and from ``secondary`` while that one is unavailable or full.

    ``retry_after``: seconds before it asks ``primary`` again after a failure, so that callers do
    not wait for its timeout each time. Thread-safe.

    Raises :class:`ConfigurationError` if both can lend the same worker id.
    """

    kind = "fallback"
    nested = ("primary", "secondary")

    def __init__(
        self,
        namespace: Namespace,
        *,
        primary: Registry,
        secondary: Registry,
        retry_after: float = RETRY_AFTER,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        _check_disjoint(namespace, primary.namespace.workers, secondary.namespace.workers)
        self.namespace = namespace
        self.database = primary.database
        self.primary = primary
        self.secondary = secondary
        self._retry_after_ns = int(
            check_seconds("retry_after", retry_after, least=0.0, most=1e6) * 1e9
        )
        self._clock = clock
        self._failed_ns: int | None = None
        """When ``primary`` failed last; None if it has answered since."""
        self._failure: LeaseError | None = None
        self._guests: set[str] = set()
        """The tokens of leases that ``secondary`` granted because ``primary`` failed."""
        self._lock = threading.Lock()

    @staticmethod
    def wrapped(namespace: Namespace) -> Mapping[str, Namespace]:
        """The namespaces of both. By default the second one has a quarter of the worker ids."""
        workers = namespace.workers
        if len(workers) < 2:
            raise ConfigurationError(
                "A fallback needs two worker ids at least, one for each registry, and namespace "
                f"{namespace.name!r} has {len(workers)}. Widen 'workers', or choose a layout with "
                "more worker bits."
            )
        split = workers.stop - max(1, len(workers) // 4)
        return {
            "primary": replace(namespace, workers=range(workers.start, split)),
            # A record of its own, since both may use one database.
            "secondary": replace(
                namespace,
                name=f"{namespace.name}{_SUFFIX}",
                workers=range(split, workers.stop),
            ),
        }

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        grant, failure = self._from_primary(holder, not_before, avoid)
        if grant is not None:
            return grant
        try:
            grant = self.secondary.acquire(holder=holder, not_before=not_before, avoid=avoid)
        except (NoFreeWorker, RegistryUnavailable) as error:
            raise self._neither(failure, error) from error
        if not isinstance(failure, NoFreeWorker):
            self._guests.add(grant.lease.token)
        return grant

    def _from_primary(
        self, holder: str, not_before: int, avoid: int | None
    ) -> tuple[Grant | None, LeaseError | None]:
        if not self._may_ask():
            return None, self._failure
        try:
            grant = self.primary.acquire(holder=holder, not_before=not_before, avoid=avoid)
        except (NoFreeWorker, TooFarAhead) as error:
            # A holder that returns from the second one after a loss there is too far ahead.
            self._note_answer()
            return None, error
        except RegistryUnavailable as error:
            self._note_failure(error)
            return None, error
        self._note_answer()
        return grant, None

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`Registry.renew`.

        Raises :class:`LeaseLost` also to move a holder: one whose window is used up while
        ``primary`` does not answer, and one of ``secondary`` once ``primary`` answers again.
        Both use up their window.
        """
        if lease.worker in self.secondary.namespace.workers:
            if lease.token in self._guests and self._is_back(lease, last_tick):
                self._guests.discard(lease.token)
                raise LeaseLost(
                    f"Worker id {lease.worker} of namespace {self.namespace.name!r} is no longer "
                    "renewed: the first registry answers again, and lends the next one."
                )
            return self.secondary.renew(lease, last_tick=last_tick)
        return self._renew_primary(lease, last_tick)

    def _renew_primary(self, lease: Lease, last_tick: int) -> Grant:
        try:
            grant = self.primary.renew(lease, last_tick=last_tick)
        except RegistryUnavailable as error:
            self._note_failure(error)
            if last_tick < lease.until:
                raise
            raise LeaseLost(
                f"Worker id {lease.worker} of namespace {self.namespace.name!r} can't be kept: "
                "its window is over, and the first registry does not answer. The second registry "
                "lends the next one."
            ) from error
        self._note_answer()
        return grant

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        self._guests.discard(lease.token)
        own = lease.worker in self.secondary.namespace.workers
        lender = self.secondary if own else self.primary
        return lender.release(lease, last_tick=last_tick)

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`Registry.renew_seen`; the sum of both.

        Raises :class:`RegistryUnavailable` only if neither answers.
        """
        renewed: list[int] = []
        failures: list[RegistryUnavailable] = []
        for registry in (self.primary, self.secondary):
            try:
                renewed.append(registry.renew_seen(idle_after=idle_after))
            except RegistryUnavailable as error:
                failures.append(error)
        if not renewed:
            raise failures[0]
        return sum(renewed)

    def inspect(self, workers: Collection[int] | None = None) -> Sequence[Inspection]:
        """See :meth:`Registry.inspect`. One that does not answer is an inspection with a failure.

        Raises the error of the first if neither answers.
        """
        found: list[Inspection] = []
        failures: list[LeaseError] = []
        for part in (self.primary, self.secondary):
            try:
                found += part.inspect(workers)
            except LeaseError as error:
                failures.append(error)
                found.append(self._unseen(part, error))
        if len(failures) == 2:
            raise failures[0]
        return found

    def _unseen(self, part: Registry, error: LeaseError) -> Inspection:
        now_us = self._clock.wall_ns() // 1000
        return Inspection(
            part.name(), part.namespace, now_us, workers=part.lent, failure=str(error)
        )

    def abandon(self) -> None:
        self._lock = threading.Lock()
        self._guests = set()
        super().abandon()

    # --- whether to ask the primary ----------------------------------------------

    def _may_ask(self) -> bool:
        """Whether ``primary`` is not known to be down; after a pause one caller tries for all."""
        with self._lock:
            if self._failed_ns is None:
                return True
            now = self._clock.elapsed_ns()
            if now - self._failed_ns < self._retry_after_ns:
                return False
            self._failed_ns = now
            return True

    def _note_failure(self, error: LeaseError) -> None:
        with self._lock:
            self._failed_ns = self._clock.elapsed_ns()
            # Without its frames, which would keep alive all that they refer to.
            self._failure = error.with_traceback(None)

    def _note_answer(self) -> None:
        with self._lock:
            self._failed_ns = self._failure = None

    def _neither(self, first: LeaseError | None, second: LeaseError) -> LeaseError:
        if isinstance(first, NoFreeWorker) and isinstance(second, NoFreeWorker):
            return NoFreeWorker(self.namespace.name, self.namespace.workers)
        return RegistryUnavailable(
            f"Neither registry of namespace {self.namespace.name!r} lends a worker id. "
            f"The first: {first} The second: {second}"
        )

    def _is_back(self, lease: Lease, last_tick: int) -> bool:
        if not self._may_ask():
            return False
        try:
            # It never lent this lease. It says so and changes nothing, or it does not answer.
            with suppress(LeaseLost):
                self.primary.renew(lease, last_tick=last_tick)
        except RegistryUnavailable as error:
            self._note_failure(error)
            return False
        self._note_answer()
        return True


def _check_disjoint(namespace: Namespace, first: range, second: range) -> None:
    whole = namespace.workers
    for workers in (first, second):
        if workers.start < whole.start or workers.stop > whole.stop:
            raise ConfigurationError(
                f"A fallback's registry can't lend worker ids {workers.start} to "
                f"{workers.stop - 1}: namespace {namespace.name!r} has {whole.start} to "
                f"{whole.stop - 1}."
            )
    if max(first.start, second.start) < min(first.stop, second.stop):
        raise ConfigurationError(
            f"The two registries of namespace {namespace.name!r} lend worker ids {first.start} "
            f"to {first.stop - 1} and {second.start} to {second.stop - 1}: one id could be lent "
            f"twice. Give them 'workers' that don't overlap."
        )

"""Redis as the database's borrower: has charters opened and raised, and enters them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ...core.charter import Charter
from ...core.clock import Clock
from ...core.errors import RegistryUnavailable
from ..lender import Lender, Lenders
from .scripts import LAST_TICK, LeaseScripts, Reply

__all__ = ["Borrower", "TakenOver"]

RETRY_SECONDS = 20.0
"""Pause after the database could not raise a ceiling that was still high enough."""


class TakenOver(RegistryUnavailable):
    """Another Redis lends for the namespace now; this one may use up what it has."""


class _Unused(Exception):
    """The database never lent anything to a Redis; raised to have it roll back."""


class Borrower:
    """Answers what the scripts ask of the database. Thread-safe.

    Which installation a database belongs to is asked once; ``stride`` is in ticks.
    """

    def __init__(
        self, scripts: LeaseScripts, lenders: Lenders, *, stride: int, clock: Clock
    ) -> None:
        self.lenders = lenders
        self.stride = stride
        self._scripts = scripts
        self._clock = clock
        self._start_over()

    def _start_over(self) -> None:
        self._installations: dict[Lender, str] = {}
        self._not_before_ns = 0

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._start_over()
        self.lenders.abandon()

    # --- whose it is ----------------------------------------------------------

    def is_in_use(self) -> bool:
        """Whether anything was ever lent; opens nothing, else its settings would be final."""
        lender = self.lenders.current()
        if lender in self._installations:
            return True
        with suppress(_Unused):
            self._noted(lender, lender.change(_used))
        return lender in self._installations

    def known_installation(self) -> str | None:
        """The installation, without asking for it; the last one where the database is forbidden."""
        if self.lenders.is_forbidden():
            known = list(self._installations.values())
            return known[-1] if known else None
        return self._installations.get(self.lenders.current())

    def installation_to_look(self) -> str | None:
        """The installation, asked for without opening anything; ``None`` if nothing was lent."""
        known = self.known_installation()
        return known or self.lenders.current().installation()

    def installation_to_release(self) -> str | None:
        """As :meth:`known_installation`; asked for where this process knows of none at all.

        One that lends on may be given back what another worker of its service has lent.
        """
        if not self._installations and not self.lenders.is_forbidden():
            self.is_in_use()
        return self.known_installation()

    def installation_of(self, lender: Lender) -> str:
        """The installation that ``lender`` belongs to."""
        known = self._installations.get(lender)
        # Also sees to it that a process of other settings never reaches Redis (L8).
        return known or self._noted(lender, lender.change(lambda charter: charter)).installation

    def _noted(self, lender: Lender, charter: Charter) -> Charter:
        self._installations[lender] = charter.installation
        return charter

    # --- what may be lent -----------------------------------------------------

    def open(self, lender: Lender, incarnation: str, now: int) -> None:
        """Have a generation opened for a new life of the hash, or adopt the one that was."""
        change = partial(
            Charter.opened, incarnation=incarnation, now=max(now, 0), stride=self.stride
        )
        self._scripts.install(self._noted(lender, lender.change(change)))

    def lift(self, lender: Lender, reply: Reply, *, wanted: int) -> None:
        """Have the ceiling of the hash raised, if its generation is the database's.

        Raises :class:`TakenOver` if it is not.
        """
        seen = reply.charter(self.installation_of(lender))
        change = partial(
            Charter.raised_for,
            seen=seen,
            now=reply.now,
            wanted=min(max(reply.now, wanted), LAST_TICK),
            stride=self.stride,
        )
        charter = self._noted(lender, lender.change(change))
        if charter.incarnation == seen.incarnation:
            self._scripts.install(charter)
        elif reply.now >= charter.ceiling:
            # Whatever took over lends no more: this Redis may begin anew.
            self._scripts.restart(charter.installation, seen.incarnation)
        else:
            raise self._taken_over(seen, charter, charter.ceiling - reply.now)

    def lift_in_time(self, lender: Lender, reply: Reply) -> None:
        """Have the ceiling raised well before anybody needs it; whoever comes first does.

        A database that can't just now is asked again after a while.
        """
        charter = reply.charter("")
        _, start, until = reply.window
        window = self._scripts.namespace.window_ticks
        latest = max(reply.now, charter.fence, start, until - window)
        enough = latest + self.stride - self.stride // 6
        if charter.ceiling >= enough or self._clock.elapsed_ns() < self._not_before_ns:
            return
        try:
            self.lift(lender, reply, wanted=latest)
        except RegistryUnavailable:
            self._not_before_ns = self._clock.elapsed_ns() + int(RETRY_SECONDS * 1e9)

    def _taken_over(self, seen: Charter, charter: Charter, ticks: int) -> TakenOver:
        space = self._scripts.namespace
        return TakenOver(
            f"The Redis of CACHES[{self._scripts.own.alias!r}] lends for generation "
            f"{seen.generation} of namespace {space.name!r}, but another Redis has taken over "
            f"with generation {charter.generation}. See that all processes reach the same "
            f"server; this one may go on in {ticks * space.tick_us / 1e6:.0f} s, if the other is "
            f"not used any more."
        )


def _used(charter: Charter) -> Charter:
    if not charter.ceiling:
        raise _Unused
    return charter

"""The base class of everything that lends worker ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from .errors import NotSeenFromHere
from .inspection import Inspection
from .lease import Grant, Lease, Namespace
from .store import StoredBook


class Registry(ABC):
    """Something shared that lends worker ids.

    A registry is safe to use from several threads. The caller never repeats a method, and the
    registry never repeats a request whose outcome it does not know: an exception means "perhaps
    done", and the grant is gone. No method runs inside the caller's transaction.

    Safety depends on the abstract methods. The others inspect and maintain; a registry overrides
    those that it can do.
    """

    namespace: Namespace
    kind: ClassVar[str] = ""
    """Its name in fingerprints, statuses and maps; its dotted path if empty."""
    needs_workers: ClassVar[bool] = False
    """Whether its options name the worker ids of each host."""
    uses_database: ClassVar[bool] = False
    """Whether its option ``database`` is the alias of a database that keeps its marks."""
    knows_holders: bool = False
    """Whether it implements :meth:`held_by`."""
    nested: ClassVar[tuple[str, ...]] = ()
    """The options that are registries themselves."""
    database: str | None = None
    """The alias of the database that keeps its marks."""
    lent: range | None = None
    """The worker ids that it lends, if not all of the namespace's."""

    @classmethod
    def name(cls) -> str:
        """:attr:`kind`, or the dotted path of the class."""
        return cls.kind or f"{cls.__module__}.{cls.__qualname__}"

    # --- lending --------------------------------------------------------------

    @abstractmethod
    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """Lend a free worker id, by preference the one that ``holder`` held last.

        ``holder`` is a label (host and process), never proof of anything.
        ``not_before`` is the first tick that the caller can still use, so that
        its ids continue to rise. ``avoid`` is a worker id to pass over.

        Raises :class:`NoFreeWorker`, :class:`TooFarAhead` for a
        ``not_before`` that no holder can have reached, :class:`NamespaceMismatch`,
        :class:`RegistryUnavailable`, :class:`ClockBeforeEpoch`
        or :class:`TimeExhausted`.
        """

    @abstractmethod
    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """Extend the window; ``last_tick`` is the caller's latest tick.

        Raises :class:`LeaseLost` if the registry doesn't know the
        lease, else as :meth:`acquire`.
        """

    @abstractmethod
    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """Give the worker id back; ``last_tick`` is the last one loaded, if any.

        False if the registry didn't know the lease: then nothing was changed.
        Raises :class:`RegistryUnavailable`.
        """

    @abstractmethod
    def renew_seen(self, *, idle_after: float) -> int:
        """Renew all leases whose holders were seen in the last ``idle_after`` seconds.

        A scheduler calls it for holders that are idle or blocked. A holder is seen when it
        acquires or renews; this does not count, so the lease of a holder that has ended
        expires in the end. Revives no expired lease, lowers no mark, and does not renew CosId's
        instances: their guard does. Returns how many leases there were. Two calls may overlap.

        Raises as :meth:`renew`, except :class:`LeaseLost`.
        """

    def end_of(self, lease: Lease) -> int:
        """The latest tick to which ``lease`` can be extended while the server can't be reached."""
        return lease.until

    def lend_on(self) -> None:
        """Tell the registry that it lends to other hosts from now on, whose clocks may differ."""

    # --- inspecting -----------------------------------------------------------

    def inspect(self, workers: Collection[int] | None = None) -> Inspection:
        """Read what is stored (of ``workers`` alone, if given).

        Changes nothing. Raises :class:`RegistryUnavailable` and :class:`NotSeenFromHere`.
        """
        raise self._not_seen("inspect")

    def free(self, worker: int, lease: str | None = None) -> bool:
        """Free a worker id by hand: void its token, leave its mark. False if it wasn't held.

        With ``lease`` (see :func:`.inspection.name_of`) only while that lease holds it; the
        registry compares it as it voids the token. The holder uses up its window, and the next
        holder starts after that. Raises as :meth:`inspect`.
        """
        raise self._not_seen("free")

    def held_by(self, holder: str) -> list[Lease]:
        """The leases of ``holder``, expired or not; the earliest first.

        Raises as :meth:`inspect`.
        """
        raise self._not_seen("held_by")

    def installation(self) -> str | None:
        """The installation whose worker ids it lends, if not that of its :attr:`database`.

        Raises :class:`RegistryUnavailable`.
        """
        return None

    def check_access(self) -> None:
        """Raise what :meth:`acquire` would if a service does not know or trust this process.

        Acquires nothing. Registries without a service have nothing to check.
        """

    def stored_book(self) -> StoredBook | None:
        """What is stored of the namespace, for commands that change its settings.

        None if this project does not store it, or not for longer than the process.
        """
        return None

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """By the server's name: a function that raises if the server does not answer."""
        return {}

    # --- its life -------------------------------------------------------------

    def abandon(self) -> None:
        """In the child of a fork: drop what it inherited. Sends nothing to the registry."""

    def close(self) -> None:
        """Free local resources. May be called twice."""

    def _not_seen(self, capability: str) -> NotSeenFromHere:
        return NotSeenFromHere(
            f"{self.name()} can't show who holds the worker ids of namespace "
            f"{self.namespace.name!r}: it does not implement {capability}()."
        )

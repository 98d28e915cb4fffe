"""Worker ids lent by Redis, which the database has lent the ticks to (rule L6).

All of a namespace is one hash without expiry, and each operation one script: one
round trip, and no database. About once a minute one of the holders has the database
raise the ceiling that Redis may lend up to. What Redis forgets (flush, eviction, an
empty restart, a replica that missed writes) shows by the hash's absence, its count
of fields, or its *incarnation*; then the database opens a new generation, past all
that the old one can have lent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...core.clock import SYSTEM_CLOCK, Clock
from ...core.errors import LeaseLost, RegistryUnavailable
from ...core.lease import Grant, Lease, Mark, Namespace, new_token
from ...core.ledger import Ledger
from ...core.lending import lost
from ...core.survey import Overseen
from ...db.redis_client import OwnRedis
from ..ledger_places import ledgers_in
from ..lender import Lender, Lenders
from ..memory import MemoryLeases
from ..option_values import checked_flag, checked_seconds
from .borrowed_history import BorrowedHistory
from .borrowed_ledger import BorrowedLedger
from .borrower import Borrower, TakenOver
from .options import checked_after_loss, stride_ticks
from .oversight import RedisOversight
from .refusals import refusal
from .scripts import FIRST, HOLDER_LENGTH, LAST, LeaseScripts, Reply

__all__ = ["RedisLeases"]

ATTEMPTS = 6
"""How many answers that only ask for something else are followed up, in one operation.

Few, since each loss in between costs a generation, whose fence lies a stride further ahead.
"""
DEFAULT_TIMEOUT = 3.0

Ask = Callable[[str, bool], Reply]
"""A script, of an installation; and whether a window may be cut short at the ceiling."""


class RedisLeases:
    """A registry in the Redis of the cache ``alias`` (django-redis). Thread-safe.

    ``database`` is the alias of the database that remembers what Redis may forget.
    ``timeout`` (seconds) bounds each call to either. ``stride`` (seconds, at least a
    window; two windows unless told) is how far ahead the database lends: as long it may
    be away, and so far ids may run ahead after Redis has forgotten something; with
    ``after_loss="wait"`` none is lent until the time has come up to it. For
    ``server_identity`` see :class:`DatabaseLeases`. With ``history`` the
    database keeps, as well as it can, who was lent which worker id. ``read_now_us`` gives
    the time in µs since 1970 instead of the servers' clocks.

    Raises :class:`ConfigurationError` for options that can't work; opens nothing.
    """

    kind = "redis"

    def __init__(
        self,
        namespace: Namespace,
        *,
        alias: str = "default",
        database: str = "default",
        timeout: float = DEFAULT_TIMEOUT,
        stride: float | None = None,
        after_loss: str = "ahead",
        server_identity: bool = True,
        history: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self.alias = alias
        self.database = database
        self.stride_ticks = stride_ticks(namespace, stride)
        self._limit = checked_seconds("timeout", timeout, most=60)
        self._server_identity = checked_flag("server_identity", server_identity)
        self._waits = checked_after_loss(after_loss) == "wait"
        self._clock = clock
        self._own = OwnRedis(alias, timeout=self._limit / 2)
        self._scripts = LeaseScripts(self._own, namespace, clock=clock, read_now_us=read_now_us)
        lenders = Lenders(
            namespace,
            database,
            stride=self.stride_ticks,
            timeout=self._limit,
            server_identity=self._server_identity,
            clock=clock,
            read_now_us=read_now_us,
        )
        self._borrower = Borrower(self._scripts, lenders, stride=self.stride_ticks, clock=clock)
        self._keeps_history = checked_flag("history", history)
        self._history = BorrowedHistory(namespace.name, database, timeout=self._limit)
        self._memory = MemoryLeases(
            namespace, history=history, clock=clock, read_now_us=read_now_us
        )
        self._start_over()

    def _start_over(self) -> None:
        self._in_memory: set[str] = set()
        self._worker: int | None = None

    # --- the registry -------------------------------------------------------

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`LeaseRegistry.acquire`."""
        if self._borrower.lenders.is_forbidden():
            grant = self._memory.acquire(holder=holder, not_before=not_before, avoid=avoid)
            self._in_memory.add(grant.lease.token)
            return grant
        token = new_token()
        reply = self._granted(
            lambda installation, short: self._scripts.acquire(
                installation,
                holder=holder,
                token=token,
                not_before=not_before,
                avoid=avoid,
                # Redis may have forgotten who had which.
                preferred=self._worker,
                short=short,
                waiting=self._waits,
            )
        )
        worker, start, until = reply.window
        self._worker = self.namespace.check_worker(worker)
        generation = reply.charter("").generation
        if self._keeps_history:
            mark = Mark(worker, token, start, until, generation, holder[:HOLDER_LENGTH])
            self._history.note(mark, reply.reading.registry_us)
        return Grant(
            Lease(self.namespace.name, worker, token, start, until, generation), reply.reading
        )

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`LeaseRegistry.renew`."""
        if lease.token in self._in_memory:
            return self._memory.renew(lease, last_tick=last_tick)
        reply = self._granted(
            partial(self._ask_to_renew, lease, last_tick), forbidden=partial(lost, lease)
        )
        if reply.status == "lost":
            raise lost(lease)
        worker, start, until = reply.window
        renewed = Lease(self.namespace.name, worker, lease.token, start, until, lease.generation)
        return Grant(renewed, reply.reading)

    def _ask_to_renew(self, lease: Lease, last_tick: int, installation: str, short: bool) -> Reply:
        return self._scripts.renew(installation, lease, last_tick=last_tick, short=short)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`LeaseRegistry.release`."""
        if lease.token in self._in_memory:
            self._in_memory.discard(lease.token)
            return self._memory.release(lease, last_tick=last_tick)
        installation = self._borrower.installation_to_release() if lease.token else None
        if installation is None:
            return False  # of another database by now
        return self._scripts.release(installation, lease, last_tick=last_tick).status == "ok"

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`LeaseRegistry.renew_seen`; a part of them at a time.

        Whatever it raises in the middle, those that were renewed by then are.
        """
        if self._borrower.lenders.is_forbidden():
            return self._memory.renew_seen(idle_after=idle_after)
        if not self._borrower.is_in_use():
            return 0
        count, cursor, short = 0, FIRST, False

        def ask(installation: str, cut: bool) -> Reply:
            nonlocal short
            # A database that is away is waited for once, not for each part.
            short = short or cut
            return self._scripts.renew_seen(
                installation, idle_us=int(idle_after * 1e6), short=short, cursor=cursor
            )

        while True:
            reply = self._granted(ask)
            count, cursor = count + reply.window[0], reply.cursor
            if cursor == LAST:
                return count

    def lend_on(self) -> None:
        """From now on whoever asks does so for another: this host's clock is not the holder's."""
        self._scripts.lends_on = True

    def oversight(self) -> Overseen:
        """For those who look into it, and after it."""
        if self._borrower.lenders.is_forbidden():
            return self._memory.oversight()
        return RedisOversight(
            self.namespace, self._own, self._scripts, self._borrower, self._history, self._clock
        )

    def ledgers(self) -> list[Ledger]:
        """What is stored of the namespace, for those who change its settings."""
        roots = ledgers_in(
            self.namespace,
            self._borrower.lenders.database,
            timeout=self._limit,
            server_identity=self._server_identity,
            clock=self._clock,
        )
        return [BorrowedLedger(root, self._scripts) for root in roots]

    def probes(self) -> Mapping[str, Callable[[], None]]:
        """What raises unless Redis answers, by its name."""
        return {f"redis {self.alias}": self._ping}

    def _ping(self) -> None:
        self._own.ask(lambda client: client.ping(), unavailable=RegistryUnavailable)

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._start_over()
        self._own.reset()
        self._memory.abandon()
        self._borrower.abandon()

    def close(self) -> None:
        """Close the connections to Redis. May be called twice."""
        self._own.close()

    # --- following up what a script asks for --------------------------------

    def _granted(self, ask: Ask, *, forbidden: Callable[[], LeaseLost] | None = None) -> Reply:
        """The answer of ``ask``, once it is ``ok`` or ``lost``.

        Each answer before it says surely that nothing was granted, so that asking
        again repeats nothing.
        """
        if forbidden is not None and self._borrower.lenders.is_forbidden():
            installation = self._borrower.known_installation()
            reply = None if installation is None else ask(installation, True)
            if reply is None or reply.status != "ok":
                raise forbidden()
            return reply
        return self._followed_up(ask)

    def _followed_up(self, ask: Ask) -> Reply:
        lender, failure, waited = self._borrower.lenders.current(), None, False
        for _ in range(ATTEMPTS):
            reply = ask(self._borrower.installation_of(lender), failure is not None)
            if reply.status == "ok":
                self._borrower.lift_in_time(lender, reply)
            if reply.status in ("ok", "lost"):
                return reply
            if reply.status == "open":
                self._borrower.open(lender, reply.words[2], reply.now)
            elif reply.status == "wait" and not waited:
                waited = self._waited(reply)
            elif reply.status == "raise" and failure is None:
                failure = self._failure_to_lift(lender, reply)
            elif reply.status == "raise" and isinstance(failure, TakenOver):
                raise failure
            else:
                raise refusal(reply, self.namespace, self._own, failure) from failure
        raise RegistryUnavailable(
            f"What the Redis of CACHES[{self.alias!r}] knows of namespace "
            f"{self.namespace.name!r} is lost again and again. See what deletes it, or whether "
            f"several servers answer at its address."
        )

    def _failure_to_lift(self, lender: Lender, reply: Reply) -> RegistryUnavailable | None:
        try:
            self._borrower.lift(lender, reply, wanted=reply.wanted)
        except RegistryUnavailable as error:
            # What is left below the ceiling can still be lent.
            return error
        return None

    # --- waiting ------------------------------------------------------------

    def _waited(self, reply: Reply) -> bool:
        """Wait for the fence if that is soon. Raises :class:`RegistryUnavailable` if not."""
        seconds = self._seconds(int(reply.words[1]))
        if seconds > self._limit:
            raise refusal(reply, self.namespace, self._own)
        self._clock.sleep(seconds)
        return True

    def _seconds(self, ticks: int) -> float:
        return ticks * self.namespace.tick_us / 1e6

"""Worker ids lent by Redis, which the database has lent the ticks to (rule L6).

All of a namespace is one hash without expiry, and each operation one script: one
round trip, and no database. About once a minute one of the holders has the database
raise the ceiling that Redis may lend up to. What Redis forgets (flush, eviction, an
empty restart, a replica that missed writes) shows by the hash's absence, its count
of fields, or its *incarnation*; then the database opens a new generation, past all
that the old one can have lent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ..core.charter import Charter
from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import ConfigurationError, LeaseLost, RegistryUnavailable
from ..core.lease import Grant, Lease, Namespace, new_token
from ..core.lending import lost
from ..redis_client import OwnRedis
from .lender import Lender, Lenders
from .memory import MemoryLeases
from .redis_refusals import refusal
from .redis_scripts import LAST_TICK, LeaseScripts, Reply

__all__ = ["RedisLeases"]

ATTEMPTS = 6
"""How many answers that only ask for something else are followed up, in one operation.

Few, since each loss in between costs a generation, whose fence lies a stride further ahead.
"""
AFTER_LOSS = ("ahead", "wait")
DEFAULT_TIMEOUT = 3.0
RETRY_SECONDS = 20.0
"""Pause after the database could not raise a ceiling that was still high enough."""

Ask = Callable[[str, bool], Reply]
"""A script, of an installation; and whether a window may be cut short at the ceiling."""


class _TakenOver(RegistryUnavailable):
    """Another Redis lends for the namespace now; this one may use up what it has."""


class _Unused(Exception):
    """The database never lent anything to a Redis; raised to have it roll back."""


class RedisLeases:
    """A registry in the Redis of the cache ``alias`` (django-redis). Thread-safe.

    ``database`` is the alias of the database that remembers what Redis may forget.
    ``timeout`` (seconds) bounds each call to either. ``stride`` (seconds, at least a
    window; two windows unless told) is how far ahead the database lends: as long it may
    be away, and so far ids may run ahead after Redis has forgotten something; with
    ``after_loss="wait"`` none is lent until the time has come up to it. For
    ``server_identity`` see :class:`~.database.DatabaseLeases`. ``read_now_us`` gives
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
        clock: Clock = SYSTEM_CLOCK,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.namespace = namespace
        self.alias = alias
        self.stride_ticks = _stride(namespace, stride)
        self._limit = _seconds("timeout", timeout, most=60)
        self._waits = _choice(after_loss) == "wait"
        self._clock = clock
        self._own = OwnRedis(alias, timeout=self._limit / 2)
        self._scripts = LeaseScripts(self._own, namespace, clock=clock, read_now_us=read_now_us)
        self._lenders = Lenders(
            namespace,
            database,
            stride=self.stride_ticks,
            timeout=self._limit,
            server_identity=_flag(server_identity),
            clock=clock,
            read_now_us=read_now_us,
        )
        self._memory = MemoryLeases(namespace, clock=clock, read_now_us=read_now_us)
        self._start_over()

    def _start_over(self) -> None:
        self._installations: dict[Lender, str] = {}
        self._in_memory: set[str] = set()
        self._worker: int | None = None
        self._not_before_ns = 0

    # --- the registry -------------------------------------------------------

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`~..core.lease.LeaseRegistry.acquire`."""
        if self._lenders.is_forbidden():
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
        return Grant(
            Lease(self.namespace.name, worker, token, start, until, generation), reply.reading
        )

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`~..core.lease.LeaseRegistry.renew`."""
        if lease.token in self._in_memory:
            return self._memory.renew(lease, last_tick=last_tick)
        reply = self._granted(
            partial(self._ask_to_renew, lease, last_tick), forbidden=partial(lost, lease)
        )
        if reply.status == "lost":
            raise lost(lease)
        _, start, until = reply.window
        renewed = Lease(lease.namespace, lease.worker, lease.token, start, until, lease.generation)
        return Grant(renewed, reply.reading)

    def _ask_to_renew(self, lease: Lease, last_tick: int, installation: str, short: bool) -> Reply:
        return self._scripts.renew(installation, lease, last_tick=last_tick, short=short)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :meth:`~..core.lease.LeaseRegistry.release`."""
        if lease.token in self._in_memory:
            self._in_memory.discard(lease.token)
            return self._memory.release(lease, last_tick=last_tick)
        installation = self._known_installation()
        if installation is None or not lease.token:
            return False  # not of this process, or of another database by now
        return self._scripts.release(installation, lease, last_tick=last_tick).status == "ok"

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`~..core.lease.LeaseRegistry.renew_seen`."""
        idle_us = int(idle_after * 1e6)
        if self._lenders.is_forbidden():
            return self._memory.renew_seen(idle_after=idle_after)
        if not self._is_in_use():
            return 0
        reply = self._granted(
            lambda installation, short: self._scripts.renew_seen(
                installation, idle_us=idle_us, short=short
            )
        )
        return reply.window[0]

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._start_over()
        self._own.reset()
        self._memory.abandon()
        self._lenders.abandon()

    def close(self) -> None:
        """Close the connections to Redis. May be called twice."""
        self._own.close()

    # --- following up what a script asks for --------------------------------

    def _granted(self, ask: Ask, *, forbidden: Callable[[], LeaseLost] | None = None) -> Reply:
        """The answer of ``ask``, once it is ``ok`` or ``lost``.

        Each answer before it says surely that nothing was granted, so that asking
        again repeats nothing.
        """
        if forbidden is not None and self._lenders.is_forbidden():
            installation = self._known_installation()
            reply = None if installation is None else ask(installation, True)
            if reply is None or reply.status != "ok":
                raise forbidden()
            return reply
        return self._followed_up(ask)

    def _followed_up(self, ask: Ask) -> Reply:
        lender, failure, waited = self._lenders.current(), None, False
        for _ in range(ATTEMPTS):
            reply = ask(self._installation_of(lender), failure is not None)
            if reply.status == "ok":
                self._lift_in_time(lender, reply)
            if reply.status in ("ok", "lost"):
                return reply
            if reply.status == "open":
                self._open(lender, reply.words[2], reply.now)
            elif reply.status == "wait" and not waited:
                waited = self._waited(reply)
            elif reply.status == "raise" and failure is None:
                failure = self._failure_to_raise(lender, reply)
            elif reply.status == "raise" and isinstance(failure, _TakenOver):
                raise failure
            else:
                raise refusal(reply, self.namespace, self._own, failure) from failure
        raise RegistryUnavailable(
            f"What the Redis of CACHES[{self.alias!r}] knows of namespace "
            f"{self.namespace.name!r} is lost again and again. See what deletes it, or whether "
            f"several servers answer at its address."
        )

    def _failure_to_raise(self, lender: Lender, reply: Reply) -> RegistryUnavailable | None:
        try:
            self._raise(lender, reply, wanted=reply.wanted)
        except RegistryUnavailable as error:
            # What is left below the ceiling can still be lent.
            return error
        return None

    def _lift_in_time(self, lender: Lender, reply: Reply) -> None:
        """Have the ceiling raised well before anybody needs it; whoever comes first does."""
        charter = reply.charter("")
        _, start, until = reply.window
        latest = max(reply.now, charter.fence, start, until - self.namespace.window_ticks)
        enough = latest + self.stride_ticks - self.stride_ticks // 6
        if charter.ceiling >= enough or self._clock.elapsed_ns() < self._not_before_ns:
            return
        try:
            self._raise(lender, reply, wanted=latest)
        except RegistryUnavailable:
            self._not_before_ns = self._clock.elapsed_ns() + int(RETRY_SECONDS * 1e9)

    # --- the database -------------------------------------------------------

    def _is_in_use(self) -> bool:
        """Whether anything was ever lent; opens nothing, else its settings would be final."""
        lender = self._lenders.current()
        if lender in self._installations:
            return True
        with suppress(_Unused):
            self._noted(lender, lender.change(_used))
        return lender in self._installations

    def _known_installation(self) -> str | None:
        if self._lenders.is_forbidden():
            known = list(self._installations.values())
            return known[-1] if known else None
        return self._installations.get(self._lenders.current())

    def _installation_of(self, lender: Lender) -> str:
        known = self._installations.get(lender)
        # Also sees to it that a process of other settings never reaches Redis (L8).
        return known or self._noted(lender, lender.change(lambda charter: charter)).installation

    def _noted(self, lender: Lender, charter: Charter) -> Charter:
        self._installations[lender] = charter.installation
        return charter

    def _open(self, lender: Lender, incarnation: str, now: int) -> None:
        """Have a generation opened for a new life of the hash, or adopt the one that was."""
        change = partial(
            Charter.opened, incarnation=incarnation, now=max(now, 0), stride=self.stride_ticks
        )
        self._scripts.install(self._noted(lender, lender.change(change)))

    def _raise(self, lender: Lender, reply: Reply, *, wanted: int) -> None:
        """Have the ceiling of the hash raised, if its generation is the database's."""
        seen = reply.charter(self._installation_of(lender))
        change = partial(
            Charter.raised_for,
            seen=seen,
            now=reply.now,
            wanted=min(max(reply.now, wanted), LAST_TICK),
            stride=self.stride_ticks,
        )
        charter = self._noted(lender, lender.change(change))
        if charter.incarnation == seen.incarnation:
            self._scripts.install(charter)
        elif reply.now >= charter.ceiling:
            # Whatever took over lends no more: this Redis may begin anew.
            self._scripts.restart(charter.installation, seen.incarnation)
        else:
            raise _TakenOver(
                f"The Redis of CACHES[{self.alias!r}] lends for generation {seen.generation} of "
                f"namespace {self.namespace.name!r}, but another Redis has taken over with "
                f"generation {charter.generation}. See that all processes reach the same server; "
                f"this one may go on in {self._seconds(charter.ceiling - reply.now):.0f} s, if "
                f"the other is not used any more."
            )

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


def _used(charter: Charter) -> Charter:
    if not charter.ceiling:
        raise _Unused
    return charter


def _stride(namespace: Namespace, stride: float | None) -> int:
    if namespace.max_ticks > LAST_TICK:
        raise ConfigurationError(
            f"Redis counts ticks exactly up to 2**52, but the layout of namespace "
            f"{namespace.name!r} has {namespace.max_ticks.bit_length() - 1} time bits. Use a "
            f"layout with longer ticks, or the registry in the database."
        )
    if stride is None:
        return min(2 * namespace.window_ticks, LAST_TICK // 4)
    ticks = -(-int(_seconds("stride", stride, most=1e6) * 1e6) // namespace.tick_us)
    if ticks < namespace.window_ticks:
        window = namespace.window_ticks * namespace.tick_us / 1e6
        raise ConfigurationError(
            f"stride must be at least a window of {window:g} s, not {stride!r}: no longer "
            f"window than it could ever be lent."
        )
    return min(ticks, LAST_TICK // 4)


def _seconds(name: str, value: object, *, most: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < float(value) <= most:  # type: ignore[arg-type]
        raise ConfigurationError(
            f"{name} must be a number of seconds above 0, up to {most:g}, not {value!r}."
        )
    return float(value)  # type: ignore[arg-type]


def _choice(after_loss: object) -> str:
    if after_loss not in AFTER_LOSS:
        raise ConfigurationError(f"after_loss must be 'ahead' or 'wait', not {after_loss!r}.")
    return str(after_loss)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"server_identity must be True or False, not {value!r}.")
    return value

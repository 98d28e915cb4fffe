"""Worker ids lent by Redis, which the database has lent the ticks to (rule L6).

All of a namespace is one hash without expiry, and each operation one script: one
round trip, and no database. About once a minute one of the holders has the database
raise the ceiling that Redis may lend up to. What Redis forgets (flush, eviction, an
empty restart, a replica that missed writes) shows by the hash's absence, its count
of fields, or its *incarnation*; then the database opens a new generation, past all
that the old one can have lent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ...core.book import lost
from ...core.clock import SYSTEM_CLOCK, Clock
from ...core.errors import ConfigurationError, LeaseLost, RegistryUnavailable
from ...core.inspection import InspectedMark, Inspection, PastLease
from ...core.lease import Grant, Lease, Mark, Namespace, new_token
from ...core.registry import Registry
from ...core.stored import StoredBook
from ...db.redis_client import OwnRedis
from ..book_registry import BookRegistry
from ..memory import MemoryLeases
from ..option_values import checked_flag, checked_seconds
from ..root import Root, RootedBook, TakenOver, checked_after_loss, stride_ticks
from .scripts import FIRST, LAST, LAST_TICK, LeaseScripts, Reply, refusal

__all__ = ["RedisLeases"]

ATTEMPTS = 6
"""How many answers that only ask for something else are followed up, in one operation.

Few, since each loss in between costs a generation, whose fence lies a stride further ahead.
"""
DEFAULT_TIMEOUT = 3.0
WORDS = 10
"""Of each worker id: see the script ``survey``."""

Ask = Callable[[str, bool], Reply]
"""A script, of an installation; and whether a window may be cut short at the ceiling."""


class RedisLeases(Registry):
    """A registry in the Redis of the cache ``alias`` (django-redis). Thread-safe.

    ``database`` is the alias of the database that remembers what Redis may forget.
    ``timeout`` (seconds) bounds each call to either. ``stride`` (seconds, at least a
    window; two windows by default) is how far ahead the database lends: as long it may
    be away, and so far ids may run ahead after Redis has forgotten something; with
    ``after_loss="wait"`` none is lent until the time has come up to it. For
    ``server_identity`` see :class:`DatabaseLeases`. ``read_now_us`` gives
    the time in µs since 1970 instead of the servers' clocks.

    Raises :class:`ConfigurationError` for options that can't work; opens nothing.
    """

    kind = "redis"
    uses_database = True
    database: str

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
        self.database = database
        self.stride_ticks = _stride_ticks(namespace, stride)
        self._limit = checked_seconds("timeout", timeout, most=60)
        self._waits = checked_after_loss(after_loss) == "wait"
        self._clock = clock
        self._own = OwnRedis(alias, timeout=self._limit / 2)
        self._scripts = LeaseScripts(self._own, namespace, clock=clock, read_now_us=read_now_us)
        self._root = Root(
            self._scripts,
            database,
            stride=self.stride_ticks,
            timeout=self._limit,
            server_identity=checked_flag("server_identity", server_identity),
            clock=clock,
            read_now_us=read_now_us,
        )
        self._memory = MemoryLeases(namespace, clock=clock, read_now_us=read_now_us)
        self._start_over()

    def _start_over(self) -> None:
        self._in_memory: set[str] = set()
        self._worker: int | None = None

    # --- the registry -------------------------------------------------------

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        """See :meth:`Registry.acquire`."""
        if self._root.is_forbidden():
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
        generation = reply.sub_lease("").generation
        return Grant(
            Lease(self.namespace.name, worker, token, start, until, generation), reply.reading
        )

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        """See :meth:`Registry.renew`."""
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
        """See :meth:`Registry.release`."""
        if lease.token in self._in_memory:
            self._in_memory.discard(lease.token)
            return self._memory.release(lease, last_tick=last_tick)
        installation = self._root.installation_to_release() if lease.token else None
        if installation is None:
            return False  # of another database by now
        return self._scripts.release(installation, lease, last_tick=last_tick).status == "ok"

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`Registry.renew_seen`; a part of them at a time.

        Whatever it raises in the middle, those that were renewed by then are.
        """
        if self._root.is_forbidden():
            return self._memory.renew_seen(idle_after=idle_after)
        if not self._root.is_in_use():
            return 0
        count, cursor, short = 0, FIRST, False

        def ask(installation: str, cut: bool) -> Reply:
            nonlocal short
            # Wait once for a database that is down, not for each part.
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
        """From now on callers ask for other processes: this host's clock is not the holder's."""
        self._scripts.lends_on = True

    # --- inspecting ---------------------------------------------------------

    def inspect(self, workers: Collection[int] | None = None) -> Sequence[Inspection]:
        """See :meth:`Registry.inspect`.

        One script, called again for each thousand of worker ids or so. A process that has
        not used it yet also looks into the database, whose installation the hash belongs to.
        """
        if self._root.is_forbidden():
            return self._memory.inspect(workers)
        now_us, found = self._clock.wall_ns() // 1000, dict[int, InspectedMark]()
        for reply in self._inspections():
            now_us = reply.reading.registry_us
            found.update((each.mark.worker, each) for each in _marks_in(reply))
        told = [each for each in found.values() if workers is None or each.mark.worker in workers]
        # Of another database it would be another hash.
        place = f"{self.alias} of database {self.database}"
        return [Inspection("redis", self.namespace, now_us, told, place=place)]

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Registry.free`."""
        if self._root.is_forbidden():
            return self._memory.free(worker, lease)
        installation = self._root.installation_to_look()
        if installation is None:
            return False
        reply = self._scripts.free(installation, worker, lease)
        if reply.status not in ("ok", "lost"):
            raise refusal(reply, self.namespace, self._own)
        return reply.status == "ok"

    def past_lease(self, worker: int, tick: int) -> PastLease | None:
        """See :meth:`Registry.past_lease`: the last one, no more is kept."""
        if self._root.is_forbidden():
            return self._memory.past_lease(worker, tick)
        found = None
        for reply in self._inspections(worker):
            found = next(iter(_marks_in(reply)), found)
        if found is None or not found.mark.start <= tick < found.mark.until:
            return None
        return found.as_lease()

    def _inspections(self, worker: int | None = None) -> Iterator[Reply]:
        """What is known of ``worker``, or of all; of what is told twice, the last is right."""
        installation = self._root.installation_to_look()
        if installation is None:
            return
        cursor = None
        while cursor != LAST:
            reply = self._scripts.survey(installation, worker, cursor=cursor or FIRST)
            if reply.status != "ok":
                raise refusal(reply, self.namespace, self._own)
            yield reply
            cursor = reply.words[1]

    def books(self) -> Sequence[StoredBook]:
        """See :meth:`Registry.books`."""
        if self._root.is_forbidden():
            return ()
        return [RootedBook(root, self._scripts) for root in self._root.current().books()]

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
        self._root.abandon()

    def close(self) -> None:
        """Close the connections to Redis. May be called twice."""
        self._own.close()

    # --- following up what a script asks for --------------------------------

    def _granted(self, ask: Ask, *, forbidden: Callable[[], LeaseLost] | None = None) -> Reply:
        """The answer of ``ask``, once it is ``ok`` or ``lost``.

        Each answer before it says surely that nothing was granted, so that asking
        again repeats nothing.
        """
        if forbidden is not None and self._root.is_forbidden():
            installation = self._root.known_installation()
            reply = None if installation is None else ask(installation, True)
            if reply is None or reply.status != "ok":
                raise forbidden()
            return reply
        return self._followed_up(ask)

    def _followed_up(self, ask: Ask) -> Reply:
        book, failure, waited = self._root.current(), None, False
        for _ in range(ATTEMPTS):
            reply = ask(self._root.installation_of(book), failure is not None)
            if reply.status == "ok":
                _, start, until = reply.window
                seen = reply.sub_lease("")
                self._root.lift_in_time(book, seen, now=reply.now, start=start, until=until)
            if reply.status in ("ok", "lost"):
                return reply
            if reply.status == "open":
                self._root.open(book, reply.words[2], reply.now)
            elif reply.status == "wait" and not waited:
                waited = self._waited(reply)
            elif reply.status == "raise" and failure is None:
                failure = self._failure_to_lift(book, reply)
            elif reply.status == "raise" and isinstance(failure, TakenOver):
                raise failure
            else:
                raise refusal(reply, self.namespace, self._own, failure) from failure
        raise RegistryUnavailable(
            f"What the Redis of CACHES[{self.alias!r}] knows of namespace "
            f"{self.namespace.name!r} is lost again and again. See what deletes it, or whether "
            f"several servers answer at its address."
        )

    def _failure_to_lift(self, book: BookRegistry, reply: Reply) -> RegistryUnavailable | None:
        try:
            self._root.lift(book, reply.sub_lease(""), now=reply.now, wanted=reply.wanted)
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


def _stride_ticks(namespace: Namespace, stride: float | None) -> int:
    if namespace.max_ticks > LAST_TICK:
        raise ConfigurationError(
            f"Redis counts ticks exactly up to 2**52, but the layout of namespace "
            f"{namespace.name!r} has {namespace.max_ticks.bit_length() - 1} time bits. Use a "
            f"layout with longer ticks, or the registry in the database."
        )
    return min(stride_ticks(namespace, stride), LAST_TICK // 4)


def _marks_in(reply: Reply) -> Iterable[InspectedMark]:
    words = reply.words[2:]
    for place in range(0, len(words), WORDS):
        worker, holds, start, until, generation, seen, lent, offset, lease, holder = words[
            place : place + WORDS
        ]
        # The server keeps its tokens to itself.
        token = "" if holds == "free" else holds
        mark = Mark(int(worker), token, int(start), int(until), int(generation), holder)
        yield InspectedMark(
            mark,
            seen_us=int(seen),
            acquired_us=int(lent) if lent else None,
            offset_us=int(offset) if offset else None,
            void=holds == "void",
            lease=lease,
        )

"""Worker ids lent by Redis, which the database has lent the ticks to (rule L6).

A namespace is one hash without expiry, and each operation is one script: one round trip, and no
database. About once a minute one of the holders asks the database to raise the ceiling. A loss
(flush, eviction, an empty restart, a replica that missed writes) shows in a missing hash, its
count of fields, or its *incarnation*; then the database opens a new generation, past all that
the old one can have lent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import SystemRandom

from ...core.book import SubLease, check_fingerprint, fingerprint_text, lost
from ...core.clock import SYSTEM_CLOCK, Clock, Reading
from ...core.errors import (
    ClockBeforeEpoch,
    ConfigurationError,
    IdgenError,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    TimeExhausted,
)
from ...core.inspection import InspectedMark, Inspection
from ...core.lease import (
    PROTOCOL_VERSION,
    Grant,
    Lease,
    Mark,
    Namespace,
    new_token,
    too_far_ahead,
)
from ...core.options import check_flag, check_seconds
from ...core.registry import Registry
from ...core.store import StoredBook
from ...db.redis_client import OwnRedis, run_script
from ..root import (
    Kept,
    Root,
    SubLessee,
    checked_after_loss,
    parsed_words,
    stride_ticks,
)

ATTEMPTS = 6
"""Answers of one operation that ask for something first.

Few, since each loss in between costs a generation, whose fence lies a stride further ahead.
"""
DEFAULT_TIMEOUT = 3.0
WORDS = 10
"""Of each worker id in the answer of the script ``survey``."""

Ask = Callable[[str, bool], "Reply"]
"""Runs a script for an installation; the flag allows a window cut short at the ceiling."""


class RedisLeases(Registry):
    """A registry in the Redis of the cache ``alias`` (django-redis). Thread-safe.

    ``database`` is the alias of the database that remembers what Redis may forget.
    ``timeout`` (seconds) bounds each call to either. ``stride`` (seconds, at least a window; two
    windows by default) is how far ahead the database lends: it may be down for as long, and ids
    may run ahead as far after a loss; with ``after_loss="wait"`` Redis then lends nothing until
    the time has reached the fence. For ``server_identity`` see :class:`DatabaseLeases`.
    ``read_now_us`` returns the time in µs since 1970 instead of the servers' clocks.

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
        self._limit = check_seconds("timeout", timeout, most=60)
        self._waits = checked_after_loss(after_loss) == "wait"
        self._clock = clock
        self._own = OwnRedis(alias, timeout=self._limit / 2)
        self._scripts = LeaseScripts(self._own, namespace, clock=clock, read_now_us=read_now_us)
        self._root = Root(
            self._scripts,
            database,
            stride=self.stride_ticks,
            timeout=self._limit,
            server_identity=check_flag("server_identity", server_identity),
            clock=clock,
            read_now_us=read_now_us,
        )
        self._worker: int | None = None

    # --- the registry -------------------------------------------------------

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        token = new_token()
        reply = self._granted(
            lambda installation, short: self._scripts.acquire(
                installation,
                holder=holder,
                token=token,
                not_before=not_before,
                avoid=avoid,
                # Redis may have forgotten which one this process had.
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
        reply = self._granted(
            lambda installation, short: self._scripts.renew(
                installation, lease, last_tick=last_tick, short=short
            )
        )
        if reply.status == "lost":
            raise lost(lease)
        worker, start, until = reply.window
        renewed = Lease(self.namespace.name, worker, lease.token, start, until, lease.generation)
        return Grant(renewed, reply.reading)

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        installation = self._root.installation() if lease.token else ""
        if not installation:
            return False  # another database by now
        return self._scripts.release(installation, lease, last_tick=last_tick).status == "ok"

    def renew_seen(self, *, idle_after: float) -> int:
        """See :meth:`Registry.renew_seen`. Renews a part at a time; an error keeps those done."""
        if not self._root.is_in_use():
            return 0
        count, cursor, short = 0, FIRST, False

        def ask(installation: str, cut: bool) -> Reply:
            nonlocal short
            # Wait for a database that is down only once, not for each part.
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
        self._scripts.lends_on = True

    # --- inspecting ---------------------------------------------------------

    def inspect(self, workers: Collection[int] | None = None) -> Inspection:
        """See :meth:`Registry.inspect`.

        Calls a script for each thousand of worker ids or so. A process that has not used Redis
        yet also asks the database for its installation.
        """
        now_us, found = self._clock.wall_ns() // 1000, dict[int, InspectedMark]()
        only = next(iter(workers)) if workers is not None and len(workers) == 1 else None
        for reply in self._inspections(only):
            now_us = reply.reading.registry_us
            found.update((each.mark.worker, each) for each in _marks_in(reply))
        marks = [each for each in found.values() if workers is None or each.mark.worker in workers]
        # Another database has another hash.
        place = f"{self.alias} of database {self.database}"
        return Inspection("redis", self.namespace, now_us, marks, place=place)

    def free(self, worker: int, lease: str | None = None) -> bool:
        installation = self._root.installation()
        if not installation:
            return False
        reply = self._scripts.free(installation, worker, lease)
        if reply.status not in ("ok", "lost"):
            raise self._scripts.refusal(reply)
        return reply.status == "ok"

    def _inspections(self, worker: int | None = None) -> Iterator[Reply]:
        """What is known of ``worker``, or of all; a later answer replaces an earlier one."""
        installation = self._root.installation()
        if not installation:
            return
        cursor = None
        while cursor != LAST:
            reply = self._scripts.survey(installation, worker, cursor=cursor or FIRST)
            if reply.status != "ok":
                raise self._scripts.refusal(reply)
            yield reply
            cursor = reply.word(1)

    def stored_book(self) -> StoredBook | None:
        return self._root.stored_book()

    def probes(self) -> Mapping[str, Callable[[], None]]:
        return {f"redis {self.alias}": self._ping}

    def _ping(self) -> None:
        self._own.ask(lambda client: client.ping(), unavailable=RegistryUnavailable)

    def abandon(self) -> None:
        """Drop what a forked child inherited."""
        self._worker = None
        self._own.reset()
        self._root.abandon()

    def close(self) -> None:
        """Close the connections to Redis. May be called twice."""
        self._own.close()

    # --- what a script asks for first ---------------------------------------

    def _granted(self, ask: Ask) -> Reply:
        """The answer of ``ask``, once it is ``ok`` or ``lost``.

        Each answer before that granted nothing, so asking again repeats nothing.
        """
        store, failure, waited = self._root.current(), None, False
        for _ in range(ATTEMPTS):
            reply = ask(self._root.installation(store), failure is not None)
            if reply.status == "ok":
                _, start, until = reply.window
                seen = reply.sub_lease("")
                self._root.lift_in_time(store, seen, now=reply.now, start=start, until=until)
            if reply.status in ("ok", "lost"):
                return reply
            if reply.status == "open":
                self._root.open(store, reply.word(2), reply.now)
            elif reply.status == "wait" and not waited:
                waited = self._waited(reply)
            elif reply.status == "raise" and failure is None:
                failure = self._root.failure_to_lift(
                    store, reply.sub_lease(""), now=reply.now, wanted=reply.wanted
                )
            else:
                raise self._scripts.refusal(reply, failure) from failure
        raise self._scripts.lost_again()

    # --- waiting ------------------------------------------------------------

    def _waited(self, reply: Reply) -> bool:
        """Wait for the fence if that is soon. Raises :class:`RegistryUnavailable` if not."""
        seconds = reply.numbers(1)[0] * self.namespace.tick_us / 1e6
        if seconds > self._limit:
            raise self._scripts.refusal(reply)
        self._clock.sleep(seconds)
        return True


def _stride_ticks(namespace: Namespace, stride: float | None) -> int:
    if namespace.max_ticks > LAST_TICK:
        raise ConfigurationError(
            f"Redis counts ticks exactly up to 2**52, but the layout of namespace "
            f"{namespace.name!r} has {namespace.max_ticks.bit_length() - 1} time bits. Use a "
            f"layout with longer ticks, or the registry in the database."
        )
    return min(stride_ticks(namespace, stride), LAST_TICK // 4)


def _marks_in(reply: Reply) -> Iterable[InspectedMark]:
    for first in range(2, len(reply.words), WORDS):
        worker, start, until, generation, seen = reply.numbers(
            *(first + place for place in (0, 2, 3, 4, 5))
        )
        # The server keeps its tokens to itself.
        holds = reply.word(first + 1)
        token = "" if holds == "free" else holds
        lent, offset = (
            reply.numbers(first + place)[0] if reply.word(first + place) else None
            for place in (6, 7)
        )
        yield InspectedMark(
            Mark(worker, token, start, until, generation, reply.word(first + 9)),
            seen_us=seen,
            acquired_us=lent,
            offset_us=offset,
            void=holds == "void",
            lease=reply.word(first + 8),
        )


# --- the scripts ----------------------------------------------------------------------
#
# Each runs inside Redis, in one round trip. It finds its hash, checks that the hash is whole and
# of the server's present life, does its work, and answers with the server's time. If it can't do
# something it says so, and has changed nothing that was granted.

HOLDER_LENGTH = 200
LAST_TICK = 2**52
"""Lua counts in doubles: up to here, and a window further, every tick is exact."""
RANDOM_TRIES = 10
PART = 2000
"""Fields of the hash, about, that a script reads at a time. Redis does nothing else then."""
RENEWED = 1000
"""As :data:`PART`, for a script that also writes marks."""
FIRST = LAST = "0"
"""The cursor to begin with, and the one at the end."""
COMMON = ("django_idgen.db/server", f"{__package__}/common")
# Processes started from one image, or forked, must not all try the same ones.
_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class Reply:
    """What a script answered: its first word, and the words after it."""

    status: str
    words: tuple[str, ...]
    sent_ns: int
    received_ns: int

    def word(self, place: int) -> str:
        """Raises :class:`RegistryUnavailable` if there are not so many words."""
        try:
            return self.words[place]
        except IndexError:
            raise self.senseless() from None

    def numbers(self, *places: int) -> list[int]:
        """Raises :class:`RegistryUnavailable` for a word that is no number."""
        try:
            return [int(self.word(place)) for place in places]
        except ValueError:
            raise self.senseless() from None

    def senseless(self) -> RegistryUnavailable:
        words = " ".join((self.status, *self.words))
        return RegistryUnavailable(
            f"A Redis answered {words[:100]!r}, which no script of django_idgen does. Find out "
            f"what answers at its address."
        )

    @property
    def reading(self) -> Reading:
        return Reading(self.numbers(0)[0], self.sent_ns, self.received_ns)

    @property
    def now(self) -> int:
        """The tick of the server's clock (of ``ok``, ``raise`` and ``open``)."""
        return self.numbers(1)[0]

    @property
    def wanted(self) -> int:
        """The tick past which to raise the ceiling (of ``raise``)."""
        return self.numbers(2)[0]

    @property
    def window(self) -> tuple[int, int, int]:
        """Worker id, start and end of the lease (of ``ok``)."""
        worker, start, until = self.numbers(2, 3, 4)
        return worker, start, until

    @property
    def cursor(self) -> str:
        """Where the next part begins (of ``ok`` of :meth:`LeaseScripts.renew_seen`)."""
        return self.word(5)

    def sub_lease(self, installation: str) -> SubLease:
        """The sub-lease in the hash (of ``ok`` and ``raise``)."""
        generation, fence, ceiling = self.numbers(-4, -3, -2)
        return SubLease(installation, generation, fence, ceiling, self.word(-1))


class LeaseScripts(SubLessee):
    """Calls the scripts for one namespace. Thread-safe.

    ``read_now_us`` returns the time (µs since 1970) instead of the server's clock.
    Every method raises :class:`RegistryUnavailable` if no answer comes.
    """

    def __init__(
        self,
        own: OwnRedis,
        namespace: Namespace,
        *,
        clock: Clock,
        read_now_us: Callable[[], int] | None = None,
    ) -> None:
        self.own = own
        self.namespace = namespace
        self.described = f"Redis of CACHES[{own.alias!r}]"
        self._clock = clock
        self._read_now_us = read_now_us
        self._fingerprint = fingerprint_text(namespace.fingerprint)
        self.lends_on = False
        """Whether it lends to holders on other hosts, with other clocks."""

    def acquire(
        self,
        installation: str,
        *,
        holder: str,
        token: str,
        not_before: int,
        avoid: int | None,
        preferred: int | None,
        short: bool,
        waiting: bool,
    ) -> Reply:
        span = self.namespace.workers
        tries = min(RANDOM_TRIES, len(span)) if len(span) > RANDOM_TRIES else 0
        return self._call(
            "acquire",
            installation,
            span.start,
            span.stop,
            holder[:HOLDER_LENGTH],
            token,
            min(not_before, LAST_TICK),
            -1 if avoid is None else avoid,
            int(short),
            int(waiting),
            -1 if preferred is None else preferred,
            _random.randrange(len(span)),
            self._wall_us(),
            self.namespace.lead_ticks,
            self.namespace.skew_ticks,
            *_random.sample(span, tries),
        )

    def renew(self, installation: str, lease: Lease, *, last_tick: int, short: bool) -> Reply:
        return self._call(
            "renew",
            installation,
            lease.worker,
            lease.token,
            lease.start,
            lease.generation,
            min(last_tick, LAST_TICK),
            int(short),
            self._wall_us(),
        )

    def release(self, installation: str, lease: Lease, *, last_tick: int | None) -> Reply:
        return self._call(
            "release",
            installation,
            lease.worker,
            lease.token,
            lease.start,
            lease.generation,
            -1 if last_tick is None else min(last_tick, LAST_TICK),
        )

    def renew_seen(
        self, installation: str, *, idle_us: int, short: bool, cursor: str = FIRST
    ) -> Reply:
        """Renew a part from ``cursor`` on; the answer's window begins with their number.

        :attr:`Reply.cursor` is that of the next part, or :data:`LAST`.
        """
        return self._call("renew_seen", installation, idle_us, int(short), cursor, RENEWED)

    def survey(self, installation: str, worker: int | None = None, *, cursor: str = FIRST) -> Reply:
        """What is stored of ``worker``, or of a part from ``cursor`` on; changes nothing.

        The answer's second word is the next cursor, or :data:`LAST`.
        """
        return self._call("survey", installation, "" if worker is None else worker, cursor, PART)

    def free(self, installation: str, worker: int, lease: str | None = None) -> Reply:
        """Void the token of ``worker``; ``lost`` if there is none, or not that of ``lease``."""
        return self._call("free", installation, worker, lease or "")

    def _wall_us(self) -> int | str:
        return "" if self.lends_on else self._clock.wall_ns() // 1000

    def install(self, sub_lease: SubLease) -> Reply:
        """Store ``sub_lease``; ``lost`` if the hash is gone or has a later one."""
        return self._call(
            "install",
            sub_lease.installation,
            sub_lease.generation,
            sub_lease.fence,
            sub_lease.ceiling,
            sub_lease.incarnation,
        )

    def enter(self, installation: str, generation: int) -> None:
        """Begin a hash with these settings, unless it has ``generation`` or a later one."""
        reply = self._call("enter", installation, generation)
        if reply.status != "ok":
            raise self.refusal(reply)

    def kept(self, installation: str) -> Kept | None:
        key = key_of(installation, self.namespace.name)
        words = self.own.ask(
            lambda client: client.hmget(key, "fingerprint", "ceiling"),
            unavailable=RegistryUnavailable,
        )
        return None if words[0] is None else Kept(parsed_words(words[0]), int(words[1] or 0))

    def restart(self, installation: str, incarnation: str) -> Reply:
        """Give up the life ``incarnation`` of the hash, if it still is in it."""
        return self._call("restart", installation, incarnation)

    def _call(self, name: str, installation: str, *words: object) -> Reply:
        space = self.namespace
        given = (
            installation,
            self._fingerprint,
            PROTOCOL_VERSION,
            new_token(),
            "" if self._read_now_us is None else self._read_now_us(),
            space.epoch_us,
            space.tick_us,
            space.max_ticks,
            min(space.window_ticks, space.max_ticks),
            *words,
        )
        key = key_of(installation, space.name)
        sent = self._clock.elapsed_ns()
        answer = self.own.ask(
            lambda client: run_script(client, (*COMMON, f"{__package__}/{name}"), [key], given),
            unavailable=RegistryUnavailable,
        )
        received = self._clock.elapsed_ns()
        status, *rest = answer or [""]
        return Reply(status, tuple(rest), sent, received)

    def refusal(self, reply: Reply, failure: Exception | None = None) -> IdgenError:
        """The error for an answer other than a grant; ``failure`` is why no ceiling was raised."""
        space = self.namespace
        match reply.status:
            case "none":
                return NoFreeWorker(space.name, space.workers)
            case "epoch":
                return ClockBeforeEpoch(
                    f"The clock of Redis is {reply.word(0)} ticks of {space.tick_us} µs before the "
                    f"epoch of namespace {space.name!r}. Correct the clock, or choose an earlier "
                    "EPOCH."
                )
            case "exhausted":
                return TimeExhausted(
                    f"Tick {reply.word(0)} does not fit the time bits of namespace {space.name!r}: "
                    f"they end at {space.max_ticks}. Move to a layout with more time bits or a "
                    f"later epoch."
                )
            case "ahead":
                return too_far_ahead(space, *reply.numbers(0, 1))
            case "mismatch":
                return _mismatch(space, reply.word(0), reply.word(1))
        return self._unusable(reply, failure)

    def _unusable(self, reply: Reply, failure: Exception | None) -> IdgenError:
        redis = f"The {self.described}"
        match reply.status:
            case "protocol":
                return self.unknown_form(reply.word(0))
            case "denied":
                return self.own.refused(reply.word(0))
            case "hidden":
                return ConfigurationError(
                    f"{redis} does not show run_id and master_replid in INFO. Without them, "
                    "django_idgen can't notice a loss of its data. Use another Redis, or the "
                    "registry in the database."
                )
            case "replica":
                return RegistryUnavailable(
                    f"{redis} is a replica, which may not lend. Point LOCATION at the primary."
                )
            case "wait":
                return self.waiting(reply.numbers(1)[0])
            case "raise":
                return self.exhausted(failure)
        return RegistryUnavailable(
            f"{redis} answered with {reply.status!r}, which this version of django_idgen does not "
            "know."
        )


def _mismatch(namespace: Namespace, what: str, stored: str) -> IdgenError:
    if what == "fingerprint":
        try:
            check_fingerprint(namespace, stored)
        except NamespaceMismatch as error:
            return error
    return NamespaceMismatch(namespace.name, what, stored, "another one")


def key_of(installation: str, namespace: str) -> str:
    """The key of the hash; two projects on one Redis have different ones."""
    return f"django_idgen:{{{installation}:{namespace}}}"

"""The scripts that lend worker ids inside Redis: one a call, each in one round trip.

Each finds its hash, checks that it is whole and of this server's present life, does
its work and answers with the server's time. What it can't do it says, and has then
changed nothing that was granted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom

from ...core.book import check_fingerprint, fingerprint_text
from ...core.clock import Clock, Reading
from ...core.errors import (
    ClockBeforeEpoch,
    ConfigurationError,
    IdgenError,
    NamespaceMismatch,
    NoFreeWorker,
    RegistryUnavailable,
    TimeExhausted,
)
from ...core.lease import PROTOCOL_VERSION, Lease, Namespace, new_token, too_far_ahead
from ...core.sub_lease import SubLease
from ...db.redis_client import OwnRedis, run_script
from ..root import Kept, SubLessee, parsed_words

__all__ = [
    "FIRST",
    "LAST",
    "LAST_TICK",
    "LeaseScripts",
    "Reply",
    "key_of",
    "refusal",
]

HOLDER_LENGTH = 200
LAST_TICK = 2**52
"""Lua counts in doubles: up to here, and a window further, every tick is exact."""
RANDOM_TRIES = 10
PART = 2000
"""Fields of the hash, about, that are looked through at a time: Redis does nothing else then."""
RENEWED = 1000
"""As :data:`PART`, where marks are also written."""
FIRST = LAST = "0"
"""The cursor to begin with, and the one that says there is no more."""
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

    @property
    def reading(self) -> Reading:
        return Reading(int(self.words[0]), self.sent_ns, self.received_ns)

    @property
    def now(self) -> int:
        """The tick that the server's clock stands at (of ``ok``, ``raise`` and ``open``)."""
        return int(self.words[1])

    @property
    def wanted(self) -> int:
        """The tick that a ceiling is to be raised past (of ``raise``)."""
        return int(self.words[2])

    @property
    def window(self) -> tuple[int, int, int]:
        """Worker id, start and end of the lease (of ``ok``)."""
        worker, start, until = map(int, self.words[2:5])
        return worker, start, until

    @property
    def cursor(self) -> str:
        """Where the next part begins (of ``ok`` of :meth:`LeaseScripts.renew_seen`)."""
        return self.words[5]

    def sub_lease(self, installation: str) -> SubLease:
        """What the hash holds of its sub-lease (of ``ok`` and ``raise``)."""
        *numbers, incarnation = self.words[-4:]
        generation, fence, ceiling = map(int, numbers)
        return SubLease(installation, generation, fence, ceiling, incarnation)


class LeaseScripts(SubLessee):
    """Calls the scripts for one namespace. Thread-safe.

    ``read_now_us`` gives the time (µs since 1970) instead of the server's clock.
    Every method raises :class:`RegistryUnavailable` where no answer came.
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
        """Whether leases are lent on, to holders whose clocks are not this host's."""

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
        """Renew some from ``cursor`` on; the answer's window begins with how many there were.

        Its :attr:`Reply.cursor` is that of the next ones; :data:`LAST` after the last.
        """
        return self._call("renew_seen", installation, idle_us, int(short), cursor, RENEWED)

    def survey(self, installation: str, worker: int | None = None, *, cursor: str = FIRST) -> Reply:
        """What is known of ``worker``, or of some from ``cursor`` on; nothing is changed.

        The answer's second word is the next cursor; :data:`LAST` after the last ones.
        """
        return self._call("survey", installation, "" if worker is None else worker, cursor, PART)

    def free(self, installation: str, worker: int, lease: str | None = None) -> Reply:
        """Void the token of ``worker``; ``lost`` if there is none, or not that of ``lease``."""
        return self._call("free", installation, worker, lease or "")

    def _wall_us(self) -> int | str:
        return "" if self.lends_on else self._clock.wall_ns() // 1000

    def install(self, sub_lease: SubLease) -> Reply:
        """Enter ``sub_lease``; ``lost`` if the hash is gone, or has a later one."""
        return self._call(
            "install",
            sub_lease.installation,
            sub_lease.generation,
            sub_lease.fence,
            sub_lease.ceiling,
            sub_lease.incarnation,
        )

    def enter(self, installation: str, generation: int) -> None:
        """Begin a hash of these settings, unless it is one of ``generation`` or a later one."""
        reply = self._call("enter", installation, generation)
        if reply.status != "ok":
            raise refusal(reply, self.namespace, self.own)

    def kept(self, installation: str) -> Kept | None:
        """See :meth:`SubLessee.kept`."""
        key = key_of(installation, self.namespace.name)
        words = self.own.ask(
            lambda client: client.hmget(key, "fingerprint", "ceiling"),
            unavailable=RegistryUnavailable,
        )
        return None if words[0] is None else Kept(parsed_words(words[0]), int(words[1] or 0))

    def restart(self, installation: str, incarnation: str) -> Reply:
        """Give up the life ``incarnation`` of the hash, if that is still its present one."""
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
        status, *rest = self.own.ask(
            lambda client: run_script(client, (*COMMON, f"{__package__}/{name}"), [key], given),
            unavailable=RegistryUnavailable,
        )
        received = self._clock.elapsed_ns()
        return Reply(status, tuple(rest), sent, received)


def key_of(installation: str, namespace: str) -> str:
    """The key of the hash; two projects on one Redis have different ones."""
    return f"django_idgen:{{{installation}:{namespace}}}"


# --- refusals -----------------------------------------------------------------------


def refusal(
    reply: Reply, namespace: Namespace, own: OwnRedis, failure: Exception | None = None
) -> IdgenError:
    """The error for an answer other than a grant; ``failure`` is why no ceiling was raised."""
    words = reply.words
    match reply.status:
        case "none":
            return NoFreeWorker(namespace.name, namespace.workers)
        case "epoch":
            return ClockBeforeEpoch(
                f"The clock of Redis stands {words[0]} ticks of {namespace.tick_us} µs before the "
                f"epoch of namespace {namespace.name!r}. Mend the clock, or choose an earlier "
                f"EPOCH."
            )
        case "exhausted":
            return TimeExhausted(
                f"Tick {words[0]} does not fit the time bits of namespace {namespace.name!r}: "
                f"they end at {namespace.max_ticks}. Move to a layout with more time bits or a "
                f"later epoch."
            )
        case "ahead":
            return too_far_ahead(namespace, *map(int, words))
        case "mismatch":
            return _mismatch(namespace, words[0], words[1])
        case "protocol":
            return ConfigurationError(
                f"Namespace {namespace.name!r} was written to Redis with protocol {words[0]}, but "
                f"this version of django_idgen knows {PROTOCOL_VERSION}. Upgrade django_idgen in "
                f"this process."
            )
        case "denied":
            return own.refused(words[0])
        case "hidden":
            return ConfigurationError(
                f"The Redis of CACHES[{own.alias!r}] does not show run_id and master_replid in "
                f"INFO, without which a loss of its data can't be noticed. Use another Redis, or "
                f"the registry in the database."
            )
        case _:
            return RegistryUnavailable(_words(reply, namespace, own, failure))


def _words(reply: Reply, namespace: Namespace, own: OwnRedis, failure: Exception | None) -> str:
    redis = f"The Redis of CACHES[{own.alias!r}]"
    match reply.status:
        case "replica":
            return f"{redis} is a replica, which may not lend. Point LOCATION at the primary."
        case "wait":
            seconds = int(reply.words[1]) * namespace.tick_us / 1e6
            return (
                f"{redis} lost what it had lent for namespace {namespace.name!r}. With "
                f"after_loss='wait' it lends again in {seconds:.1f} s; 'ahead' would go on at "
                f"once, with ids stamped ahead of the time."
            )
        case "raise":
            return (
                f"{redis} has lent all ticks that it may for namespace {namespace.name!r}, and "
                f"the database has not lent it more: {failure} (A longer 'stride' survives a "
                f"longer outage of the database.)"
            )
    return f"{redis} answered with {reply.status!r}, which is not understood."


def _mismatch(namespace: Namespace, what: str, stored: str) -> IdgenError:
    if what == "fingerprint":
        try:
            check_fingerprint(namespace, stored)
        except NamespaceMismatch as error:
            return error
    return NamespaceMismatch(namespace.name, what, stored, "another one")

"""The scripts that lend worker ids inside Redis: one a call, each in one round trip.

Each finds its hash, checks that it is whole and of this server's present life, does
its work and answers with the server's time. What it can't do it says, and has then
changed nothing that was granted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import SystemRandom

from ...core.charter import Charter
from ...core.clock import Clock, Reading
from ...core.errors import RegistryUnavailable
from ...core.lease import PROTOCOL_VERSION, Lease, Namespace, new_token
from ...core.lending import fingerprint_text
from ...db.redis_client import OwnRedis
from ...db.redis_script import run_script

__all__ = ["FIRST", "HOLDER_LENGTH", "LAST", "LAST_TICK", "LeaseScripts", "Reply", "key_of"]

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

    def charter(self, installation: str) -> Charter:
        """What the hash holds of its charter (of ``ok`` and ``raise``)."""
        *numbers, incarnation = self.words[-4:]
        generation, fence, ceiling = map(int, numbers)
        return Charter(installation, generation, fence, ceiling, incarnation)


class LeaseScripts:
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
        self._clock = clock
        self._read_now_us = read_now_us
        self._fingerprint = fingerprint_text(namespace)
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

    def install(self, charter: Charter) -> Reply:
        """Enter ``charter``; ``lost`` if the hash is gone, or has a later one."""
        return self._call(
            "install",
            charter.installation,
            charter.generation,
            charter.fence,
            charter.ceiling,
            charter.incarnation,
        )

    def enter(self, installation: str, generation: int) -> Reply:
        """Begin a hash of these settings, unless it is one of ``generation`` or a later one."""
        return self._call("enter", installation, generation)

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

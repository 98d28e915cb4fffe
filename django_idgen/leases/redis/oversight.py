"""Looking into, and after, the worker ids that Redis lends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ...core.clock import Clock
from ...core.errors import RegistryUnavailable
from ...core.lease import Mark, Namespace
from ...core.moments import moment
from ...core.survey import Sight, Survey, Tenure
from ...db.redis_client import OwnRedis
from .borrowed_history import BorrowedHistory
from .borrower import Borrower
from .refusals import refusal
from .scripts import FIRST, LAST, LeaseScripts, Reply

__all__ = ["RedisOversight"]

WORDS = 10
"""Of each worker id: see the script ``survey``."""


class RedisOversight:
    """An :class:`Overseen` of the hash of one namespace. Thread-safe.

    One script, called again for each thousand of worker ids or so; and for whoever has not
    used it yet a look into the database, whose installation the hash belongs to.
    """

    def __init__(
        self,
        namespace: Namespace,
        own: OwnRedis,
        scripts: LeaseScripts,
        borrower: Borrower,
        history: BorrowedHistory,
        clock: Clock,
    ) -> None:
        self._space = namespace
        self._own = own
        self._scripts = scripts
        self._borrower = borrower
        self._history = history
        self._clock = clock

    def survey(self, workers: Collection[int] | None = None) -> Sequence[Survey]:
        """See :meth:`Overseen.survey`."""
        now_us, sights = self._clock.wall_ns() // 1000, dict[int, Sight]()
        for reply in self._replies():
            now_us = reply.reading.registry_us
            sights.update((sight.mark.worker, sight) for sight in _sights(reply))
        told = [each for each in sights.values() if workers is None or each.mark.worker in workers]
        # Of another database it would be another hash.
        place = f"{self._own.alias} of database {self._borrower.lenders.database}"
        return [Survey("redis", self._space, now_us, told, place=place)]

    def free(self, worker: int, lease: str | None = None) -> bool:
        """See :meth:`Overseen.free`."""
        installation = self._borrower.installation_to_look()
        if installation is None:
            return False
        reply = self._scripts.free(installation, worker, lease)
        if reply.status not in ("ok", "lost"):
            raise refusal(reply, self._space, self._own)
        return reply.status == "ok"

    def tenure(self, worker: int, tick: int) -> Tenure | None:
        """See :meth:`Overseen.tenure`; the database answers alone for a Redis
        that is away, which then can't say whether the tick was promised yet."""
        try:
            sight = self._sight(worker)
        except RegistryUnavailable:
            sight = None
        if sight is not None:
            if tick >= sight.mark.until:
                return None
            if tick >= sight.mark.start:
                lent = sight.acquired_us
                return Tenure(
                    sight.mark.holder, None if lent is None else moment(lent), sight.mark.start
                )
        return self._history.tenure(worker, tick)

    def _sight(self, worker: int) -> Sight | None:
        replies = self._replies(worker)
        return next((sight for reply in replies for sight in _sights(reply)), None)

    def _replies(self, worker: int | None = None) -> Iterator[Reply]:
        """What is known of ``worker``, or of all; of what is told twice, the last is right."""
        installation = self._borrower.installation_to_look()
        if installation is None:
            return
        cursor = None
        while cursor != LAST:
            reply = self._scripts.survey(installation, worker, cursor=cursor or FIRST)
            if reply.status != "ok":
                raise refusal(reply, self._space, self._own)
            yield reply
            cursor = reply.words[1]


def _sights(reply: Reply) -> Iterable[Sight]:
    words = reply.words[2:]
    for place in range(0, len(words), WORDS):
        worker, holds, start, until, generation, seen, lent, offset, lease, holder = words[
            place : place + WORDS
        ]
        # The server keeps its tokens to itself.
        token = "" if holds == "free" else holds
        mark = Mark(int(worker), token, int(start), int(until), int(generation), holder)
        yield Sight(
            mark,
            seen_us=int(seen),
            acquired_us=int(lent) if lent else None,
            offset_us=int(offset) if offset else None,
            void=holds == "void",
            lease=lease,
        )

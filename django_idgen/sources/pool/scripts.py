"""The Lua scripts of the pool: one script and one round trip for each call.

A tag's pool is one hash, so that Redis loses all of it or leaves a gap. It is
stamped with the server's life (``run_id`` and ``master_replid``). Ids from
another life are thrown away unread, since a restart, a restored file or a
replica that took over may bring back ids that were given out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_hex

from ...core.clock import SYSTEM_CLOCK
from ...core.errors import SegmentUnavailable
from ...core.lease import process_label
from ...core.segment import LONGEST_STEP, MAX_ID, Demand, Segment
from ...core.source import Stock
from ...db.redis_client import OwnRedis, run_script

MAX_RANGES = 256
"""Ranges of one tag, adjacent ones joined. Of more ranges, the shortest are thrown away."""
PUSHED_AT_ONCE = 64
KEYS_AT_ONCE = 200
DIGITS = 19


@dataclass(frozen=True, slots=True)
class Popped:
    """The result of a pop."""

    segment: Segment | None = None
    highest: int = 0
    """The end of the highest range that was ever in the pool: a fetch starts there."""
    dropped: int = 0
    """Ids from another life of the server that were thrown away."""
    life: str = ""
    """The pool's life: see :meth:`PoolScripts.push`; "" if unknown."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    taken: int = 0
    """Ids that were added."""
    dropped: int = 0
    refused: bool = False
    """Whether nothing was added because the pool has another life."""
    life: str = ""
    """The pool's life, if something was added."""


class PoolScripts:
    """Calls the scripts. Thread-safe.

    Every method raises :class:`SegmentUnavailable` without an answer, and
    :class:`ConfigurationError` if the server's access rules refuse the call.
    """

    def __init__(self, own: OwnRedis) -> None:
        self.own = own

    def pop(self, owner: str, tag: str, *, floor: int, demand: Demand) -> Popped:
        """Take the lowest ids at or above ``floor`` (at most ``MAX_ID``) that meet ``demand``."""
        wanted = (demand.times, demand.at_least, LONGEST_STEP)
        at = SYSTEM_CLOCK.wall_ns() // 1000
        given = (_text(floor), *wanted, process_label(), at, token_hex(8))
        status, *words = self._call("pop", [key_of(owner, tag)], *given)
        highest, dropped = int(words[0]), int(words[1])
        if status == "none":
            return Popped(None, highest, dropped, words[2])
        start, count, delta, step = map(int, words[2:6])
        last = start + (count - 1) * delta
        return Popped(Segment(tag, start, last + 1, step, delta), highest, dropped, words[6])

    def push(
        self,
        owner: str,
        tag: str,
        ranges: Sequence[range],
        *,
        step: int,
        max_ids: int,
        life: str,
    ) -> Pushed:
        """Add ``ranges``, none of them empty, to the pool if its life is still ``life``.

        Pausing a tag clears its pool and gives it another life. A caller reads the life before
        the database grants the ids, or says that the tag is not paused. So it can't add ids of a
        tag that was paused since. "" stands for a pool that has not begun.
        """
        pushed, fresh = Pushed(), token_hex(8)
        for first in range(0, len(ranges), PUSHED_AT_ONCE):
            some = ranges[first : first + PUSHED_AT_ONCE]
            words = [word for each in some for word in _words(each)]
            given = (step, max_ids, MAX_RANGES, life, fresh, *words)
            status, *counts = self._call("push", [key_of(owner, tag)], *given)
            if status == "none":
                return replace(pushed, refused=True)
            taken, dropped, _ = counts
            life = life or fresh
            pushed = Pushed(pushed.taken + int(taken), pushed.dropped + int(dropped), life=life)
        return pushed

    def stock(self, owners: Sequence[tuple[str, str]]) -> list[Stock]:
        """The stock of each (owner, tag)."""
        found: list[Stock] = []
        for first in range(0, len(owners), KEYS_AT_ONCE):
            some = owners[first : first + KEYS_AT_ONCE]
            _, *words = self._call("stock", [key_of(owner, tag) for owner, tag in some])
            found += [_stock(words[place : place + 6]) for place in range(0, len(words), 6)]
        return found

    def clear(
        self, owners: Sequence[tuple[str, str]], *, keep_highest: bool = False, least: int = 0
    ) -> int:
        """Throw away the ids of each (owner, tag); how many of them had some.

        ``keep_highest``: later fetches are above all ids that were ever here. ``least``: no lower
        id gets in, until it is cleared again. ``keep_highest`` keeps the one before.
        """
        keys = [key_of(owner, tag) for owner, tag in owners]
        _, count = self._call("clear", keys, token_hex(8), int(keep_highest), _text(least))
        return int(count)

    def _call(self, name: str, keys: Sequence[str], *words: object) -> list[str]:
        parts = ("django_idgen.db/server", f"{__package__}/pool", f"{__package__}/{name}")
        answer = self.own.ask(
            lambda client: run_script(client, parts, keys, words), unavailable=SegmentUnavailable
        )
        if answer[0] in {"ok", "none"}:
            return answer
        raise self._refusal(*answer)

    def _refusal(self, status: str, reason: str = "") -> Exception:
        if status == "denied":
            return self.own.refused(reason)
        alias = self.own.alias
        if status == "replica":
            return SegmentUnavailable(
                f"The Redis of CACHES[{alias!r}] is a replica now. Point the alias at the "
                "primary, or at its Sentinels."
            )
        return SegmentUnavailable(
            f"The Redis of CACHES[{alias!r}] doesn't say which server it is ({status}): its INFO "
            f"lacks run_id or master_replid. The pool needs a Redis of version 4 or later, "
            f"without a proxy that hides it."
        )


def key_of(owner: str, tag: str) -> str:
    """The key of a tag's hash. A version with another format has another prefix."""
    return f"django_idgen:pool1:{{{owner}}}:{tag}"


def _stock(words: Sequence[str]) -> Stock:
    ids, ranges, highest, ready, life, taken = words
    at, count, holder = taken.split(" ", 2) if taken else ("0", "0", "")
    numbers = (int(ids), int(ranges), int(highest), int(ready))
    return Stock(*numbers, life, holder, int(at), int(count))


def _words(ids: range) -> tuple[object, ...]:
    last = ids[-1]
    following = _text(last + ids.step)
    stop = _text(min(last + 1, MAX_ID))
    return (_text(ids[0]), following, stop, ids.step, ids[0] % ids.step, len(ids))


def _text(number: int) -> str:
    return f"{number:0{DIGITS}d}"

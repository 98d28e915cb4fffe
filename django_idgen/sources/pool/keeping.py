"""What is asked and told of a pool by those who keep it: its stock, its history, its doors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ...core.segment import SegmentSource, check_tag
from .history import carry_over
from .link import PoolLink
from .scripts import PoolScripts, Stock

__all__ = ["PoolKeeping", "PooledSource"]


class PooledSource(SegmentSource, Protocol):
    """What can stand behind a pool: a source that says whose its ids are."""

    def owner(self, tag: str, *, max_age: float = ...) -> str:
        """A text that no other source of ids for ``tag`` has, in any project.

        As it was up to ``max_age`` seconds ago. "" if the ids are this process' alone.
        """
        ...

    def owners(self) -> Mapping[str, str]:
        """The owners that are known of, each by the alias of its database."""
        ...


class PoolKeeping:
    """The part of a :class:`PoolSource` that has nothing to do with giving out ids."""

    source: PooledSource
    history: bool
    _link: PoolLink
    _scripts: PoolScripts

    def stock(self, tags: Iterable[str]) -> Mapping[str, int]:
        """How many ids of each of ``tags`` lie in the pool.

        Raises :class:`SegmentUnavailable` if Redis can't be asked.
        """
        return {tag: stock.ids for tag, stock in self.stocks(tags).items()}

    def stocks(self, tags: Iterable[str]) -> Mapping[str, Stock]:
        """As :meth:`stock`, with all that is known of it."""
        owners = [(self.source.owner(check_tag(tag)), tag) for tag in tags]
        pooled = [(owner, tag) for owner, tag in owners if owner]
        found = self._link.demand(lambda: self._scripts.stock(pooled)) if pooled else []
        stocks = {tag: Stock() for _, tag in owners}
        return stocks | {tag: stock for (_, tag), stock in zip(pooled, found, strict=True)}

    def clear(self, tags: Iterable[str]) -> None:
        """Throw away what lies in the pool of ``tags``: a gap.

        For when the database was restored to an earlier state while the pool could not be
        asked, or ``max_id`` was lowered by hand. Raises
        :class:`SegmentUnavailable` if Redis can't be asked.
        """
        owners = [(self.source.owner(tag), tag) for tag in tags]
        if owners:
            self._link.demand(lambda: self._scripts.clear(owners))

    def drain_history(self) -> int:
        """Move what Redis has noted on who popped which range into the history's rows.

        Returns how many rows were written. May come late, be doubled, or be killed; Redis
        keeps the last 50,000 notes of a database. Raises
        :class:`SegmentUnavailable` if Redis can't be asked, and what the
        database says.
        """
        if not self.history:
            return 0
        owners: Mapping[str, str] = self.source.owners()
        return sum(
            carry_over(self._link, self._scripts, owner, alias) for alias, owner in owners.items()
        )

    # --- paused tags ------------------------------------------------------------------

    def shut(self, tags: Iterable[str]) -> None:
        """Have nobody take anything of ``tags`` out of the pool. What is put in is kept.

        It outlasts a restart of Redis that loses nothing. May be repeated. Raises
        :class:`SegmentUnavailable` if Redis can't be asked.
        """
        owners = self._pooled(tags)
        if owners:
            self._link.demand(lambda: self._scripts.shut(owners))

    def open(self, words: Mapping[str, str]) -> None:
        """Open the pool of each tag that is still shut with the word given: see :class:`Stock`.

        One that somebody shut anew since then stays so. Raises as :meth:`shut`.
        """
        owners = self._pooled(words)
        if owners:
            given = [words[tag] for _, tag in owners]
            self._link.demand(lambda: self._scripts.open(owners, given))

    def _pooled(self, tags: Iterable[str]) -> list[tuple[str, str]]:
        owners = [(self.source.owner(check_tag(tag)), tag) for tag in tags]
        return [(owner, tag) for owner, tag in owners if owner]

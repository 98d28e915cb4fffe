"""Skips past what a database that was put back, or a server that failed, may have given out.

A database that is restored to an earlier state gives out again what it had given out since.
A tag skips as far as a failover would, or further; a namespace opens a new generation, whose
fence lies past every window that may have been lent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from django.db.models import F
from django.db.models.functions import Greatest, Least

from ...core.errors import ConfigurationError
from ...core.segment import MAX_ID
from ...core.stored import Stored, StoredBook, Successor
from ...db.connection import Place, place_of
from ...models import Installation, LeafAlloc
from ...process.tags import is_row_of, next_free_id, tag_databases
from ...settings.config import GeneratorSettings
from ..native import renew_native
from ..tags.edits import edit_rows, skip_tag
from ..tags.outlook import outlook
from ..tags.supply import let_go
from .move import Move, differing, moment_of
from .project import Project
from .tags import columns_by_tag, highest_behind, usual_skip

__all__ = ["GeneratorSkip", "HowFar", "TagSkip", "all_tags", "raise_new_tags"]


@dataclass(frozen=True, slots=True)
class HowFar:
    """How far tags are to skip: one of these, or as far as a failover would. Frozen."""

    by: int | None = None
    to: int | None = None
    past_table: bool = False
    hours_ago: float = 0.0
    """How old what was put back is; at twice a tag's rate."""


class TagSkip:
    """A skip of one tag, in all of its databases."""

    def __init__(self, project: Project, tag: str, how_far: HowFar) -> None:
        self.tag = tag
        self._project = project
        self._how_far = how_far
        self.before = next_free_id(tag)
        self.after = min(self._target(), MAX_ID)

    @property
    def is_due(self) -> bool:
        return self.after > self.before

    def words(self) -> str:
        """What it comes to, for people."""
        if not self.is_due:
            return f"tag {self.tag!r}: stays at {self.before}"
        lost = f"{self.after - self.before} ids are skipped"
        pooled = outlook(self.tag).pooled
        if pooled:
            lost += f", and the pool loses its {pooled}"
        return f"tag {self.tag!r}: {self.before} -> {self.after} ({lost})"

    def apply(self) -> str:
        """Skip, and leave nothing below in the pool. Raises what :func:`skip_tag` does."""
        if self._how_far.to is None:
            # It may have gone on since: what is to be skipped is counted from there.
            self.before = next_free_id(self.tag)
            self.after = min(self._target(), MAX_ID)
        if self.is_due:
            skip_tag(self.tag, most=MAX_ID, to=self.after)
        cleared = let_go(self.tag)
        pool = {None: "", True: ", its pool is empty", False: ", its pool could NOT be emptied"}
        stands = f"tag {self.tag!r}: stands at {next_free_id(self.tag)}{pool[cleared.pool]}"
        # Sequences of the database were put back with it.
        return "\n".join([stands, *renew_native(self.tag)])

    def _target(self) -> int:
        how_far = self._how_far
        if how_far.to is not None:
            return how_far.to
        if how_far.by is not None:
            return self.before + how_far.by
        if how_far.past_table:
            columns = columns_by_tag(self._project).get(self.tag, [])
            top = highest_behind(self._project, self.tag, columns)
            return self.before if top is None else top[0] + 1
        return self.before + usual_skip(self.tag, how_far.hours_ago)


def all_tags() -> Iterator[str]:
    """The tags of all databases, each once."""
    seen: set[str] = set()
    for alias in tag_databases():
        for tag in LeafAlloc.objects.using(alias).values_list("pk", flat=True).iterator():
            if tag not in seen and is_row_of(tag, alias):
                seen.add(tag)
                yield tag


def raise_new_tags(by: int) -> list[str]:
    """Have tags start ``by`` further that are made from now on: some may have been lost whole."""
    done = []
    for alias in tag_databases():
        if place_of(alias) is Place.SERVER:
            rows = Installation.objects.using(alias).filter(pk=1)
            # Never past what the column holds, not even in between.
            raised = Greatest(F("first_id"), Least(F("first_id"), MAX_ID - by) + by)
            edit_rows(alias, partial(rows.update, first_id=raised))
            done.append(alias)
    return done


class GeneratorSkip:
    """A new generation of a generator's namespace, in each of its books.

    ``until_us``: until when somebody else may have lent, µs since 1970; at least until now.
    Raises :class:`ConfigurationError` where the settings differ from what is stored.
    """

    def __init__(self, project: Project, entry: GeneratorSettings, until_us: int | None) -> None:
        self._project = project
        self._until_us = until_us
        self.entry = entry
        self.books: Sequence[StoredBook] = Move(project, entry).books
        for book in self.books:
            self._check(book)

    def words(self) -> list[str]:
        """What it comes to, for people; a line a book."""
        if not self.books:
            return [f"generator {self.entry.alias!r}: its worker ids are not lent from here"]
        return [self._words(book) for book in self.books]

    def apply(self) -> str:
        """Do it. Raises what the books raise."""
        done = []
        for book in self.books:
            stored = book.rewrite(partial(self._past, book))
            book.enter()
            done.append(f"{_name(book)}: {_state(stored)}")
        return "\n".join(done)

    def _past(self, book: StoredBook, stored: Stored, now_us: int) -> Successor:
        return Successor.after(stored, self._fence(book, stored, now_us), book.namespace.workers)

    def _fence(self, book: StoredBook, stored: Stored, now_us: int) -> int:
        # The rule of core.lease.loss_fence, past what somebody else may have lent.
        space = book.namespace
        longest = max(stored.longest, space.reach_ticks)
        last = space.tick_at(max(now_us, self._until_us or 0)) + space.skew_ticks
        return max(stored.highest, last + max(0, stored.lead - longest)) + longest

    def _words(self, book: StoredBook) -> str:
        stored = book.read()
        if stored is None:
            return f"{_name(book)}: nothing was lent yet; it begins past the longest window"
        now_us = self._project.now_us()
        fence = self._fence(book, stored, now_us)
        ahead = (fence - book.namespace.tick_at(now_us)) * book.namespace.tick_us / 1e6
        return (
            f"{_name(book)}: {_state(stored)} -> generation {stored.generation + 1}, "
            f"from tick {fence} on ({moment_of(book.namespace, fence)}): holders use up "
            f"their windows and take others; ids are stamped up to {ahead:.0f} s ahead, until the "
            f"time comes up to them"
        )

    def _check(self, book: StoredBook) -> None:
        stored = book.read()
        if stored is None:
            return
        other = differing(stored.fingerprint, book.namespace.fingerprint)
        if other is not None:
            raise ConfigurationError(
                f"{_name(book)} was opened with {other[0]}={other[1]!r}, not {other[2]!r}. Run "
                f"'manage.py idgen_doctor' first."
            )


def _name(book: StoredBook) -> str:
    return f"namespace {book.namespace.name!r} in {book.place}"


def _state(stored: Stored) -> str:
    return f"generation {stored.generation}, from tick {stored.fence} on"

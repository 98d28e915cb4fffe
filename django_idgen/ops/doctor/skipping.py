"""Skips past the ids that a restored database, or a failed server, may have given out.

A database that is restored to an earlier state gives out again what it gave out since. A tag
skips as far as a failover would, or further. A namespace opens a new generation, whose fence lies
past every window that may have been lent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from django.db.models import F
from django.db.models.functions import Greatest, Least

from ...core.book import parsed_fingerprint
from ...core.errors import CLOSED, ConfigurationError
from ...core.segment import MAX_ID
from ...core.store import StoredBook
from ...core.stored import Stored, Successor
from ...db.connection import Place, place_of
from ...db.rows import read_first, read_values, rows_of
from ...models import Installation, LeafAlloc, NamespaceRecord
from ...process.tags import is_row_of, next_free_id, source_of_tags, tag_databases
from ...settings.config import GeneratorSettings
from ..native import renew_native
from ..tags.edits import clear_tag, edit_rows, lowest_free_id, plan_skip, skip_tag
from ..tags.outlook import outlook
from .move import WAY_BACK, difference, is_closed, moment_of, reopened
from .project import Project
from .tags import columns_by_tag, failover_skip, highest_taken


class TagSkip:
    """A skip of one tag, in all of its databases, as far as a failover would.

    ``by`` or ``to`` or ``past_table`` say otherwise. ``hours_ago``: the age of the restored state,
    in which the tag may have used ids at twice its rate.
    """

    def __init__(
        self,
        project: Project,
        tag: str,
        *,
        by: int | None = None,
        to: int | None = None,
        past_table: bool = False,
        hours_ago: float = 0.0,
    ) -> None:
        self.tag = tag
        self._project = project
        self._by, self._to = by, to
        self._past_table, self._hours_ago = past_table, hours_ago
        self._plan()

    def _plan(self) -> None:
        self.before = next_free_id(self.tag)
        if self._to is not None:
            wanted = self._to
        elif self._by is not None:
            wanted = self.before + self._by
        elif self._past_table:
            columns = columns_by_tag(self._project, self._project.reachable()).get(self.tag, [])
            top = highest_taken(self._project, self.tag, columns)
            wanted = 1 if top is None else top[0] + 1
        else:
            wanted = self.before + failover_skip(self.tag, self._hours_ago)
        wanted = min(wanted, MAX_ID)
        self.after = max(wanted, self.before)
        # Of several databases one may be below the others, as after a skip that failed half-way.
        self.skips = lowest_free_id(self.tag) < wanted

    def describe(self) -> str:
        """What it will do, for people."""
        if not self.skips:
            return f"tag {self.tag!r}: stays at {self.before}"
        lost = f"{plan_skip(self.tag, most=MAX_ID, to=self.after).lost} ids are skipped"
        pooled = outlook(self.tag).pooled
        if pooled:
            lost += f", and the pool loses its {pooled}"
        return f"tag {self.tag!r}: {self.before} -> {self.after} ({lost})"

    def apply(self) -> str:
        """Skip, and clear the pool. Raises what :func:`skip_tag` does."""
        self._plan()  # the tag may have gone on since: the skip counts from its next id now
        if self.skips:
            skip_tag(self.tag, most=MAX_ID, to=self.after)
        note = clear_tag(self.tag).pool_note
        skipped = f"tag {self.tag!r}: its next id is {next_free_id(self.tag)}{note}"
        # Sequences of the database were restored with it.
        return "\n".join([skipped, *renew_native(self.tag)])


def all_tags() -> Iterator[str]:
    """The tags of all databases, each once."""
    seen: set[str] = set()
    for alias in tag_databases():
        for (tag,) in read_values(rows_of(LeafAlloc, alias).order_by("pk"), "pk"):
            if tag not in seen and is_row_of(tag, alias):
                seen.add(tag)
                yield tag


def skip_of_new_tags(project: Project, by: int | None) -> int:
    """How far tags that are made later are raised if no tag is left to tell: ``by``, if given.

    Otherwise as far as a failover would. 0 if no database keeps tags.
    """
    rows = [read_first(rows_of(Installation, alias).filter(pk=1)) for alias in _servers()]
    # As a fetch records it: twice the ids of the row's step.
    step = 2 * project.settings.segments.default_step
    longest = max((max(row.largest_step, step * row.delta) for row in rows if row), default=0)
    if by is not None:
        return by if longest else 0
    return int(source_of_tags().failover_skip) * longest if longest else 0


def _servers() -> list[str]:
    """The databases of tags that outlive a process."""
    return [alias for alias in tag_databases() if place_of(alias) is Place.SERVER]


def raise_new_tags(by: int) -> list[str]:
    """Start new tags ``by`` ids higher, in all databases: the loss may have taken whole tags."""
    done = []
    for alias in _servers():
        rows = rows_of(Installation, alias).filter(pk=1)
        # No intermediate result exceeds what the column holds.
        raised = Greatest(F("first_id"), Least(F("first_id"), MAX_ID - by) + by)
        edit_rows(alias, partial(rows.update, first_id=raised))
        done.append(alias)
    return done


class GeneratorSkip:
    """A new generation of a generator's namespace.

    ``until_us``: until when another server may have lent, µs since 1970; at least until now.
    ``newest_us``: the time in the newest id that is known, µs since 1970; it may be ahead of now.
    Raises :class:`ConfigurationError` if the settings differ from what is stored.
    """

    def __init__(
        self,
        project: Project,
        entry: GeneratorSettings,
        *,
        until_us: int | None = None,
        newest_us: int | None = None,
    ) -> None:
        self._project = project
        self._until_us = until_us or 0
        self._newest_us = newest_us or 0
        self.entry = entry
        self.book = project.book(entry)
        if self.book and (stored := self.book.read()):
            self._check(self.book, stored)

    def _check(self, book: StoredBook, stored: Stored) -> None:
        closed = is_closed(stored)
        if different := difference(book, reopened(stored)):
            todo = "Run 'manage.py idgen_doctor' first."
            if closed:
                todo = (
                    "It was moved to another registry since. Restore those settings, run this "
                    "again, and change them afterwards, with 'manage.py idgen_doctor'."
                )
            raise ConfigurationError(f"{_name(book)} was opened with {different}. {todo}")
        if closed and not self._until_us:
            raise ConfigurationError(
                f"{_name(book)} was moved to another registry by 'manage.py idgen_doctor'. If that "
                f"is StaticLeases, it opens again with --until. {WAY_BACK} If it is a database, "
                f"run 'manage.py idgen_doctor'."
            )

    def describe(self) -> str:
        """What it will do, for people."""
        if self.book is None:
            return f"generator {self.entry.alias!r}: its worker ids are not lent from here"
        return self._describe(self.book)

    def apply(self) -> str:
        """Do it. Raises what the book raises."""
        if self.book is None:
            return self.describe()
        stored = self.book.rewrite(partial(self._successor, self.book))
        self.book.enter()
        return f"{_name(self.book)}: {_state(stored)}"

    def _successor(self, book: StoredBook, stored: Stored, now_us: int) -> Successor:
        fence = self._fence(book, stored, now_us)
        return Successor.after(reopened(stored), fence, book.namespace.workers)

    def _fence(self, book: StoredBook, stored: Stored, now_us: int) -> int:
        # The rule of core.lease.loss_fence, past what another server may have lent.
        space = book.namespace
        longest = max(stored.longest, space.reach_ticks)
        last = space.tick_at(max(now_us, self._until_us)) + space.skew_ticks
        # How far ids ran ahead of now: by the stored marks, or by an id that those may lack.
        newest = space.tick_at(max(now_us, self._newest_us)) - space.tick_at(now_us)
        return max(stored.highest, last + max(newest, stored.lead - longest)) + longest

    def _describe(self, book: StoredBook) -> str:
        stored = book.read(lead=True)
        if stored is None:
            return f"{_name(book)}: nothing was lent yet; it starts past the longest window"
        now_us = self._project.now_us()
        fence = self._fence(book, stored, now_us)
        ahead = (fence - book.namespace.tick_at(now_us)) * book.namespace.tick_us / 1e6
        return (
            f"{_name(book)}: {_state(stored)} -> generation {stored.generation + 1}, "
            f"from tick {fence} on ({moment_of(book.namespace, fence)}): holders use up "
            f"their windows and take others; ids are stamped up to {ahead:.0f} s ahead, until the "
            f"time catches up"
        )


def namespaces_of_others(project: Project) -> Iterator[str]:
    """Namespaces that no generator of this project has, in the databases that lend to it."""
    books = map(project.book, project.generators)
    ours = {(book.installation(), book.namespace.name) for book in books if book}
    lending = {installation for installation, _ in ours}
    for alias in project.all_reachable():
        if not project.has(alias, "NamespaceRecord", "Installation"):
            continue
        row = read_first(rows_of(Installation, alias).filter(pk=1))
        identity = None if row is None else row.identity
        records = rows_of(NamespaceRecord, alias).order_by("pk")
        for name, fingerprint in read_values(records, "pk", "fingerprint"):
            closed = CLOSED in parsed_fingerprint(fingerprint)
            if identity in lending and (identity, name) not in ours and not closed:
                ours.add((identity, name))  # an alias of a replica shows it again
                yield f"namespace {name!r} in database {alias!r}"


def _name(book: StoredBook) -> str:
    return f"namespace {book.namespace.name!r} in {book.place}"


def _state(stored: Stored) -> str:
    return f"generation {stored.generation}, from tick {stored.fence} on"

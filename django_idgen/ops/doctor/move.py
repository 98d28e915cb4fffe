"""The move of a namespace from the settings that it was opened with to those of today.

Where one record says all, the move is one transaction, and processes may run meanwhile: the
record gets the new settings, the next generation, and a fence past every old mark. A process
with the old settings is refused from then on, and uses up its window, which ends below the
fence. A process with the new ones begins at the fence.

Where there are several records (a fallback's two registries, another database), all processes
have to be stopped: each new record is opened past what any of the old ones has lent, and then
the old ones are closed. A run that was broken off is begun again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.lease import Namespace
from ...core.moments import MAX_UNIX_US, moment
from ...core.stored import Change, Era, Stored, StoredBook, Successor, in_ticks, layout_of
from ...settings.config import GeneratorSettings
from .id_columns import snowflake_columns
from .moving import Found, fence_of
from .project import Project
from .strays import CLOSED, Stray, books_of, strays_of

__all__ = ["Move", "differing", "found_of", "moment_of"]

_BY = "by manage.py idgen_doctor, which moved it"


@dataclass(frozen=True, slots=True)
class Difference:
    """A book whose settings are others than today's."""

    book: StoredBook
    setting: str
    stored: object
    configured: object


class Move:
    """What has to be done about the books of ``entry``, and doing it."""

    def __init__(self, project: Project, entry: GeneratorSettings) -> None:
        self.project = project
        self.entry = entry
        self.books = books_of(project, entry)
        self._found: Found | None = None

    # --- looking --------------------------------------------------------------

    def differences(self) -> list[Difference]:
        """The books of today's registry that were opened with other settings."""
        return [
            Difference(book, *difference)
            for book in self.books
            if (stored := book.read()) is not None
            and (difference := differing(stored.fingerprint, book.namespace.fingerprint))
        ]

    def strays(self) -> list[StoredBook]:
        """Open records of this project that today's settings don't lend from."""
        return [
            stray.book
            for stray in strays_of(self.project, self.entry)
            if stray.is_ours and not stray.is_closed
        ]

    @property
    def needs_a_stop(self) -> bool:
        """Whether no process may run meanwhile, since one transaction is not enough."""
        # The marks of static worker ids are files of each host.
        static = any(each.book.key[0] == "static" for each in self.differences())
        return static or len(self.books) > 1 or bool(self.strays())

    def others(self) -> list[Stray]:
        """Books of that name in other databases, which may be another project's."""
        return [each for each in strays_of(self.project, self.entry) if not each.is_ours]

    def unentered(self) -> list[StoredBook]:
        """Books whose lender outside of the database has other settings yet."""
        return [book for book in self.books if book.read() is not None and not book.entered()]

    def preview(self) -> dict[str, int]:
        """By place: the tick at which each book would begin, as things stand now.

        Raises :class:`MoveRefused`.
        """
        eras = self._old_eras()
        return {book.place: self._fence(book, eras) for book in self.books}

    def _old_eras(self) -> list[Era]:
        old = [*self.strays(), *(each.book for each in self.differences())]
        return [stored.era for book in old if (stored := book.read()) is not None]

    def _fence(self, book: StoredBook, eras: Iterable[Era]) -> int:
        stored = book.read()
        known = [] if stored is None else [*stored.eras, *_own(stored)]
        now_us = self.project.now_us()
        return self._fence_at(book.namespace, [*known, *eras], now_us)

    def _fence_at(self, space: Namespace, eras: list[Era], now_us: int) -> int:
        return fence_of(
            self.entry.layout,
            space.workers,
            eras,
            now_us=now_us,
            found=self.found,
            trust_tables=self.project.affirmed.trust_tables,
        )

    @property
    def found(self) -> Found:
        """The ids of the generator in the tables of all databases."""
        if self._found is None:
            self._found = found_of(self.project, self.entry.alias)
        return self._found

    # --- doing ----------------------------------------------------------------

    def run(self) -> list[str]:
        """Do what is to be done; what was done, a line a book. May be repeated.

        Raises :class:`MoveRefused` before anything is changed for good, and what
        the books raise.
        """
        self._found = None
        self.preview()
        eras, strays = self._old_eras(), self.strays()
        done = []
        for book in self.books:
            stored = book.read()
            if (
                strays
                or stored is None
                or differing(stored.fingerprint, book.namespace.fingerprint)
            ):
                stored = book.rewrite(self._opening(book, eras))
                done.append(f"{book.place}: {self._words(book, stored)}")
        for book in strays:
            book.rewrite(closing)
            done.append(f"{book.place}: closed")
        for book in self.unentered():
            book.enter()
            done.append(f"{book.place}: begins anew with these settings")
        return done

    def _opening(self, book: StoredBook, others: Iterable[Era]) -> Change:
        def change(stored: Stored, now_us: int) -> Successor:
            space = book.namespace
            eras = [*stored.eras, *others, *_own(stored)]
            fence = self._fence_at(space, eras, now_us)
            return Successor(
                fingerprint=dict(space.fingerprint),
                fence=fence,
                longest=max(space.reach_ticks, _in_new_ticks(stored, space)),
                workers=space.workers,
                eras=_merged(eras),
                moved=not _has_ticks_of(stored.fingerprint, space),
            )

        return change

    def _words(self, book: StoredBook, stored: Any) -> str:
        when = moment_of(book.namespace, stored.fence)
        return f"generation {stored.generation}, from tick {stored.fence} on ({when})"


def closing(stored: Stored, _now_us: int) -> Successor:
    """A book that lends to nobody any more, and whose marks are final."""
    era = stored.era
    return Successor(
        {**stored.fingerprint, CLOSED: _BY},
        stored.highest,
        stored.longest,
        era.workers,
        stored.eras,
    )


def differing(
    stored: Mapping[str, Any], configured: Mapping[str, Any]
) -> tuple[str, object, object] | None:
    """The first setting in which they differ, with both values; None if they don't."""
    for key in sorted(stored.keys() | configured.keys()):
        if stored and stored.get(key) != configured.get(key):
            return key, stored.get(key), configured.get(key)
    return None


def found_of(project: Project, generator: str) -> Found:
    """The ids of a generator in the tables of all databases, as far as they can be asked."""
    found = Found(unseen=tuple(project.unseen()))
    for column in snowflake_columns(project, project.everywhere()):
        if column.field.generator == generator:
            with project.reading(column.alias):
                found = found.joined(Found(column.lowest(), column.highest()))
    return found


def moment_of(space: Namespace, tick: int) -> str:
    """When a tick begins, for people."""
    us = space.epoch_us + tick * space.tick_us
    return f"{moment(us):%Y-%m-%d %H:%M:%S} UTC" if us <= MAX_UNIX_US else "past the year 9999"


def _own(stored: Stored) -> list[Era]:
    return [stored.era] if stored.fingerprint else []


def _has_ticks_of(fingerprint: Mapping[str, Any], space: Namespace) -> bool:
    return all(
        fingerprint.get(key) == space.fingerprint.get(key)
        for key in ("fields", "tick_us", "epoch_us")
    )


def _in_new_ticks(stored: Stored, space: Namespace) -> int:
    if not stored.fingerprint:
        return stored.longest
    return in_ticks(stored.longest, layout_of(stored.fingerprint), space)


def _merged(eras: Iterable[Era]) -> tuple[Era, ...]:
    """Each layout and range of worker ids once, as far as any of them came."""
    latest: dict[tuple[object, range], Era] = {}
    for era in eras:
        known = latest.get((era.layout, era.workers))
        if era.until > 0 and (known is None or known.until < era.until):
            latest[era.layout, era.workers] = era
    return tuple(latest.values())

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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core.clock import MAX_UNIX_US, moment
from ...core.errors import IdgenError
from ...core.layout import BitLayout
from ...core.lease import Namespace
from ...core.stored import (
    Change,
    Era,
    Stored,
    StoredBook,
    Successor,
    epoch_for,
    first_tick,
    highest_id,
    in_ticks,
    layout_of,
    lowest_id,
)
from ...process.factory import build_namespace
from ...settings.config import DEFAULT_LEASES, BackendSettings, GeneratorSettings
from .id_columns import snowflake_columns
from .project import Project

__all__ = [
    "CLOSED",
    "Found",
    "Leftover",
    "Move",
    "MoveRefused",
    "books_of",
    "differing",
    "fence_of",
    "found_of",
    "leftovers_of",
    "moment_of",
]

CLOSED = "closed"
"""In the fingerprint of a book that lends no more."""
FALLBACK = "/fallback"
"""What the namespace of a fallback's second registry has after its name."""


# --- records that today's settings don't lend from ----------------------------------
#
# In the database that lends today a change of the registry left them behind. In another one
# they may be the same, or another project's, which must not be stopped: there the operator has
# to say that the namespace moved from it.


@dataclass(frozen=True, slots=True)
class Leftover:
    """A book that today's settings don't lend from, and what stands in it. Frozen."""

    alias: str
    book: StoredBook
    stored: Stored
    is_ours: bool
    """Whether it is in a database that lends today, was closed by us, or is vouched for."""

    @property
    def is_closed(self) -> bool:
        return CLOSED in self.stored.fingerprint


def books_of(project: Project, entry: GeneratorSettings) -> list[StoredBook]:
    """The books of an entry's registry; none if it lends somewhere else."""
    return [*project.registry(entry).books()]


def leftovers_of(project: Project, entry: GeneratorSettings) -> list[Leftover]:
    """Every leftover of the namespace of ``entry``, in whichever database can be asked."""
    every = [each for other in project.generators() for each in books_of(project, other)]
    todays = {_whose(book) for book in every}
    lending = books_of(project, entry)
    here = {each.installation() for each in lending} - {""}
    found: dict[object, Leftover] = {}
    for alias, book in _recorded(project, entry):
        stored, whose = book.read(), _whose(book)
        if stored is not None and whose not in todays:
            ours = (
                book.installation() in here
                or alias in project.affirmed.moved_from
                or CLOSED in stored.fingerprint
            )
            found.setdefault(whose, Leftover(alias, book, stored, ours))
    return _with_other_parts(list(found.values()), lending)


def _with_other_parts(leftovers: list[Leftover], lending: list[StoredBook]) -> list[Leftover]:
    """``leftovers``, with the other half of a fallback counted among ours, wherever it is.

    Not where nothing is to be moved: then it is somebody else's for sure.
    """
    todays = [(book, book.read()) for book in lending]
    ours = [leftover for leftover in leftovers if leftover.is_ours and not leftover.is_closed]
    if not ours and all(stored and _agrees(book, stored) for book, stored in todays):
        return leftovers
    known = [(book, stored) for book, stored in todays if stored is not None]
    known += [(leftover.book, leftover.stored) for leftover in ours]
    return [
        replace(
            leftover,
            is_ours=leftover.is_ours or any(_is_other_part(leftover, *each) for each in known),
        )
        for leftover in leftovers
    ]


def _agrees(book: StoredBook, stored: Stored) -> bool:
    return dict(stored.fingerprint) == dict(book.namespace.fingerprint)


def _is_other_part(leftover: Leftover, book: StoredBook, stored: Stored) -> bool:
    """Whether the two are those of one fallback: by their names, layouts and worker ids."""
    one, two = leftover.book.namespace.name, book.namespace.name
    if FALLBACK not in (one.removeprefix(two), two.removeprefix(one)):
        return False
    if not leftover.stored.fingerprint or not stored.fingerprint:
        return False
    ours, theirs = stored.era, leftover.stored.era
    apart = ours.workers.stop <= theirs.workers.start or theirs.workers.stop <= ours.workers.start
    return apart and ours.layout == theirs.layout


def _recorded(project: Project, entry: GeneratorSettings) -> Iterator[tuple[str, StoredBook]]:
    names = (entry.namespace, entry.namespace + FALLBACK)
    for alias in project.everywhere():
        if project.has(alias, "NamespaceRecord", "WorkerLease", "Installation"):
            for book in _in(alias, entry, names):
                yield alias, book


def _in(alias: str, entry: GeneratorSettings, names: Iterable[str]) -> list[StoredBook]:
    backend = BackendSettings("idgen_doctor", DEFAULT_LEASES, {"database": alias})
    space = build_namespace(entry)
    made = [backend.build(replace(space, name=name)) for name in names]
    return [book for registry in made for book in registry.books()]


def _whose(book: StoredBook) -> object:
    """Equal for two that are one: the same database under two aliases, or a replica of it."""
    return (book.installation() or book.key[1], book.key[0], book.namespace.name)


HOUR_US = 3_600_000_000
FURTHEST_US = HOUR_US
"""How much further ahead of the time the new ids may begin than the old ones were."""
LEEWAY_US = 30 * 24 * HOUR_US
"""How long an epoch that is proposed will do: the old fleet goes on until it is changed."""


# --- from which tick on -------------------------------------------------------------
#
# Ids are unique as long as no id of the new layout, from its fence on, is one of those that
# were, or may have been, made under the old one. Where both have the time on top, that is a
# tick; where it lies far ahead of the time, ids would be stamped so far ahead, and an earlier
# epoch is the way. A layout all of whose ids lie below the old ones needs a proof of how low
# those begin, which only tables can give.


class MoveRefused(IdgenError):
    """The settings can't be changed so, as ids would repeat, or be stamped far ahead."""

    def __init__(self, why: str, *, needs: str = "") -> None:
        self.needs = needs
        """The option with which it would go; empty if there is none."""
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Found:
    """The ids of a generator in the project's tables. Frozen."""

    lowest: int | None = None
    highest: int | None = None
    unseen: tuple[str, ...] = ()
    """The databases that could not be asked: with one of these nothing is proven."""

    def joined(self, other: Found) -> Found:
        lows = [value for value in (self.lowest, other.lowest) if value is not None]
        highs = [value for value in (self.highest, other.highest) if value is not None]
        unseen = self.unseen + other.unseen
        return Found(min(lows, default=None), max(highs, default=None), unseen)


def fence_of(
    layout: BitLayout,
    workers: range,
    eras: Iterable[Era],
    *,
    now_us: int,
    found: Found,
    trust_tables: bool,
) -> int:
    """The first tick of ``layout`` that may be lent after ``eras``.

    Raises :class:`MoveRefused`.
    """
    eras = [era for era in eras if era.until > 0]
    tick = first_tick(layout, workers, eras)
    if all(era.layout.fingerprint() == layout.fingerprint() for era in eras):
        if tick is None:
            raise MoveRefused("The time bits of the layout are used up by what was lent.")
        return tick
    if tick is not None and found.highest is not None:
        tick = max(tick, _past(layout, workers, found.highest))
    if tick is not None and _ahead_us(layout, tick, now_us) <= _lead_us(eras, now_us):
        return tick
    if _is_below(layout, workers, found):
        return _below(layout, found, trust_tables=trust_tables)
    raise MoveRefused(_words(layout, workers, eras, tick, now_us))


def _past(layout: BitLayout, workers: range, number: int) -> int:
    return max(0, -(-(number + 1 - lowest_id(layout, 0, workers)) >> layout.time_shift))


def _ahead_us(layout: BitLayout, tick: int, now_us: int) -> int:
    return layout.epoch_us + tick * layout.tick_us - now_us


def _lead_us(eras: Iterable[Era], now_us: int) -> int:
    """How far ahead of the time ids may begin: as far as the old ones did, and a little."""
    leads = [_ahead_us(era.layout, era.until, now_us) for era in eras]
    return max(0, *leads) + FURTHEST_US


def _is_below(layout: BitLayout, workers: range, found: Found) -> bool:
    top = highest_id(layout, layout.max_ticks, workers)
    return found.lowest is not None and top < found.lowest and not found.unseen


def _below(layout: BitLayout, found: Found, *, trust_tables: bool) -> int:
    if not trust_tables:
        raise MoveRefused(
            f"All ids of the new layout lie below 2**{layout.bits}, and the lowest old one in the "
            f"project's tables is {found.lowest}. So no id repeats if no old one lies below "
            f"2**{layout.bits} anywhere else: in deleted rows, logs, queues, other services. "
            f"If you know that, say so.",
            needs="--trust-tables",
        )
    return 0


def _words(
    layout: BitLayout, workers: range, eras: list[Era], tick: int | None, now_us: int
) -> str:
    top = max(era.highest for era in eras)
    why = f"The old ids go up to {top}; "
    if tick is None:
        why += f"those of the new layout ({layout}) are lower, and would meet them one day."
    else:
        ahead = _ahead_us(layout, tick, now_us) / (24 * HOUR_US)
        why += (
            f"those of the new layout ({layout}) are only past that from tick {tick} on, which "
            f"is {ahead:.1f} days ahead of the time, and so would be all of their times."
        )
    return f"{why} {_way_out(layout, workers, eras, now_us)}"


def _way_out(layout: BitLayout, workers: range, eras: list[Era], now_us: int) -> str:
    later = [
        Era(era.layout, era.workers, era.until + -(-LEEWAY_US // era.layout.tick_us))
        for era in eras
    ]
    tick = first_tick(layout, workers, later)
    moved = None if tick is None else epoch_for(layout, tick, now_us)
    if moved is not None:
        return (
            f"With EPOCH {moment(moved.epoch_us).isoformat()!r} (or an earlier one) they are past "
            f"the old ones at once; it ends {_end_of(moved)}. It will do for "
            f"{LEEWAY_US // (24 * HOUR_US)} days."
        )
    return (
        "No epoch mends that. Keep the old layout for the tables that have its ids, and give the "
        "new one to a generator with a NAMESPACE of its own, whose ids go to other tables or "
        "columns: where they meet, a namespace is no help, as ids are numbers."
    )


def _end_of(layout: BitLayout) -> str:
    """When its time bits are used up."""
    return f"{layout.exhausted_at:%Y-%m-%d}"


_BY = "by manage.py idgen_doctor, which moved it"


# --- the move ------------------------------------------------------------------------


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

    def leftovers(self) -> list[StoredBook]:
        """Open records of this project that today's settings don't lend from."""
        return [
            leftover.book
            for leftover in leftovers_of(self.project, self.entry)
            if leftover.is_ours and not leftover.is_closed
        ]

    @property
    def needs_a_stop(self) -> bool:
        """Whether no process may run meanwhile, since one transaction is not enough."""
        # The marks of static worker ids are files of each host.
        static = any(each.book.key[0] == "static" for each in self.differences())
        return static or len(self.books) > 1 or bool(self.leftovers())

    def others(self) -> list[Leftover]:
        """Books of that name in other databases, which may be another project's."""
        return [each for each in leftovers_of(self.project, self.entry) if not each.is_ours]

    def unentered(self) -> list[StoredBook]:
        """Books whose registry outside of the database has other settings yet."""
        return [book for book in self.books if book.read() is not None and not book.entered()]

    def preview(self) -> dict[str, int]:
        """By place: the tick at which each book would begin, as things stand now.

        Raises :class:`MoveRefused`.
        """
        eras = self._old_eras()
        return {book.place: self._fence(book, eras) for book in self.books}

    def _old_eras(self) -> list[Era]:
        old = [*self.leftovers(), *(each.book for each in self.differences())]
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
        eras, leftovers = self._old_eras(), self.leftovers()
        done = []
        for book in self.books:
            stored = book.read()
            if (
                leftovers
                or stored is None
                or differing(stored.fingerprint, book.namespace.fingerprint)
            ):
                stored = book.rewrite(self._opening(book, eras))
                done.append(f"{book.place}: {self._words(book, stored)}")
        for book in leftovers:
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
    """A book that lends no more, and whose marks are final."""
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

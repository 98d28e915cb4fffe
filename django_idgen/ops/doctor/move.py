"""Moves a namespace from the settings that it was opened with to today's.

Where the record stays, the move is one transaction, and processes may run meanwhile: the record
gets the new settings, the next generation, and a fence past every old mark. From then on a
process with the old settings is refused and uses up its window, which ends below the fence. A
process with the new settings starts at the fence.

Where the new record is another one (in another database, say) all processes must be stopped: it
is opened past what the old ones have lent, then these are closed. A move that was interrupted can
be run again.

Worker ids of hosts (``StaticLeases``) can't be seen from elsewhere. So each host begins past the
records that were closed, and a closed record opens again only if something shows how far its
successor went. Of several projects that leave one database, the first closes its record; the others
begin past it if they name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core.clock import MAX_UNIX_US, moment
from ...core.errors import CLOSED, IdgenError
from ...core.layout import BitLayout
from ...core.lease import Namespace
from ...core.store import StoredBook
from ...core.stored import (
    Era,
    Stored,
    Successor,
    epoch_for,
    first_tick,
    highest_id,
    in_ticks,
    latest_eras,
    layout_of,
    lowest_id,
)
from ...process.factory import build_namespace
from ...settings.config import DEFAULT_LEASES, BackendSettings, GeneratorSettings
from .findings import TRUST_TABLES
from .project import Project

_CLOSED_BY = "by manage.py idgen_doctor, which moved it"
LEFT_BEHIND = "/fallback"
"""The suffix of the second record that ``FallbackLeases`` of an earlier version left."""


# --- records that today's settings don't lend from ----------------------------------
#
# In the database that lends today, a change of the registry left them behind. In another
# database they may be copies, or belong to another project, whose processes must not be
# stopped. There the operator has to say that the namespace moved from it.


@dataclass(frozen=True, slots=True)
class Leftover:
    """A book that today's settings don't lend from."""

    alias: str
    book: StoredBook
    stored: Stored
    is_ours: bool
    """It is in a database that lends today, we closed it, or the operator says so."""

    @property
    def is_closed(self) -> bool:
        return is_closed(self.stored)

    @property
    def until_us(self) -> int:
        """The end of its last window, µs since 1970."""
        layout = self.stored.era.layout
        return layout.epoch_us + self.stored.highest * layout.tick_us


def _is_past(stored: Stored, ours: Stored | None) -> bool:
    """Whether ``stored`` has lent past all that ``ours`` knows of its worker ids."""
    if ours is None:
        return True
    lent = stored.era
    known = [
        era
        for era in (*ours.eras, ours.era)
        if era.layout == lent.layout
        and not era.closes
        and era.workers.start <= lent.workers.start
        and lent.workers.stop <= era.workers.stop
    ]
    return all(era.until < lent.until for era in known)


def is_closed(stored: Stored) -> bool:
    """Whether the book was moved to another registry, and lends no more."""
    return CLOSED in stored.fingerprint


def reopened(stored: Stored) -> Stored:
    """``stored`` as it was before it was closed."""
    kept = stored.fingerprint.keys() - {CLOSED}
    return replace(stored, fingerprint={key: stored.fingerprint[key] for key in kept})


def _leftovers(project: Project, entry: GeneratorSettings) -> list[Leftover]:
    """All leftovers of the namespace of ``entry``, in every database that answers."""
    in_use = {_identity(book) for book in map(project.book, project.generators) if book}
    lending = project.book(entry)
    installation = lending.installation() if lending else ""
    found: dict[object, Leftover] = {}
    for alias in project.all_reachable():
        if not project.has(alias, "NamespaceRecord", "WorkerLease", "Installation"):
            continue
        for book in _books_in(alias, entry):
            stored, identity = book.read(), _identity(book)
            if stored is not None and identity not in in_use:
                ours = (
                    bool(installation and book.installation() == installation)
                    or alias in project.moved_from
                    or is_closed(stored)
                )
                found.setdefault(identity, Leftover(alias, book, stored, ours))
    return list(found.values())


def _books_in(alias: str, entry: GeneratorSettings) -> list[StoredBook]:
    backend = BackendSettings("idgen_doctor", DEFAULT_LEASES, {"database": alias})
    space = build_namespace(entry)
    names = (entry.namespace, entry.namespace + LEFT_BEHIND)
    made = [backend.build(replace(space, name=name)).stored_book() for name in names]
    return [book for book in made if book]


def _identity(book: StoredBook) -> object:
    """Equal for two books of one database, under two aliases or on a replica."""
    return (book.installation() or book.key[1], book.key[0], book.namespace.name)


# --- from which tick on -------------------------------------------------------------
#
# No id of the new layout, from its fence on, may be one that was or may have been made under the
# old one. Where both layouts have the time on top, a tick is enough. If that tick lies far ahead
# of the time, ids would be stamped that far ahead, and an earlier epoch is the better way. If all
# ids of the new layout lie below the old ones, only the tables can prove how low those begin.

WAY_BACK = (
    "Stop all processes. On each host that had the settings of that registry, run 'manage.py "
    "idgen_skip --generators --dry-run' with them, and note the time that it prints. Then run "
    "'manage.py idgen_skip --generators --until TIME' with today's settings, and the latest of "
    "those times."
)
"""How to open a closed book again if nothing here shows what was lent since."""
HOUR_US = 3_600_000_000
RECENT_US = 24 * HOUR_US
"""How long after its last window a book elsewhere still counts."""
FURTHEST_US = HOUR_US
"""How much further ahead of the time than the old ids the new ones may begin."""
LEEWAY_US = 30 * 24 * HOUR_US
"""How long a proposed epoch works: the old fleet runs until the operator changes it."""


class MoveRefused(IdgenError):
    """The new settings would repeat ids, or stamp them far ahead of the time."""

    def __init__(self, why: str, *, needs: str = "") -> None:
        self.needs = needs
        """The option that would allow the move; empty if there is none."""
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Found:
    """The lowest and the highest id of a generator in the project's tables."""

    lowest: int | None = None
    highest: int | None = None
    unreachable: tuple[str, ...] = ()
    """The databases that did not answer; if there are any, the tables prove nothing."""


def ids_in_tables(project: Project, generator: str) -> Found:
    """The ids of a generator in the tables of all databases that answer."""
    values: list[int] = []
    for column in project.snowflake_columns(project.all_reachable()):
        if column.field.generator == generator:
            values += [each for each in (column.lowest(), column.highest()) if each is not None]
    return Found(
        min(values, default=None), max(values, default=None), tuple(project.all_unreachable())
    )


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
    # What closes the past says nothing of leases: these have begun past its end at the time.
    eras = [era for era in eras if era.until > 0 and not era.closes]
    tick = first_tick(layout, workers, eras)
    if all(era.layout.fingerprint() == layout.fingerprint() for era in eras):
        if tick is None:
            raise MoveRefused("The ids already lent have used up the time bits of the layout.")
        return tick
    if tick is not None and found.highest is not None:
        missing = found.highest + 1 - lowest_id(layout, 0, workers)
        tick = max(tick, -(-missing >> layout.time_shift), 0)
    # The new ids may begin as far ahead of the time as the old ones did, and a little further.
    leads = [_ahead_us(era.layout, era.until, now_us) for era in eras]
    if tick is not None and _ahead_us(layout, tick, now_us) <= max(0, *leads) + FURTHEST_US:
        return tick
    top = highest_id(layout, layout.max_ticks, workers)
    if found.lowest is None or top >= found.lowest or found.unreachable:
        raise MoveRefused(_why_refused(layout, workers, eras, tick, now_us))
    if not trust_tables:
        raise MoveRefused(
            f"All ids of the new layout lie below 2**{layout.bits}, and the lowest old id in the "
            f"project's tables is {found.lowest}. So no id repeats if no old id below "
            f"2**{layout.bits} is anywhere else: in deleted rows, logs, queues, other services. "
            f"If you know that there is none, give {TRUST_TABLES}.",
            needs=TRUST_TABLES,
        )
    return 0


def _ahead_us(layout: BitLayout, tick: int, now_us: int) -> int:
    return layout.epoch_us + tick * layout.tick_us - now_us


def _why_refused(
    layout: BitLayout, workers: range, eras: list[Era], tick: int | None, now_us: int
) -> str:
    why = f"The old ids go up to {max(era.highest for era in eras)}; "
    if tick is None:
        why += f"those of the new layout ({layout}) are lower, and would meet them one day."
    else:
        ahead = _ahead_us(layout, tick, now_us) / (24 * HOUR_US)
        why += (
            f"those of the new layout ({layout}) exceed that only from tick {tick} on, which is "
            f"{ahead:.1f} days ahead of the time: all times in the ids would be wrong by that."
        )
    later = [
        Era(era.layout, era.workers, era.until + -(-LEEWAY_US // era.layout.tick_us))
        for era in eras
    ]
    tick = first_tick(layout, workers, later)
    moved = None if tick is None else epoch_for(layout, tick, now_us)
    if moved is not None:
        return (
            f"{why} With EPOCH {moment(moved.epoch_us).isoformat()!r} (or an earlier one) they "
            f"exceed the old ones at once; its time bits end {moved.exhausted_at:%Y-%m-%d}. That "
            f"epoch works for the next {LEEWAY_US // (24 * HOUR_US)} days."
        )
    return (
        f"{why} No epoch solves that. Keep the old layout for the tables that have its ids, and "
        f"give the new one to a generator with a NAMESPACE of its own, whose ids go to other "
        f"tables or columns. In one column they could repeat: a namespace is not part of an id."
    )


# --- the move ------------------------------------------------------------------------


def elsewhere(project: Project, entry: GeneratorSettings) -> list[Leftover]:
    """Books of the same name in other databases, which may belong to another project."""
    return [each for each in _leftovers(project, entry) if not each.is_ours]


class Move:
    """What has to be done about the ``book`` of ``entry``, as it is now, and doing it."""

    def __init__(self, project: Project, entry: GeneratorSettings, book: StoredBook) -> None:
        self.project = project
        self.entry = entry
        self.book = book
        self.stored = book.read()
        self.difference = difference(book, self.stored) if self.stored else ""
        """The first setting that differs from those that the book was opened with."""
        ours = [each for each in _leftovers(project, entry) if each.is_ours]
        self.leftovers = [each for each in ours if not each.is_closed]
        """Open books of this project that today's settings don't lend from."""
        self.unknown = [each for each in ours if each.is_closed and self._is_unknown(each)]
        """Closed books that have lent past all that today's book knows of."""
        self._found: Found | None = None

    def _is_unknown(self, closed: Leftover) -> bool:
        named = closed.alias in self.project.moved_from or self._concerns_host(closed)
        return named and _is_past(closed.stored, self.stored)

    def _concerns_host(self, closed: Leftover) -> bool:
        """Whether the worker ids are static, and this host may have to begin past ``closed``."""
        # The files of a host remember no other layout.
        alike = closed.stored.era.layout.fingerprint() == self.entry.layout.fingerprint()
        is_recent = closed.until_us > self.project.now_us() - RECENT_US
        return self._is_static and is_recent and (alike or self.stored is None)

    @property
    def needs_a_stop(self) -> bool:
        """Whether all processes must be stopped, since one transaction is not enough."""
        # The marks of static worker ids are files of each host.
        return (self._is_static and bool(self.difference)) or bool(self.leftovers)

    @property
    def _is_static(self) -> bool:
        return self.book.key[0] == "static"

    def preview(self) -> int:
        """The tick at which the book would begin now. Raises :class:`MoveRefused`."""
        stored, shown = self.stored, self.leftovers or self.unknown
        if stored and is_closed(stored) and not shown:
            raise MoveRefused(
                "It was moved to a registry that can't be seen from here. If that is a database, "
                "add it to DATABASES, and run the doctor with --moved-from ALIAS. If it is "
                f"StaticLeases: {WAY_BACK}"
            )
        space, now_us = self.book.namespace, self.project.now_us()
        return self._fence(space, _eras(stored, self._old_eras()), now_us)

    def _old_eras(self) -> list[Era]:
        found = [each.stored for each in (*self.leftovers, *self.unknown)]
        if self.stored and self.difference:
            found.append(self.stored)
        # With what they had lent before, and what was claimed, as of worker ids that are not lent.
        return [era for stored in found for era in (*stored.eras, stored.era)]

    def _fence(self, space: Namespace, eras: list[Era], now_us: int) -> int:
        if self._found is None:
            self._found = ids_in_tables(self.project, self.entry.alias)
        return fence_of(
            self.entry.layout,
            space.workers,
            eras,
            now_us=now_us,
            found=self._found,
            trust_tables=TRUST_TABLES in self.project.assurances,
        )

    def run(self) -> list[str]:
        """Do it, and return what was done, a line a book. A new one goes on after a failure.

        Raises :class:`MoveRefused` before it changes anything for good, and what the books raise.
        """
        self.preview()
        book, done = self.book, []
        if self.leftovers or self.unknown or self.difference or not self.stored:
            stored = book.rewrite(partial(self._opened, book.namespace, self._old_eras()))
            when = moment_of(book.namespace, stored.fence)
            done.append(
                f"{book.place}: generation {stored.generation}, from tick {stored.fence} on "
                f"({when})"
            )
        for leftover in self.leftovers:
            leftover.book.rewrite(_closed)
            done.append(f"{leftover.book.place}: closed")
        if not book.entered():
            book.enter()
            done.append(f"{book.place}: starts anew with these settings")
        return done

    def _opened(
        self, space: Namespace, others: list[Era], stored: Stored, now_us: int
    ) -> Successor:
        """The content of a book of today's settings."""
        eras = _eras(stored, others)
        longest = stored.longest
        if stored.fingerprint:
            longest = in_ticks(longest, layout_of(stored.fingerprint), space)
        return Successor(
            fingerprint=dict(space.fingerprint),
            fence=self._fence(space, eras, now_us),
            longest=max(space.reach_ticks, longest),
            workers=space.workers,
            eras=latest_eras(eras),
            moved=any(
                stored.fingerprint.get(key) != space.fingerprint.get(key)
                for key in ("fields", "tick_us", "epoch_us")
            ),
        )


def _closed(stored: Stored, _now_us: int) -> Successor:
    """The content of a book that no longer lends, and whose marks are final."""
    fingerprint = {**stored.fingerprint, CLOSED: _CLOSED_BY}
    return Successor(fingerprint, stored.highest, stored.longest, stored.era.workers, stored.eras)


def difference(book: StoredBook, stored: Stored) -> str:
    """The first setting that differs from what is stored, with both values; empty if none does."""
    then: Mapping[str, Any] = stored.fingerprint
    now: Mapping[str, Any] = book.namespace.fingerprint
    if is_closed(stored):
        return "settings that 'manage.py idgen_doctor' has moved to another registry since"
    for key in sorted(then.keys() | now.keys()):
        if then and then.get(key) != now.get(key):
            return f"{key}={then.get(key)!r}; today's settings say {key}={now.get(key)!r}"
    return ""


def moment_of(space: Namespace, tick: int) -> str:
    """When a tick begins, for people."""
    us = space.epoch_us + tick * space.tick_us
    return f"{moment(us):%Y-%m-%d %H:%M:%S} UTC" if us <= MAX_UNIX_US else "past the year 9999"


def _eras(stored: Stored | None, others: list[Era]) -> list[Era]:
    """All that a book and ``others`` have lent."""
    if stored is None:
        return others
    return [*stored.eras, *others, *([stored.era] if stored.fingerprint else [])]

"""The rules of a namespace, over the book that stores it.

A *book* is the record of one namespace and the marks of its worker ids, as seen inside one
transaction. Each rule is a function over a :class:`Book`: the caller's store holds the lock, and
undoes everything if a rule raises. The windows come from :mod:`.lease`.

These signs show that a namespace has lost something:

* fewer rows of worker ids than the record says were ever lent;
* no record, although the installation knows its name or marks are still there;
* no row of the installation itself, so that more may be missing;
* another server of the database, since a replica may have missed the last windows, or the first
  use of a namespace.

Then a new *generation* begins: all older tokens are void, and it lends no tick below its fence
(rule L7). The eras, with what was claimed of the past, may be lost, too. So no tick below the fence
can be claimed from then on, with any worker id.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import Any

from .clock import Reading
from .errors import LayoutError, LeaseLost, NamespaceMismatch, NoFreeWorker
from .inspection import InspectedMark, name_of
from .lease import (
    OLD_CLIENTS,
    Lease,
    Mark,
    Namespace,
    extend_window,
    final_mark,
    grant_window,
    identity_of,
    is_free,
    is_free_in,
    loss_fence,
    new_token,
    soon,
)
from .stored import (
    Change,
    Claim,
    Era,
    Stored,
    Successor,
    era_words,
    eras_from,
    latest_eras,
    layout_of,
)

RANDOM_TRIES = 10
PREVIOUS_LIMIT = 64
"""Marks of one host to search for a worker id that its processes had before."""
# Processes started from one image, or forked, must not all try the same worker ids.
_random = SystemRandom()


class LookCloser(Exception):
    """A quick look is not enough: the transaction must begin again, and thoroughly."""


class CeilingReached(Exception):
    """The window would end past the sub-lease: nothing was granted."""

    def __init__(self, tick: int) -> None:
        super().__init__(tick)
        self.tick = tick
        """The first tick of the window."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a book stores of the namespace as a whole. Frozen; all moments in ticks."""

    fingerprint: str
    """JSON of :attr:`Namespace.fingerprint`; empty if unknown."""
    generation: int
    fence: int
    """The first tick that may be granted."""
    largest_window: int
    workers_made: int
    """How many worker ids were ever lent; fewer rows show a loss."""
    highest_until: int
    """The end of the latest window ever granted."""
    ceiling: int = 0
    """The end of the sub-lease of a registry that can forget."""
    incarnation: str = ""
    """The life of that registry for which the generation was opened."""
    installation: str = ""
    """The installation that wrote it."""
    server: str = ""
    """The server that wrote it; empty if unknown."""


class Book(ABC):
    """The record and marks of one namespace, inside one transaction."""

    thorough: bool = True
    """Whether the transaction sees all of the book and may mend it."""
    ceiling: int | None = None
    """The end of its sub-lease, if it has one (rule L6)."""
    cuts: bool = False
    """Whether to cut a window at the ceiling, or to raise :class:`CeilingReached`."""

    # --- the record -------------------------------------------------------------

    @property
    @abstractmethod
    def reading(self) -> Reading:
        """The registry's clock, read under the lock."""

    @property
    @abstractmethod
    def installation(self) -> str:
        """The identity of its installation."""

    @property
    @abstractmethod
    def server(self) -> str:
        """The identity of its server; empty if unknown."""

    @abstractmethod
    def record(self) -> Record | None:
        """The record, without a lock."""

    def locked_record(self) -> Record | None:
        """The record, locked until the end of the transaction."""
        return self.record()

    @abstractmethod
    def save_record(self, record: Record) -> None: ...

    @abstractmethod
    def was_opened(self) -> bool:
        """Whether the installation knows that the namespace had a record."""

    def failovers_us(self) -> Sequence[int]:
        """When other servers took over, as far as is known, µs since 1970."""
        return ()

    def recalled(self) -> Record:
        """What the installation knows of a record that is gone, or never was."""
        return Record("", 0, 0, 0, 0, 0)

    @abstractmethod
    def next_generation(self, after: int) -> int:
        """A number above ``after`` that no generation of the namespace has had."""

    @abstractmethod
    def eras(self) -> object:
        """What :meth:`save_eras` saved."""

    @abstractmethod
    def save_eras(self, words: Sequence[Mapping[str, Any]]) -> None:
        """Store what was lent under earlier layouts."""

    # --- the marks: reading -----------------------------------------------------

    @abstractmethod
    def count(self) -> int:
        """How many worker ids have a mark."""

    @abstractmethod
    def highest_worker(self) -> int | None:
        """The highest worker id that has a mark."""

    @abstractmethod
    def highest_until(self) -> int:
        """The highest ``until`` of the marks; 0 if there is none."""

    @abstractmethod
    def marks(self, workers: Collection[int]) -> Mapping[int, Mark]:
        """The marks of ``workers``, by worker id."""

    def mark(self, worker: int) -> Mark | None:
        """The mark of one worker id."""
        return self.marks([worker]).get(worker)

    @abstractmethod
    def inspected(
        self, workers: Collection[int] | None = None, *, generation: int | None = None
    ) -> Iterable[InspectedMark]:
        """All marks, or those of ``workers``; those of another ``generation`` are void."""

    @abstractmethod
    def had_by(self, who: str, free_at: tuple[int, int] | None = None) -> Sequence[InspectedMark]:
        """The marks of holders called ``who`` or ``who:...``, latest seen first.

        ``free_at``, a tick and a generation: only marks that are free then, and no more than
        :data:`PREVIOUS_LIMIT`.
        """

    @abstractmethod
    def earliest_free(
        self, workers: range, avoid: int | None, now: int, generation: int
    ) -> Mark | None:
        """The free mark with the lowest ``until``, then worker id."""

    @abstractmethod
    def lowest_missing(self, workers: range, avoid: int | None) -> int | None:
        """The lowest worker id that has no mark."""

    # --- the marks: writing -----------------------------------------------------

    @abstractmethod
    def save_lent(self, mark: Mark, *, is_new: bool) -> None:
        """Save a mark that is lent now; ``is_new``: its worker id had none."""

    @abstractmethod
    def save_renewed(self, mark: Mark) -> None:
        """Save ``until``; the holder was seen."""

    @abstractmethod
    def save_released(self, mark: Mark) -> None:
        """Save ``token`` and ``until``; the holder was seen."""

    @abstractmethod
    def save_end(self, mark: Mark) -> None:
        """Save ``until``; the holder was not seen."""

    @abstractmethod
    def void(self, worker: int, token: str) -> bool:
        """Remove ``token`` from its mark and leave the rest; False if it is not there."""

    @abstractmethod
    def restart_marks(self, workers: range, fence: int) -> None:
        """Free all marks, and set them to ``fence``, since the layout of their ticks changes.

        Marks outside of ``workers`` may go.
        """

    @abstractmethod
    def lower_marks(self, fence: int) -> None:
        """Free all marks, and lower those past ``fence`` to it."""

    # --- rules that a book may apply in one statement ---------------------------

    def extend_seen(
        self, namespace: Namespace, *, now: int, since_us: int, generation: int
    ) -> tuple[int, int]:
        """Extend leases whose holders were seen since (µs since 1970); how many, and how far."""
        count = highest = 0
        for seen in list(self.inspected()):
            mark = seen.mark
            if _is_due(mark, seen.seen_us or 0, now=now, since_us=since_us, generation=generation):
                until = _extended(self, namespace, mark, now=now, last_tick=mark.start)
                self.save_end(replace(mark, until=until))
                count, highest = count + 1, max(highest, until)
        return count, highest

    def take_back(self, lease: Lease, *, last_tick: int | None) -> bool:
        """See :func:`take_back`; ``lease`` has a token, and a worker id of the namespace."""
        record, mark = self.record(), self.mark(lease.worker)
        if record is None or mark is None or not _is_current(record, mark, lease):
            return False
        self.save_released(replace(mark, token="", until=final_mark(mark, last_tick)))
        return True


# --- lending ----------------------------------------------------------------------


def lend(
    book: Book,
    namespace: Namespace,
    *,
    holder: str,
    not_before: int = 0,
    avoid: int | None = None,
) -> Lease:
    """Grant a free worker id. Raises as :meth:`Registry.acquire`."""
    record = opened_record(book, namespace)
    now = _now(book, namespace)
    by = soon(namespace, now=now, fence=record.fence, not_before=not_before)
    if namespace.unused:
        worker, old = _next_worker(book, namespace, record, now=now, avoid=avoid)
    else:
        worker, old = choose_worker(
            book,
            namespace,
            now=now,
            generation=record.generation,
            by=by,
            holder=holder,
            avoid=avoid,
        )
        if old is None and not book.thorough and book.count() < record.workers_made:
            raise LookCloser  # it may have been lent, and its row deleted
    start, until = grant_window(
        namespace,
        old,
        now=now,
        fence=record.fence,
        highest=record.highest_until,
        not_before=not_before,
        ceiling=book.ceiling,
    )
    if until <= start or (_is_cut(namespace, start, until) and not book.cuts):
        raise CeilingReached(start)
    mark = Mark(
        namespace.check_worker(worker), new_token(), start, until, record.generation, holder
    )
    book.save_lent(mark, is_new=old is None)
    made = record.workers_made + (old is None)
    if namespace.unused:
        made = min(made, len(namespace.workers))
    book.save_record(_raised(replace(record, workers_made=made), until))
    return _lease(namespace, mark)


def extend(book: Book, namespace: Namespace, lease: Lease, *, last_tick: int) -> Lease | None:
    """Move the end of a held window up; None if ``lease`` no longer holds it.

    An error would undo a generation that was just opened.
    """
    record = opened_record(book, namespace)
    known = lease.token and lease.worker in namespace.workers
    mark = book.mark(lease.worker) if known else None
    if mark is None or not _is_current(record, mark, lease):
        return None
    now = _now(book, namespace)
    until = _extended(book, namespace, mark, now=now, last_tick=last_tick)
    latest = max(now, min(last_tick, mark.until))
    # A window that is cut short must still be of use: it ends later, and past the latest tick.
    if _is_cut(namespace, latest, until) and not mark.until < until > latest:
        raise CeilingReached(latest)
    mark = replace(mark, until=until)
    book.save_renewed(mark)
    book.save_record(_raised(record, mark.until))
    return _lease(namespace, mark)


def extend_seen(book: Book, namespace: Namespace, *, idle_after: float) -> int:
    """Extend the leases of holders seen in the last ``idle_after`` seconds; returns how many."""
    found, record, closes = _looked_at(book, namespace)
    if not record.workers_made:
        return 0  # a scheduler must not make its settings final
    _save_opened(book, found, record, closes=closes)
    now_us = book.reading.registry_us
    count, highest = book.extend_seen(
        namespace,
        now=namespace.tick_at(now_us),
        since_us=now_us - int(idle_after * 1e6),
        generation=record.generation,
    )
    if count:
        book.save_record(_raised(record, highest))
    return count


def take_back(book: Book, namespace: Namespace, lease: Lease, *, last_tick: int | None) -> bool:
    """Free a worker id; False, changing nothing, if ``lease`` no longer holds it."""
    if not lease.token or lease.worker not in namespace.workers:
        return False
    return book.take_back(lease, last_tick=last_tick)


def lost(lease: Lease) -> LeaseLost:
    """The error for a lease that the registry does not know."""
    return LeaseLost(
        f"The registry no longer knows the lease of worker id {lease.worker} of namespace "
        f"{lease.namespace!r} (ticks {lease.start} to {lease.until}): it was released, it expired "
        "and another process has the worker id, or its row was deleted. This process may use up "
        "its window. After that it needs a new lease."
    )


def choose_worker(
    book: Book,
    namespace: Namespace,
    *,
    now: int,
    generation: int,
    by: int,
    holder: str,
    avoid: int | None,
) -> tuple[int, Mark | None]:
    """A free worker id, never ``avoid``, and its mark if it ever had one.

    In this order: the one that the process prefers; the one that the holder had last, so that a
    restarted process keeps its old id; random tries, since newcomers that choose alike
    queue for one row; a scan, since ten random tries fail about every fourth time when 900 of
    1024 ids are held. Worker ids whose windows would begin after tick ``by`` come last.

    Raises :class:`NoFreeWorker`.
    """
    workers, preferred = namespace.workers, namespace.preferred
    if preferred is not None and preferred != avoid:
        mark = book.mark(preferred)
        if _is_lendable(mark, now, generation, by):
            return preferred, mark
    who = identity_of(holder)
    seen = book.had_by(who, (now, generation)) if holder else ()
    had = [
        each.mark
        for each in seen
        if identity_of(each.mark.holder) == who
        and each.mark.worker in workers
        and each.mark.worker != avoid
    ]
    for own in had:
        if own.until <= by:
            return own.worker, own
    tries = _random.sample(workers, min(RANDOM_TRIES, len(workers)))
    known = book.marks(tries)
    for worker in tries:
        tried = known.get(worker)
        if worker != avoid and _is_lendable(tried, now, generation, by):
            return worker, tried
    earliest = book.earliest_free(workers, avoid, now, generation)
    if earliest is not None and earliest.until <= by:
        return earliest.worker, earliest
    missing = book.lowest_missing(workers, avoid)
    if missing is not None:
        return missing, None
    if earliest is None:
        raise NoFreeWorker(namespace.name, workers)
    last = had[0] if had else earliest
    return last.worker, last


def _next_worker(
    book: Book, namespace: Namespace, record: Record, *, now: int, avoid: int | None
) -> tuple[int, Mark | None]:
    """The lowest worker id that was never lent; if all were, the one that is free longest.

    The record knows how many were lent, so no start has to count the rows.

    Raises :class:`NoFreeWorker`.
    """
    workers = namespace.workers
    if record.workers_made < len(workers):
        return workers[record.workers_made], None
    if namespace.unused == "only":
        raise NoFreeWorker(namespace.name, workers, used=True)
    # Missing rows begin at the fence of the generation that their loss has opened.
    missing = book.lowest_missing(workers, avoid) if book.thorough else None
    if missing is not None:
        return missing, None
    longest_free = book.earliest_free(workers, avoid, now, record.generation)
    if longest_free is not None:
        return longest_free.worker, longest_free
    if book.count() < record.workers_made and not book.thorough:
        raise LookCloser
    raise NoFreeWorker(namespace.name, workers)


# --- looking after ------------------------------------------------------------------


def inspect(book: Book, workers: Collection[int] | None = None) -> list[InspectedMark]:
    """The stored marks of ``workers``, or of all."""
    record = book.record()
    generation = -1 if record is None else record.generation
    return list(book.inspected(workers, generation=generation))


def free_by_hand(book: Book, worker: int, lease: str | None = None) -> bool:
    """Void the token of a worker id; see :meth:`Registry.free`."""
    mark = book.mark(worker)
    if mark is None or not mark.token or lease not in (None, name_of(mark.token)):
        return False
    return book.void(worker, mark.token)


def held_by(book: Book, namespace: Namespace, holder: str) -> list[Lease]:
    """The leases of ``holder``, expired or not; the earliest first."""
    record = book.record()
    if record is None:
        return []
    current = [
        seen
        for seen in reversed(book.had_by(identity_of(holder)))
        if seen.mark.token
        and seen.mark.holder == holder
        and seen.mark.generation == record.generation
    ]
    # Of two that were lent at the same moment, the one that was seen first stays first.
    current.sort(key=lambda seen: (seen.acquired_us or 0, seen.mark.start))
    return [_lease(namespace, seen.mark) for seen in current]


# --- the record ---------------------------------------------------------------------


def opened_record(book: Book, namespace: Namespace) -> Record:
    """The locked record of the namespace. Makes a missing one, and mends it after a loss.

    Raises :class:`NamespaceMismatch`, and :class:`LookCloser` if it would have to make or mend
    one and the book is not :attr:`~Book.thorough`.
    """
    found, record, closes = _looked_at(book, namespace)
    _save_opened(book, found, record, closes=closes)
    return record


def _save_opened(book: Book, found: Record | None, record: Record, *, closes: bool) -> None:
    if closes:
        _close_past(book, record)
    if record != found:
        book.save_record(record)


def _close_past(book: Book, record: Record) -> None:
    """Let no tick below the fence be claimed any more: see :func:`claim`."""
    with suppress(LayoutError):  # what can't be read refuses all claims
        layout = layout_of(parsed_fingerprint(record.fingerprint))
        closing = Era(layout, range(len(layout.workers)), record.fence, closes=True)
        _save_eras(book, (*eras_from(book.eras()), closing))


def _save_eras(book: Book, eras: Iterable[Era]) -> None:
    book.save_eras([era_words(each) for each in latest_eras(eras)])


def _looked_at(book: Book, namespace: Namespace) -> tuple[Record | None, Record, bool]:
    """The record as stored, as it has to be, and whether claims of the past may be lost."""
    found = book.locked_record()
    if found is not None:
        check_fingerprint(namespace, found.fingerprint)
    if book.thorough:
        return found, *_mended(book, namespace, found)
    if found is None or _is_suspicious(book, namespace, found):
        raise LookCloser
    return found, found, False


def _is_suspicious(book: Book, namespace: Namespace, record: Record) -> bool:
    return (
        record.installation != book.installation
        or bool(book.server and record.server != book.server)
        or record.largest_window < namespace.reach_ticks
    )


def _mended(book: Book, namespace: Namespace, found: Record | None) -> tuple[Record, bool]:
    if found is None:
        count = _lent_so_far(book, namespace)
    else:
        count = book.count() if _needs_rows(namespace, found) else found.workers_made
    lost = _is_lost(book, found, count)
    known = found or _recalled(book, namespace)
    # A process that had used it would have come back by then.
    may_be_lost = found is None and known.fence > _now(book, namespace)
    if lost:
        known = _reopened(book, namespace, known)
    elif found is None:  # the generation of one that a failover lost was another
        known = replace(known, generation=book.next_generation(1 if known.fence else 0))
    mended = replace(
        known,
        fingerprint=fingerprint_text(namespace.fingerprint),
        largest_window=max(known.largest_window, namespace.reach_ticks),
        workers_made=max(count, 0 if lost and not namespace.unused else known.workers_made),
        installation=book.installation,
        server=book.server or known.server,
    )
    return mended, lost or may_be_lost


def _recalled(book: Book, namespace: Namespace) -> Record:
    """What to begin with where there is no record. Each failover may have lost its first use."""
    known = book.recalled()
    fence = known.fence
    for at_us in book.failovers_us():
        now = max(fence, namespace.tick_at(at_us))  # what was lost may have begun at the fence
        fence = loss_fence(namespace, now=now, fence=fence, largest_window=known.largest_window)
    return replace(known, fence=fence)


def _is_lost(book: Book, found: Record | None, count: int) -> bool:
    """Whether something of the namespace was lost. ``count``: worker ids that have marks."""
    if found is None:
        return count > 0 or book.was_opened()
    server = book.server
    return (
        found.installation != book.installation
        or count < found.workers_made  # marks are gone
        or bool(server and found.server and found.server != server)  # it may lack the last writes
    )


def _needs_rows(namespace: Namespace, record: Record) -> bool:
    """Whether the worker id of a missing row could be lent again."""
    used_up = record.workers_made >= len(namespace.workers)
    return not namespace.unused or (namespace.unused == "first" and used_up)


def _lent_so_far(book: Book, namespace: Namespace) -> int:
    """How many worker ids were ever lent, according to the marks."""
    if not namespace.unused:
        return book.count()
    highest = book.highest_worker()
    return 0 if highest is None else max(0, highest + 1 - namespace.workers.start)


def _reopened(book: Book, namespace: Namespace, known: Record) -> Record:
    """A new generation, past all that the lost one can have granted."""
    fence = max(known.fence, known.highest_until, book.highest_until())
    # A whole record knows the end of every window: only rows are missing.
    whole = known.installation == book.installation and known.server == book.server != ""
    if not whole:
        ahead = max(0, _longest_lead(book, namespace) - known.largest_window)
        fence = loss_fence(
            namespace,
            now=_now(book, namespace) + ahead,
            fence=fence,
            largest_window=known.largest_window,
        )
    return replace(known, generation=book.next_generation(known.generation), fence=fence)


def _longest_lead(book: Book, namespace: Namespace) -> int:
    """How far, in ticks, any window ended past the time when its holder was last seen.

    A holder that ran ahead then, after an earlier loss, may have got as much since.
    """
    return max(
        (seen.mark.until - namespace.tick_at(seen.seen_us or 0) for seen in book.inspected()),
        default=0,
    )


# --- the settings -------------------------------------------------------------------


def stored_of(book: Book, record: Record) -> Stored:
    """The content of the book, for those outside of it."""
    return Stored(
        parsed_fingerprint(record.fingerprint),
        record.generation,
        record.fence,
        max(record.highest_until, record.fence, record.ceiling, book.highest_until()),
        record.largest_window,
        eras_from(book.eras()),
    )


def with_lead(stored: Stored, book: Book, namespace: Namespace) -> Stored:
    """``stored`` with its :attr:`~Stored.lead`, from the marks of all worker ids."""
    return replace(stored, lead=_longest_lead(book, namespace))


def rewrite(book: Book, namespace: Namespace, change: Change) -> Stored:
    """Replace the content of the book by ``change``: see :meth:`StoredBook.rewrite`.

    ``namespace`` has the settings that are stored now. Mends a loss first.
    """
    if not book.thorough:
        raise LookCloser
    record = opened_record(book, namespace)
    stored = with_lead(stored_of(book, record), book, namespace)
    successor = change(stored, book.reading.registry_us)
    _reset_marks(book, successor)
    record = replace(
        record,
        fingerprint=fingerprint_text(successor.fingerprint),
        generation=book.next_generation(record.generation),
        fence=successor.fence,
        highest_until=successor.fence,
        largest_window=successor.longest,
        workers_made=_lent_so_far(book, namespace) if successor.resets else record.workers_made,
        # A registry that can forget gets ticks of the new generation when it asks.
        ceiling=0,
        incarnation="",
    )
    book.save_record(record)
    _save_eras(book, successor.eras)
    return stored_of(book, record)


def claim(book: Book, namespace: Namespace, take: Claim) -> Era:
    """Take ticks of the past with a worker id that is not lent, for ids of old rows.

    The era that ``take`` returns is stored like one that is over, so each later claim, and each
    change of the settings, begins past its ids. A claim that comes after a loss finds the past
    closed. Raises as :func:`opened_record`, and what ``take`` raises.
    """
    if not book.thorough:
        raise LookCloser
    stored = stored_of(book, opened_record(book, namespace))
    era = take(stored, book.reading.registry_us)
    _save_eras(book, (*stored.eras, era))
    return era


def _reset_marks(book: Book, successor: Successor) -> None:
    # Otherwise the new generation voids the tokens, and the marks lie below the fence.
    if successor.moved:
        book.restart_marks(successor.workers, successor.fence)
    elif successor.lowered:
        book.lower_marks(successor.fence)


def change_sub_lease(
    book: Book, namespace: Namespace, change: SubLeaseChange, *, stride: int
) -> SubLease:
    """Apply ``change`` to the sub-lease of a registry that can forget (rule L6)."""
    reach = reaching(namespace, stride)
    record = opened_record(book, reach)
    before = SubLease(
        book.installation, record.generation, record.fence, record.ceiling, record.incarnation
    )
    after = change(before)
    if after == before:
        return after
    if after.fence != before.fence and not book.thorough:
        raise LookCloser  # the installation has to know it, too
    book.save_record(
        replace(
            record,
            generation=after.generation,
            fence=after.fence,
            ceiling=after.ceiling,
            incarnation=after.incarnation,
            largest_window=reach.reach_ticks,
            highest_until=after.ceiling,
        )
    )
    return after


# --- fingerprints -------------------------------------------------------------------


def fingerprint_text(fingerprint: Mapping[str, object]) -> str:
    """Canonical JSON: equal fingerprints give equal texts."""
    return json.dumps(dict(fingerprint), sort_keys=True, separators=(",", ":"), default=str)


def parsed_fingerprint(text: str) -> Mapping[str, Any]:
    """The fingerprint of a record; empty if unknown. Raises :class:`LayoutError`."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LayoutError(f"The stored settings can't be read: {text[:80]!r}.")
    return found


def check_fingerprint(namespace: Namespace, stored: str) -> None:
    """Raise :class:`NamespaceMismatch` naming the first setting that differs."""
    configured = fingerprint_text(namespace.fingerprint)
    if not stored or stored == configured:
        return
    # Through JSON and back: a tuple there is a list here.
    difference = first_difference(json.loads(stored), json.loads(configured))
    if difference is not None:
        raise NamespaceMismatch(namespace.name, *difference)


def first_difference(
    stored: Mapping[str, Any], configured: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """The first setting of two fingerprints that differs: its name, and both values."""
    for key in sorted(stored.keys() | configured.keys()):
        if stored.get(key) != configured.get(key):
            return key, stored.get(key), configured.get(key)
    return None


def without_registry(fingerprint: Mapping[str, object]) -> dict[str, Any]:
    """A fingerprint as JSON has it, without the kind of registry: a client's is HTTP."""
    found: dict[str, Any] = json.loads(fingerprint_text(fingerprint))
    found.pop("registry", None)
    return found


# --- small things -------------------------------------------------------------------


def _now(book: Book, namespace: Namespace) -> int:
    return namespace.tick_at(book.reading.registry_us)


def _lease(namespace: Namespace, mark: Mark) -> Lease:
    return Lease(namespace.name, mark.worker, mark.token, mark.start, mark.until, mark.generation)


def _is_cut(namespace: Namespace, start: int, until: int) -> bool:
    return until < min(start + namespace.window_ticks, namespace.max_ticks)


def _extended(book: Book, namespace: Namespace, mark: Mark, *, now: int, last_tick: int) -> int:
    until = extend_window(namespace, mark, now=now, last_tick=last_tick, ceiling=book.ceiling)
    latest = max(now, min(last_tick, mark.until))
    if _is_cut(namespace, latest, until) and not book.cuts:
        raise CeilingReached(latest)
    return until


def _raised(record: Record, until: int) -> Record:
    return replace(record, highest_until=max(record.highest_until, until))


def _is_current(record: Record, mark: Mark, lease: Lease) -> bool:
    """Whether ``lease`` is the one that is stored."""
    return (mark.token, mark.start, mark.generation, record.generation) == (
        lease.token,
        lease.start,
        lease.generation,
        lease.generation,
    )


def _is_lendable(mark: Mark | None, now: int, generation: int, by: int) -> bool:
    return mark is None or (is_free_in(mark, now, generation) and mark.until <= by)


def _is_due(mark: Mark, seen_us: int, *, now: int, since_us: int, generation: int) -> bool:
    return (
        mark.generation == generation
        and not is_free(mark, now)
        and seen_us >= since_us
        and not mark.holder.startswith(OLD_CLIENTS)
    )


# --- sub-leases (rule L6) -------------------------------------------------------------
#
# A database remembers. Redis may be flushed, evicted, restarted empty, or replaced by a
# replica that missed the last writes. So the database grants it a range of ticks,
# ``[fence, ceiling)``, and it grants windows inside that range only. Whatever it forgets lies
# below the ceiling, where the next generation begins.


@dataclass(frozen=True, slots=True)
class SubLease:
    """What the database has lent to the current generation of a registry. Frozen."""

    installation: str
    generation: int
    fence: int
    """The first tick that may be lent."""
    ceiling: int
    """The first tick that may not; it only rises. Not past the fence: nothing is lent yet."""
    incarnation: str = ""
    """Which life of the registry the generation was opened for."""

    @property
    def is_laid(self) -> bool:
        """Whether anything may be lent; not so before the first use, and after a loss (L7)."""
        return self.ceiling > self.fence

    def serves(self, other: SubLease) -> bool:
        """Whether ``other`` is of the same generation: a fence tells more than a number."""
        return (self.generation, self.fence, self.incarnation) == (
            other.generation,
            other.fence,
            other.incarnation,
        )

    def opened(self, incarnation: str, *, now: int, stride: int) -> SubLease:
        """The sub-lease of ``incarnation``; a new generation if it has none.

        An earlier generation lent nothing at or past its ceiling.
        """
        if self.is_laid and self.incarnation == incarnation:
            return self
        if not self.ceiling:  # nothing was ever lent
            fence, generation = self.fence, self.generation
        else:
            fence, generation = max(self.fence, self.ceiling, now), self.generation + 1
        return replace(
            self,
            generation=generation,
            fence=fence,
            ceiling=max(fence, now) + stride,
            incarnation=incarnation,
        )

    def lifted(self, *, wanted: int, stride: int) -> SubLease:
        """The sub-lease with its ceiling ``stride`` past ``wanted``, the latest tick in use."""
        return replace(self, ceiling=max(self.ceiling, max(self.fence, wanted) + stride))

    def raised_for(self, seen: SubLease, *, now: int, wanted: int, stride: int) -> SubLease:
        """The sub-lease after a user of generation ``seen`` asked for a higher ceiling.

        Only the current generation is lifted. After a loss of the database it has no ticks; then
        the process that asks first gets some, past all that it knows to have been lent.
        """
        if not self.is_laid:
            known = replace(self, fence=max(self.fence, seen.ceiling))
            return known.opened(seen.incarnation, now=now, stride=stride)
        return self.lifted(wanted=wanted, stride=stride) if self.serves(seen) else self


SubLeaseChange = Callable[[SubLease], SubLease]


def reaching(namespace: Namespace, stride: int) -> Namespace:
    """``namespace`` with the largest window to reckon with after a loss of its sub-lease (L7).

    A lost update may have raised the ceiling a stride past the fence or the time. Another one may
    have opened a generation there: that is a stride more.
    """
    return replace(namespace, window_ticks=namespace.window_ticks + 2 * stride)

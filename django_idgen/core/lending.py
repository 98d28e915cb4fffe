"""What a registry that sees all its rows at once does: lend, extend, take back.

Each function is one transaction over a :class:`LeaseBook`: the caller holds the
lock (or the write transaction) and undoes everything if it raises. The windows
come from the rules in :mod:`.lease`; here stands what surrounds them, so that
the registries in memory and in a file can't differ in it.

Loss of rows is noticed by counting. A record says how many worker ids were ever
lent; if fewer rows are there, some were deleted, and all that is left of them is
the record's high-water mark. Then a new generation begins at a fence past every
window that was ever granted, and the tokens of the old one are void.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .choice import choose_worker
from .errors import LeaseLost, NamespaceMismatch, NoFreeWorker
from .lease import (
    OLD_CLIENTS,
    Lease,
    Mark,
    Namespace,
    extend_window,
    final_mark,
    grant_window,
    is_free,
    loss_fence,
    new_token,
    soon,
)

__all__ = [
    "NOT_WHOLE",
    "LeaseBook",
    "Record",
    "check_fingerprint",
    "extend",
    "extend_seen",
    "fingerprint_text",
    "held_by",
    "lend",
    "opened_record",
    "rename_holders",
    "take_back",
]


NOT_WHOLE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a namespace as a whole. Frozen; all moments in ticks."""

    fingerprint: str
    """JSON of :attr:`Namespace.fingerprint`; empty if it isn't known any more."""
    generation: int
    fence: int
    """Nothing below this tick is granted."""
    largest_window: int
    workers_made: int
    """How many worker ids were ever lent; fewer rows than that shows a loss.

    :data:`NOT_WHOLE` in a record that may lag behind what was lent.
    """
    highest_until: int
    """The end of the latest window ever granted."""


class LeaseBook(Protocol):
    """The rows of one namespace, as seen inside one transaction."""

    def record(self) -> Record | None: ...

    def save_record(self, record: Record) -> None: ...

    def was_opened(self) -> bool:
        """Whether the namespace ever had a record, or still has rows."""
        ...

    def next_generation(self) -> int:
        """A number that no generation of this namespace had yet."""
        ...

    def count(self) -> int:
        """How many worker ids have a row."""
        ...

    def highest_until(self) -> int:
        """The highest ``until`` of the rows; 0 if there is none."""
        ...

    def mark(self, worker: int) -> Mark | None: ...

    def save_mark(self, mark: Mark) -> None: ...

    def save_end(self, mark: Mark) -> None:
        """Save the ``until`` of a mark that is there; its holder was not seen by that."""
        ...

    def seen(self, since_us: int) -> Sequence[Mark]:
        """The marks whose holders were seen at or after ``since_us`` (µs since 1970)."""
        ...

    def held(self, now: int, generation: int, by: int) -> Collection[int]:
        """The worker ids that are not free at tick ``now``, and those that end past ``by``."""
        ...

    def previous(self, holder: str) -> Sequence[int]:
        """The worker ids that ``holder``, or one of its identity, had; the latest first.

        See :func:`.holder.identity_of`.
        """
        ...

    def note_lent(self, mark: Mark) -> None:
        """Write down that ``mark`` was lent, where it is kept who held what."""
        ...


def lend(
    book: LeaseBook,
    namespace: Namespace,
    *,
    now: int,
    holder: str,
    not_before: int = 0,
    avoid: int | None = None,
) -> Lease:
    """Grant a free worker id at tick ``now``. Raises as :meth:`LeaseRegistry.acquire`."""
    record = opened_record(book, namespace, now)

    def is_held(worker: int) -> bool:
        mark = book.mark(worker)
        # A mark of an earlier generation is void: the fence is past its window.
        return mark is not None and mark.generation == record.generation and not is_free(mark, now)

    def ends(worker: int) -> int:
        mark = book.mark(worker)
        return mark.until if mark else 0

    def choose(by: int = namespace.max_ticks) -> int:
        return choose_worker(
            namespace,
            previous=book.previous(holder),
            avoid=avoid,
            is_held=lambda worker: is_held(worker) or ends(worker) > by,
            held=lambda: book.held(now, record.generation, by),
        )

    try:
        worker = choose(soon(namespace, now=now, fence=record.fence, not_before=not_before))
    except NoFreeWorker:
        worker = choose()
    old = book.mark(worker)
    start, until = grant_window(
        namespace,
        old,
        now=now,
        fence=record.fence,
        highest=record.highest_until,
        not_before=not_before,
    )
    mark = Mark(worker, new_token(), start, until, record.generation, holder)
    _save(book, namespace, replace(record, workers_made=book.count() + (old is None)), mark)
    book.note_lent(mark)
    return Lease(namespace.name, worker, mark.token, start, until, mark.generation)


def extend(
    book: LeaseBook, namespace: Namespace, lease: Lease, *, now: int, last_tick: int
) -> Lease:
    """Move the end of a held window up. Raises :class:`LeaseLost`."""
    found = _found(book, namespace, lease)
    if found is None:
        raise lost(lease)
    record, mark = found
    until = extend_window(namespace, mark, now=now, last_tick=last_tick)
    _save(book, namespace, record, replace(mark, until=until))
    return Lease(namespace.name, mark.worker, mark.token, mark.start, until, mark.generation)


def extend_seen(book: LeaseBook, namespace: Namespace, *, now: int, since_us: int) -> int:
    """Extend what is held, not lapsed, and whose holder was seen since; how many there were."""
    record = book.record()
    if record is None or book.count() < record.workers_made:
        return 0  # the next who acquires opens a new generation
    check_fingerprint(namespace, record.fingerprint)
    marks = [
        mark
        for mark in book.seen(since_us)
        if mark.generation == record.generation
        and not is_free(mark, now)
        and not mark.holder.startswith(OLD_CLIENTS)
    ]
    for mark in marks:
        until = extend_window(namespace, mark, now=now, last_tick=mark.start)
        book.save_end(replace(mark, until=until))
        record = replace(record, highest_until=max(record.highest_until, until))
    if marks:
        book.save_record(
            replace(record, largest_window=max(record.largest_window, namespace.reach_ticks))
        )
    return len(marks)


def held_by(book: LeaseBook, namespace: Namespace, holder: str) -> list[Lease]:
    """The leases that stand in ``holder``'s name, lapsed or not; the earliest first."""
    record = book.record()
    marks = [book.mark(worker) for worker in reversed(book.previous(holder))]
    current = [
        mark
        for mark in marks
        if mark
        and record
        and mark.token
        and mark.holder == holder
        and mark.generation == record.generation
    ]
    return [
        Lease(namespace.name, mark.worker, mark.token, mark.start, mark.until, mark.generation)
        for mark in sorted(current, key=lambda mark: mark.start)
    ]


def rename_holders(
    book: LeaseBook, namespace: Namespace, *, now: int, rename: Callable[[str], str | None]
) -> int:
    """Give holders of what is held the label that ``rename`` says (None: leave it); how many."""
    record, count = book.record(), 0
    by = namespace.max_ticks
    for worker in book.held(now, record.generation, by) if record else ():
        mark = book.mark(worker)
        label = mark and rename(mark.holder)
        if mark and label:
            book.save_mark(replace(mark, holder=label))
            count += 1
    return count


def take_back(
    book: LeaseBook, namespace: Namespace, lease: Lease, *, last_tick: int | None
) -> bool:
    """Free a worker id; False (and nothing changed) if ``lease`` no longer holds it."""
    found = _found(book, namespace, lease)
    if found is None:
        return False
    mark = found[1]
    book.save_mark(replace(mark, token="", until=final_mark(mark, last_tick)))
    return True


def lost(lease: Lease) -> LeaseLost:
    """The error that says so, for any registry."""
    return LeaseLost(
        f"The lease of worker id {lease.worker} of namespace {lease.namespace!r} (ticks "
        f"{lease.start} to {lease.until}) is not known to the registry any more: it was given "
        f"back, lapsed and was lent to another, or its row was deleted. What is left of its "
        f"window is still this process' own; after that acquire a new lease."
    )


def fingerprint_text(namespace: Namespace) -> str:
    """The fingerprint as JSON, equal for equal fingerprints."""
    return json.dumps(dict(namespace.fingerprint), sort_keys=True, default=str)


def check_fingerprint(namespace: Namespace, stored: str) -> None:
    """Raise :class:`NamespaceMismatch` naming the first setting that differs."""
    if not stored or stored == fingerprint_text(namespace):
        return
    # Through JSON and back: a tuple there is a list here.
    theirs, ours = json.loads(stored), json.loads(fingerprint_text(namespace))
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) != ours.get(key):
            raise NamespaceMismatch(namespace.name, key, theirs.get(key), ours.get(key))


def _found(book: LeaseBook, namespace: Namespace, lease: Lease) -> tuple[Record, Mark] | None:
    """What is stored of ``lease``, if it still stands; all that may count of it."""
    record = book.record()
    mark = book.mark(lease.worker) if lease.worker in namespace.workers else None
    if record is None or mark is None or not _is_current(record, mark, lease):
        return None
    return record, mark


def _is_current(record: Record, mark: Mark, lease: Lease) -> bool:
    return bool(lease.token) and (mark.token, mark.start, mark.generation, record.generation) == (
        lease.token,
        lease.start,
        lease.generation,
        lease.generation,
    )


def opened_record(book: LeaseBook, namespace: Namespace, now: int) -> Record:
    """The record of the namespace, a new or (after a loss) a mended one; not saved yet.

    Raises :class:`NamespaceMismatch`.
    """
    record = book.record()
    if record is None:
        if not book.was_opened():
            return Record(fingerprint_text(namespace), book.next_generation(), 0, 0, 0, 0)
        return _reopened(book, namespace, Record("", 0, 0, 0, 0, 0), now)
    check_fingerprint(namespace, record.fingerprint)
    if book.count() < record.workers_made:
        return _reopened(book, namespace, record, now)
    return record


def _reopened(book: LeaseBook, namespace: Namespace, known: Record, now: int) -> Record:
    fence = max(known.fence, known.highest_until, book.highest_until())
    # A whole record says exactly what the clock can only estimate.
    if not known.generation or known.workers_made == NOT_WHOLE:
        estimated = loss_fence(
            namespace, now=now, fence=known.fence, largest_window=known.largest_window
        )
        fence = max(fence, estimated)
    return replace(
        known,
        fingerprint=fingerprint_text(namespace),
        generation=book.next_generation(),
        fence=fence,
    )


def _save(book: LeaseBook, namespace: Namespace, record: Record, mark: Mark) -> None:
    book.save_record(
        replace(
            record,
            largest_window=max(record.largest_window, namespace.reach_ticks),
            highest_until=max(record.highest_until, mark.until),
        )
    )
    book.save_mark(mark)

"""Snowflakes for rows that exist, with the moments when the rows were created.

Leases end in the future, so no lease can give such an id. These come from *worker ids that
nothing lends or ever lent*, which the operator names. Before an id is written anywhere, its tick is
recorded in the book of the namespace (:func:`~django_idgen.core.book.claim`).

No id comes twice:

* **Against leases.** The settings must not lend the worker ids, nor use one for degraded
  processes. A claim is refused in a process whose settings differ from the stored ones, and where
  generators of one namespace keep it in several books. What the book has lent under earlier
  settings is an era of it, and a claim begins past that. The other way round, a claim is an era,
  too: when ``idgen_doctor`` moves settings, or the book to another database, it takes all eras
  along and begins past them. The book can't know what another registry has lent before it, or what
  a degraded process made: the operator answers for that.
* **Against other tables, runs and projects of the book.** A claim is one transaction with the
  namespace locked. It begins at the first tick that no claim of its worker id has reached, and is
  stored as the new end. So two runs never have one tick, be it at once or one after another; a
  table whose rows are older than that end needs another worker id.
* **After a crash.** The claim is committed first, on a connection of its own: the ids of a batch
  that was not written are a gap. A claim whose answer was lost is one, too.
* **After a loss that the book notices**, such as a failover, a lost record or a lost installation:
  eras may be lost, so no tick below the fence can be claimed any more.
* **After a loss that it can't notice**, such as a restored backup: claims may be forgotten. A run
  begins past the highest id in its own column, and past what it claimed itself. A repeat within
  the table that even this would miss is refused by the primary key that the switch makes. Other
  tables are safe with other worker ids; the page says to choose these after a restore.

Ids rise with the creation times, since rows are read in that order, and each batch begins in a
tick past the last batch's. So a burst of rows takes as many ticks as it needs. A row that comes
late, such as one of a transaction that took long, gets a tick that is later by :data:`LATE` at
most, or one of another worker id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from ...core.book import check_fingerprint, fingerprint_text
from ...core.clock import SYSTEM_CLOCK, moment
from ...core.errors import ConfigurationError
from ...core.store import StoredBook
from ...core.stored import Era, Stored, layout_of, unused_from
from ...process.maps import current_settings, generator_settings, registries
from ...settings.config import GeneratorSettings
from .marks import layout_by_time

LATE = timedelta(hours=1)
"""How much later than its row the id of a row may be that comes after later ones."""
MOST_WORKERS = 1024


class PastIds:
    """Ids of the generator ``entry`` for moments of the past, from the worker ids ``workers``.

    ``book`` is that of its namespace. For one thread.
    """

    def __init__(self, entry: GeneratorSettings, book: StoredBook, workers: range) -> None:
        self.layout = entry.layout
        self._entry = entry
        self._book = book
        self._workers = workers
        self._worker = -1
        """The worker id of the last batch, the first tick that it has left, its latest moment."""
        self._left = 0
        self._latest_us = 0

    def begin_above(self, highest: int, created_us: int) -> None:
        """Go on where an earlier run stopped: its highest id, and the moment of that row."""
        parts = self.layout.unpack(highest)
        self._worker, self._left, self._latest_us = parts.worker, parts.tick + 1, created_us

    def check(self, first_us: int, last_us: int) -> None:
        """Raise :class:`ConfigurationError` unless these moments (µs since 1970) have ids.

        As far as that can be known before a tick is claimed. Raises what the registry raises, and
        :class:`NamespaceMismatch`.
        """
        self._check_times(first_us, last_us)
        stored = self._book.read()
        if stored is not None and stored.fingerprint:
            check_fingerprint(self._book.namespace, fingerprint_text(stored.fingerprint))
            self._choose(stored, first_us)

    def take(self, created: Sequence[int]) -> list[int]:
        """An id for each of these moments (µs since 1970), which rise, and they rise, too.

        Raises :class:`ConfigurationError`, and what the registry raises.
        """
        self._check_times(created[0], created[-1])
        layout = self.layout
        ids: list[int] = []

        def claim(stored: Stored, now_us: int) -> Era:
            worker, start = self._choose(stored, created[0])
            places = list(_places(map(self._tick, created), start, layout.sequences))
            self._refuse_ahead(places[-1][0], now_us)
            ids[:] = [layout.pack(tick, worker, sequence) for tick, sequence in places]
            return Era(layout_of(stored.fingerprint), range(worker, worker + 1), places[-1][0] + 1)

        era = self._book.claim(claim)
        self._worker, self._left, self._latest_us = era.workers.start, era.until, created[-1]
        return ids

    def _choose(self, stored: Stored, first_us: int) -> tuple[int, int]:
        """The worker id for rows from ``first_us`` on, and the tick at which they begin.

        That of the last batch, or the one that leaves the least of the past unused.
        """
        first = self._tick(first_us)
        # Past the last batch, as its rows are older; unless rows begin with older ones again.
        above = self._left if first_us >= self._latest_us else 0
        left = unused_from(stored, self._workers)
        if self._worker in left:
            left[self._worker] = start = max(left[self._worker], self._left)
            late = -(-LATE // timedelta(microseconds=self.layout.tick_us))
            if start <= max(first + late, above):
                return self._worker, max(start, 1)
        fitting = {worker: tick for worker, tick in left.items() if tick <= first}
        if not fitting:
            raise ConfigurationError(
                f"A row was created at {_text(first_us)}, but worker ids {self._workers.start} to "
                f"{self._workers.stop - 1} may have made ids of later moments: another table has "
                f"used them, a registry has lent them, or the database has lost something of the "
                f"namespace, which closes the past. Name others with --workers, which nothing "
                f"lends or ever lent and no table has used; if the migrations are written, there. "
                f"If there are none, give the table a generator with a NAMESPACE of its own."
            )
        worker = max(fitting, key=lambda each: (fitting[each], each))
        return worker, max(fitting[worker], above, 1)

    def _tick(self, us: int) -> int:
        return (us - self.layout.epoch_us) // self.layout.tick_us

    def _check_times(self, first_us: int, last_us: int) -> None:
        alias, epoch_us = self._entry.alias, self.layout.epoch_us
        if first_us < epoch_us:
            raise ConfigurationError(
                f"The first row was created at {_text(first_us)}, before the EPOCH of generator "
                f"{alias!r}, {_text(epoch_us)}. Give the table a generator with a NAMESPACE of "
                f"its own and an earlier EPOCH, and name it with --generator."
            )
        if last_us > SYSTEM_CLOCK.wall_ns() // 1000 + int(self._entry.skew_limit * 1e6):
            raise ConfigurationError(
                f"A row was created at {_text(last_us)}, which is in the future: no id can have "
                f"that time. Correct the row, or name another column of dates with --created-from."
            )

    def _refuse_ahead(self, tick: int, now_us: int) -> None:
        ahead_us = self.layout.epoch_us + tick * self.layout.tick_us - now_us
        if ahead_us > self._entry.skew_limit * 1e6:
            raise ConfigurationError(
                f"So many rows were created at once that the last ids would be "
                f"{ahead_us / 1e6:.0f} s in the future. Run this again when that time has passed."
            )


def past_ids(generator: str, workers: range) -> PastIds:
    """Ids of ``generator`` from ``workers``, which nothing may lend or ever have lent.

    Raises :class:`ConfigurationError` if the settings lend one of them, or if the namespace is
    not kept in one database of this project.
    """
    entry = generator_settings(generator)
    layout_by_time(generator)
    users = [
        each for each in current_settings().generators.values() if each.namespace == entry.namespace
    ]
    _check_workers(entry, users, workers)
    book = registries[generator].stored_book()
    if book is None or "workers" not in book.namespace.fingerprint:
        raise ConfigurationError(
            f"The worker ids of generator {generator!r} are not kept in a database of this "
            "project, which would have to record these ids. Give the table a generator whose "
            "LEASES are DatabaseLeases, with a NAMESPACE of its own."
        )
    for user in users:
        other = registries[user.alias].stored_book()
        if other is None or other.key != book.key:
            raise ConfigurationError(
                f"Generators {generator!r} and {user.alias!r} share NAMESPACE "
                f"{entry.namespace!r}, but their LEASES keep it in two places. Neither would know "
                "the ids that the other one records. Give the table a generator with a NAMESPACE "
                "of its own."
            )
    return PastIds(entry, book, workers)


def _places(ticks: Iterable[int], start: int, sequences: int) -> Iterator[tuple[int, int]]:
    """A tick and sequence for each of ``ticks``, rising from ``start`` on; a full tick ends."""
    tick, sequence = start, 0
    for wanted in ticks:
        if wanted > tick or sequence == sequences:
            tick, sequence = max(wanted, tick + 1), 0
        yield tick, sequence
        sequence += 1


def _check_workers(
    entry: GeneratorSettings, users: Iterable[GeneratorSettings], workers: range
) -> None:
    """Raise :class:`ConfigurationError` unless ``users`` of the namespace need no ``workers``."""
    count = len(entry.layout.workers)
    if not 0 <= workers.start < workers.stop <= min(count, workers.start + MOST_WORKERS):
        raise ConfigurationError(
            f"--workers FIRST END must be worker ids of the layout, 0 <= FIRST < END <= {count}, "
            f"and at most {MOST_WORKERS} of them."
        )
    for user in users:
        taken, degraded = user.workers, user.backend.options.get("degraded_worker")
        overlaps = max(taken.start, workers.start) < min(taken.stop, workers.stop)
        if overlaps or degraded in workers:
            also = "" if degraded is None else f" and has degraded_worker {degraded}"
            raise ConfigurationError(
                f"Worker ids {workers.start} to {workers.stop - 1} are in use: generator "
                f"{user.alias!r} lends {taken.start} to {taken.stop - 1}{also}. Give the table a "
                f"generator with a NAMESPACE of its own, whose LEASES leave some out of 'workers' "
                f"from the start ([0, {count - 1}] leaves out the last), and name these."
            )


def _text(us: int) -> str:
    return moment(us).isoformat().replace("+00:00", "Z")

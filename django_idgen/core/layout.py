"""Bit layouts: how time, worker id and sequence share the 63 bits of an id.

Every function here is pure and exact: moments are whole microseconds, never
floats. Presets and settings are read in :mod:`.presets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from . import bitfields
from .bitfields import MAX_BITS, Pairs, is_int
from .errors import InvalidId, LayoutError, TimeExhausted, TimeOutOfRange, WorkerOutOfRange
from .moments import MAX_UNIX_US, aware_us, brief_date, duration, moment

__all__ = ["BitLayout", "IdParts"]


@dataclass(frozen=True, slots=True)
class IdParts:
    """An id taken apart. Frozen, freely shared."""

    id: int
    tick: int
    """Ticks of the layout since its epoch."""
    worker: int
    worker_parts: Mapping[str, int] = field(hash=False)
    """The worker id's named parts, highest first; empty if the layout names none."""
    sequence: int
    batch: int
    """0 if the layout has no such field."""
    created: datetime
    """The moment the tick began, aware, in UTC."""


@dataclass(frozen=True, slots=True)
class BitLayout:
    """A split of at most 63 bits into time, worker id and sequence.

    ``fields`` are pairs of a name (``time``, ``worker``, ``sequence`` and, if wanted,
    ``batch``) and a number of bits, highest bits first::

        63 62           time           22 21  worker  12 11  sequence  0
        +-+------------------------------+--------------+---------------+
        |0|           41 bits            |   10 bits    |    12 bits    |
        +-+------------------------------+--------------+---------------+

    Any order will do in which ``sequence`` and ``batch`` lie below ``time``: else
    the ids of one generator could not rise. ``time`` needs a bit, the others may
    have none. ``tick_us`` is the length of a tick in whole microseconds, 1000 (1 ms)
    or more; ``epoch_us`` the moment of tick 0, in microseconds since 1970.
    ``worker_parts`` names the parts that a worker id is made of, highest first.

    Frozen, hashable, safe to share between threads. Raises :class:`LayoutError`.
    """

    fields: Pairs
    tick_us: int
    epoch_us: int
    name: str = "custom"
    worker_parts: Pairs = ()

    bits: int = field(init=False, repr=False, compare=False)
    """Bits in all: every id is below ``2**bits``."""
    time_shift: int = field(init=False, repr=False, compare=False)
    worker_shift: int = field(init=False, repr=False, compare=False)
    sequence_shift: int = field(init=False, repr=False, compare=False)
    batch_shift: int = field(init=False, repr=False, compare=False)
    max_ticks: int = field(init=False, repr=False, compare=False)
    """``2**time_bits``: no tick at or past it exists."""
    workers: range = field(init=False, repr=False, compare=False)
    """Every worker id that fits."""
    sequences: int = field(init=False, repr=False, compare=False)
    """Ids of one worker (and batch) in one tick."""
    batches: int = field(init=False, repr=False, compare=False)
    time_is_top: bool = field(init=False, repr=False, compare=False)
    """Whether ids of all workers sort by time: nothing lies above it."""
    _end_tick: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = bitfields.pairs("fields", self.fields)
        parts = bitfields.pairs("worker_parts", self.worker_parts)
        bitfields.check_fields(fields)
        bitfields.check_parts(parts, dict(fields)["worker"])
        bitfields.check_time(self.tick_us, self.epoch_us)
        for name, value in (("fields", fields), ("worker_parts", parts), *self._plan(fields)):
            object.__setattr__(self, name, value)

    def _plan(self, fields: Pairs) -> Iterator[tuple[str, object]]:
        # Worked out once, so that a generator reads plain attributes.
        places = bitfields.places(fields)
        bits = sum(count for _, count in fields)
        for name, (shift, _) in places.items():
            yield f"{name}_shift", shift
        time_shift, max_ticks = places["time"]
        yield "bits", bits
        yield "max_ticks", max_ticks
        yield "workers", range(places["worker"][1])
        yield "sequences", places["sequence"][1]
        yield "batches", places["batch"][1]
        yield "time_is_top", max_ticks << time_shift == 1 << bits
        yield "_end_tick", min(max_ticks, (MAX_UNIX_US - self.epoch_us) // self.tick_us + 1)

    # --- packing ------------------------------------------------------------

    def base(self, tick: int, worker: int) -> int:
        """The id of ``tick`` and ``worker`` with sequence and batch 0.

        The fast path: nothing is checked. A tick at or past ``max_ticks`` or a worker
        id outside ``workers`` repeats other ids. :meth:`pack` checks.
        """
        return tick << self.time_shift | worker << self.worker_shift

    def pack(self, tick: int, worker: int, sequence: int = 0, batch: int = 0) -> int:
        """The id made of these parts, each of them checked.

        Raises :class:`TimeExhausted` for a tick past the time bits (or the
        year 9999), :class:`WorkerOutOfRange`, :class:`LayoutError`
        for any other part that doesn't fit, and :class:`InvalidId` for id 0.
        """
        self._check_tick(tick)
        if not is_int(worker) or worker not in self.workers:
            raise WorkerOutOfRange(worker, self.workers)
        self._check_part("sequence", sequence, self.sequences)
        self._check_part("batch", batch, self.batches)
        packed = (
            self.base(tick, worker) | sequence << self.sequence_shift | batch << self.batch_shift
        )
        if not packed:
            raise InvalidId(0, "every part is 0, and id 0 is never issued; begin at sequence 1")
        return packed

    def unpack(self, value: object, *, not_after: datetime | None = None) -> IdParts:
        """Take an id apart.

        With ``not_after`` (aware; normally now, and some slack) an id made later is
        refused: it is of another layout or epoch. Raises :class:`InvalidId`;
        :class:`TimeOutOfRange` if ``not_after`` is not an aware datetime.
        """
        number = self._check_id(value)
        tick = number >> self.time_shift & self.max_ticks - 1
        worker = number >> self.worker_shift & len(self.workers) - 1
        return IdParts(
            id=number,
            tick=tick,
            worker=worker,
            worker_parts=self._split_worker(worker),
            sequence=number >> self.sequence_shift & self.sequences - 1,
            batch=number >> self.batch_shift & self.batches - 1,
            created=self._created(number, tick, not_after),
        )

    # --- moments ------------------------------------------------------------

    @property
    def exhausted_at(self) -> datetime:
        """The first moment that no longer fits, aware, in UTC; at most ``datetime.max``."""
        return moment(min(self.epoch_us + self.max_ticks * self.tick_us, MAX_UNIX_US))

    def min_id_at(self, when: datetime) -> int:
        """The smallest id made at ``when`` (aware) or later; 1 before the epoch.

        Raises :class:`TimeOutOfRange` past the end of the layout or for a
        naive datetime, :class:`LayoutError` if time is not the top field.
        """
        # Upwards: a tick that began before the moment is before it.
        tick = -((self.epoch_us - self._ordered_us(when)) // self.tick_us)
        if tick >= self._end_tick:
            raise TimeOutOfRange(
                f"{when.isoformat()} is past the end of layout {self.name!r}: its last tick "
                f"begins at {self._last_tick_at().isoformat()}. No id was made that late."
            )
        return max(1, tick << self.time_shift)

    def max_id_at(self, when: datetime) -> int:
        """The largest id made at ``when`` (aware) or before; past the end, the largest of all.

        Raises :class:`TimeOutOfRange` before the epoch or for a naive
        datetime, :class:`LayoutError` if time is not the top field.
        """
        tick = (self._ordered_us(when) - self.epoch_us) // self.tick_us
        largest = (min(tick, self._end_tick - 1) + 1 << self.time_shift) - 1
        # Without any lower bits tick 0 has no id but 0, which is never issued.
        if largest < 1:
            raise TimeOutOfRange(
                f"{when.isoformat()} is before the first id of layout {self.name!r}, whose "
                f"epoch is {moment(self.epoch_us).isoformat()}. No id was made that early."
            )
        return largest

    def check_epoch(self, now_us: int) -> None:
        """Raise :class:`LayoutError` if ``now_us`` (µs since 1970) is before the epoch."""
        if self.epoch_us > now_us:
            raise LayoutError(
                f"The epoch {moment(self.epoch_us).isoformat()} of layout {self.name!r} is in "
                f"the future (it is {moment(now_us).isoformat()}), so ids would be negative. "
                f"Choose an EPOCH in the past, such as the day the project began."
            )

    # --- description --------------------------------------------------------

    def fingerprint(self) -> dict[str, object]:
        """What would repeat ids if it changed, as values that survive a trip through JSON.

        The name and the worker's parts are left out: they only say how an id is read.
        """
        return {
            "fields": [[name, bits] for name, bits in self.fields],
            "tick_us": self.tick_us,
            "epoch_us": self.epoch_us,
        }

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {bits}" for name, bits in self.worker_parts)
        columns = " | ".join(
            f"{name} {bits} ({parts})" if name == "worker" and parts else f"{name} {bits}"
            for name, bits in self.fields
        )
        return f"{columns}, {duration(self.tick_us)} ticks from {brief_date(self.epoch_us)}"

    # --- checks -------------------------------------------------------------

    def _check_tick(self, tick: int) -> None:
        if not is_int(tick) or tick < 0:
            raise LayoutError(
                f"A tick of layout {self.name!r} must be a whole number from 0 up, not {tick!r}. "
                f"A moment before the epoch {moment(self.epoch_us).isoformat()} has none."
            )
        if tick >= self._end_tick:
            raise TimeExhausted(
                f"Tick {tick} does not fit layout {self.name!r}, whose last is "
                f"{self._end_tick - 1}. Move to a layout with more time bits or a later epoch."
            )

    def _check_part(self, name: str, value: int, end: int) -> None:
        if not is_int(value) or not 0 <= value < end:
            raise LayoutError(
                f"{name} {value!r} does not fit layout {self.name!r} ({self}): it must be a whole "
                f"number of 0 to {end - 1}. A larger one would leak into the neighbouring bits."
            )

    def _check_id(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidId(value, f"an id is an int, and this is a {type(value).__name__}")
        if value <= 0:
            raise InvalidId(value, "ids begin at 1")
        if value > 2**MAX_BITS - 1:
            raise InvalidId(value, "ids end at 2**63 - 1")
        if value >= 1 << self.bits:
            raise InvalidId(
                value, f"it is not an id of layout {self.name!r}, which has {self.bits} bits"
            )
        return value

    def _created(self, value: int, tick: int, not_after: datetime | None) -> datetime:
        if tick >= self._end_tick:
            raise InvalidId(
                value, f"its time is past the year 9999, so it is not of layout {self.name!r}"
            )
        created_us = self.epoch_us + tick * self.tick_us
        if not_after is not None and created_us > aware_us(not_after):
            raise InvalidId(
                value,
                f"it claims to be made in the future, at {moment(created_us).isoformat()} "
                f"(after {not_after.isoformat()}), so it is of another layout or epoch "
                f"than {self.name!r} ({self})",
            )
        return moment(created_us)

    def _ordered_us(self, when: datetime) -> int:
        if not self.time_is_top:
            raise LayoutError(
                f"Ids of layout {self.name!r} ({self}) are not ordered by time: "
                f"{self.fields[0][0]!r} lies above it, so no range of ids is a range of time. "
                f"Compare the unpacked 'created', or choose a layout with time on top."
            )
        return aware_us(when)

    def _split_worker(self, worker: int) -> dict[str, int]:
        left = len(self.workers).bit_length() - 1
        split = {}
        for name, bits in self.worker_parts:
            left -= bits
            split[name] = worker >> left & (1 << bits) - 1
        return split

    def _last_tick_at(self) -> datetime:
        return moment(self.epoch_us + (self._end_tick - 1) * self.tick_us)

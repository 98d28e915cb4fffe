"""Bit layouts: how time, worker id and sequence share the 63 bits of an id.

Every function here is pure and exact: moments are whole microseconds, never floats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import TypeGuard, cast

from .clock import MAX_UNIX_US, aware_us, brief_date, duration, is_aware, moment, unix_us
from .errors import InvalidId, LayoutError, TimeExhausted, TimeOutOfRange, WorkerOutOfRange

FIELD_NAMES = ("time", "worker", "sequence", "batch")
_REQUIRED = ("time", "worker", "sequence")
_BELOW_TIME = ("sequence", "batch")
MAX_BITS = 63
"""The 64th is the sign: with it an id would be negative."""
MIN_TICK_US = 1000

Pairs = tuple[tuple[str, int], ...]
"""Names and their numbers of bits, highest bits first."""


def is_int(value: object) -> TypeGuard[int]:
    """Whether it is an int and no bool: ``True`` is a slip, not a 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def pairs(what: str, value: Iterable[object]) -> Pairs:
    """``value`` as a tuple of pairs: a name and a number of bits, 0 to 63."""
    try:
        result = tuple((name, bits) for name, bits in cast("Pairs", value))
    except (TypeError, ValueError):
        raise LayoutError(
            f"{what} must be pairs of a name and a number of bits, such as "
            f"(('time', 41), ('worker', 10), ('sequence', 12)), not {value!r}."
        ) from None
    for name, bits in result:
        _check_bits(what, name, bits)
    names = [name for name, _ in result]
    for name in names:
        if names.count(name) > 1:
            raise LayoutError(f"{name!r} occurs {names.count(name)} times in {what}. Name it once.")
    return result


def check_fields(fields: Pairs) -> None:
    """Raise :class:`LayoutError` unless these fields make positive, rising 64-bit ids."""
    names = [name for name, _ in fields]
    for name in names:
        if name not in FIELD_NAMES:
            raise LayoutError(
                f"{name!r} is not a field of a layout. Known: {', '.join(FIELD_NAMES)}."
            )
    for name in _REQUIRED:
        if name not in names:
            raise LayoutError(
                f"The layout {dict(fields)!r} has no {name!r}. It needs {', '.join(_REQUIRED)}; "
                "worker and sequence may have 0 bits."
            )
    if dict(fields)["time"] < 1:
        raise LayoutError("'time' needs at least 1 bit, not 0.")
    total = sum(bits for _, bits in fields)
    if total > MAX_BITS:
        raise LayoutError(
            f"The layout {dict(fields)!r} has {total} bits. At most {MAX_BITS} fit, because ids "
            f"are positive 64-bit integers. Remove {total - MAX_BITS}."
        )
    for name in _BELOW_TIME:
        if name in names and names.index(name) < names.index("time"):
            raise LayoutError(
                f"{name!r} is above 'time' in the layout ({' | '.join(names)}), so the ids of one "
                f"generator could not rise. Put 'time' before it."
            )


def check_parts(parts: Pairs, worker_bits: int) -> None:
    """Raise :class:`LayoutError` unless the parts, if any, add up to the worker id."""
    for name, _ in parts:
        if not name.isidentifier():
            raise LayoutError(
                f"The worker part {name!r} needs a name such as 'datacenter': letters, digits "
                f"and underscores."
            )
    total = sum(bits for _, bits in parts)
    if parts and total != worker_bits:
        raise LayoutError(
            f"The worker parts {dict(parts)!r} have {total} bits, but worker has "
            f"{worker_bits}. They must be equal."
        )


def check_time(tick_us: int, epoch_us: int) -> None:
    """Raise :class:`LayoutError` unless tick and epoch (both in µs) are possible."""
    if not is_int(tick_us) or tick_us < MIN_TICK_US:
        raise LayoutError(
            f"A tick must be a whole number of microseconds, {MIN_TICK_US} (1 ms) or more, "
            f"not {tick_us!r}."
        )
    if not is_int(epoch_us) or epoch_us < 0:
        raise LayoutError(
            f"An epoch must be a whole number of microseconds since 1970, from 0 up, "
            f"not {epoch_us!r}."
        )
    # A datetime ends there, and a layout of one tick has no time.
    if epoch_us + tick_us > MAX_UNIX_US:
        raise LayoutError(
            f"With an epoch of {epoch_us} µs since 1970 and ticks of {tick_us} µs, tick 1 would "
            f"begin past the year 9999. Choose a shorter tick or an earlier epoch."
        )


def places(fields: Pairs) -> dict[str, tuple[int, int]]:
    """For each of ``FIELD_NAMES`` its shift and its number of values; ``(0, 1)`` if absent."""
    result = dict.fromkeys(FIELD_NAMES, (0, 1))
    shift = 0
    for name, bits in reversed(fields):
        result[name] = (shift, 1 << bits)
        shift += bits
    return result


def _check_bits(what: str, name: object, bits: object) -> None:
    if not isinstance(name, str):
        raise LayoutError(f"A name in {what} must be a string, not {name!r}.")
    if not is_int(bits) or not 0 <= bits <= MAX_BITS:
        raise LayoutError(
            f"{name!r} in {what} needs a whole number of bits, 0 to {MAX_BITS}, not {bits!r}."
        )


@dataclass(frozen=True, slots=True)
class IdParts:
    """The parts of an id. Frozen."""

    id: int
    tick: int
    """Ticks of the layout since its epoch."""
    worker: int
    worker_parts: Mapping[str, int] = field(hash=False)
    """The named parts of the worker id, highest first; empty if the layout names none."""
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

    ``sequence`` and ``batch`` must be below ``time``: otherwise the ids of one generator could not
    rise. Any other order works. ``time`` needs a bit, the others may have none. ``tick_us`` is
    the length of a tick in whole microseconds, 1000 (1 ms) or more; ``epoch_us`` is the moment
    of tick 0, in microseconds since 1970. ``worker_parts`` names the parts of a worker id,
    highest first.

    Frozen and hashable. Raises :class:`LayoutError`.
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
    """Whether ids of all workers sort by time."""
    _end_tick: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fields = pairs("fields", self.fields)
        parts = pairs("worker_parts", self.worker_parts)
        check_fields(fields)
        check_parts(parts, dict(fields)["worker"])
        check_time(self.tick_us, self.epoch_us)
        for name, value in (("fields", fields), ("worker_parts", parts), *self._plan(fields)):
            object.__setattr__(self, name, value)

    def _plan(self, fields: Pairs) -> Iterator[tuple[str, object]]:
        # Computed once, so that a generator reads plain attributes.
        spots = places(fields)
        bits = sum(count for _, count in fields)
        for name, (shift, _) in spots.items():
            yield f"{name}_shift", shift
        time_shift, max_ticks = spots["time"]
        yield "bits", bits
        yield "max_ticks", max_ticks
        yield "workers", range(spots["worker"][1])
        yield "sequences", spots["sequence"][1]
        yield "batches", spots["batch"][1]
        yield "time_is_top", max_ticks << time_shift == 1 << bits
        yield "_end_tick", min(max_ticks, (MAX_UNIX_US - self.epoch_us) // self.tick_us + 1)

    # --- packing ------------------------------------------------------------

    def base(self, tick: int, worker: int) -> int:
        """The id of ``tick`` and ``worker`` with sequence and batch 0.

        The fast path checks nothing: a tick at or past ``max_ticks`` or a worker id outside
        ``workers`` repeats other ids. :meth:`pack` checks.
        """
        return tick << self.time_shift | worker << self.worker_shift

    def pack(self, tick: int, worker: int, sequence: int = 0, batch: int = 0) -> int:
        """The id of these parts, with checks.

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

        Refuses an id made later than ``not_after`` (aware; normally now and some slack), which
        belongs to another layout or epoch. Raises :class:`InvalidId`, and
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

    @property
    def longer(self) -> str:
        """The ``LAYOUT`` that lasts twice as long by a worker bit; empty if there is none."""
        bits = dict(self.fields)
        if not bits["worker"]:
            return ""
        bits |= {"time": bits["time"] + 1, "worker": bits["worker"] - 1}
        tick, rest = divmod(self.tick_us, 1_000_000)
        return str({**bits, "tick": tick if not rest else self.tick_us / 1e6})

    def min_id_at(self, when: datetime) -> int:
        """The smallest id made at ``when`` (aware) or later; 1 before the epoch.

        Raises :class:`TimeOutOfRange` past the end of the layout or for a
        naive datetime, :class:`LayoutError` if time is not the top field.
        """
        # Rounded up: a tick that began before the moment is before it.
        tick = -((self.epoch_us - self._ordered_us(when)) // self.tick_us)
        if tick >= self._end_tick:
            last = moment(self.epoch_us + (self._end_tick - 1) * self.tick_us)
            raise TimeOutOfRange(
                f"{when.isoformat()} is past the end of layout {self.name!r}: its last tick "
                f"begins at {last.isoformat()}. No id was made that late."
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
        """Everything whose change would repeat ids, as JSON values.

        Without the name and the worker's parts, which only say how to read an id.
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
                f"number of 0 to {end - 1}. A larger one would change the neighbouring bits."
            )

    def _check_id(self, value: object) -> int:
        if not is_int(value):
            raise InvalidId(value, f"an id is an int, not a {type(value).__name__}")
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
                f"its time is in the future, {moment(created_us).isoformat()} (after "
                f"{not_after.isoformat()}), so it has another layout or epoch than {self.name!r} "
                f"({self})",
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


# --- layouts as settings write them ---------------------------------------------------

DEFAULT_EPOCH = "2025-01-01T00:00:00Z"
DEFAULT_TICK_US = 1000

PRESETS: Mapping[str, tuple[Pairs, int]] = MappingProxyType(
    {
        # Twitter, Leaf, finger-mark.
        "standard": ((("time", 41), ("worker", 10), ("sequence", 12)), 1000),
        # 53 bits: every id is exact in a JavaScript number.
        "js_safe": ((("time", 38), ("worker", 7), ("sequence", 8)), 10_000),
        # Sony calls the worker the machine.
        "sonyflake": ((("time", 39), ("sequence", 8), ("worker", 16)), 10_000),
        # Baidu's uid-generator.
        "uid": ((("time", 28), ("worker", 22), ("sequence", 13)), 1_000_000),
        # The article's; the code of Bee has batch 9 and sequence 13.
        "pear_flower": (
            (("time", 31), ("batch", 3), ("worker", 10), ("sequence", 19)),
            1_000_000,
        ),
    }
)
"""Name: fields (highest bits first) and the length of a tick in microseconds."""

_KEYS = ("time", "batch", "worker", "sequence", "tick")
_SHORTEST = Decimal(MIN_TICK_US) / 1_000_000
_LONGEST = Decimal(MAX_UNIX_US) / 1_000_000


def parse_layout(spec: object, *, epoch: object = None) -> BitLayout:
    """The layout that a setting describes.

    ``spec`` is the name of one of ``PRESETS``, or a mapping of field names to bits, highest
    first, such as
    ``{"time": 41, "worker": {"datacenter": 5, "machine": 5}, "sequence": 12, "tick": 0.001}``.
    ``batch`` is optional and divides the ids of a tick. ``tick`` is in seconds (int, float or
    ``Decimal``), a whole number of microseconds; 1 ms by default. ``epoch`` is an ISO 8601
    string with a time zone, an aware datetime, or None for ``DEFAULT_EPOCH``.
    :meth:`BitLayout.check_epoch` checks that it lies in the past.

    Raises :class:`LayoutError`.
    """
    epoch_us = _epoch_us(DEFAULT_EPOCH if epoch is None else epoch)
    if isinstance(spec, str):
        fields, tick_us = _preset(spec)
        return BitLayout(fields, tick_us=tick_us, epoch_us=epoch_us, name=spec)
    if isinstance(spec, Mapping):
        return _custom(spec, epoch_us)
    raise LayoutError(
        f"A layout is one of {_preset_names()}, or a mapping such as "
        f"{{'time': 41, 'worker': 10, 'sequence': 12, 'tick': 0.001}}, not {spec!r}."
    )


def _preset(name: str) -> tuple[Pairs, int]:
    try:
        return PRESETS[name]
    except KeyError:
        raise LayoutError(
            f"There is no layout {name!r}. Known: {_preset_names()}; or give a mapping of "
            f"{', '.join(_KEYS)}."
        ) from None


def _custom(spec: Mapping[object, object], epoch_us: int) -> BitLayout:
    for key in spec:
        if key not in _KEYS:
            raise LayoutError(f"{key!r} is not a key of a layout. Known: {', '.join(_KEYS)}.")
    parts = _worker_parts(spec.get("worker"))
    bits = {key: value for key, value in spec.items() if key != "tick"}
    if parts:
        bits["worker"] = sum(count for _, count in parts)
    fields = pairs("the layout", bits.items())
    tick_us = _tick_us(spec["tick"]) if "tick" in spec else DEFAULT_TICK_US
    return BitLayout(fields, tick_us=tick_us, epoch_us=epoch_us, worker_parts=parts)


def _worker_parts(worker: object) -> Pairs:
    if not isinstance(worker, Mapping):
        return ()
    if not worker:
        raise LayoutError(
            "'worker' is empty. Give it a number of bits, or parts such as "
            "{'datacenter': 5, 'machine': 5}."
        )
    return pairs("worker", worker.items())


def _tick_us(tick: object) -> int:
    if isinstance(tick, bool) or not isinstance(tick, int | float | Decimal):
        raise _bad_tick(tick)
    # Through its text: 0.001 means the decimal, not the nearest binary fraction.
    seconds = Decimal(str(tick)) if isinstance(tick, float) else Decimal(tick)
    # Check the bounds first: the exact fraction of 1e999999999 would fill the memory.
    if not seconds.is_finite() or not _SHORTEST <= seconds <= _LONGEST:
        raise _bad_tick(tick)
    micros = Fraction(seconds) * 1_000_000
    if micros.denominator != 1:
        raise _bad_tick(tick)
    return int(micros)


def _bad_tick(tick: object) -> LayoutError:
    return LayoutError(
        f"'tick' must be a number of seconds, 0.001 or more, in whole microseconds, not {tick!r}."
    )


def _epoch_us(epoch: object) -> int:
    value = epoch
    if isinstance(epoch, str):
        try:
            value = datetime.fromisoformat(epoch)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or not is_aware(value):
        raise LayoutError(
            f"An epoch must be an ISO 8601 string with a time zone, such as {DEFAULT_EPOCH!r}, "
            f"or an aware datetime, not {epoch!r}."
        )
    micros = unix_us(value)
    if micros < 0:
        raise LayoutError(f"An epoch must be 1970-01-01T00:00:00Z or later, not {str(epoch)!r}.")
    return micros


def _preset_names() -> str:
    return ", ".join(repr(name) for name in PRESETS)

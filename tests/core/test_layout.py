"""Bit layouts: packing, unpacking, moments, and every way to get one wrong."""

from __future__ import annotations

import dataclasses
import json
import pickle
from ast import literal_eval
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_idgen.core.clock import MAX_UNIX_US, moment, unix_us
from django_idgen.core.errors import (
    InvalidId,
    LayoutError,
    TimeExhausted,
    TimeOutOfRange,
    WorkerOutOfRange,
)
from django_idgen.core.layout import PRESETS, BitLayout, IdParts, parse_layout
from tests.tables import refused

EPOCH_2025 = 1_735_689_600_000_000
STANDARD_FIELDS = (("time", 41), ("worker", 10), ("sequence", 12))
STANDARD = BitLayout(STANDARD_FIELDS, tick_us=1000, epoch_us=EPOCH_2025, name="standard")
WORKER_ON_TOP = BitLayout(
    (("worker", 4), ("time", 20), ("sequence", 8)), tick_us=1000, epoch_us=EPOCH_2025
)
NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@st.composite
def layouts(draw: st.DrawFn, max_bits: int = 63) -> BitLayout:
    """Any layout that the rules allow, of at most ``max_bits`` bits."""
    time = draw(st.integers(1, max_bits))
    left = max_bits - time
    lower = {}
    for name in ("worker", "sequence", "batch"):
        lower[name] = draw(st.integers(0, left))
        left -= lower[name]
    if draw(st.booleans()):
        del lower["batch"]
    names = draw(st.permutations(list(lower)))
    if draw(st.booleans()):
        names = [name for name in names if name != "worker"]
        order = ["worker", "time", *names]
    else:
        order = ["time", *names]
    bits = {"time": time, **lower}
    tick_us = draw(st.sampled_from([1000, 1001, 10_000, 1_000_000, 3_600_000_000]))
    epoch_us = draw(st.integers(0, 4_000_000_000_000_000))
    parts: tuple[tuple[str, int], ...] = ()
    if draw(st.booleans()):
        high = draw(st.integers(0, bits["worker"]))
        parts = (("datacenter", high), ("machine", bits["worker"] - high))
    return BitLayout(
        tuple((name, bits[name]) for name in order),
        tick_us=tick_us,
        epoch_us=epoch_us,
        worker_parts=parts,
    )


def last_tick(layout: BitLayout) -> int:
    return min(layout.max_ticks - 1, (MAX_UNIX_US - layout.epoch_us) // layout.tick_us)


@st.composite
def packed(draw: st.DrawFn) -> tuple[BitLayout, int, int, int, int]:
    layout = draw(layouts())
    tick = draw(st.integers(0, last_tick(layout)))
    worker = draw(st.integers(0, layout.workers.stop - 1))
    sequence = draw(st.integers(0, layout.sequences - 1))
    batch = draw(st.integers(0, layout.batches - 1))
    if not (tick or worker or sequence or batch):
        tick = 1
    return layout, tick, worker, sequence, batch


# --- round trips ------------------------------------------------------------


@given(packed())
def test_what_was_packed_is_unpacked(case: tuple[BitLayout, int, int, int, int]) -> None:
    """Every part comes back from the id as it went in, in any layout.

    The named parts of a worker id, highest first, make it up. And ``base`` with the sequence
    and batch put in by hand, as the fast path has it, is what ``pack`` makes.
    """
    layout, tick, worker, sequence, batch = case
    packed_id = layout.pack(tick, worker, sequence, batch)
    parts = layout.unpack(packed_id)
    assert (parts.id, parts.tick, parts.worker) == (packed_id, tick, worker)
    assert (parts.sequence, parts.batch) == (sequence, batch)
    assert unix_us(parts.created) == layout.epoch_us + tick * layout.tick_us
    assert parts.created.tzinfo is UTC
    assert 1 <= packed_id < 2**layout.bits <= 2**63
    assert list(parts.worker_parts) == [name for name, _ in layout.worker_parts]
    if parts.worker_parts:
        (_, _), (_, low_bits) = layout.worker_parts
        datacenter, machine = parts.worker_parts["datacenter"], parts.worker_parts["machine"]
        assert (datacenter << low_bits) + machine == worker
        assert machine < 2**low_bits
    by_hand = layout.base(tick, worker)
    by_hand += (sequence << layout.sequence_shift) + (batch << layout.batch_shift)
    assert by_hand == packed_id


@given(layouts(max_bits=63), st.data())
def test_what_was_unpacked_is_packed(layout: BitLayout, data: st.DataObject) -> None:
    """An id that unpacks is made by its parts alone: no two sets of parts share one."""
    number = data.draw(st.integers(1, 2**layout.bits - 1))
    try:
        parts = layout.unpack(number)
    except InvalidId:
        assert layout.epoch_us + layout.max_ticks * layout.tick_us > MAX_UNIX_US
        return
    assert layout.pack(parts.tick, parts.worker, parts.sequence, parts.batch) == number


@given(layouts(), st.data())
def test_ids_of_one_worker_rise_with_tick_and_sequence(
    layout: BitLayout, data: st.DataObject
) -> None:
    """I2: whatever the order of the fields, a later (tick, sequence) is a larger id."""
    worker = data.draw(st.integers(0, layout.workers.stop - 1))
    moments = st.tuples(st.integers(1, last_tick(layout)), st.integers(0, layout.sequences - 1))
    earlier, later = sorted(data.draw(st.tuples(moments, moments)))
    low = layout.pack(earlier[0], worker, earlier[1])
    high = layout.pack(later[0], worker, later[1])
    assert (low < high) is (earlier < later)


@given(layouts(), st.data())
def test_ids_of_all_workers_rise_with_time_where_time_is_top(
    layout: BitLayout, data: st.DataObject
) -> None:
    """With time on top a later tick is a larger id, whoever made it; else not always."""
    tick = data.draw(st.integers(1, last_tick(layout)))
    highest_of_before = layout.base(tick - 1, layout.workers.stop - 1)
    lowest_of_tick = layout.base(tick, 0)
    if layout.time_is_top:
        assert highest_of_before < lowest_of_tick
    else:
        assert layout.workers.stop > 1
        assert highest_of_before > lowest_of_tick


# --- moments against brute force --------------------------------------------


@given(layouts(max_bits=7), st.data())
def test_bounds_of_a_moment_agree_with_brute_force(layout: BitLayout, data: st.DataObject) -> None:
    """``min_id_at`` and ``max_id_at`` are what a search through every id would find."""
    end = layout.epoch_us + layout.max_ticks * layout.tick_us
    near = st.builds(
        lambda tick, offset: layout.epoch_us + tick * layout.tick_us + offset,
        st.integers(-1, layout.max_ticks + 1),
        st.sampled_from([-1, 0, 1]),
    )
    when = moment(data.draw(near | st.integers(layout.epoch_us - 5000, end + 5000)))
    if not layout.time_is_top:
        with pytest.raises(LayoutError, match="'worker' lies above"):
            layout.min_id_at(when)
        with pytest.raises(LayoutError, match="not ordered by time"):
            layout.max_id_at(when)
        return
    created = {number: layout.unpack(number).created for number in range(1, 2**layout.bits)}
    late = [number for number, made in created.items() if made >= when]
    early = [number for number, made in created.items() if made <= when]
    if late:
        assert layout.min_id_at(when) == min(late)
    else:
        with pytest.raises(TimeOutOfRange, match="past the end"):
            layout.min_id_at(when)
    if early:
        assert layout.max_id_at(when) == max(early)
    else:
        with pytest.raises(TimeOutOfRange, match="before the first id"):
            layout.max_id_at(when)


def test_bounds_are_pinned_for_the_standard_layout() -> None:
    """A second after the epoch is tick 1000; half a tick later ids begin at 1001.

    The same moment in another zone gives the same ids.
    """
    second = datetime(2025, 1, 1, 0, 0, 1, tzinfo=UTC)
    half_a_tick_on = second + timedelta(microseconds=500)
    assert STANDARD.min_id_at(second) == 1000 << 22
    assert STANDARD.max_id_at(second) == (1001 << 22) - 1
    assert STANDARD.min_id_at(half_a_tick_on) == 1001 << 22
    assert STANDARD.max_id_at(half_a_tick_on) == (1001 << 22) - 1
    there = datetime(2025, 1, 1, 5, 30, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert STANDARD.min_id_at(there) == 1000 << 22


def test_bounds_before_the_epoch_and_past_the_end() -> None:
    """Before the epoch all ids are later; past the end all are earlier."""
    before = datetime.min.replace(tzinfo=UTC)
    assert STANDARD.min_id_at(before) == 1
    assert STANDARD.max_id_at(END_OF_TIME) == 2**63 - 1
    with pytest.raises(TimeOutOfRange, match=r"0001-01-01.*2025-01-01"):
        STANDARD.max_id_at(before)
    with pytest.raises(TimeOutOfRange, match="9999-12-31"):
        STANDARD.min_id_at(END_OF_TIME)


def test_the_largest_id_of_a_layout_past_the_year_9999_can_be_unpacked() -> None:
    """Bounds only name ids that unpack: a tick past 9999 has no datetime."""
    wide = BitLayout(
        (("time", 61), ("worker", 1), ("sequence", 1)), tick_us=1000, epoch_us=EPOCH_2025
    )
    largest = wide.max_id_at(END_OF_TIME)
    assert wide.unpack(largest).created <= END_OF_TIME
    with pytest.raises(InvalidId, match="past the year 9999"):
        wide.unpack(largest + 1)
    with pytest.raises(TimeExhausted, match="whose last is"):
        wide.pack((largest >> 2) + 1, 0)
    with pytest.raises(TimeOutOfRange, match="past the end"):
        wide.min_id_at(END_OF_TIME)


@pytest.mark.parametrize("name", PRESETS)
def test_a_layout_names_one_that_lasts_twice_as_long(name: str) -> None:
    """As settings have it, with half as many worker ids; none where there is only one."""
    layout = parse_layout(name)
    longer = parse_layout(literal_eval(layout.longer))
    assert longer.max_ticks == 2 * layout.max_ticks
    assert len(longer.workers) == len(layout.workers) // 2
    assert (longer.bits, longer.tick_us) == (layout.bits, layout.tick_us)
    assert [kind for kind, _ in longer.fields] == [kind for kind, _ in layout.fields]
    alone = parse_layout({"time": 41, "worker": 0, "sequence": 12})
    assert alone.longer == ""


def test_bounds_refuse_what_is_no_aware_datetime() -> None:
    """A moment without a time zone could be off by a day: it is refused, with its value."""
    for naive in (NAIVE, date(2025, 6, 1), "2025-06-01", 0, None):
        for bound in (STANDARD.min_id_at, STANDARD.max_id_at):
            error = refused(TimeOutOfRange, bound, naive, match="time zone is needed")
            assert repr(naive) in str(error)


ENDS = {
    "standard": datetime(2094, 9, 7, 15, 47, 35, 552000, tzinfo=UTC),
    "uid": datetime(2033, 7, 4, 21, 24, 16, tzinfo=UTC),
    "js_safe": datetime(2112, 2, 9, 13, 44, 29, 440000, tzinfo=UTC),
    "sonyflake": datetime(2199, 3, 19, 3, 28, 58, 880000, tzinfo=UTC),
}


def test_the_end_of_a_layout_is_known_exactly() -> None:
    """I7: the moment after the last tick, so that years of warning can be given.

    2**61 ms is past the year 9999: there it is the last datetime that there is.
    """
    for preset, end in ENDS.items():
        layout = parse_layout(preset)
        assert (layout.exhausted_at, layout.exhausted_at.tzinfo) == (end, UTC)
        last = layout.unpack(2**layout.bits - 1)
        assert last.created == end - timedelta(microseconds=layout.tick_us)
    wide = BitLayout((("time", 61), ("worker", 1), ("sequence", 1)), tick_us=1000, epoch_us=0)
    assert wide.exhausted_at == END_OF_TIME


# --- pinned vectors ---------------------------------------------------------


def test_an_id_of_twitter_is_taken_apart() -> None:
    """The post 1541815603606036480 was made on 2022-06-28 at 16:07:40.105 by machine 378."""
    twitter = BitLayout(
        STANDARD_FIELDS,
        tick_us=1000,
        epoch_us=1_288_834_974_657_000,
        name="twitter",
        worker_parts=(("datacenter", 5), ("machine", 5)),
    )
    parts = twitter.unpack(1541815603606036480)
    assert parts == IdParts(
        id=1541815603606036480,
        tick=367597485448,
        worker=378,
        worker_parts={"datacenter": 11, "machine": 26},
        sequence=0,
        batch=0,
        created=datetime(2022, 6, 28, 16, 7, 40, 105000, tzinfo=UTC),
    )
    assert twitter.pack(367597485448, 378) == 1541815603606036480


def test_an_id_of_discord_is_taken_apart() -> None:
    """175928847299117063 of Discord's manual: worker 1, process 0, increment 7."""
    discord = parse_layout(
        {"time": 41, "worker": {"worker": 5, "process": 5}, "sequence": 12},
        epoch="2015-01-01T00:00:00Z",
    )
    parts = discord.unpack(175928847299117063)
    assert parts.created == datetime(2016, 4, 30, 11, 18, 25, 796000, tzinfo=UTC)
    assert parts.worker_parts == {"worker": 1, "process": 0}
    assert parts.sequence == 7


PACKED = [
    ("standard", 1, 1, 1, 0x401001),
    ("standard", 2**41 - 1, 1023, 4095, 2**63 - 1),
    ("js_safe", 1, 1, 1, 0x8101),
    ("js_safe", 2**38 - 1, 127, 255, 2**53 - 1),
    ("sonyflake", 1, 1, 1, 0x1010001),
    ("sonyflake", 2, 0xABCD, 0x7F, 0x27FABCD),
    ("uid", 1, 1, 1, 0x800002001),
    ("uid", 2**28 - 1, 2**22 - 1, 2**13 - 1, 2**63 - 1),
]
DESCRIBED = {
    "standard": (63, 1000, "time 41 | worker 10 | sequence 12, 1 ms ticks"),
    "js_safe": (53, 10_000, "time 38 | worker 7 | sequence 8, 10 ms ticks"),
    "sonyflake": (63, 10_000, "time 39 | sequence 8 | worker 16, 10 ms ticks"),
    "uid": (63, 1_000_000, "time 28 | worker 22 | sequence 13, 1 s ticks"),
}


def test_presets_pack_as_their_originals_do() -> None:
    """Vectors worked out by hand: each field stands where the original has it."""
    for preset, tick, worker, sequence, expected in PACKED:
        layout = parse_layout(preset)
        assert layout.pack(tick, worker, sequence) == expected
        assert layout.unpack(expected).worker == worker


def test_presets_have_the_stated_bits() -> None:
    """Each preset has the fields, bits and tick of its table, and says so."""
    for preset, (bits, tick_us, text) in DESCRIBED.items():
        layout = parse_layout(preset)
        assert (layout.name, layout.bits, layout.tick_us) == (preset, bits, tick_us)
        assert layout.time_is_top
        assert str(layout) == f"{text} from 2025-01-01"


def test_a_layout_with_a_batch_puts_it_where_it_was_named() -> None:
    """Pear-flower's 31/3/10/19: the batch lies between the time and the worker."""
    layout = BitLayout(
        (("time", 31), ("batch", 3), ("worker", 10), ("sequence", 19)),
        tick_us=1_000_000,
        epoch_us=EPOCH_2025,
    )
    assert layout.pack(1, 1, 1, batch=1) == 2**32 + 2**29 + 2**19 + 1
    assert layout.unpack(2**32 + 5 * 2**29).batch == 5


def test_the_text_of_a_layout_is_exact() -> None:
    """Odd ticks and epochs aren't rounded away; it names the parts of the worker."""
    fields = (("time", 1), ("worker", 0), ("sequence", 0))
    text = "time 1 | worker 0 | sequence 0, "
    odd, long = BitLayout(fields, 1500, 1000), BitLayout(fields, 60_000_000, 0)
    assert str(odd).startswith(f"{text}1500 µs ticks from 1970-01-01T00:00:00.001")
    assert str(long).startswith(f"{text}60 s ticks from 1970-01-01")
    parted = parse_layout({"time": 41, "worker": {"dc": 4, "machine": 6}, "sequence": 12})
    assert "worker 10 (dc 4, machine 6) |" in str(parted)


# --- the value --------------------------------------------------------------


def test_a_layout_is_a_frozen_hashable_value() -> None:
    """Equal layouts are equal keys; nothing can be changed, not even what was worked out."""
    twin = BitLayout([list(pair) for pair in STANDARD_FIELDS], 1000, EPOCH_2025, "standard")  # type: ignore[arg-type]
    assert twin == STANDARD
    assert hash(twin) == hash(STANDARD)
    for name in ("tick_us", "time_shift", "workers"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(twin, name, 5)


def test_a_layout_and_its_parts_can_be_pickled() -> None:
    """Both reach another process whole."""
    copy = pickle.loads(pickle.dumps(STANDARD))
    assert copy == STANDARD
    assert copy.pack(5, 6, 7) == STANDARD.pack(5, 6, 7)
    parts = STANDARD.unpack(2**40)
    assert pickle.loads(pickle.dumps(parts)) == parts
    assert hash(parts) == hash(STANDARD.unpack(2**40))


def test_a_replaced_layout_is_worked_out_anew() -> None:
    """``dataclasses.replace`` leaves no shift of the old layout behind."""
    narrow = dataclasses.replace(
        STANDARD, fields=(("time", 41), ("worker", 3), ("sequence", 4)), name="narrow"
    )
    assert (narrow.time_shift, narrow.workers, narrow.bits) == (7, range(8), 48)


def test_the_fingerprint_changes_with_whatever_would_repeat_ids() -> None:
    """I8: order, bits, tick and epoch; not the name, nor how a worker id is read."""
    base = parse_layout("standard")
    same = parse_layout({"time": 41, "worker": {"dc": 5, "machine": 5}, "sequence": 12})
    assert same.fingerprint() == base.fingerprint()
    assert json.loads(json.dumps(base.fingerprint())) == base.fingerprint()
    others = [
        parse_layout({"time": 41, "sequence": 12, "worker": 10}),
        parse_layout({"time": 41, "worker": 11, "sequence": 11}),
        parse_layout({"time": 41, "worker": 10, "sequence": 12, "tick": 0.002}),
        parse_layout("standard", epoch="2025-01-01T00:00:00.001Z"),
    ]
    prints = [json.dumps(layout.fingerprint()) for layout in (base, *others)]
    assert len(set(prints)) == len(prints)


# --- refusing parts ---------------------------------------------------------


def test_a_part_that_does_not_fit_is_refused() -> None:
    """Hazards 9, 37: no part leaks into its neighbour, nor is a tick before the epoch packed."""
    for part in (-1, True, 1.0, "1", None):
        refused(LayoutError, STANDARD.pack, part, 1, match="from 0 up, not")
        refused(LayoutError, STANDARD.pack, 1, 1, part, match=r"sequence .* 0 to 4095")
        error = refused(WorkerOutOfRange, STANDARD.pack, 1, part, match=r"outside 0\.\.1023")
        assert error.worker is part
    refused(WorkerOutOfRange, STANDARD.pack, 1, 1024, match=r"outside 0\.\.1023")
    refused(LayoutError, STANDARD.pack, 1, 1, 4096, match=r"sequence .* 0 to 4095")
    refused(LayoutError, STANDARD.pack, 1, 1, 1, batch=1, match="batch 1 does not fit")


def test_a_tick_past_the_time_bits_is_refused() -> None:
    """I7: the id would not fit in 63 bits."""
    assert STANDARD.pack(2**41 - 1, 0) < 2**63
    with pytest.raises(TimeExhausted, match=f"Tick {2**41}.*last is {2**41 - 1}"):
        STANDARD.pack(2**41, 0)


def test_the_id_zero_is_never_packed() -> None:
    """L5: the very first id of worker 0 is 1."""
    with pytest.raises(InvalidId, match="id 0 is never issued"):
        STANDARD.pack(0, 0, 0)
    assert STANDARD.pack(0, 0, 1) == 1


# --- refusing ids -----------------------------------------------------------


def test_what_is_no_id_is_refused() -> None:
    """I7: only ints from 1 on that fit a signed 64-bit column; others are named with their type."""
    for value in (None, True, False, 1.0, "1", b"1", Decimal(1), [1]):
        words = f"not a {type(value).__name__}"
        error = refused(InvalidId, STANDARD.unpack, value, match=words)
        assert error.value is value
    for value in (0, -1, -(2**63)):
        refused(InvalidId, STANDARD.unpack, value, match="begin at 1")
    assert STANDARD.unpack(2**63 - 1).id == 2**63 - 1
    for value in (2**63, 2**64 - 1, 2**200):
        refused(InvalidId, STANDARD.unpack, value, match=r"2\*\*63 - 1")


def test_an_id_too_wide_for_the_layout_is_refused() -> None:
    """An id of the standard layout is not read as one of 53 bits."""
    js_safe = parse_layout("js_safe")
    assert js_safe.unpack(2**53 - 1).worker == 127
    with pytest.raises(InvalidId, match="not an id of layout 'js_safe', which has 53 bits"):
        js_safe.unpack(2**53)


def test_an_id_from_the_future_is_refused_if_asked() -> None:
    """An id made later than now is of another layout or epoch; a naive now is not guessed."""
    made = datetime(2025, 1, 1, 0, 0, 1, tzinfo=UTC)
    number = STANDARD.pack(1000, 5)
    assert STANDARD.unpack(number, not_after=made).created == made
    with pytest.raises(InvalidId, match=r"time is in the future.*00:00:01.*or epoch"):
        STANDARD.unpack(number, not_after=made - timedelta(microseconds=1))
    with pytest.raises(TimeOutOfRange, match="time zone is needed"):
        STANDARD.unpack(1, not_after=NAIVE)


# --- refusing layouts -------------------------------------------------------


IMPOSSIBLE_FIELDS: list[tuple[Any, str]] = [
    ([("time", 41), ("worker", 10), ("sequence", 13)], "64 bits. At most 63 fit.*Remove 1"),
    ([("time", 0), ("worker", 10), ("sequence", 12)], "'time' needs at least 1 bit"),
    ([("time", -1), ("worker", 10), ("sequence", 12)], "'time'.*0 to 63, not -1"),
    ([("time", 41), ("worker", True), ("sequence", 12)], "'worker'.*not True"),
    ([("time", 41), ("worker", 10.0), ("sequence", 12)], "'worker'.*not 10.0"),
    ([("time", 41), ("worker", "10"), ("sequence", 12)], "'worker'.*not '10'"),
    ([("time", 41), ("worker", None), ("sequence", 12)], "'worker'.*not None"),
    ([("time", 64), ("worker", 0), ("sequence", 0)], "'time'.*not 64"),
    ([("time", 41), ("machine", 10), ("sequence", 12)], "'machine' is not a field.*worker"),
    ([("time", 41), ("time", 1), ("sequence", 12)], "'time' occurs 2 times"),
    ([("worker", 10), ("sequence", 12)], "has no 'time'"),
    ([("time", 41), ("sequence", 12)], "has no 'worker'.*may have 0 bits"),
    ([("time", 41), ("worker", 10)], "has no 'sequence'"),
    ([], "has no 'time'"),
    ([("sequence", 12), ("time", 41), ("worker", 10)], "'sequence' is above 'time'"),
    (
        [("batch", 2), ("time", 41), ("worker", 8), ("sequence", 12)],
        "'batch' is above 'time'.*could not rise",
    ),
    ([(5, 41)], "must be a string, not 5"),
    ([("time",)], "must be pairs"),
    (None, "must be pairs.*not None"),
    (7, "must be pairs"),
]
IMPOSSIBLE_PARTS: list[tuple[Any, str]] = [
    ((("datacenter", 5), ("machine", 4)), "have 9 bits, but worker has 10"),
    ((("a", 5), ("a", 5)), "'a' occurs 2 times"),
    ((("data center", 5), ("machine", 5)), "'data center' needs a name"),
    ((("", 5), ("machine", 5)), "'' needs a name"),
    ((("a", -5), ("b", 15)), "not -5"),
    ("ab", "must be pairs"),
]


def test_impossible_fields_are_refused() -> None:
    """Each with the value, and what is allowed."""
    for fields, message in IMPOSSIBLE_FIELDS:
        refused(LayoutError, BitLayout, fields, match=message, tick_us=1000, epoch_us=0)


def standard(**options: Any) -> BitLayout:
    return BitLayout(STANDARD_FIELDS, **{"tick_us": 1000, "epoch_us": 0, **options})


def test_impossible_worker_parts_are_refused() -> None:
    """The parts have names of their own and make up the worker id, no more, no less."""
    for parts, message in IMPOSSIBLE_PARTS:
        refused(LayoutError, standard, worker_parts=parts, match=message)


def test_impossible_times_are_refused() -> None:
    """Ticks and epochs are whole µs: a tick of 1 ms or more, an epoch in 1970 or later.

    And tick 1 lies within what a datetime can express.
    """
    for tick_us in (0, 999, -1000, True, 1000.0, "1000", None):
        error = refused(LayoutError, standard, tick_us=tick_us, match=r"1000 \(1 ms\) or more, not")
        assert repr(tick_us) in str(error)
    for epoch_us in (-1, True, 1.5, "0", None):
        words = "since 1970, from 0 up, not"
        error = refused(LayoutError, standard, epoch_us=epoch_us, match=words)
        assert repr(epoch_us) in str(error)
    for tick_us, epoch_us in ((MAX_UNIX_US + 1, 0), (1000, MAX_UNIX_US - 999), (1000, 2**70)):
        options = {"tick_us": tick_us, "epoch_us": epoch_us}
        refused(LayoutError, standard, match="past the year 9999", **options)


def test_an_epoch_in_the_future_is_refused() -> None:
    """Ids made now would be negative: the error names both moments."""
    STANDARD.check_epoch(EPOCH_2025)
    with pytest.raises(LayoutError, match=r"2025-01-01T00.*in the future.*2024-12-31T23.*EPOCH"):
        STANDARD.check_epoch(EPOCH_2025 - 1)


# --- settings ---------------------------------------------------------------


def test_a_mapping_gives_the_bits_in_its_order() -> None:
    """The order of the keys is the order of the bits; the tick may stand anywhere.

    A field without bits lies above nothing.
    """
    layout = parse_layout({"worker": 4, "tick": 0.01, "time": 40, "sequence": 10})
    assert layout.fields == (("worker", 4), ("time", 40), ("sequence", 10))
    assert (layout.name, layout.tick_us, layout.time_is_top) == ("custom", 10_000, False)
    assert (layout.worker_shift, layout.time_shift, layout.sequence_shift) == (50, 10, 0)
    assert parse_layout({"worker": 0, "time": 41, "sequence": 12}).time_is_top


TICKS = [
    (0.001, 1000),
    (0.0015, 1500),
    (Decimal("0.001001"), 1001),
    (1, 1_000_000),
    (1e-2, 10_000),
    (4.35, 4_350_000),
]
NO_TICKS = (
    *(0, 0.0009, -1, 0.0010001, float("nan"), float("inf"), True, "0.001", None),
    *map(Decimal, ("sNaN", "1e999999999", "1e-999999999")),
)


def with_tick(tick: Any) -> BitLayout:
    return parse_layout({"time": 41, "worker": 10, "sequence": 12, "tick": tick})


def test_ticks_in_seconds_are_read_exactly() -> None:
    """4.35 s is 4,350,000 µs, though no binary fraction is; what is not whole is refused."""
    for tick, tick_us in TICKS:
        assert with_tick(tick).tick_us == tick_us
    refused(LayoutError, with_tick, 0.1 + 0.2 - 0.2, match="whole microseconds")


def test_impossible_ticks_in_settings_are_refused() -> None:
    """Too short, not whole, not a number: the value is named, and the shortest tick."""
    for tick in NO_TICKS:
        assert repr(tick) in str(refused(LayoutError, with_tick, tick, match=r"0\.001 or more"))


NO_SETTINGS: list[tuple[Any, str]] = [
    ("snowflake", "no layout 'snowflake'.*'standard', 'js_safe', 'sonyflake', 'uid'"),
    ("Standard", "no layout 'Standard'"),
    ("", "no layout ''"),
    (None, "A layout is one of.*not None"),
    ([("time", 41)], "A layout is one of"),
    (
        {"time": 41, "machine": 10, "sequence": 12},
        "'machine' is not a key.*time, batch, worker",
    ),
    ({"time": 41, "worker": 10, "sequence": 12, "epoch": 0}, "'epoch' is not a key"),
    ({"time": 41, "worker": 10, "sequence": 12, 5: 1}, "5 is not a key"),
    ({"time": 41, "worker": {}, "sequence": 12}, "'worker' is empty"),
    ({"time": 41, "worker": {"dc": "5"}, "sequence": 12}, "'dc' in worker.*not '5'"),
    ({"time": 41, "worker": {"d c": 5}, "sequence": 12}, "'d c' needs a name"),
    ({"time": {"a": 5}, "worker": 10, "sequence": 12}, "'time' in the layout.*not {'a': 5}"),
    ({"time": 41, "worker": 10, "sequence": True}, "'sequence'.*not True"),
    ({"time": 41, "worker": 11, "sequence": 12}, "64 bits"),
    ({"sequence": 12, "time": 41, "worker": 10}, "'sequence' is above 'time'"),
    ({}, "has no 'time'"),
]


def test_settings_that_make_no_layout_are_refused() -> None:
    """Each with the value, and what is allowed."""
    for spec, message in NO_SETTINGS:
        refused(LayoutError, parse_layout, spec, match=message)


def test_an_epoch_may_be_written_in_several_ways() -> None:
    """A string or a datetime, of any time zone, to the last µs; None is the first day of 2025."""
    there = datetime(2024, 12, 31, 19, tzinfo=timezone(timedelta(hours=-5)))
    texts = ("2025-01-01T00:00:00Z", "2025-01-01T01:00:00+01:00")
    for epoch in (*texts, datetime(2025, 1, 1, tzinfo=UTC), there, None):
        assert parse_layout("standard", epoch=epoch).epoch_us == EPOCH_2025
    exact = parse_layout("standard", epoch="2025-01-01T00:00:00.000001Z")
    assert exact.epoch_us == EPOCH_2025 + 1


def test_an_impossible_epoch_in_settings_is_refused() -> None:
    """Naive, unreadable, a bare number, before 1970: named, and an example of what will do."""
    texts = ("2025-01-01", "2025-01-01T00:00:00", "yesterday", "")
    for epoch in (*texts, 1735689600, True, NAIVE):
        words = "with a time zone, such as"
        error = refused(LayoutError, parse_layout, "standard", epoch=epoch, match=words)
        assert repr(epoch) in str(error)
    with pytest.raises(LayoutError, match="or later, not '1969-12-31T23:59:59Z'"):
        parse_layout("standard", epoch="1969-12-31T23:59:59Z")

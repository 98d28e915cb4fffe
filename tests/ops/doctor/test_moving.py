"""From which tick on ids of a layout are new: by trying all of them, and in the usual cases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from django_idgen.core.clock import unix_us
from django_idgen.core.errors import LayoutError
from django_idgen.core.layout import BitLayout, parse_layout
from django_idgen.core.stored import Era, era_of, first_tick, highest_id
from django_idgen.ops.doctor.move import Found, MoveRefused, fence_of

NOW = unix_us(datetime(2026, 11, 22, tzinfo=UTC))
STANDARD = parse_layout("standard")


def era(layout: BitLayout, *, ahead_s: float = 180.0) -> Era:
    """What was lent of ``layout`` until now, and a window ahead."""
    until = (NOW + int(ahead_s * 1e6) - layout.epoch_us) // layout.tick_us
    return Era(layout, layout.workers, until)


def fence(layout: BitLayout, old: Era, found: Found | None = None, *, trust: bool = False) -> int:
    return fence_of(
        layout,
        layout.workers,
        [old],
        now_us=NOW,
        found=found or Found(),
        trust_tables=trust,
    )


def small_layout(chance: random.Random) -> BitLayout:
    while True:
        fields = [
            ("time", chance.randint(1, 5)),
            ("worker", chance.randint(0, 2)),
            ("sequence", chance.randint(0, 2)),
            ("batch", chance.randint(0, 1)),
        ]
        chance.shuffle(fields)
        try:
            return BitLayout(tuple(fields), tick_us=1000, epoch_us=0)
        except LayoutError:
            continue


def small_range(chance: random.Random, layout: BitLayout) -> range:
    first = chance.randrange(len(layout.workers))
    return range(first, chance.randint(first + 1, len(layout.workers)))


def ids_of(layout: BitLayout, ticks: range, workers: range) -> Iterator[int]:
    for tick in ticks:
        for worker in workers:
            for low in range(layout.sequences):
                for batch in range(layout.batches):
                    yield (
                        layout.base(tick, worker)
                        | low << layout.sequence_shift
                        | batch << layout.batch_shift
                    )


def test_no_id_from_that_tick_on_was_made_before() -> None:
    """I1, I8: any two layouts and ranges of worker ids, whatever their bits and order."""
    chance = random.Random(5)
    found = 0
    for _ in range(3000):
        old, new = small_layout(chance), small_layout(chance)
        if chance.random() < 0.2:
            new = old
        before = Era(old, small_range(chance, old), chance.randint(0, old.max_ticks))
        made = set(ids_of(old, range(before.until), before.workers))
        assert max(made, default=-1) <= before.highest
        workers = small_range(chance, new)
        tick = first_tick(new, workers, [before])
        if tick is not None:
            found += 1
            assert made.isdisjoint(ids_of(new, range(tick, new.max_ticks), workers))
        assert max(ids_of(new, range(new.max_ticks), workers)) <= highest_id(
            new, new.max_ticks, workers
        )
    assert found > 1000


def test_the_same_layout_goes_on_where_the_old_one_ended() -> None:
    """However far ahead that is: nothing else would be unique."""
    old = era(STANDARD, ahead_s=10 * 365 * 86_400)
    assert fence(STANDARD, old) == old.until


def test_a_layout_with_higher_ids_begins_at_once() -> None:
    """uid-generator's ids are higher than Twitter's of the same time."""
    uid = parse_layout("uid")
    tick = fence(uid, era(STANDARD))
    assert uid.epoch_us + tick * uid.tick_us < NOW
    assert uid.base(tick, 0) > era(STANDARD).highest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("standard", parse_layout("sonyflake")),
        ("standard", parse_layout("standard", epoch="2026-01-01T00:00:00Z")),
        ("uid", parse_layout("standard")),
    ],
)
def test_one_that_would_begin_years_ahead_is_refused(old: str, new: BitLayout) -> None:
    """With an EPOCH that does it: it is accepted then, a month later, too."""
    with pytest.raises(MoveRefused, match="days ahead") as caught:
        fence(new, era(parse_layout(old)))
    words = str(caught.value)
    if "No epoch solves" in words:
        assert old == "uid"
        return
    epoch = words.partition("EPOCH '")[2].partition("'")[0]
    later = BitLayout(
        new.fields, tick_us=new.tick_us, epoch_us=unix_us(datetime.fromisoformat(epoch))
    )
    assert fence(later, era(parse_layout(old), ahead_s=29 * 86_400)) > 0


def test_lower_ids_need_proof_and_somebodys_word() -> None:
    """From 63 bits to JavaScript's 53: below all old ids, if none lies lower."""
    js_safe = parse_layout("js_safe")
    old = era(STANDARD)
    with pytest.raises(MoveRefused, match="No epoch solves"):
        fence(js_safe, old)
    low, high = Found(2**52, 2**57), Found(2**54, 2**57)
    with pytest.raises(MoveRefused, match="No epoch solves"):
        fence(js_safe, old, low, trust=True)
    with pytest.raises(MoveRefused, match=r"below 2\*\*53") as caught:
        fence(js_safe, old, high)
    assert caught.value.needs == "--trust-tables"
    assert fence(js_safe, old, high, trust=True) == 0
    away = Found(2**54, 2**57, ("gone",))
    with pytest.raises(MoveRefused, match="No epoch solves"):
        fence(js_safe, old, away, trust=True)


def test_ids_in_the_tables_are_gone_past() -> None:
    """Also those that no mark tells of: a row from an earlier layout."""
    new = parse_layout("standard", epoch="2024-01-01T00:00:00Z")
    plain = fence(new, era(STANDARD))
    top = new.base(plain + 1000, 0)
    assert fence(new, era(STANDARD), Found(1, top)) == plain + 1001


def test_what_is_stored_and_can_not_be_read_is_an_error() -> None:
    """Not a fresh start."""
    with pytest.raises(LayoutError, match="can't be read"):
        era_of({"fields": 3}, 5)

"""When a namespace may go on under other settings, and from which tick on.

Ids are unique as long as no id of the new layout, from its fence on, is one of those that
were, or may have been, made under the old one. Where both have the time on top, that is a
tick; where it lies far ahead of the time, ids would be stamped so far ahead, and an earlier
epoch is the way. A layout all of whose ids lie below the old ones needs a proof of how low
those begin, which only tables can give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.errors import IdgenError
from ...core.layout import BitLayout
from ...core.moments import moment
from ...core.stored import Era, epoch_for, first_tick, highest_id, lowest_id

__all__ = ["Found", "MoveRefused", "fence_of"]

HOUR_US = 3_600_000_000
FURTHEST_US = HOUR_US
"""How much further ahead of the time the new ids may begin than the old ones were."""
LEEWAY_US = 30 * 24 * HOUR_US
"""How long an epoch that is proposed will do: the old fleet goes on until it is changed."""


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

"""One layout after another in a namespace: where the next one may begin.

Ids are numbers: two layouts may make the same one out of different parts. So when the
layout, the epoch, the registry or its worker ids change, what was lent so far (an
:class:`Era`) is summed up as a bound on its ids, and the new layout begins at the first
tick from which on none of its ids can be one of them. Pure; all moments in ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import LayoutError
from .layout import BitLayout
from .lease import Namespace

__all__ = [
    "Era",
    "epoch_for",
    "era_of",
    "first_tick",
    "highest_id",
    "in_ticks",
    "layout_of",
    "lowest_id",
    "namespace_of",
]

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Era:
    """What was lent under one set of settings: no tick at or past ``until`` of ``layout``."""

    layout: BitLayout
    workers: range
    until: int

    @property
    def highest(self) -> int:
        """No id of it is above this; -1 if none was made."""
        return highest_id(self.layout, self.until, self.workers) if self.until > 0 else -1


def layout_of(fingerprint: Mapping[str, Any]) -> BitLayout:
    """The layout that a stored fingerprint was written with; its name is not kept.

    Raises :class:`LayoutError` for one that can't be read.
    """
    try:
        return BitLayout(
            fingerprint["fields"], tick_us=fingerprint["tick_us"], epoch_us=fingerprint["epoch_us"]
        )
    except (KeyError, TypeError) as error:
        raise LayoutError(
            f"What is stored of the layout can't be read: {dict(fingerprint)!r}."
        ) from error


def era_of(fingerprint: Mapping[str, Any], until: int) -> Era:
    """The era of a stored fingerprint that ended at tick ``until``.

    Raises :class:`LayoutError` for one that can't be read.
    """
    layout = layout_of(fingerprint)
    first, end = fingerprint.get("workers") or (0, len(layout.workers))
    return Era(layout, range(int(first), int(end)), until)


def highest_id(layout: BitLayout, until: int, workers: range) -> int:
    """No id of these workers with a tick below ``until`` (1 or more) is above this."""
    return (
        layout.base(min(until, layout.max_ticks) - 1, workers.stop - 1)
        | layout.sequences - 1 << layout.sequence_shift
        | layout.batches - 1 << layout.batch_shift
    )


def lowest_id(layout: BitLayout, tick: int, workers: range) -> int:
    """No id of these workers with ``tick`` or a later one is below this."""
    return layout.base(tick, workers.start)


def first_tick(layout: BitLayout, workers: range, eras: Iterable[Era]) -> int | None:
    """The first tick of ``layout`` from which on no id is one of ``eras``.

    None if it has no such tick: then its ids would have to lie below all of theirs.
    """
    ticks = [_past(layout, workers, era) for era in eras]
    tick = max(ticks, default=0)
    return tick if tick < layout.max_ticks else None


def _past(layout: BitLayout, workers: range, era: Era) -> int:
    if era.until <= 0:
        return 0
    if layout.fields == era.layout.fields:
        # The tick can be read off the id, whatever moment it stands for.
        return era.until
    missing = era.highest + 1 - lowest_id(layout, 0, workers)
    return max(0, -(-missing >> layout.time_shift))


def epoch_for(layout: BitLayout, tick: int, now_us: int) -> BitLayout | None:
    """``layout`` with the latest epoch, of midnight, at which ``tick`` is past by ``now_us``.

    None if there is none since 1970, or its time would be used up.
    """
    epoch_us = (now_us - (tick + 1) * layout.tick_us) // _DAY_US * _DAY_US
    if epoch_us < 0 or tick >= layout.max_ticks:
        return None
    moved = replace(layout, epoch_us=epoch_us)
    return moved if (now_us - epoch_us) // layout.tick_us < layout.max_ticks else None


def namespace_of(namespace: Namespace, fingerprint: Mapping[str, Any]) -> Namespace:
    """``namespace`` as those see it who still have the settings of ``fingerprint``.

    Raises :class:`LayoutError` for one that can't be read.
    """
    era = era_of(fingerprint, 0)
    return replace(
        namespace,
        epoch_us=era.layout.epoch_us,
        tick_us=era.layout.tick_us,
        max_ticks=era.layout.max_ticks,
        workers=era.workers,
        window_ticks=max(1, in_ticks(namespace.window_ticks, namespace, era.layout)),
        skew_ticks=in_ticks(namespace.skew_ticks, namespace, era.layout),
        ahead_ticks=in_ticks(namespace.ahead_ticks, namespace, era.layout),
        fingerprint=fingerprint,
    )


def in_ticks(ticks: int, of: Namespace | BitLayout, layout: Namespace | BitLayout) -> int:
    """A length in ticks of the one, in those of the other; rounded up."""
    return -(-ticks * of.tick_us // layout.tick_us)

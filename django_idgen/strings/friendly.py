"""A snowflake as people read it: ``20261121101530123-7-42``, its time, worker id and sequence."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from ..core.clock import unix_us
from ..core.errors import IdgenError, InvalidId
from ..core.layout import BitLayout
from ..process.handlers import generator_settings

__all__ = ["friendly", "from_friendly"]

_FORM = re.compile(r"(\d{17})-(\d{1,19})-(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


def friendly(value: int, *, generator: str = "default", time_zone: tzinfo = UTC) -> str:
    """``value`` taken apart: milliseconds of its time in ``time_zone``, worker id, sequence.

    A layout with ``batch`` bits adds the batch. Raises :class:`InvalidId` for what is no id of
    ``generator``, and :class:`SettingsError` for an unknown one.
    """
    parts = _layout(generator).unpack(value)
    local = parts.created.astimezone(time_zone)
    text = f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}-{parts.worker}-{parts.sequence}"
    return f"{text}-{parts.batch}" if _layout(generator).batches > 1 else text


def from_friendly(text: str, *, generator: str = "default", time_zone: tzinfo = UTC) -> int:
    """The id that :func:`friendly` wrote.

    Raises :class:`InvalidId` for another text. An hour that a zone has twice is the first one:
    write times in UTC where that matters.
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    layout = _layout(generator)
    try:
        if found is None:
            raise ValueError("it is not like 20261121101530123-7-42")
        words = found[1]
        local = datetime.strptime(words[:14], "%Y%m%d%H%M%S").replace(tzinfo=time_zone)
        at_us = unix_us(local + timedelta(milliseconds=int(words[14:])))
        # The millisecond that a tick begins in, or the tick that begins in the millisecond.
        tick = -((layout.epoch_us - at_us) // layout.tick_us)
        value = layout.pack(tick, int(found[2]), int(found[3]), int(found[4] or 0))
    except (ValueError, OverflowError, IdgenError) as error:
        raise InvalidId(text, f"{error}") from error
    return value


def _layout(generator: str) -> BitLayout:
    return generator_settings(generator).layout

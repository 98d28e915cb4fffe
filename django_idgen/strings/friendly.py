"""Snowflakes in a readable form: ``20261121101530123-7-42`` is time, worker id and sequence."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from ..core.clock import unix_us
from ..core.errors import IdgenError, InvalidId
from ..process.maps import generator_settings

_FORM = re.compile(r"(\d{17})-(\d{1,19})-(\d{1,19})(?:-(\d{1,19}))?", re.ASCII)


def friendly(value: int, *, generator: str = "default", time_zone: tzinfo = UTC) -> str:
    """The time of ``value`` to the millisecond in ``time_zone``, its worker id and sequence.

    A layout with ``batch`` bits adds the batch. Raises :class:`InvalidId` if ``value`` is not an id
    of ``generator``, and :class:`SettingsError` for an unknown generator.
    """
    layout = generator_settings(generator).layout
    parts = layout.unpack(value)
    local = parts.created.astimezone(time_zone)
    text = f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}-{parts.worker}-{parts.sequence}"
    return f"{text}-{parts.batch}" if layout.batches > 1 else text


def from_friendly(text: str, *, generator: str = "default", time_zone: tzinfo = UTC) -> int:
    """The id of a text of :func:`friendly`. Raises :class:`InvalidId` for any other text.

    So does a time that ``time_zone`` has twice, or never, where its clocks are changed.
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    layout = generator_settings(generator).layout
    try:
        if found is None:
            raise ValueError("it is not like 20261121101530123-7-42")
        moment = found[1]
        local = datetime.strptime(moment[:14], "%Y%m%d%H%M%S").replace(tzinfo=time_zone)
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            raise ValueError(
                f"{time_zone} has that time twice, or never; write friendly texts in UTC"
            )
        at_us = unix_us(local + timedelta(milliseconds=int(moment[14:])))
        # Round up: the text has the millisecond in which the tick begins.
        tick = -((layout.epoch_us - at_us) // layout.tick_us)
        return layout.pack(tick, int(found[2]), int(found[3]), int(found[4] or 0))
    except (ValueError, OverflowError, IdgenError) as error:
        raise InvalidId(text, f"{error}") from error

"""The bits of an id drawn as text: its fields to scale, in a given width.

::

     62                                        21         11         0
    |-----------------------------------------|----------|------------|
     00000110111011110111011011010111111011110 1000011100 000000000000
     time 41                                   worker 10  sequence 12
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from .snowflakes import BitField

__all__ = ["drawn_bits"]

NARROWEST = 24


def drawn_bits(fields: Sequence[BitField], width: int) -> list[str]:
    """Lines of at most ``width`` columns (24 at least): a ruler, the bits, the names.

    Where a bit has no column of its own, the bits are left out, and the ruler keeps the
    proportions as well as it can.
    """
    total = sum(field.bits for field in fields)
    room = max(width, NARROWEST) - len(fields) - 1
    if room >= total:
        columns = [field.bits for field in fields]
        digits = [field.digits for field in fields]
        return [_numbers(fields, columns), _ruler(columns), _row(digits, columns), _names(fields)]
    columns = _scaled(fields, total, room)
    return [
        _numbers(fields, columns),
        _ruler(columns),
        _row(_short_names(fields, columns), columns),
    ]


def _scaled(fields: Sequence[BitField], total: int, room: int) -> list[int]:
    """Columns of each field, at least one, in proportion: rounded at the ends, not in between."""
    ends = [end * room // total for end in accumulate(field.bits for field in fields)]
    return [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]


def _ruler(columns: Sequence[int]) -> str:
    return "|" + "|".join("-" * count for count in columns) + "|"


def _row(texts: Sequence[str], columns: Sequence[int]) -> str:
    cells = (text[:count].ljust(count) for text, count in zip(texts, columns, strict=True))
    return f" {' '.join(cells)}".rstrip()


def _numbers(fields: Sequence[BitField], columns: Sequence[int]) -> str:
    """The number of the highest bit of each field, above its first column, where there is room."""
    line = ""
    starts = accumulate((count + 1 for count in columns), initial=1)
    for field, start in zip(fields, starts, strict=False):
        if start == 1 or start > len(line):
            line = line.ljust(start) + str(field.offset + field.bits - 1)
    end = sum(columns) + len(columns) - 1
    return line.ljust(end) + "0" if len(line) < end else line


def _names(fields: Sequence[BitField]) -> str:
    """Below the first column of each field, or further right where the one before is longer."""
    line = ""
    starts = accumulate((field.bits + 1 for field in fields), initial=1)
    for field, start in zip(fields, starts, strict=False):
        line = line.ljust(start) + f"{field.name} {field.bits}  "
    return line.rstrip()


def _short_names(fields: Sequence[BitField], columns: Sequence[int]) -> list[str]:
    return [
        text if len(text := f"{field.name} {field.bits}") <= count else field.name[:count]
        for field, count in zip(fields, columns, strict=True)
    ]

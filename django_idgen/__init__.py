"""Unique 64-bit ids for Django, without asking the database for each one.

    from django_idgen import generators, segments, next_id

    next_id()                           # of generators["default"]
    generators["default"].next_ids(1000)
    segments["orders"].next_id()        # the tag is made on first use

Importing this package does not import Django: the names above are resolved on first
use, so that ``django_idgen.core`` works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .process.maps import generators, next_id, segments

__version__ = "1.0.0b1"
__all__ = ["generators", "next_id", "segments"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from .process import maps

        value: object = getattr(maps, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Tags in URLs."""

from __future__ import annotations

from ..core.errors import InvalidTag
from ..core.segment import check_tag

__all__ = ["TagConverter"]


class TagConverter:
    """A segment tag, which may have slashes; what can't be a tag is a 404."""

    regex = "[^\x00]+"

    def to_python(self, value: str) -> str:
        try:
            return check_tag(value)
        except InvalidTag as error:
            raise ValueError(str(error)) from error

    def to_url(self, value: str) -> str:
        return check_tag(value)

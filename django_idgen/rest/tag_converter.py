"""Tags in URLs: ``<idgen_tag:tag>``, once this module is imported."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import get_converters

from ..core.errors import InvalidTag
from ..core.segment import check_tag

__all__ = ["TagConverter"]

NAME = "idgen_tag"


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


if NAME not in get_converters():
    register_converter(TagConverter, NAME)

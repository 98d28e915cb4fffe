"""Lists in pages: ``limit`` and ``offset``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.utils.urls import remove_query_param, replace_query_param

from .serializers import Answer, Input, Whole

__all__ = ["Listed", "PageInput", "page_of", "pages_of"]

LIMIT = 100
MOST = 1000
FURTHEST = 2**31 - 1


class Listed(Protocol):
    """A list, or what asks the databases for its length and its parts."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Sequence[Any]: ...


class PageInput(Input):
    """Which part of a list is wanted."""

    limit = Whole(least=1, most=MOST, default=LIMIT, help_text="How many to show at most.")
    offset = Whole(least=0, most=FURTHEST, default=0, help_text="How many to pass over.")


def pages_of(kind: type[Answer]) -> type[Answer]:
    """The serializer of pages of ``kind``."""

    class Page(Answer):
        example: ClassVar[Any] = {
            "count": 1,
            "next": None,
            "previous": None,
            "results": [kind.example],
        }
        count = serializers.IntegerField()
        next = serializers.URLField(allow_null=True)
        previous = serializers.URLField(allow_null=True)
        results = kind(many=True)

    return Page


def page_of(
    request: Request,
    wanted: dict[str, Any],
    listed: Listed,
    shown: Callable[[Any], dict[str, Any]] = dict,
) -> dict[str, Any]:
    """The page that ``wanted`` (of a :class:`PageInput`) asks for, with links to its neighbours."""
    limit, offset = wanted["limit"], wanted["offset"]
    count = len(listed)
    url = request.build_absolute_uri()
    after, before = offset + limit, max(0, offset - limit)
    return {
        "count": count,
        "next": replace_query_param(url, "offset", str(after)) if after < count else None,
        "previous": _link_to(url, before) if offset else None,
        "results": [shown(each) for each in listed[offset:after]],
    }


def _link_to(url: str, offset: int) -> str:
    if not offset:
        return remove_query_param(url, "offset")
    return replace_query_param(url, "offset", str(offset))

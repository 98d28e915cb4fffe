"""The list of tags: what one page of it needs to know, in one go; its filters and columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import DatabaseError
from django.db.models import F, FloatField, Q, QuerySet, Value
from django.db.models.functions import Cast, NullIf
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError
from ..core.segment import MAX_ID
from ..models import LeafAlloc
from ..ops.tags.outlook import TagOutlook, outlooks
from .base import FoundList, GrantsAdmin, database_of
from .tag_words import duration_words, pool_words, rate_words

if TYPE_CHECKING:
    Tags = QuerySet[LeafAlloc]

__all__ = ["PageOutlooks", "TagChangeList", "TagColumns", "UseFilter"]

IN_USE = timedelta(days=1)
"""A tag counts as in use for so long after its last fetch."""

# As floats: on MariaDB a division of whole numbers is one of decimals.
SECONDS_LEFT = (Value(float(MAX_ID)) - Cast("max_id", FloatField())) / NullIf(
    F("rate"), Value(0.0), output_field=FloatField()
)


class PageOutlooks:
    """The outlook of each of ``rows``, asked for at once when the first one is shown."""

    def __init__(self, rows: Iterable[LeafAlloc]) -> None:
        self._rows = rows

    @cached_property
    def _found(self) -> Mapping[str, TagOutlook]:
        try:
            return outlooks(self._rows, database_of(LeafAlloc))
        except (IdgenError, DatabaseError):
            # Settings that can't work, say: the rows themselves are worth a page.
            return {}

    def of(self, row: LeafAlloc) -> TagOutlook | None:
        return self._found.get(row.pk)


class TagChangeList(FoundList):
    """Gives the rows of the page their outlooks."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # Reads the page's rows, which everything after this finds read.
        rows: list[Any] = list(self.result_list)
        shared = PageOutlooks(rows)
        for row in rows:
            row.idgen_outlooks = shared


class UseFilter(admin.SimpleListFilter):
    """Tags whose ids are being used, or not any more."""

    title = gettext_lazy("use")
    parameter_name = "use"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        return [
            ("lately", _("fetched within a day")),
            ("idle", _("not fetched for a day")),
            ("never", _("never fetched")),
        ]

    def queryset(self, request: HttpRequest, queryset: Tags) -> Tags:  # noqa: ARG002
        since = timezone.now() - IN_USE  # as the fields have it, with time zones or without
        chosen = {
            "lately": Q(fetched_at__gte=since),
            "idle": Q(fetched_at__lt=since),
            "never": Q(fetched_at=None, max_id=1),
        }.get(self.value() or "")
        return queryset if chosen is None else queryset.filter(chosen)


class TagColumns(GrantsAdmin):
    """The columns of the list that are worked out."""

    @admin.display(description=gettext_lazy("state"), ordering="paused")
    def state(self, row: LeafAlloc) -> str:
        if row.paused:
            return _badge("warn", _("paused"))
        if row.fetched_at is None:
            return _badge("quiet", _("unused") if row.max_id == 1 else _("idle"))
        if timezone.now() - row.fetched_at < IN_USE:
            return _badge("good", _("in use"))
        return _badge("quiet", _("idle"))

    @admin.display(description=gettext_lazy("fetch rate"), ordering="rate")
    def speed(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return rate_words(found.rate if found else row.rate)

    @admin.display(description=gettext_lazy("segment lasts"))
    def segment_lasts(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return duration_words(found.segment_left if found else None)

    @admin.display(description=gettext_lazy("ids last"), ordering=SECONDS_LEFT)
    def range_lasts(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return duration_words(found.range_left if found else None)

    @admin.display(description=gettext_lazy("in the pool"))
    def pool(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        ids = pool_words(found.pooled if found else None)
        if found is None or not found.pooled or found.pool_left is None:
            return ids
        return _("%(ids)s (%(time)s)") % {"ids": ids, "time": duration_words(found.pool_left)}


def _outlook(row: LeafAlloc) -> TagOutlook | None:
    shared: PageOutlooks | None = getattr(row, "idgen_outlooks", None)
    return None if shared is None else shared.of(row)


def _badge(kind: str, text: str) -> str:
    return format_html(
        '<span class="idgen"><span class="idgen-badge idgen-{}">{}</span></span>', kind, text
    )

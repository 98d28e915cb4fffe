"""What the pages of our own tables share: nothing is deleted, and a missing table is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db import connections, models, router
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from ..tables import missing_tables

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin

__all__ = ["GrantsAdmin", "ReadOnlyAdmin", "database_of"]


class GrantsAdmin(ModelAdmin):
    """What the pages share: no deletion, and no crash where the table is not there yet."""

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        rows = super().get_queryset(request)
        return rows.none() if self._table_is_missing(request) else rows

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if self._table_is_missing(request):
            text = _(
                "Table “%(table)s” is not in database “%(database)s” yet: “migrate” makes it, "
                "or the first id that is taken."
            )
            values = {"table": self.opts.db_table, "database": database_of(self.model)}
            self.message_user(request, text % values, messages.WARNING)
        return super().changelist_view(request, extra_context)

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        # A filter asks the table for its choices.
        return [] if self._table_is_missing(request) else [*super().get_list_filter(request)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and not self._table_is_missing(request)

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False

    def _table_is_missing(self, request: HttpRequest) -> bool:
        # Once a request and table: a page asks several times.
        known: dict[str, bool] = request.__dict__.setdefault("idgen_missing", {})
        name = self.model.__name__
        if name not in known:
            known[name] = bool(missing_tables(connections[database_of(self.model)], [name]))
        return known[name]


class ReadOnlyAdmin(GrantsAdmin):
    """Rows that only the registries write."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False


def database_of(model: type[models.Model]) -> str:
    return router.db_for_write(model)

"""What the pages of our own tables share: nothing is deleted; what can't be shown is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db import DatabaseError, connections, models, router
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from ..tables import missing_columns, missing_tables

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin

__all__ = ["GrantsAdmin", "ReadOnlyAdmin", "UnwrittenAdmin", "database_of"]


class GrantsAdmin(ModelAdmin):
    """What the pages share: no deletion, and no crash where the table can't be read."""

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        rows = super().get_queryset(request)
        return rows.none() if self._trouble(request) else rows

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self._tell_trouble(request)
        return super().changelist_view(request, extra_context)

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> models.Model | None:
        self._tell_trouble(request)
        return super().get_object(request, *args, **kwargs)

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        # A filter asks the table for its choices.
        return [] if self._trouble(request) else [*super().get_list_filter(request)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and not self._trouble(request)

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False

    def _tell_trouble(self, request: HttpRequest) -> None:
        if trouble := self._trouble(request):
            self.message_user(request, trouble, messages.WARNING)

    def _trouble(self, request: HttpRequest) -> str:
        """Why the rows can't be shown; "" if they can."""
        # Once a request and table: a page asks several times.
        known: dict[str, str] = request.__dict__.setdefault("idgen_trouble", {})
        name = self.model.__name__
        if name not in known:
            known[name] = _trouble_with(self.model, database_of(self.model))
        return known[name]


class UnwrittenAdmin(ModelAdmin):
    """A page that changes nothing, whoever looks at it."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False


class ReadOnlyAdmin(UnwrittenAdmin, GrantsAdmin):
    """Rows that only the registries write."""


def _trouble_with(model: type[models.Model], alias: str) -> str:
    values = {"table": model._meta.db_table, "database": alias}
    names = [model.__name__]
    try:
        if missing_tables(connections[alias], names):
            return (
                _(
                    "Table “%(table)s” is not in database “%(database)s” yet: “migrate” makes it, "
                    "or the first id that is taken."
                )
                % values
            )
        lacking = missing_columns(connections[alias], names)
    except DatabaseError as error:
        text = _("Database “%(database)s” can't be asked just now: %(error)s")
        return text % {**values, "error": error}
    if not lacking:
        return ""
    columns = ", ".join(column.rpartition(".")[2] for column in lacking)
    return _(
        "Table “%(table)s” in database “%(database)s” is of an earlier version, and lacks "
        "%(columns)s: “migrate” adds what is missing."
    ) % {**values, "columns": columns}


def database_of(model: type[models.Model]) -> str:
    return router.db_for_write(model)

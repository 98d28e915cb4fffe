"""What the pages of our own tables share.

Nothing is deleted. A table that can't be read is a message, and a search that no database
can run finds nothing, instead of a page that fails.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.db import DatabaseError, connections, models, router, transaction
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from ..db.connection import home_connection, home_of
from ..db.tables import missing_columns, missing_tables

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin

__all__ = [
    "ReadOnlyAdmin",
    "SafeAdmin",
    "SafeChangeList",
    "TableAdmin",
    "ViewOnlyAdmin",
    "database_of",
]

CHOSEN = "_selected_action"
"""The keys of the rows that an action is for, in what a list sends."""


class SafeChangeList(ChangeList):
    """Django's list; filters that the database refuses lead to the list without them."""

    def get_results(self, request: HttpRequest) -> None:
        try:
            with _savepoint(self.root_queryset.db):
                super().get_results(request)
        except Exception as error:
            # Of any kind, as where Django builds the query: a wrong regular expression, say,
            # has another exception in each database.
            if not (self.query or self.get_filters_params()):
                raise
            raise IncorrectLookupParameters(error) from error


class SafeAdmin(ModelAdmin):
    """Pages that find what there is, whatever a request says that it looks for."""

    linked: ClassVar[Sequence[str]] = ()
    """Fields by which links of our own pages choose rows, besides those of ``list_filter``."""

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Whether the list offers to choose rows by it.

        Django allows every column of the table, so that a URL could read one letter by
        letter that no page shows: a lease's token, or a secret's digest.
        """
        filters = [*self.list_filter, *self.get_list_filter(request)]
        offered = [*self.linked, self.date_hierarchy, *filters]
        return any(_is_of(lookup, each) for each in offered) and super().lookup_allowed(
            lookup, value, request
        )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return SafeChangeList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.refuse_odd_keys(request)
        if ERROR_FLAG in request.GET:
            text = _("The database can't look for that: this is the list without filters.")
            self.message_user(request, text, messages.WARNING)
        return super().changelist_view(request, extra_context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> models.Model | None:
        # PostgreSQL breaks off at it, instead of finding nothing.
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def refuse_odd_keys(self, request: HttpRequest) -> None:
        """Answer 400 to a list that no browser sent: with keys that no row can have."""
        # As Django's own, whose digits are any script's, and whose end may be a line's.
        edited = re.compile(rf"form-\d+-{self.opts.pk.name}$")
        for name, texts in request.POST.lists():
            if name == CHOSEN or edited.match(name):
                for text in texts:
                    self._check_key(text)

    def _check_key(self, text: str) -> None:
        pk = self.opts.pk
        try:
            pk.run_validators(pk.to_python(text))
        except ValidationError as error:
            raise BadRequest(f"{text[:80]!r} is no key: {error}") from error
        if "\0" in text:
            raise BadRequest(f"{text[:80]!r} is no key: no database has such a character.")


class TableAdmin(SafeAdmin):
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


class ViewOnlyAdmin(ModelAdmin):
    """A page that changes nothing."""

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


class ReadOnlyAdmin(ViewOnlyAdmin, TableAdmin):
    """Rows that only the registries write."""


def _is_of(lookup: str, offered: Any) -> bool:
    """Whether ``lookup`` is that of an item of ``list_filter``."""
    if isinstance(offered, list | tuple):  # a field, and how it is shown
        offered = offered[0]
    name = getattr(offered, "parameter_name", offered)
    return isinstance(name, str) and (lookup == name or lookup.startswith(f"{name}__"))


def _trouble_with(model: type[models.Model], alias: str) -> str:
    values = {"table": model._meta.db_table, "database": alias}
    names = [model.__name__]
    try:
        if missing_tables(home_connection(alias), names):
            return (
                _("Table “%(table)s” is not in database “%(database)s” yet: “migrate” makes it.")
                % values
            )
        lacking = missing_columns(home_connection(alias), names)
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


def _savepoint(alias: str) -> AbstractContextManager[Any]:
    """What fails within breaks off no transaction that the request runs in."""
    home = home_of(alias)
    within = connections[home].in_atomic_block
    return transaction.atomic(using=home) if within else nullcontext()


def database_of(model: type[models.Model]) -> str:
    return router.db_for_write(model)

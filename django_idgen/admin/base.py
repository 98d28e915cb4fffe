"""What the admin pages share.

Nothing is deleted. Where a table can't be read, the page says why instead of failing, and a
filter that the database refuses leads to the list without filters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.db import DatabaseError, connections, models, router, transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from ..db.connection import home_connection, home_of
from ..db.tables import missing_columns, missing_tables

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin


class PageAdmin(ModelAdmin):
    """A model's pages, some of which are our own templates."""

    class Media:
        css: ClassVar[dict[str, list[str]]] = {"all": ["django_idgen/admin.css"]}

    def url_of(self, view: str, *args: Any) -> str:
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{view}"
        return reverse(name, args=args)

    @sensitive_variables("context")  # the page of an access token's secret
    def render_page(
        self, request: HttpRequest, template: str, title: str, **context: Any
    ) -> TemplateResponse:
        request.current_app = self.admin_site.name
        common = {"title": title, "opts": self.opts, "list_url": self.url_of("changelist")}
        context = {**self.admin_site.each_context(request), **common, **context}
        return TemplateResponse(request, f"admin/django_idgen/{template}", context)


class ViewOnlyAdmin(PageAdmin):
    """Pages that add, change and delete nothing."""

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


class SafeChangeList(ChangeList):
    """Django's list; filters that the database refuses lead to the list without filters."""

    def get_results(self, request: HttpRequest) -> None:
        try:
            with _savepoint(self.root_queryset.db):
                super().get_results(request)
        except Exception as error:
            # Each database has another exception for a wrong regular expression.
            if not (self.query or self.get_filters_params()):
                raise
            raise IncorrectLookupParameters(error) from error


class SafeAdmin(PageAdmin):
    """Pages that no query string and no forged form can break, or read a hidden column with."""

    linked: ClassVar[Sequence[str]] = ()
    """Fields that links of our own pages filter by, besides those of ``list_filter``."""

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the filters that the list offers.

        Django allows every column of the table. A URL could then read a column that no page
        shows, such as a lease's token or a secret's digest, one letter at a time.
        """
        filters = [*self.list_filter, *self.get_list_filter(request)]
        offered = [*self.linked, self.date_hierarchy, *filters]
        return any(_is_of(lookup, each) for each in offered) and super().lookup_allowed(
            lookup, value, request
        )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        # Of the database that is written: a replica may lag behind what the page changes.
        return super().get_queryset(request).using(database_of(self.model))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return SafeChangeList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.refuse_forged_keys(request)
        if ERROR_FLAG in request.GET:
            text = _("The database can't filter by that. All rows are shown.")
            self.message_user(request, text, messages.WARNING)
        return super().changelist_view(request, extra_context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> models.Model | None:
        # PostgreSQL raises an error for a NUL, instead of finding nothing.
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def refuse_forged_keys(self, request: HttpRequest) -> None:
        """Answer 400 to a form with keys that no row can have, which no browser sends."""
        # As Django matches them: digits of any script, and a line end at the end.
        edited = re.compile(rf"form-\d+-{self.opts.pk.name}$")
        for name, keys in request.POST.lists():
            if name == ACTION_CHECKBOX_NAME or edited.match(name):
                for key in keys:
                    self._check_key(key)

    def _check_key(self, key: str) -> None:
        pk = self.opts.pk
        try:
            if "\0" in key:
                raise ValidationError("It contains a NUL character.")
            pk.run_validators(pk.to_python(key))
        except ValidationError as error:
            raise BadRequest(f"{key[:80]!r} is not a key: {error}") from error


class TableAdmin(SafeAdmin):
    """Pages of our own tables: they delete nothing, and tell why a table can't be read."""

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        rows = super().get_queryset(request)
        return rows.none() if self._trouble(request) else rows

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self._warn(request)
        return super().changelist_view(request, extra_context)

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> models.Model | None:
        self._warn(request)
        return super().get_object(request, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and not self._trouble(request)

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False

    def _warn(self, request: HttpRequest) -> None:
        if trouble := self._trouble(request):
            self.message_user(request, trouble, messages.WARNING)

    def _trouble(self, request: HttpRequest) -> str:
        """Why the table can't be read; "" if it can."""
        # A page asks several times: once a request and table is enough.
        known: dict[str, str] = request.__dict__.setdefault("idgen_trouble", {})
        name = self.model.__name__
        if name not in known:
            known[name] = _trouble_with(self.model, database_of(self.model))
        return known[name]


def _is_of(lookup: str, offered: Any) -> bool:
    """Whether ``lookup`` is one of the item ``offered`` of ``list_filter``."""
    name = getattr(offered, "parameter_name", offered)
    return isinstance(name, str) and (lookup == name or lookup.startswith(f"{name}__"))


def _trouble_with(model: type[models.Model], alias: str) -> str:
    values = {"table": model._meta.db_table, "database": alias}
    names = [model.__name__]
    try:
        if missing_tables(home_connection(alias), names):
            text = _("Database “%(database)s” has no table “%(table)s” yet. Run “migrate”.")
            return text % values
        missing = missing_columns(home_connection(alias), names)
    except DatabaseError as error:
        text = _("Database “%(database)s” does not answer: %(error)s")
        return text % {**values, "error": error}
    if not missing:
        return ""
    columns = ", ".join(column.rpartition(".")[2] for column in missing)
    text = _(
        "Table “%(table)s” in database “%(database)s” lacks the columns %(columns)s. Run “migrate”."
    )
    return text % {**values, "columns": columns}


def _savepoint(alias: str) -> AbstractContextManager[Any]:
    """A savepoint if the request runs in a transaction, so that an error does not end it."""
    home = home_of(alias)
    within = connections[home].in_atomic_block
    return transaction.atomic(using=home) if within else nullcontext()


def database_of(model: type[models.Model]) -> str:
    return router.db_for_write(model)


def badge(kind: str, text: str) -> str:
    return format_html(
        '<span class="idgen"><span class="idgen-badge idgen-{}">{}</span></span>', kind, text
    )


def labelled(name: str, value: str) -> str:
    """A value of a list that has its name beside it on a phone, where the table has no head."""
    return format_html(
        '<span class="idgen-cell-value" data-label="{}">{}</span>', capfirst(name), value
    )

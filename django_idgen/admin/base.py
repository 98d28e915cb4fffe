"""What the admin pages share: the database they read, and what no URL may ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import BadRequest, ValidationError
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, models, router
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.views.decorators.debug import sensitive_variables

from ..core.errors import ConfigurationError
from ..db.connection import home_connection
from ..db.tables import how_to_make_tables, missing_columns, missing_tables
from ..models import HomeModel, LeafAlloc, SegmentHistory
from ..process.tags import source_behind_pool

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin


def column(label: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``admin.display``. On a phone, where a list has no head, the value has its label."""

    def decorated(method: Callable[..., Any]) -> Any:
        @wraps(method)
        def shown(page: Any, row: Any) -> str:
            return format_html(
                '<span data-label="{}">{}</span>', capfirst(label), method(page, row)
            )

        return admin.display(description=label, **options)(shown)

    return decorated


class PageAdmin(ModelAdmin):
    """Pages that no URL and no forged form can break, or read a hidden column with.

    They say why a table can't be read.
    """

    show_facets = admin.ShowFacets.NEVER
    show_full_result_count = False
    """Counting a long table is slow."""
    linked: ClassVar[Sequence[str]] = ()
    """Look-ups in links of our own pages, besides the filters of the list."""

    class Media:
        css: ClassVar[dict[str, list[str]]] = {"all": ["django_idgen/admin.css"]}

    def url_of(self, view: str, *args: Any) -> str:
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_{view}"
        return reverse(name, args=args)

    @sensitive_variables("context")  # the page of an access token's secret
    def render_page(
        self, request: HttpRequest, template: str, title: Any, **context: Any
    ) -> TemplateResponse:
        request.current_app = self.admin_site.name
        common = {"title": title, "opts": self.opts, "list_url": self.url_of("changelist")}
        context = {**self.admin_site.each_context(request), **common, **context}
        return TemplateResponse(request, f"admin/django_idgen/{template}", context)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only what the list offers.

        Django allows every column of the table. A URL could then read a column that no page
        shows, such as a secret's digest, one letter at a time.
        """
        filters: Sequence[Any] = self.get_list_filter(request)
        offered = {*self.linked, *(each.parameter_name for each in filters)}
        return lookup in offered and "\0" not in value  # PostgreSQL raises an error for it

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        # A replica may lag behind what the page changes.
        rows = super().get_queryset(request).using(database_of(self.model))
        return rows.none() if self._is_unreadable(request) else rows

    def has_add_permission(self, request: HttpRequest) -> bool:
        # The sidebar of every page asks: a database that is silent would hold all of them up.
        url = (request.resolver_match and request.resolver_match.url_name) or ""
        is_own = url.startswith(f"{self.opts.app_label}_{self.opts.model_name}_")
        return super().has_add_permission(request) and not (is_own and self._is_unreadable(request))

    def _is_unreadable(self, request: HttpRequest) -> bool:
        """Whether the table can't be read: the page says why, once."""
        known: dict[str, str] = request.__dict__.setdefault("idgen_unreadable", {})
        name = self.opts.object_name or ""
        if name not in known:
            known[name] = _why_unreadable(self.model, database_of(self.model))
            if known[name]:
                self.message_user(request, known[name], messages.WARNING)
        return bool(known[name])

    def get_object(self, request: HttpRequest, object_id: str, *args: Any) -> models.Model | None:
        return None if "\0" in object_id else super().get_object(request, object_id, *args)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        for key in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.clean(key, None)
            except ValidationError as error:
                raise BadRequest(f"{key[:80]!r} is not a key: {error}") from error
        return super().changelist_view(request, *args, **kwargs)


class TableAdmin(PageAdmin):
    """Pages of our own tables: they delete nothing."""

    def has_delete_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False


class ViewOnlyAdmin(TableAdmin):
    """Pages that add, change and delete nothing."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return False


def _why_unreadable(model: type[models.Model], alias: str) -> str:
    names = [model.__name__]
    try:
        connection = home_connection(alias) if issubclass(model, HomeModel) else connections[alias]
        lacking = missing_tables(connection, names) or missing_columns(connection, names)
    except DatabaseError as error:
        return f"Database {alias!r} does not answer: {error}"
    if not lacking:
        return ""
    return f"Database {alias!r} lacks {', '.join(lacking)}. {how_to_make_tables(alias)}."


def database_of(model: type[models.Model]) -> str:
    """The alias whose rows the pages of ``model`` show.

    Where no router of the project says another one, tags and their segments are where ``IDGEN``
    has them.
    """
    alias = router.db_for_write(model)
    if alias == DEFAULT_DB_ALIAS and model in (LeafAlloc, SegmentHistory):
        with suppress(ConfigurationError, ImportError):  # the checks report them
            databases = source_behind_pool().databases()
            if databases and alias not in databases:
                return str(databases[0])
    return alias

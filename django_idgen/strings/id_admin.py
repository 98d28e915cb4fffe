"""Ids in the admin: searched in any form, shown as text, filtered by their creation.

@admin.register(Order)
class OrderAdmin(IdAdminMixin, admin.ModelAdmin):
    list_display = ("id", "customer_id", "total")
    search_fields = ("note", "customer__id")
    list_filter = (("id", CreatedListFilter),)
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.admin.options import TO_FIELD_VAR
from django.contrib.admin.utils import label_for_field, lookup_spawns_duplicates
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.forms.utils import pretty_name
from django.http import HttpRequest, HttpResponse
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from ..core.errors import InvalidId
from ..fields import SnowflakeSource
from ..fields.base import GeneratedOnSave, id_held_by
from ..fields.forms import IdModelMultipleChoiceField
from ..fields.lookups import require_time_on_top
from ..fields.relations import id_behind, written
from ..process.maps import generator_settings

if TYPE_CHECKING:
    AnyAdmin = admin.ModelAdmin[models.Model]
    Rows = models.QuerySet[models.Model]
else:
    AnyAdmin = admin.ModelAdmin


class IdAdminMixin(AnyAdmin):
    """For a ``ModelAdmin`` of a model with this app's ids: put it before ``admin.ModelAdmin``.

    * The search finds a row by its id in any form (digits, or the field's text), beside what the
      other ``search_fields`` find. Ids of related rows in ``search_fields``, such as
      ``customer__id``, work alike. Whole ids are compared, so the index is used. Autocomplete
      fields use this search, too.
    * Ids in columns and read-only fields, also in inlines, are written in their text form, without
      thousand separators whatever ``USE_THOUSAND_SEPARATOR`` says.
    * The text of an id also leads to its row: ``/admin/shop/order/ord_0.../change/``.
    * Raw id widgets of many-to-many relations take ids in any form.
    """

    # --- search -------------------------------------------------------------------

    def get_search_fields(self, request: HttpRequest) -> Any:
        """The admin's own; by default the primary key, so that there is a search box."""
        return super().get_search_fields(request) or ("pk",)

    def get_search_results(
        self, request: HttpRequest, queryset: Rows, search_term: str
    ) -> tuple[Rows, bool]:
        term = search_term.strip()
        if not term:
            return super().get_search_results(request, queryset, search_term)
        fields = [str(field) for field in self.get_search_fields(request)]
        paths = {path for field in ("pk", *fields) if (path := self._id_path(field))}
        others = [field for field in fields if not self._id_path(field)]
        by_id = self._by_id(paths, term)
        if not others:
            found, repeats = queryset.none() if by_id is None else queryset.filter(by_id), False
        else:
            found, repeats = self._search_in(others, request, queryset, search_term)
            found = found if by_id is None else found | queryset.filter(by_id)
        return found, repeats or any(lookup_spawns_duplicates(self.opts, path) for path in paths)

    def _id_path(self, search_field: str) -> str | None:
        """The look-up of a search field without ``=`` and ``__exact``, if it is an id."""
        path = search_field.lstrip("^=@").removesuffix("__exact").removesuffix("__iexact")
        return path if id_behind(self.model, tuple(path.split(LOOKUP_SEP))) else None

    def _by_id(self, paths: Iterable[str], term: str) -> models.Q | None:
        condition = models.Q()
        for path in sorted(paths):
            field = id_behind(self.model, tuple(path.split(LOOKUP_SEP)))
            with suppress(InvalidId):
                condition |= models.Q((path, cast(GeneratedOnSave, field).text.read_trusted(term)))
        return condition or None

    def _search_in(
        self, fields: list[str], request: HttpRequest, queryset: Rows, term: str
    ) -> tuple[Rows, bool]:
        # Django's search asks the admin for its fields: use a copy with fewer fields.
        other = copy.copy(self)
        other.get_search_fields = lambda request: fields  # type: ignore[method-assign]  # noqa: ARG005
        return super(IdAdminMixin, other).get_search_results(request, queryset, term)

    # --- columns and read-only fields ---------------------------------------------

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        made: Any = super().get_changelist_instance(request)
        for name in ("list_display", "list_display_links", "sortable_by"):
            value = getattr(made, name)
            if value is not None:
                setattr(made, name, [_column(each, self) for each in value])
        return made

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        # Here, since an admin may override get_fieldsets() and the like.
        _show_text(context["adminform"], self)
        for formset in context.get("inline_admin_formsets", ()):
            _show_text(formset, formset.opts)
        return super().render_change_form(request, context, *args, **kwargs)

    # --- a row by the text of its id ----------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        return super().change_view(request, self._digits(request, object_id), *args, **kwargs)

    def delete_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        return super().delete_view(request, self._digits(request, object_id), *args, **kwargs)

    def history_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        return super().history_view(request, self._digits(request, object_id), *args, **kwargs)

    def _digits(self, request: HttpRequest, object_id: str) -> str:
        # Before the admin unquotes it: it reads "_3A" in "ord_3A..." as a colon.
        field = id_behind(self.model, ("pk",))
        if field is None or TO_FIELD_VAR in request.GET or TO_FIELD_VAR in request.POST:
            return object_id
        try:
            return str(field.text.read_trusted(object_id))
        except InvalidId:
            return object_id

    def formfield_for_manytomany(
        self, db_field: models.ManyToManyField[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> Any:
        if id_behind(db_field.related_model, ("pk",)):
            kwargs.setdefault("form_class", IdModelMultipleChoiceField)
        return super().formfield_for_manytomany(db_field, request, **kwargs)


@dataclass(frozen=True)
class IdColumn:
    """A column, or a read-only field, that shows an id as text: a callable for the admin."""

    name: str
    model_admin: Any

    def __call__(self, row: models.Model) -> str:
        value = getattr(row, self.name)
        if value is None:
            return str(self.model_admin.get_empty_value_display())
        field = id_behind(self.model_admin.model, (self.name,))
        return str(written(cast(GeneratedOnSave, field).text, value))

    @property
    def __name__(self) -> str:
        return self.name  # for CSS classes

    @property
    def short_description(self) -> str:
        return str(label_for_field(self.name, self.model_admin.model, self.model_admin))

    @property
    def admin_order_field(self) -> str | None:
        relation = self.name != "pk" and self.model_admin.opts.get_field(self.name).is_relation
        return None if relation else self.name


def _column(name: Any, model_admin: Any) -> Any:
    """An :class:`IdColumn` if ``name`` is an id of this app, else ``name``."""
    model = model_admin.model
    if not isinstance(name, str) or not id_behind(model, (name,)):
        return name
    own = {field.name for field in model._meta.concrete_fields if not field.is_relation}
    columns = {field.attname for field in model._meta.concrete_fields} | {"pk"}
    # An attribute of the admin hides a column such as "customer_id". A relation shows its row.
    shown = name in own or (name in columns and not hasattr(model_admin, name))
    return IdColumn(name, model_admin) if shown else name


def _show_text(shown: Any, model_admin: Any) -> None:
    def columns(names: Any) -> list[Any]:
        return [
            columns(name) if isinstance(name, list | tuple) else _column(name, model_admin)
            for name in names
        ]

    shown.readonly_fields = columns(shown.readonly_fields)
    shown.fieldsets = [
        (title, {**options, "fields": columns(options["fields"])})
        for title, options in shown.fieldsets
    ]


class CreatedListFilter(admin.DateFieldListFilter):
    """Filters rows by the creation time in their snowflake id.

    ``list_filter = (("id", CreatedListFilter),)`` offers today, the past 7 days, this month and
    this year, as for a date field, but needs no column: each is a range of ids and uses their
    index. For a related row: ``("customer__id", CreatedListFilter)``. Raises
    ``ImproperlyConfigured`` for another kind of field, and :class:`LayoutError` for a layout
    without time on top.
    """

    def __init__(
        self,
        field: Any,
        request: HttpRequest,
        params: dict[str, Any],
        model: type[models.Model],
        model_admin: Any,
        field_path: str,
    ) -> None:
        held = id_held_by(field)
        if not isinstance(held, SnowflakeSource):
            raise ImproperlyConfigured(
                f"{type(model_admin).__name__}.list_filter: {field_path!r} is not a snowflake id. "
                "CreatedListFilter needs one."
            )
        require_time_on_top(generator_settings(held.generator).layout)
        path = f"{field_path}__{held.name}" if field.is_relation else field_path
        moments = models.DateTimeField(_title(path, model), null=field.null)
        super().__init__(moments, request, params, model, model_admin, f"{path}__created")


def _title(path: str, model: type[models.Model]) -> Any:
    first = path.split(LOOKUP_SEP)[0]
    key = model._meta.pk
    if first == "pk" or first == key.name:
        return _("created")
    return format_lazy(_("{relation}: created"), relation=pretty_name(first))

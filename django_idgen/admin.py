"""Plain admin pages: tags, whose step can be edited, and leases, to be looked at.

Nothing here may make an id come again. So ``max_id`` only goes up, in one
statement that knows nothing of what the page showed; no page deletes anything
(a tag that is deleted starts at 1 again); and leases are read-only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import display_for_value
from django.core.exceptions import ValidationError
from django.db import connections, models, router
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .conf import DEFAULT_STEP, SettingsError, read_settings
from .core.errors import IdgenError
from .core.segment import MAX_ID
from .lease_state import LeaseState, promised_until, state_of, with_namespaces
from .models import LeafAlloc, NamespaceRecord, SegmentHistory, WorkerLease
from .tables import missing_tables
from .tags import edits as tag_edits
from .tags import rows as tag_rows
from .tags import supply as tag_supply
from .token_admin import AccessTokenAdmin

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
    TagForm = forms.ModelForm[models.Model]
else:
    ModelAdmin, TagForm = admin.ModelAdmin, forms.ModelForm

__all__ = [
    "AccessTokenAdmin",
    "LeafAllocAdmin",
    "NamespaceRecordAdmin",
    "SegmentHistoryAdmin",
    "WorkerLeaseAdmin",
]


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
            values = {"table": self.opts.db_table, "database": _database(self.model)}
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
            known[name] = bool(missing_tables(connections[_database(self.model)], [name]))
        return known[name]


class LeafAllocForm(TagForm):
    """Refuses a lower ``max_id``."""

    # With what the page showed sent along, a tag that moved on meanwhile is no change.
    max_id = LeafAlloc._meta.get_field("max_id").formfield(
        show_hidden_initial=True,
        help_text=gettext_lazy(
            "The first id that no process was given yet. Raise it to skip ahead, in all databases "
            "of the tag; it can't be lowered. Other processes use up what they hold already."
        ),
    )

    class Meta:
        model = LeafAlloc
        fields = ("biz_tag", "max_id", "step", "description")

    def clean_max_id(self) -> int:
        wanted: int = self.cleaned_data["max_id"]
        if self.instance._state.adding:
            return wanted
        stored = LeafAlloc.objects.filter(pk=self.instance.pk).values_list("max_id", flat=True)
        current = stored.first()
        if current is None or wanted >= current:
            return wanted
        if "max_id" not in self.changed_data:
            return current
        raise ValidationError(
            _(
                "The next free id can't be lowered from %(current)d to %(wanted)d: the ids "
                "between were handed out already and would come again."
            ),
            code="lowered",
            params={"current": current, "wanted": wanted},
        )


FROM_FETCHES = ("delta", "remainder", "largest_step", "server", "rate", "update_time")
"""Fields that only fetches, and ``idgen_grow``, write."""


@admin.register(LeafAlloc)
class LeafAllocAdmin(GrantsAdmin):
    """Tags. On SQLite the rows mirror a file, which takes a step or a higher ``max_id`` over."""

    form = LeafAllocForm
    list_display = ("biz_tag", "max_id", "step", "rate", "description", "update_time")
    search_fields = ("biz_tag", "description")
    readonly_fields = FROM_FETCHES
    fields = ("biz_tag", "max_id", "step", "description", *FROM_FETCHES)

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        shown = super().get_fields(request, obj)
        # A tag that is being added was never changed.
        return shown if obj is not None else [name for name in shown if name not in FROM_FETCHES]

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        return {"step": _default_step(), **super().get_changeform_initial_data(request)}

    def get_readonly_fields(
        self, request: HttpRequest, obj: models.Model | None = None
    ) -> list[str]:
        fixed = [*super().get_readonly_fields(request, obj)]
        if obj is not None:
            fixed.append("biz_tag")
        return fixed

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except IdgenError as error:
            # A database that is away, or somebody who was quicker.
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def save_model(
        self,
        request: HttpRequest,
        obj: models.Model,
        form: Any,
        change: bool,
    ) -> None:
        if not change:
            # Never an UPDATE: the tag may have been made, and used, in this moment.
            tag_edits.insert_tag_row(cast("LeafAlloc", obj), _database(LeafAlloc))
            return
        changed: dict[str, Any] = {
            name: form.cleaned_data[name]
            for name in form.changed_data
            if name in {"step", "description", "max_id"}
        }
        if "max_id" in changed:
            # First of all, since it is a transaction of its own: in this one, nothing that
            # it would wait for is changed yet.
            self._skip(request, obj.pk, changed.pop("max_id"))
        if changed:
            tag_edits.change_row(_database(LeafAlloc), obj.pk, **changed)

    def _skip(self, request: HttpRequest, tag: str, to: int) -> None:
        """In all databases of the tag; nothing below is left here, or in the pool."""
        if not tag_rows.is_fetched_from(tag, _database(LeafAlloc)):
            # Somebody else's, such as another site's that shares this admin.
            tag_edits.change_row(_database(LeafAlloc), tag, max_id=to)
            return
        tag_edits.skip_tag(tag, to=to, most=MAX_ID)
        if tag_supply.let_go(tag).pool is False:
            text = _("The pool of “%(tag)s” can't be emptied: lower ids may come out of it yet.")
            self.message_user(request, text % {"tag": tag}, messages.WARNING)


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


@admin.register(WorkerLease)
class WorkerLeaseAdmin(ReadOnlyAdmin):
    """Who holds which worker id. The token, which lets one renew, is not shown."""

    list_display = ("worker", "namespace", "state", "holder", "promised_until", "seen_at")
    list_filter = ("namespace",)
    search_fields = ("holder", "id")
    fields = (
        "namespace",
        "worker",
        "state",
        "holder",
        "promised_until",
        "start",
        "until",
        "generation",
        "acquired_at",
        "seen_at",
    )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        return cast(
            "models.QuerySet[models.Model]",
            with_namespaces(cast("models.QuerySet[WorkerLease]", super().get_queryset(request))),
        )

    @admin.display(description=gettext_lazy("state"), ordering="token")
    def state(self, lease: WorkerLease) -> str:
        return _STATES[state_of(lease)]()

    @admin.display(description=gettext_lazy("promised until"), ordering="until")
    def promised_until(self, lease: WorkerLease) -> str | None:
        """The mark as a moment: no id of this worker is stamped later."""
        until = promised_until(lease)
        # As text: a page that only shows a row would print the value as Python has it.
        return None if until is None else str(display_for_value(until, ""))


_STATES: dict[LeaseState, Callable[[], str]] = {
    LeaseState.FREE: lambda: _("free"),
    LeaseState.LAPSED: lambda: _("lapsed"),
    LeaseState.HELD: lambda: _("held"),
}


@admin.register(NamespaceRecord)
class NamespaceRecordAdmin(ReadOnlyAdmin):
    """What the holders of each namespace agreed on."""

    list_display = ("name", "generation", "fence", "largest_window", "workers_made", "server")
    search_fields = ("name",)


@admin.register(SegmentHistory)
class SegmentHistoryAdmin(ReadOnlyAdmin):
    """Who was given which range, where history is switched on."""

    list_display = ("tag", "start", "stop", "delta", "holder", "taken_at")
    search_fields = ("=tag", "holder")
    # Of a table this long, counting is the slow part.
    show_full_result_count = False


def _default_step() -> int:
    try:
        return read_settings().segments.default_step
    except SettingsError:
        return DEFAULT_STEP


def _database(model: type[models.Model]) -> str:
    return router.db_for_write(model)

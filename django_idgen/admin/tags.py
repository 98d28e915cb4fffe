"""Tags and steps.

Nothing here may make an id come again. So ``max_id`` only goes up, by a skip that says
first what it loses, in one statement that knows nothing of what the page showed; and no
page deletes a tag, which would start at 1 again.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import models
from django.forms import modelform_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError
from ..models import LeafAlloc, SegmentHistory
from ..ops.tags import edits as tag_edits
from ..ops.tags.rows import source_behind_pool
from ..settings.config import DEFAULT_STEP, SettingsError, read_settings
from . import tag_changes
from .base import ReadOnlyAdmin, database_of
from .error_words import error_words
from .tag_actions import TagActions
from .tag_forms import LeafAllocForm, StepForm, StepFormSet
from .tag_list import TagChangeList, TagColumns, UseFilter
from .tag_page import tag_context
from .tag_steps import save_steps
from .tag_trail import note, notes_kept, translate_notes

__all__ = ["LeafAllocAdmin", "SegmentHistoryAdmin"]

FROM_FETCHES = (
    "state",
    "holder",
    "fetched_at",
    "fetched_ids",
    "delta",
    "remainder",
    "largest_step",
    "server",
    "rate",
    "update_time",
)
"""What only fetches, ``idgen_grow``, and the actions write."""
WRITTEN = ("biz_tag", "max_id", "step", "description")
NO_DELETION = gettext_lazy(
    "Tags can't be deleted: one that is made anew under the same name starts at 1, and gives "
    "out all of its ids again. Pause a tag that is not to be used any more."
)


@admin.register(LeafAlloc)
class LeafAllocAdmin(TagColumns, TagActions):
    """Tags. On SQLite the rows mirror a file, which takes a step or a higher ``max_id`` over."""

    form = LeafAllocForm
    list_display = (
        "biz_tag",
        "state",
        "step",
        "max_id",
        "speed",
        "segment_lasts",
        "range_lasts",
        "pool",
        "holder",
    )
    list_editable = ("step",)
    list_filter = ("paused", UseFilter)
    search_fields = ("biz_tag", "description")
    # Of a table this long, counting is the slow part.
    show_full_result_count = False
    readonly_fields = FROM_FETCHES
    fieldsets = (
        (None, {"fields": WRITTEN}),
        (
            gettext_lazy("As the fetches left it"),
            {"fields": FROM_FETCHES, "classes": ("collapse",)},
        ),
    )

    class Media:
        css: ClassVar[dict[str, list[str]]] = {
            "all": ["django_idgen/admin.css", "django_idgen/tags.css"]
        }

    # --- the list -----------------------------------------------------------------------

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return TagChangeList

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return modelform_factory(LeafAlloc, form=StepForm)

    def get_changelist_formset(self, request: HttpRequest, **kwargs: Any) -> Any:
        return super().get_changelist_formset(request, **{**kwargs, "formset": StepFormSet})

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.refuse_odd_keys(request)
        if request.POST.get("action") == "delete_selected":
            self.message_user(request, NO_DELETION, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        saved = self._save_list(request) if "_save" in request.POST else None
        return saved or super().changelist_view(request, extra_context)

    def _save_list(self, request: HttpRequest) -> HttpResponse | None:
        """Save the steps, one by one; None if that is refused, which Django then shows."""
        if not self.has_change_permission(request):
            return None
        made = self.get_changelist_formset(request)
        prefix = made.get_default_prefix()
        rows = self._get_list_editable_queryset(request, prefix)
        formset = made(request.POST, queryset=rows)
        if not formset.is_valid():
            return None
        save_steps(request, formset).tell(request)
        return HttpResponseRedirect(request.get_full_path())

    # --- a tag ----------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        shown = super().get_fieldsets(request, obj)
        if obj is None:  # a tag that is being added was never changed
            return shown[:1]
        fields = ["goes_on_at" if name == "max_id" else name for name in WRITTEN]
        return [(None, {"fields": fields}), *shown[1:]]

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        return {"step": _default_step(), **super().get_changeform_initial_data(request)}

    def get_readonly_fields(
        self, request: HttpRequest, obj: models.Model | None = None
    ) -> list[str]:
        fixed = [*super().get_readonly_fields(request, obj)]
        if obj is not None:
            fixed += ["biz_tag", "max_id", "goes_on_at"]
        return fixed

    @admin.display(description=LeafAlloc._meta.get_field("max_id").verbose_name)
    def goes_on_at(self, row: LeafAlloc) -> str:
        """In digits alone, as people copy it; and the one way to raise it."""
        if not getattr(row, "idgen_may_skip", False):
            return str(row.max_id)
        return format_html(
            '{} <a class="idgen-tag-skip" href="{}">{}</a>',
            row.max_id,
            self.action_urls(row)["skip"],
            _("Skip ahead…"),
        )

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            with notes_kept(request):
                return super().changeform_view(request, object_id, form_url, extra_context)
        except IdgenError as error:
            # A database that is away, or somebody who was quicker.
            self.message_user(request, error_words(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        if row is not None:
            row.idgen_may_skip = self.has_change_permission(request, row)
            context |= {
                **tag_context(request, row),
                "no_deletion": NO_DELETION,
                "action_urls": self.action_urls(row),
                "grants_url": self._grants_url(request, row),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(
        self,
        request: HttpRequest,
        obj: models.Model,
        form: Any,
        change: bool,
    ) -> None:
        row = cast("LeafAlloc", obj)
        if not change:
            # Never an UPDATE: the tag may have been made, and used, in this moment.
            tag_edits.insert_tag_row(row, database_of(LeafAlloc))
            note(request, row.pk, "added", max_id=(None, row.max_id), step=(None, row.step))
            return
        before, changed = form.before, set(form.changed_data)
        # Each in transactions of its own: in this one, nothing that they would wait for is
        # changed.
        if "step" in changed:
            tag_changes.change_step(request, row.pk, seen=before.step, to=row.step)
        if "description" in changed:
            tag_changes.change_description(
                request, row.pk, seen=before.description, to=row.description
            )

    def _grants_url(self, request: HttpRequest, row: LeafAlloc) -> str:
        """Of the history's rows; "" for who may not see them."""
        shown: Any = self.admin_site._registry.get(SegmentHistory)
        if shown is None or not shown.has_view_or_change_permission(request):
            return ""
        name = f"{self.admin_site.name}:{shown.opts.app_label}_{shown.opts.model_name}_changelist"
        return f"{reverse(name)}?{urlencode({'tag__exact': row.pk})}"

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data:
            translate_notes(response.context_data.get("action_list", ()))
        return response

    def log_addition(self, *args: Any) -> Any:
        """Nothing: a note says more."""

    def log_change(self, *args: Any) -> Any:
        """Nothing: a note says more."""

    def delete_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> HttpResponse:
        """Why there is none."""
        found = self.get_object(request, unquote(object_id))
        if found is None or not self.has_view_or_change_permission(request, found):
            raise PermissionDenied
        row = cast("LeafAlloc", found)
        context = {
            "title": _("Tags can't be deleted"),
            "why": NO_DELETION,
            "may_change": self.has_change_permission(request, row),
            "pause_url": self.action_urls(row)["pause"],
        }
        response = self._page(request, "undeletable", [row], context)
        response.status_code = 403
        return response


@admin.register(SegmentHistory)
class SegmentHistoryAdmin(ReadOnlyAdmin):
    """Who was given which range, where history is switched on."""

    list_display = ("tag", "start", "stop", "delta", "holder", "taken_at")
    search_fields = ("=tag", "holder")
    linked = ("tag",)
    # Of a table this long, counting is the slow part.
    show_full_result_count = False

    class Media:
        css: ClassVar[dict[str, list[str]]] = {"all": ["django_idgen/tags.css"]}

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        if isinstance(response, TemplateResponse) and not _keeps_history():
            text = _(
                "History is off, so that nothing is added here. Set “history” to True among "
                "the options of the segment source, and start the processes anew."
            )
            self.message_user(request, text, messages.INFO)
        return response


def _keeps_history() -> bool:
    try:
        source = source_behind_pool()
        return source.history or not source.keeps_rows
    except IdgenError:
        return True  # what is wrong with the settings is told elsewhere


def _default_step() -> int:
    try:
        return read_settings().segments.default_step
    except SettingsError:
        return DEFAULT_STEP

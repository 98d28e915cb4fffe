"""The list of tags, the page of each tag, and the pages of what can be done to them.

No page can make an id come twice. ``max_id`` only goes up: by a skip that first says what it
loses, in one statement that does not depend on what the page showed. No page deletes a tag,
which would start at 1 again.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.db.models import Q, QuerySet
from django.forms import modelform_factory
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError
from ..models import LeafAlloc, SegmentHistory
from ..ops.tags.edits import insert_tag_row
from ..ops.tags.outlook import TagOutlook
from ..process.maps import current_settings
from ..settings import SettingsError
from . import tag_changes
from .base import SafeChangeList, TableAdmin, ViewOnlyAdmin, badge, database_of, labelled
from .tag_changes import CHANGES, SkipForm, plans_of
from .tag_page import (
    ago_text,
    has_pool,
    ids_text,
    keeps_history,
    last_ids_text,
    moment_text,
    outlooks_of,
    tag_context,
)
from .text import error_text, next_fetch_text, pool_text, rate_text

if TYPE_CHECKING:
    Tags = QuerySet[LeafAlloc]
    TagForm = forms.ModelForm[models.Model]
    StepsFormSet = forms.BaseModelFormSet[models.Model, "StepForm"]
else:
    TagForm = forms.ModelForm
    StepsFormSet = forms.BaseModelFormSet


Rows = Sequence[LeafAlloc]

CONFIRMED = ("skip", "pause")
"""The changes that a page asks about first."""
MOST_AT_ONCE = 100
"""Tags that an action changes at a time: each may ask other databases."""
IN_USE = timedelta(days=1)
"""A tag counts as in use for so long after its last fetch."""


# --- forms ------------------------------------------------------------------------------


class StepInput(forms.NumberInput):
    """A number with its name, for phones, where the table has no head."""

    def render(self, *args: Any, **kwargs: Any) -> Any:
        return labelled(_("step"), super().render(*args, **kwargs))


def _step_field(**kwargs: Any) -> Any:
    """A step that comes with what the page showed, so that only an edited one is saved."""
    return LeafAlloc._meta.get_field("step").formfield(show_hidden_initial=True, **kwargs)


class StepMixin(TagForm):
    """Refuses to overwrite a step that somebody else changed after the page was opened."""

    needs_seen = False
    """Whether the browser has to say which step the page showed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = cast("LeafAlloc", copy(self.instance))
        """The tag as it was when the request came: validation changes the instance."""

    def clean_step(self) -> int:
        wanted: int = self.cleaned_data["step"]
        stored = self.before.step
        if self.instance._state.adding or wanted == stored or "step" not in self.changed_data:
            return wanted
        seen = self._seen_step()
        if seen == stored or (seen is None and not self.needs_seen):
            return wanted
        if seen is None:
            text = _("The form does not say which step the page showed. Reload the page.")
            raise ValidationError(text, code="unseen")
        raise ValidationError(
            _(
                "Somebody else has changed this step from %(seen)d to %(stored)d. It was not "
                "changed to %(wanted)d. Reload the page to change it."
            ),
            code="overtaken",
            params={"seen": seen, "stored": stored, "wanted": wanted},
        )

    def _seen_step(self) -> int | None:
        shown = str(self.data.get(self.add_initial_prefix("step"), ""))
        return int(shown) if shown.isdecimal() and len(shown) < 20 else None


class StepForm(StepMixin):
    """One row of the list: its step, and nothing else."""

    # Or the steps of all rows would be written back, edited or not.
    needs_seen = True
    step = _step_field(widget=StepInput)

    class Meta:
        model = LeafAlloc
        fields = ("step",)


class StepFormSet(StepsFormSet):
    """The steps of one page. Above the list it says which tag has a wrong one."""

    def clean(self) -> None:
        super().clean()
        wrong = [
            ValidationError(
                _("%(tag)s: %(reason)s"),
                code="wrong_step",
                params={"tag": form.instance.pk, "reason": " ".join(reasons)},
            )
            for form in self.forms
            if (reasons := [str(reason) for each in form.errors.values() for reason in each])
        ]
        if wrong:
            raise ValidationError(wrong)


class LeafAllocForm(StepMixin):
    """A tag. Only a new one has a field for its first id."""

    step = _step_field()

    class Meta:
        model = LeafAlloc
        fields = ("biz_tag", "max_id", "step", "description")
        help_texts: ClassVar[dict[str, Any]] = {
            "max_id": gettext_lazy("The first id of the tag. You can raise it later, not lower it.")
        }


# --- the list and the page of a tag -----------------------------------------------------


class TagChangeList(SafeChangeList):
    """Gives the rows of the page their forecasts."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # A queryset keeps its rows: these are the ones that are shown.
        rows: list[Any] = list(self.result_list)
        found = outlooks_of(rows)
        for row in rows:
            row.idgen_outlook = found.get(row.pk)


class StateFilter(admin.SimpleListFilter):
    """Tags by the states that the list shows."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        return [
            ("used", _("in use")),
            ("idle", _("idle")),
            ("unused", _("unused")),
            ("paused", _("paused")),
        ]

    def queryset(self, request: HttpRequest, queryset: Tags) -> Tags:  # noqa: ARG002
        since = timezone.now() - IN_USE  # as the fields have it, with time zones or without
        unused = Q(fetched_at=None, max_id=1)
        used = Q(fetched_at__gte=since)
        chosen = {
            "used": used & Q(paused=False),
            "idle": ~used & ~unused & Q(paused=False),
            "unused": unused & Q(paused=False),
            "paused": Q(paused=True),
        }.get(self.value() or "")
        return queryset if chosen is None else queryset.filter(chosen)


@admin.register(LeafAlloc)
class LeafAllocAdmin(TableAdmin):
    """Tags."""

    form = LeafAllocForm
    list_display = (
        "biz_tag",
        "state",
        "step",
        "next_free_id",
        "fetch_rate",
        "last_fetch",
        "next_fetch",
        "pool",
    )
    list_editable = ("step",)
    actions = ("preload_now", "skip_ahead", "pause", "resume")
    list_filter = (StateFilter,)
    show_facets = admin.ShowFacets.NEVER
    search_fields = ("biz_tag", "description")
    # Counting a long table is slow.
    show_full_result_count = False
    fields = ("biz_tag", "max_id", "step", "description")

    # --- the list -----------------------------------------------------------------------

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        return columns if has_pool() else [each for each in columns if each != "pool"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return TagChangeList

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return modelform_factory(LeafAlloc, form=StepForm)

    def get_changelist_formset(self, request: HttpRequest, **kwargs: Any) -> Any:
        return super().get_changelist_formset(request, **{**kwargs, "formset": StepFormSet})

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.refuse_forged_keys(request)
        saved = self._save_list(request) if "_save" in request.POST else None
        return saved or super().changelist_view(request, extra_context)

    def _save_list(self, request: HttpRequest) -> HttpResponse | None:
        """Save the steps, one at a time; None if that is refused, which Django then shows."""
        if not self.has_change_permission(request):
            return None
        made = self.get_changelist_formset(request)
        prefix = made.get_default_prefix()
        rows = self._get_list_editable_queryset(request, prefix)
        formset = made(request.POST, queryset=rows)
        if not formset.is_valid():
            return None
        tag_changes.save_steps(request, formset)
        return HttpResponseRedirect(request.get_full_path())

    @admin.display(description=gettext_lazy("state"), ordering="paused")
    def state(self, row: LeafAlloc) -> str:
        return format_html("{} {}", _state_badge(row), _ends_badge(_outlook(row)))

    @admin.display(description=LeafAlloc._meta.get_field("max_id").verbose_name, ordering="max_id")
    def next_free_id(self, row: LeafAlloc) -> str:
        # In digits only, as people copy it.
        return labelled(_("next free id"), str(row.max_id))

    @admin.display(description=gettext_lazy("fetch rate"), ordering="rate")
    def fetch_rate(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return labelled(_("fetch rate"), rate_text(found.rate if found else row.rate))

    @admin.display(description=gettext_lazy("last fetch"), ordering="fetched_at")
    def last_fetch(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return labelled(_("last fetch"), ago_text(found.fetched_at if found else row.fetched_at))

    @admin.display(description=gettext_lazy("next fetch"))
    def next_fetch(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return labelled(_("next fetch"), next_fetch_text(found.segment_left if found else None))

    @admin.display(description=gettext_lazy("pool"))
    def pool(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return labelled(_("pool"), pool_text(found.pooled if found else None))

    # --- a tag ----------------------------------------------------------------------------

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        fields = super().get_fields(request, obj)
        return fields if obj is None else [f if f != "max_id" else "next_free_id" for f in fields]

    def get_readonly_fields(
        self,
        request: HttpRequest,  # noqa: ARG002
        obj: models.Model | None = None,
    ) -> list[str]:
        return [] if obj is None else ["biz_tag", "next_free_id"]

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        return {"step": _default_step(), **super().get_changeform_initial_data(request)}

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        try:
            with tag_changes.notes_kept(request):
                return super().changeform_view(request, object_id, form_url, extra_context)
        except IdgenError as error:
            # A database does not answer, or somebody else was quicker.
            self.message_user(request, error_text(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        if row is not None:
            asked = urlencode({"tag": row.pk})
            context |= {
                **tag_context(request, row),
                "action_urls": {name: f"{self.url_of(name)}?{asked}" for name in CHANGES},
                "history_url": self._history_url(request, row),
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
            # Never an UPDATE: a process may make the tag, and use it, at this moment.
            insert_tag_row(row, database_of(LeafAlloc))
            added = {"max_id": (None, row.max_id), "step": (None, row.step)}
            tag_changes.note(request, row.pk, "added", **added)
            return
        before = form.before
        # Each has transactions of its own. They wait for nothing that this one changed.
        if "step" in form.changed_data:
            tag_changes.change_step(request, row.pk, seen=before.step, to=row.step)
        if "description" in form.changed_data:
            tag_changes.change_description(
                request, row.pk, seen=before.description, to=row.description
            )

    def _history_url(self, request: HttpRequest, row: LeafAlloc) -> str:
        """The history of the tag's ids; "" for users who may not see it."""
        shown: Any = self.admin_site._registry.get(SegmentHistory)
        if shown is None or not shown.has_view_permission(request):
            return ""
        return f"{shown.url_of('changelist')}?{urlencode({'tag__exact': row.pk})}"

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data:
            tag_changes.translate_notes(response.context_data.get("action_list", ()))
        return response

    def log_addition(self, *args: Any) -> Any:
        """Do nothing: a note says more."""

    def log_change(self, *args: Any) -> Any:
        """Do nothing: a note says more."""

    # --- actions --------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        # Before the pages of single tags, whose paths begin with any name.
        own = [
            path(
                f"{name}/",
                self.admin_site.admin_view(partial(self.action_view, name=name)),
                name=f"{self.opts.app_label}_{self.opts.model_name}_{name}",
            )
            for name in CHANGES
        ]
        return [*own, *super().get_urls()]

    @admin.action(description=gettext_lazy("Preload now"), permissions=["change"])
    def preload_now(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, "preload")

    @admin.action(description=gettext_lazy("Skip ahead…"), permissions=["change"])
    def skip_ahead(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, "skip")

    @admin.action(description=gettext_lazy("Pause…"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, "pause")

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, "resume")

    def _on_chosen(self, request: HttpRequest, queryset: Any, name: str) -> HttpResponse | None:
        """Ask about the rows that were chosen, or change them and go back to the list."""
        rows = list(queryset.order_by("pk")[: MOST_AT_ONCE + 1])
        if len(rows) > MOST_AT_ONCE:
            text = _("Choose at most %(most)d tags. No tag was changed.")
            self.message_user(request, text % {"most": MOST_AT_ONCE}, messages.ERROR)
        elif name in CONFIRMED:
            return self._ask(request, name, rows)
        else:
            CHANGES[name](request, rows)
        return None

    def action_view(self, request: HttpRequest, *, name: str) -> HttpResponse:
        """Change the tags that the request names if it is confirmed, else ask."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        names = [*request.GET.getlist("tag"), *request.POST.getlist("tag")]
        # Others are no tags; PostgreSQL raises an error for some, instead of finding nothing.
        names = [each for each in names if each.isprintable()][:MOST_AT_ONCE]
        found: Any = self.get_queryset(request).filter(pk__in=names).order_by("pk")
        if not (rows := list(found)):
            self.message_user(request, _("There are no such tags."), messages.WARNING)
            return HttpResponseRedirect(self.url_of("changelist"))
        if request.method == "POST" and "confirm" in request.POST:
            CHANGES[name](request, rows)
            return HttpResponseRedirect(self._back_url(rows))
        if name in CONFIRMED:
            return self._ask(request, name, rows)
        return HttpResponseNotAllowed(["POST"])

    def _ask(self, request: HttpRequest, name: str, rows: Rows) -> HttpResponse:
        if name == "skip":
            title, context = _("Skip ahead"), _skip_context(request, rows)
        else:
            title, context = _("Pause"), _pause_context(rows)
        return self.render_page(
            request,
            f"leafalloc/{name}.html",
            title,
            action_url=self.url_of(name),
            back_url=self._back_url(rows),
            **context,
        )

    def _back_url(self, rows: Rows) -> str:
        """The page of one tag, or the list of several."""
        if len(rows) == 1:
            return self.url_of("change", quote(rows[0].pk))
        return self.url_of("changelist")


def _skip_context(request: HttpRequest, rows: Rows) -> dict[str, Any]:
    form = SkipForm(request.POST if "review" in request.POST else None)
    plans = plans_of(rows, form)
    return {
        "form": form,
        "plans": plans,
        "refused": [plan for plan in plans if plan.refusal],
        "can_skip": form.is_bound and any(plan.is_possible for plan in plans),
    }


def _pause_context(rows: Rows) -> dict[str, Any]:
    found = outlooks_of(rows)
    tags = []
    for row in rows:
        each = found.get(row.pk)
        tags.append(
            {
                "row": row,
                "rate": rate_text(each.rate if each else 0.0),
                "next_fetch": next_fetch_text(each.segment_left if each else None),
                "pool": pool_text(each.pooled if each else None),
            }
        )
    return {"tags": tags}


# --- the history of ids -----------------------------------------------------------------


@admin.register(SegmentHistory)
class SegmentHistoryAdmin(ViewOnlyAdmin, TableAdmin):
    """Who got which range of ids, if history is on."""

    list_display = ("moment", "tag", "ids", "holder")
    list_display_links = None
    search_fields = ("=tag", "holder")
    linked = ("tag",)
    # Counting a long table is slow.
    show_full_result_count = False

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response = super().changelist_view(request, extra_context)
        if isinstance(response, TemplateResponse) and not keeps_history():
            text = _(
                "History is off, so nothing is added here. To switch it on, set the option "
                "“history” of the segment source to True and restart the processes."
            )
            # Django shows an INFO as it shows a success.
            self.message_user(request, text, messages.WARNING)
        return response

    @admin.display(description=gettext_lazy("time"), ordering="taken_at")
    def moment(self, row: SegmentHistory) -> str:
        return moment_text(row.taken_at)

    @admin.display(description=gettext_lazy("ids"), ordering="start")
    def ids(self, row: SegmentHistory) -> str:
        return ids_text(row)


def _default_step() -> int:
    try:
        return current_settings().segments.default_step
    except SettingsError:
        from ..settings.config import DEFAULT_STEP

        return DEFAULT_STEP


def _outlook(row: LeafAlloc) -> TagOutlook | None:
    found: TagOutlook | None = getattr(row, "idgen_outlook", None)
    return found


def _state_badge(row: LeafAlloc) -> str:
    if row.paused:
        return badge("warn", _("paused"))
    if row.fetched_at is None and row.max_id == 1:
        return badge("quiet", _("unused"))
    if row.fetched_at is None or timezone.now() - row.fetched_at > IN_USE:
        return badge("quiet", _("idle"))
    return badge("good", _("in use"))


def _ends_badge(found: TagOutlook | None) -> str:
    text = last_ids_text(found)
    return badge("bad", text) if text else mark_safe("")  # nosec B308  # a constant

"""The list of tags, the page of each tag, and the actions on them; and the segments granted.

No page can make an id come twice. ``max_id`` only goes up: by a skip that first says what it
loses, in one statement that does not depend on what the page showed. No page deletes a tag,
which would start at 1 again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db import DatabaseError, models
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import ConfigurationError, IdgenError, SegmentUnavailable, one_line
from ..core.segment import MAX_ID, MAX_STEP
from ..core.source import POOL
from ..models import LeafAlloc, SegmentHistory
from ..ops.tags import edits
from ..ops.tags.change_log import record
from ..ops.tags.outlook import IN_USE, TagOutlook, outlook, outlooks, state
from ..process.maps import current_settings
from ..process.tags import (
    TagsElsewhere,
    find_tag,
    is_fetched_from,
    known_tag,
    source_in_use,
    source_of_tags,
)
from ..settings import SettingsError
from .base import TableAdmin, ViewOnlyAdmin, column, database_of
from .chart import chart, keeps_history
from .text import (
    UNKNOWN,
    YEAR,
    ago_text,
    duration_text,
    moment_text,
    next_fetch_text,
    rate_text,
)

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[LeafAlloc]
else:
    ModelForm = forms.ModelForm

Rows = Sequence[LeafAlloc]
Done = tuple[str, bool]
"""What was done to a tag, for the user; False if a part of it was not."""

MOST_AT_ONCE = 100
"""Tags that an action changes at a time: each may ask other databases."""
PRELOADING = 10.0
"""Seconds after which no further tag is preloaded: the user waits for the page."""
SHORT = 100 * YEAR
"""How long all ids have to last, or the pages warn."""


# --- forms ------------------------------------------------------------------------------


class TagForm(ModelForm):
    """A tag. It comes back with the step that the page showed, which may be another one by now."""

    step = LeafAlloc._meta.get_field("step").formfield(show_hidden_initial=True)

    def validate_unique(self) -> None:
        """In the databases that have the tag, which may not be those of the model."""
        with suppress(IdgenError):  # it is reported when the tag is made
            if self.instance._state.adding and find_tag(self.instance.pk) is not None:
                self.add_error(
                    "biz_tag", self.instance.unique_error_message(LeafAlloc, ("biz_tag",))
                )

    def clean_step(self) -> int:
        shown = self.data.get(self.add_initial_prefix("step"))
        self.seen_step = self.instance.step if shown is None else self.fields["step"].clean(shown)
        step: int = self.cleaned_data["step"]
        return step


class StepForm(forms.Form):
    """The step that all chosen tags get."""

    step = forms.IntegerField(label=gettext_lazy("Step"), min_value=1, max_value=MAX_STEP)


class SkipForm(forms.Form):
    """How far tags skip ahead: by a number of ids, or to an id."""

    how = forms.ChoiceField(
        label=gettext_lazy("Skip"),
        choices=(
            ("by", gettext_lazy("this many ids")),
            ("to", gettext_lazy("to this id, which is given out next")),
        ),
        widget=forms.RadioSelect,
        initial="by",
    )
    number = forms.IntegerField(label=gettext_lazy("Number"), min_value=1, max_value=MAX_ID)

    def plan(self, tag: str) -> edits.SkipPlan:
        """What it means for ``tag``. Raises what :func:`edits.plan_skip` does."""
        values = self.cleaned_data
        return edits.plan_skip(tag, most=MAX_ID, **{values["how"]: values["number"]})


# --- the list and the page of a tag -----------------------------------------------------


class TagChangeList(ChangeList):
    """Gives the rows of the page their forecasts, with one call to Redis."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # A queryset keeps its rows: these are the ones that are shown.
        rows: list[Any] = list(self.result_list)
        try:
            found = outlooks(rows, database_of(LeafAlloc))
        except (IdgenError, DatabaseError):
            found = {}
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

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:  # noqa: ARG002
        since = timezone.now() - IN_USE  # as the fields have it, with time zones or without
        unused = Q(fetched_at=None, max_id=1)
        used = Q(fetched_at__gte=since) & ~Q(holder=POOL, rate=0)  # as state() has it
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

    form: Any = TagForm
    list_display = (
        "biz_tag",
        "state",
        "step_of",
        "next_free_id",
        "fetch_rate",
        "last_fetch",
        "next_fetch",
        "pool",
    )
    actions = ("preload_now", "change_step", "skip_ahead", "pause", "resume")
    list_filter = (StateFilter,)
    search_fields = ("biz_tag", "description")
    readonly_fields = ("next_free_id", "state", "fetch_rate", "fetched", "next_fetch", "pool")

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        return columns if _has_pool() else [each for each in columns if each != "pool"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and not _elsewhere()

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if why := _elsewhere() or _not_shown():
            self.message_user(request, why, messages.WARNING)
        return super().changelist_view(request, *args, **kwargs)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return TagChangeList

    @column(gettext_lazy("state"), ordering="paused")
    def state(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        if isinstance(found, str):
            return found
        if found is None or found.range_left is None or found.range_left > SHORT:
            return _(state(row))
        ends = _("ends in %(time)s") % {"time": duration_text(found.range_left)}
        return f"{_(state(row))}, {ends}"

    @column(LeafAlloc._meta.get_field("step").verbose_name, ordering="step")
    def step_of(self, row: LeafAlloc) -> str:
        return str(row.step)

    @column(LeafAlloc._meta.get_field("max_id").verbose_name, ordering="max_id")
    def next_free_id(self, row: LeafAlloc) -> str:
        return str(row.max_id)

    @column(gettext_lazy("fetch rate"), ordering="rate")
    def fetch_rate(self, row: LeafAlloc) -> str:
        return rate_text(getattr(_outlook(row), "rate", row.rate))

    @column(gettext_lazy("last fetch"), ordering="fetched_at")
    def last_fetch(self, row: LeafAlloc) -> str:
        at = getattr(_outlook(row), "fetched_at", row.fetched_at)
        return ago_text(None if at is None else (timezone.now() - at).total_seconds())

    @column(gettext_lazy("next fetch"))
    def next_fetch(self, row: LeafAlloc) -> str:
        return next_fetch_text(getattr(_outlook(row), "segment_left", None))

    @column(gettext_lazy("pool"))
    def pool(self, row: LeafAlloc) -> str:
        ids = getattr(_outlook(row), "pooled", None)
        return UNKNOWN if ids is None else str(ids)

    # --- a tag ----------------------------------------------------------------------------

    def get_fieldsets(self, request: HttpRequest, obj: models.Model | None = None) -> Any:  # noqa: ARG002
        if obj is None:
            return [(None, {"fields": ("biz_tag", "max_id", "step", "description")})]
        use = ["state", "fetch_rate", "fetched", "next_fetch", *(["pool"] * _has_pool())]
        return [
            (None, {"fields": ("biz_tag", "next_free_id", "step", "description")}),
            (_("Use"), {"fields": use}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: models.Model | None = None) -> Any:
        fixed = super().get_readonly_fields(request, obj)
        return fixed if obj is None else (*fixed, "biz_tag")

    @admin.display(description=gettext_lazy("last fetch"))
    def fetched(self, row: LeafAlloc) -> str:
        found: Any = _outlook(row)
        if getattr(found, "fetched_at", None) is None:
            return UNKNOWN
        return _("%(moment)s: %(ids)s ids for %(holder)s") % {
            "moment": moment_text(found.fetched_at),
            "ids": found.fetched_ids,
            "holder": found.holder or UNKNOWN,
        }

    def get_changeform_initial_data(self, request: HttpRequest) -> Any:
        given = super().get_changeform_initial_data(request)
        try:
            return {"step": current_settings().segments.default_step, **given}
        except SettingsError:
            return given

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        if row is not None:
            context |= {
                "chart": chart(row.pk, request.GET.get("span", "")),
                "databases": _databases(row.pk),
                "list_url": self.url_of("changelist"),
                "granted_url": self._granted_url(request, row),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    def _granted_url(self, request: HttpRequest, row: LeafAlloc) -> str:
        """The list of the segments granted of the tag; "" for users who may not see it."""
        shown: Any = self.admin_site._registry.get(SegmentHistory)
        if shown is None or not shown.has_view_permission(request):
            return ""
        return f"{shown.url_of('changelist')}?{urlencode({'tag__exact': row.pk})}"

    def save_model(self, request: HttpRequest, obj: models.Model, form: Any, change: bool) -> None:
        row, tag = cast("LeafAlloc", obj), obj.pk
        try:
            if not change:
                edits.make_tag(tag, step=row.step, description=row.description, max_id=row.max_id)
                record(request.user, tag, "added", max_id=(None, row.max_id), step=(None, row.step))
                return
            _check_fetched(row)
            if row.step != form.seen_step:
                _change_step(request, tag, seen=form.seen_step, to=row.step)
            if "description" in form.changed_data:
                edits.change_tag(tag, description=row.description)
                both = form.initial["description"], row.description
                record(request.user, tag, "changed", description=both)
        except IdgenError as error:
            # A database does not answer, or someone else was quicker.
            self.message_user(request, one_line(error), messages.ERROR)
            request.__dict__["idgen_failed"] = True

    def response_add(self, request: HttpRequest, obj: models.Model, *args: Any) -> HttpResponse:
        return _again_if_failed(request) or super().response_add(request, obj, *args)

    def response_change(self, request: HttpRequest, obj: models.Model) -> HttpResponse:
        return _again_if_failed(request) or super().response_change(request, obj)

    def log_addition(self, *args: Any) -> Any:
        """Do nothing: :func:`record` says more."""

    def log_change(self, *args: Any) -> Any:
        """Do nothing: :func:`record` says more."""

    # --- actions --------------------------------------------------------------------------

    @admin.action(description=gettext_lazy("Preload now"), permissions=["change"])
    def preload_now(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        until = SYSTEM_CLOCK.stopwatch() + PRELOADING
        return self._each(request, queryset, partial(_preload, request, until))

    @admin.action(description=gettext_lazy("Change the step…"), permissions=["change"])
    def change_step(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        seen = _sent_with_each(request, "seen")
        form = StepForm(request.POST if "confirm" in request.POST else None)
        if not form.is_valid():
            return self._ask(request, queryset, "change_step", _("Change the step"), form=form)
        step, read = form.cleaned_data["step"], form.fields["step"].clean

        def change(row: LeafAlloc) -> Done:
            _change_step(request, row.pk, seen=read(seen.get(row.pk)), to=step)
            return f"The step of tag {row.pk!r} is {step}. It applies from the next fetch on.", True

        return self._each(request, queryset, change)

    @admin.action(description=gettext_lazy("Skip ahead…"), permissions=["change"])
    def skip_ahead(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        if "confirm" in request.POST:
            to = _sent_with_each(request, "to")
            read = SkipForm.base_fields["number"].clean
            return self._each(
                request, queryset, lambda row: _skip(request, row.pk, read(to.get(row.pk)))
            )
        form = SkipForm(request.POST if "preview" in request.POST else None)
        rows = self._chosen(request, queryset) if form.is_valid() else []
        plans = [_planned(row, form) for row in rows]
        asked = {"form": form, "plans": plans, "can_skip": any("plan" in each for each in plans)}
        return self._ask(request, queryset, "skip_ahead", _("Skip ahead"), **asked)

    @admin.action(description=gettext_lazy("Pause…"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        if "confirm" in request.POST:
            return self._each(request, queryset, partial(_pause, request))
        return self._ask(request, queryset, "pause", _("Pause"))

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: Any) -> HttpResponse:
        return self._each(request, queryset, partial(_resume, request))

    def _each(
        self, request: HttpRequest, queryset: Any, change: Callable[[LeafAlloc], Done]
    ) -> HttpResponse:
        """``change`` each row, and tell what it returns. After an error the others go on."""
        rows = self._chosen(request, queryset)
        for row in rows:
            try:
                _check_fetched(row)
                text, is_whole = change(row)
                level = messages.SUCCESS if is_whole else messages.WARNING
                self.message_user(request, text, level)
            except IdgenError as error:
                self.message_user(request, f"{row.pk}: {one_line(error)}", messages.ERROR)
            except ValidationError as error:
                text = " ".join(error.messages)
                self.message_user(request, f"{row.pk}: {text}", messages.ERROR)
        return HttpResponseRedirect(self._back_url(rows))

    def _ask(
        self, request: HttpRequest, queryset: Any, action: str, title: str, **context: Any
    ) -> HttpResponse:
        """The page on which ``action`` is confirmed, which sends it to the list again."""
        rows = self._chosen(request, queryset)
        if not rows:
            return HttpResponseRedirect(self.url_of("changelist"))
        # Of the list, but for the tag itself.
        columns = [(name, getattr(self, name)) for name in self.get_list_display(request)[1:]]
        return self.render_page(
            request,
            f"leafalloc/{action}.html",
            title,
            action=action,
            heads=[(name, show.short_description) for name, show in columns],
            rows=[(row, [(name, show(row)) for name, show in columns]) for row in rows],
            back_url=self._back_url(rows),
            **context,
        )

    def _chosen(self, request: HttpRequest, queryset: Any) -> Rows:
        """The rows of ``queryset``; none if there are too many. The page says why none is left."""
        rows: Rows = list(queryset.order_by("pk")[: MOST_AT_ONCE + 1])
        if 0 < len(rows) <= MOST_AT_ONCE:
            return rows
        text = "There are no such tags."
        if rows:
            text = f"Choose at most {MOST_AT_ONCE} tags. No tag was changed."
        self.message_user(request, text, messages.ERROR)
        return []

    def _back_url(self, rows: Rows) -> str:
        """The page of one tag, or the list of several."""
        if len(rows) == 1:
            return self.url_of("change", quote(rows[0].pk))
        return self.url_of("changelist")


def _sent_with_each(request: HttpRequest, name: str) -> dict[str, str]:
    """What the page of an action sends with each tag."""
    tags = request.POST.getlist(ACTION_CHECKBOX_NAME)
    return dict(zip(tags, request.POST.getlist(name), strict=False))


# --- what is done to a tag, recorded, and told ------------------------------------------------


def _preload(request: HttpRequest, until: float, row: LeafAlloc) -> Done:
    """Load ids into this process and into the pool, unless it is ``until`` already."""
    if SYSTEM_CLOCK.stopwatch() > until:
        raise SegmentUnavailable("It was not preloaded: there was no time left. Try again.")
    ready, pooled = edits.preload_here(row.pk), edits.fill_pool(row)
    record(request.user, row.pk, "preloaded")
    done = "was preloaded" if ready else "was not preloaded in time"
    pool = "There is no pool." if pooled is None else f"The pool got {pooled} ids."
    held = f"This process has {edits.held_here(row.pk)} ids."
    return f"Tag {row.pk!r} {done}. {held} {pool}", ready


def _change_step(request: HttpRequest, tag: str, *, seen: int, to: int) -> None:
    """Change a step that the page showed as ``seen``; an error if someone else has changed it."""
    edits.replace_step(tag, database_of(LeafAlloc), seen=seen, to=to)
    record(request.user, tag, "changed", step=(seen, to))


def _skip(request: HttpRequest, tag: str, to: int) -> Done:
    """Skip in all databases of the tag, and drop lower ids of this process and the pool."""
    before = edits.plan_skip(tag, most=MAX_ID, to=to).before
    edits.skip_tag(tag, most=MAX_ID, to=to)
    record(request.user, tag, "skipped", max_id=(before, to))
    cleared = edits.clear_tag(tag)
    return f"The next id of tag {tag!r} is {to}{cleared.pool_note}.", cleared.pool is not False


def _planned(row: LeafAlloc, form: SkipForm) -> dict[str, Any]:
    """What a skip means for a tag, or why it can't be."""
    try:
        _check_fetched(row)
        pooled = getattr(_outlook(row), "pooled", None)
        return {"tag": row.pk, "plan": form.plan(row.pk), "pooled": pooled}
    except IdgenError as error:
        return {"tag": row.pk, "refusal": one_line(error)}


def _pause(request: HttpRequest, row: LeafAlloc) -> Done:
    """Pause a tag, also one that is paused: one of its databases may not be."""
    was_paused, trouble = known_tag(row.pk).paused, None
    try:
        edits.pause_tag(row.pk)
    except edits.PoolStillOpen as error:  # the tag is paused, but
        trouble = error
    if not was_paused:
        record(request.user, row.pk, "paused")
    if trouble:
        raise trouble
    return f"Tag {row.pk!r} is paused.", True


def _resume(request: HttpRequest, row: LeafAlloc) -> Done:
    if known_tag(row.pk).paused:
        edits.resume_tag(row.pk)
        record(request.user, row.pk, "resumed")
    return f"Tag {row.pk!r} gives out ids again.", True


# --- what the pages show of a tag --------------------------------------------------------------


def _outlook(row: LeafAlloc) -> TagOutlook | str | None:
    """The forecast of a tag; or what is wrong, as text; None if the list has none."""
    kept = row.__dict__
    if "idgen_outlook" not in kept:
        try:
            _check_fetched(row)
            kept["idgen_outlook"] = outlook(row.pk)
        except (IdgenError, DatabaseError) as error:
            kept["idgen_outlook"] = one_line(error)
    found: TagOutlook | str | None = kept["idgen_outlook"]
    return found


def _check_fetched(row: LeafAlloc) -> None:
    """Raise :class:`ConfigurationError` if this project takes no ids from ``row``."""
    alias = database_of(LeafAlloc)
    if not is_fetched_from(row.pk, alias):
        raise ConfigurationError(
            f"This project takes no ids from the row of tag {row.pk!r} in database {alias!r}. "
            f"Change it in the project that does."
        )


def _databases(tag: str) -> list[tuple[str, LeafAlloc]]:
    """The databases that share ``tag``, with its row in each; none if it is in one alone."""
    try:
        known = find_tag(tag)
    except IdgenError:
        return []  # the state says what is wrong
    return list(known.rows.items()) if known and len(known.rows) > 1 else []


def _elsewhere() -> str:
    """Why this project has no tags: a service has them."""
    with suppress(ConfigurationError, ImportError):  # the checks report them
        try:
            source_of_tags()
        except TagsElsewhere as error:
            return str(error)
    return ""


def _not_shown() -> str:
    """That tags of other databases are not in the list, where a router says which has a tag."""
    with suppress(ConfigurationError, ImportError):
        if source_of_tags().is_routed:
            return (
                f"These are the tags in database {database_of(LeafAlloc)!r}. 'manage.py idgen_tag "
                "list' shows those of all databases."
            )
    return ""


def _has_pool() -> bool:
    """Whether segments come from a pool, which may be down."""
    try:
        return source_in_use().is_pool
    except IdgenError:
        return False


def _again_if_failed(request: HttpRequest) -> HttpResponse | None:
    """The same page if nothing was saved; its message says why."""
    failed = request.__dict__.get("idgen_failed")
    return HttpResponseRedirect(request.get_full_path()) if failed else None


# --- segments granted -------------------------------------------------------------------


@admin.register(SegmentHistory)
class SegmentHistoryAdmin(ViewOnlyAdmin):
    """Which process got which range of ids, if history is on."""

    list_display = ("tag", "moment", "ids", "holder_of")
    list_display_links = None
    search_fields = ("=tag", "holder")
    linked = ("tag__exact",)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not keeps_history():
            text = (
                "No history is kept now. To keep one, set the option 'history' of the segment "
                "source to True and restart the processes."
            )
            self.message_user(request, text, messages.WARNING)
        return super().changelist_view(request, *args, **kwargs)

    @column(gettext_lazy("time"), ordering="taken_at")
    def moment(self, row: SegmentHistory) -> str:
        return moment_text(row.taken_at)

    @column(gettext_lazy("ids"), ordering="start")
    def ids(self, row: SegmentHistory) -> str:
        """The first and the last one."""
        ids = range(row.start, row.stop, max(row.delta, 1))
        return f"{row.start} – {ids[-1] if ids else row.start}"

    @column(gettext_lazy("holder"), ordering="holder")
    def holder_of(self, row: SegmentHistory) -> str:
        return row.holder

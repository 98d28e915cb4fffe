"""The list of tags, the page of each, and the pages of what can be done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, models
from django.db.models import F, FloatField, Q, QuerySet, Value
from django.db.models.functions import Cast, NullIf
from django.forms import modelform_factory
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...core.errors import IdgenError
from ...core.segment import MAX_ID
from ...models import LeafAlloc, SegmentHistory
from ...ops.tags.edits import insert_tag_row
from ...ops.tags.outlook import TagOutlook, outlooks
from ...process.tags import source_behind_pool
from ...settings.config import DEFAULT_STEP, SettingsError, read_settings
from ..base import ReadOnlyAdmin, SafeChangeList, TableAdmin, database_of
from ..words import duration_words, error_words, pool_words, rate_words
from . import changes
from .details import tag_context
from .forms import LeafAllocForm, SkipForm, StepForm, StepFormSet
from .skips import plans_of

if TYPE_CHECKING:
    Tags = QuerySet[LeafAlloc]

__all__ = ["LeafAllocAdmin", "SegmentHistoryAdmin"]

Rows = Sequence[LeafAlloc]

DOES: Mapping[str, Callable[[HttpRequest, Rows], changes.Outcomes]] = {
    "preload": changes.preload,
    "skip": changes.skip,
    "pause": partial(changes.pause, paused=True),
    "resume": partial(changes.pause, paused=False),
}
"""What can be done to tags, each with a page of that name; from the list and from a tag's page."""
ASKS = ("skip", "pause")
"""Those that show first what they would do."""
MOST_AT_ONCE = 100
"""Tags that an action takes: each takes questions to databases of its own."""
IN_USE = timedelta(days=1)
"""A tag counts as in use for so long after its last fetch."""

# As floats: on MariaDB a division of whole numbers is one of decimals.
SECONDS_LEFT = (Value(float(MAX_ID)) - Cast("max_id", FloatField())) / NullIf(
    F("rate"), Value(0.0), output_field=FloatField()
)
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


class PageOutlooks:
    """The outlook of each of ``rows``, asked for at once when the first one is shown."""

    def __init__(self, rows: Iterable[LeafAlloc]) -> None:
        self._rows = rows

    @cached_property
    def _found(self) -> Mapping[str, TagOutlook]:
        try:
            return outlooks(self._rows, database_of(LeafAlloc))
        except (IdgenError, DatabaseError):
            # Settings that can't work, say: the rows themselves are worth a page.
            return {}

    def of(self, row: LeafAlloc) -> TagOutlook | None:
        return self._found.get(row.pk)


class TagChangeList(SafeChangeList):
    """Gives the rows of the page their outlooks."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # Reads the page's rows, which everything after this finds read.
        rows: list[Any] = list(self.result_list)
        shared = PageOutlooks(rows)
        for row in rows:
            row.idgen_outlooks = shared


class UseFilter(admin.SimpleListFilter):
    """Tags whose ids are being used, or not any more."""

    title = gettext_lazy("use")
    parameter_name = "use"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:  # noqa: ARG002
        return [
            ("lately", _("fetched within a day")),
            ("idle", _("not fetched for a day")),
            ("never", _("never fetched")),
        ]

    def queryset(self, request: HttpRequest, queryset: Tags) -> Tags:  # noqa: ARG002
        since = timezone.now() - IN_USE  # as the fields have it, with time zones or without
        chosen = {
            "lately": Q(fetched_at__gte=since),
            "idle": Q(fetched_at__lt=since),
            "never": Q(fetched_at=None, max_id=1),
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
        "max_id",
        "speed",
        "segment_lasts",
        "range_lasts",
        "pool",
        "holder",
    )
    list_editable = ("step",)
    actions = ("preload_now", "skip_ahead", "pause", "resume")
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
        changes.save_steps(request, formset).tell(request)
        return HttpResponseRedirect(request.get_full_path())

    @admin.display(description=gettext_lazy("state"), ordering="paused")
    def state(self, row: LeafAlloc) -> str:
        if row.paused:
            return _badge("warn", _("paused"))
        if row.fetched_at is None:
            return _badge("quiet", _("unused") if row.max_id == 1 else _("idle"))
        if timezone.now() - row.fetched_at < IN_USE:
            return _badge("good", _("in use"))
        return _badge("quiet", _("idle"))

    @admin.display(description=gettext_lazy("fetch rate"), ordering="rate")
    def speed(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return rate_words(found.rate if found else row.rate)

    @admin.display(description=gettext_lazy("segment lasts"))
    def segment_lasts(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return duration_words(found.segment_left if found else None)

    @admin.display(description=gettext_lazy("ids last"), ordering=SECONDS_LEFT)
    def range_lasts(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        return duration_words(found.range_left if found else None)

    @admin.display(description=gettext_lazy("in the pool"))
    def pool(self, row: LeafAlloc) -> str:
        found = _outlook(row)
        ids = pool_words(found.pooled if found else None)
        if found is None or not found.pooled or found.pool_left is None:
            return ids
        return _("%(ids)s (%(time)s)") % {"ids": ids, "time": duration_words(found.pool_left)}

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
            with changes.notes_kept(request):
                return super().changeform_view(request, object_id, form_url, extra_context)
        except IdgenError as error:
            # A database does not answer, or somebody was quicker.
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
            insert_tag_row(row, database_of(LeafAlloc))
            changes.note(request, row.pk, "added", max_id=(None, row.max_id), step=(None, row.step))
            return
        before = form.before
        # Each in transactions of its own: in this one, nothing that they would wait for is
        # changed.
        if "step" in form.changed_data:
            changes.change_step(request, row.pk, seen=before.step, to=row.step)
        if "description" in form.changed_data:
            changes.change_description(request, row.pk, seen=before.description, to=row.description)

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
            changes.translate_notes(response.context_data.get("action_list", ()))
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

    # --- actions --------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        # Before the pages of single tags, whose paths begin with any name.
        own = [
            path(
                f"{name}/",
                self.admin_site.admin_view(partial(self.action_view, name=name)),
                name=self._name_of(name),
            )
            for name in DOES
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
        rows = list(queryset.order_by("pk")[: MOST_AT_ONCE + 1])
        if len(rows) <= MOST_AT_ONCE:
            return (self._ask if name in ASKS else self._do)(request, name, rows)
        text = _("That takes %(most)d tags at a time at most. Choose fewer; none was changed.")
        self.message_user(request, text % {"most": MOST_AT_ONCE}, messages.ERROR)
        return None

    def action_view(self, request: HttpRequest, *, name: str) -> HttpResponse:
        """Do ``name`` to the tags that the request names if it was confirmed, else ask."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        # Others are no tags; and PostgreSQL breaks off at some, instead of finding none.
        names = [each for each in given.getlist("tag") if each.isprintable()][:MOST_AT_ONCE]
        rows: Any = self.get_queryset(request).filter(pk__in=names).order_by("pk")
        if not rows:
            self.message_user(request, _("There are no such tags."), messages.WARNING)
            return HttpResponseRedirect(self._url_of("changelist"))
        confirmed = request.method == "POST" and "confirm" in request.POST
        return (self._do if confirmed else self._ask)(request, name, list(rows))

    def _do(self, request: HttpRequest, name: str, rows: Rows) -> HttpResponse:
        DOES[name](request, rows).tell(request)
        return HttpResponseRedirect(self._back_url(request, rows))

    def _ask(self, request: HttpRequest, name: str, rows: Rows) -> HttpResponse:
        if name not in ASKS:
            return HttpResponseNotAllowed(["POST"])
        shared = PageOutlooks(rows)
        if name == "pause":
            tags = [{"row": row, **_words(shared.of(row))} for row in rows]
            return self._page(request, name, rows, {"title": _("Pause"), "tags": tags})
        form = SkipForm(request.POST if "review" in request.POST else None)
        plans = plans_of(rows, form, shared.of)
        context = {
            "title": _("Skip ahead"),
            "form": form,
            "plans": plans,
            "refused": [plan for plan in plans if plan.refusal],
            "can_skip": form.is_bound and any(plan.is_possible for plan in plans),
        }
        return self._page(request, name, rows, context)

    def _page(
        self, request: HttpRequest, name: str, rows: Rows, context: dict[str, Any]
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "rows": rows,
            "action_url": self._url_of(name) if name in DOES else "",
            "back": request.POST.get("back", request.GET.get("back", "")),
            "filters": self._filters(request),
            "back_url": self._back_url(request, rows),
            **context,
        }
        template = f"admin/django_idgen/leafalloc/{name}.html"
        return TemplateResponse(request, template, context)

    # --- addresses -----------------------------------------------------------------------

    def action_urls(self, row: LeafAlloc) -> dict[str, str]:
        """By the action, from the page of ``row`` and back to it."""
        asked = urlencode({"tag": row.pk, "back": "tag"})
        return {
            "preload": self._url_of("preload"),
            "resume": self._url_of("resume"),
            "skip": f"{self._url_of('skip')}?{asked}",
            "pause": f"{self._url_of('pause')}?{asked}",
        }

    def _url_of(self, view: str, *key: str) -> str:
        return reverse(f"{self.admin_site.name}:{self._name_of(view)}", args=key)

    def _back_url(self, request: HttpRequest, rows: Rows) -> str:
        given = request.POST if request.method == "POST" else request.GET
        if given.get("back") == "tag" and len(rows) == 1:
            return self._url_of("change", quote(rows[0].pk))
        filters = self._filters(request)
        return f"{self._url_of('changelist')}?{filters}" if filters else self._url_of("changelist")

    def _filters(self, request: HttpRequest) -> str:
        """The query of the list that this came from."""
        if request.path == self._url_of("changelist"):
            return request.GET.urlencode()
        return str(request.POST.get("filters", ""))

    def _name_of(self, view: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{view}"


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
        return True  # the checks say what is wrong with the settings


def _default_step() -> int:
    try:
        return read_settings().segments.default_step
    except SettingsError:
        return DEFAULT_STEP


def _outlook(row: LeafAlloc) -> TagOutlook | None:
    shared: PageOutlooks | None = getattr(row, "idgen_outlooks", None)
    return None if shared is None else shared.of(row)


def _badge(kind: str, text: str) -> str:
    return format_html(
        '<span class="idgen"><span class="idgen-badge idgen-{}">{}</span></span>', kind, text
    )


def _words(found: TagOutlook | None) -> dict[str, str]:
    """What a tag still has, for people; dashes where that can't be told."""
    return {
        "rate": rate_words(found.rate if found else 0.0),
        "segment_lasts": duration_words(found.segment_left if found else None),
        "pool": pool_words(found.pooled if found else None),
    }

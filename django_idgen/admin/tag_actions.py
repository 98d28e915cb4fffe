"""What can be done to tags: preload, skip ahead, pause, resume; from the list and their pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..models import LeafAlloc
from ..ops.tags.outlook import TagOutlook
from . import tag_changes
from .base import GrantsAdmin
from .tag_forms import SkipForm
from .tag_list import PageOutlooks
from .tag_outcomes import Outcomes
from .tag_skips import plans_of, read_targets
from .tag_words import duration_words, pool_words, rate_words

__all__ = ["TagActions"]

ACTIONS = ("preload", "skip", "pause", "resume")
MOST_AT_ONCE = 100
"""Tags that an action takes: each takes questions to databases of its own."""

Rows = Sequence[LeafAlloc]
Page = Callable[[HttpRequest, Rows], HttpResponse]


class TagActions(GrantsAdmin):
    """The actions of the list, and their pages. All take the permission to change."""

    actions = ("preload_now", "skip_ahead", "pause", "resume")

    def get_urls(self) -> list[URLPattern]:
        views = (self.preload_view, self.skip_view, self.pause_view, self.resume_view)
        # Before the pages of single tags, whose paths begin with any name.
        own = [
            path(f"{name}/", self.admin_site.admin_view(view), name=self._name_of(name))
            for name, view in zip(ACTIONS, views, strict=True)
        ]
        return [*own, *super().get_urls()]

    # --- from the list ----------------------------------------------------------------

    @admin.action(description=gettext_lazy("Preload now"), permissions=["change"])
    def preload_now(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, self._preload)

    @admin.action(description=gettext_lazy("Skip ahead…"), permissions=["change"])
    def skip_ahead(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, self._ask_skip)

    @admin.action(description=gettext_lazy("Pause…"), permissions=["change"])
    def pause(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, self._ask_pause)

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        return self._on_chosen(request, queryset, self._resume)

    def _on_chosen(self, request: HttpRequest, queryset: Any, page: Page) -> HttpResponse | None:
        rows = list(queryset.order_by("pk")[: MOST_AT_ONCE + 1])
        if len(rows) <= MOST_AT_ONCE:
            return page(request, rows)
        text = _("That takes %(most)d tags at a time at most. Choose fewer; none was changed.")
        self.message_user(request, text % {"most": MOST_AT_ONCE}, messages.ERROR)
        return None

    # --- pages of their own -------------------------------------------------------------

    def preload_view(self, request: HttpRequest) -> HttpResponse:
        return self._on_named(request, self._preload, self._post_only)

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        return self._on_named(request, self._resume, self._post_only)

    def skip_view(self, request: HttpRequest) -> HttpResponse:
        return self._on_named(request, self._skip, self._ask_skip)

    def pause_view(self, request: HttpRequest) -> HttpResponse:
        return self._on_named(request, self._pause, self._ask_pause)

    def _on_named(self, request: HttpRequest, sure: Page, ask: Page) -> HttpResponse:
        """``sure`` what was confirmed, else ``ask``; of the tags that the request names."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        # Others are no tags; and PostgreSQL breaks off at some, instead of finding none.
        names = [name for name in given.getlist("tag") if name.isprintable()][:MOST_AT_ONCE]
        rows: Any = self.get_queryset(request).filter(pk__in=names).order_by("pk")
        if not rows:
            self.message_user(request, _("There are no such tags."), messages.WARNING)
            return HttpResponseRedirect(self._list_url())
        confirmed = request.method == "POST" and "confirm" in request.POST
        return (sure if confirmed else ask)(request, list(rows))

    def _post_only(self, request: HttpRequest, rows: Rows) -> HttpResponse:  # noqa: ARG002
        return HttpResponseNotAllowed(["POST"])

    def _ask_skip(self, request: HttpRequest, rows: Rows) -> HttpResponse:
        form = SkipForm(request.POST if "review" in request.POST else None)
        plans = plans_of(rows, form)
        context = {
            "title": _("Skip ahead"),
            "form": form,
            "plans": plans,
            "refused": [plan for plan in plans if plan.refusal],
            "can_skip": form.is_bound and any(plan.is_possible for plan in plans),
        }
        return self._page(request, "skip", rows, context)

    def _ask_pause(self, request: HttpRequest, rows: Rows) -> HttpResponse:
        shared = PageOutlooks(rows)
        tags = [{"row": row, **_words(shared.of(row))} for row in rows]
        return self._page(request, "pause", rows, {"title": _("Pause"), "tags": tags})

    def _page(
        self, request: HttpRequest, name: str, rows: Rows, context: dict[str, Any]
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "rows": rows,
            "action_url": self._url_of(name) if name in ACTIONS else "",
            "back": request.POST.get("back", request.GET.get("back", "")),
            "filters": self._filters(request),
            "back_url": self._back_url(request, rows),
            **context,
        }
        template = f"admin/django_idgen/leafalloc/{name}.html"
        return TemplateResponse(request, template, context)

    # --- what is done --------------------------------------------------------------------

    def _preload(self, request: HttpRequest, rows: Rows) -> HttpResponse:
        return self._done(request, rows, tag_changes.preload(request, rows))

    def _skip(self, request: HttpRequest, rows: Rows) -> HttpResponse:
        targets = read_targets(request.POST)
        return self._done(request, rows, tag_changes.skip(request, rows, targets))

    def _pause(self, request: HttpRequest, rows: Rows) -> HttpResponse:
        return self._done(request, rows, tag_changes.pause(request, rows, paused=True))

    def _resume(self, request: HttpRequest, rows: Rows) -> HttpResponse:
        return self._done(request, rows, tag_changes.pause(request, rows, paused=False))

    def _done(self, request: HttpRequest, rows: Rows, outcomes: Outcomes) -> HttpResponse:
        outcomes.tell(request)
        return HttpResponseRedirect(self._back_url(request, rows))

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
        return f"{self._list_url()}?{filters}" if filters else self._list_url()

    def _filters(self, request: HttpRequest) -> str:
        """The query of the list that this came from."""
        if request.path == self._list_url():
            return request.GET.urlencode()
        return str(request.POST.get("filters", ""))

    def _list_url(self) -> str:
        return self._url_of("changelist")

    def _name_of(self, view: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{view}"


def _words(found: TagOutlook | None) -> dict[str, str]:
    """What a tag still has, for people; dashes where that can't be told."""
    return {
        "rate": rate_words(found.rate if found else 0.0),
        "segment_lasts": duration_words(found.segment_left if found else None),
        "pool": pool_words(found.pooled if found else None),
    }

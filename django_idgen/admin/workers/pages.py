"""Who holds which worker id: the rows of the database, the map, and freeing one by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.contrib.admin.utils import display_for_value
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import DEFAULT_DB_ALIAS, DatabaseError
from django.db.models import Case, IntegerField, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...core.clock import in_zone
from ...core.errors import IdgenError
from ...core.inspection import WorkerEntry, WorkerMap, WorkerState
from ...models import NamespaceRecord, WorkerLease
from ...ops.workers import entries_of_rows, release_worker, worker_map
from ...process.handlers import current_settings
from ...settings.config import SettingsError
from ..base import ReadOnlyAdmin, SafeChangeList
from ..words import error_words
from .map import (
    IN_USE,
    SORTS,
    cells_of,
    clock_offset,
    drawing_of,
    key_of,
    sorted_entries,
    state_name,
    time_left,
)

__all__ = ["NamespaceRecordAdmin", "WorkerLeaseAdmin"]

ROWS = 100
"""Worker ids of one page of the table."""
DIGITS = 19
TEMPLATES = "admin/django_idgen/workerlease"


@dataclass(frozen=True, slots=True)
class ShownEntry:
    """A worker id in use, in words."""

    entry: WorkerEntry
    read_at: datetime
    release_url: str = ""
    """Empty for those who may not."""

    @property
    def state_name(self) -> str:
        return state_name(self.entry.state)

    @property
    def seen_ago(self) -> str:
        seen_at = self.entry.seen_at
        return (
            "" if seen_at is None else time_left(max(0.0, (self.read_at - seen_at).total_seconds()))
        )

    @property
    def time_left(self) -> str:
        return time_left(self.entry.window_left)

    @property
    def clock_offset(self) -> str:
        return clock_offset(self.entry.clock_offset)


class EntryList(SafeChangeList):
    """The rows of a page, each with what the registry says of it."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # A queryset keeps its rows: these are the ones that are shown.
        rows = cast("Iterable[WorkerLease]", self.result_list)
        entries = entries_of_rows(rows, self.root_queryset.db)
        for row in rows:
            row.idgen_entry = entries[row.pk]  # type: ignore[attr-defined]


@admin.register(WorkerLease)
class WorkerLeaseAdmin(ReadOnlyAdmin):
    """Who holds which worker id. The token, which lets one renew, is not shown."""

    list_display = ("worker", "namespace", "state", "holder", "promised_until", "last_seen")
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
        "last_seen",
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:  # noqa: ARG002
        return EntryList

    # By whether there is a token: in their order, tokens could be guessed bit by bit.
    @admin.display(
        description=gettext_lazy("state"),
        ordering=Case(When(token="", then=0), default=1, output_field=IntegerField()),
    )
    def state(self, lease: WorkerLease) -> str:
        state = _entry(lease).state
        return format_html(
            '<span class="idgen"><span class="idgen-badge idgen-{}">{}</span></span>',
            state.value,
            state_name(state),
        )

    @admin.display(description=gettext_lazy("promised until"), ordering="until")
    def promised_until(self, lease: WorkerLease) -> str:
        """The mark as a moment: no id of this worker is stamped later."""
        return self._moment(_entry(lease).until)

    @admin.display(description=gettext_lazy("last seen"), ordering="seen_at")
    def last_seen(self, lease: WorkerLease) -> str:
        return self._moment(_entry(lease).seen_at)

    def _moment(self, at: datetime | None) -> str:
        if at is not None:
            # Which Django's own display does not, without USE_TZ; naive, for it would do so twice.
            at = in_zone(at, timezone.get_current_timezone()).replace(tzinfo=None)
        # As text: a page that only shows a row would print the value as Python has it.
        return str(display_for_value(at, self.get_empty_value_display()))

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "django_idgen_workerlease_{}".format
        own = [
            path("map/", wrap(self.maps_view), name=name("maps")),
            path("map/<path:alias>/", wrap(self.map_view), name=name("map")),
            path(
                "release/<int:worker>/<path:alias>/",
                wrap(self.release_view),
                name=name("release"),
            ),
        ]
        # Before the page of a row, which would take any path for a key.
        return [*own, *super().get_urls()]

    def has_release_permission(self, request: HttpRequest) -> bool:
        """To change leases, as Django has it; no page changes one in any other way."""
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))

    # --- the map ---------------------------------------------------------------------------

    def maps_view(self, request: HttpRequest) -> HttpResponse:
        """That of the first generator."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            first = next(iter(current_settings().generators), None)
        except SettingsError as error:
            self.message_user(request, error_words(error), messages.ERROR)
            first = None
        page = self._url("changelist") if first is None else self._url("map", first)
        return HttpResponseRedirect(page)

    def map_view(self, request: HttpRequest, alias: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context: dict[str, Any] = {"problem": "", "tabs": self._tabs(alias)}
        try:
            context.update(self._drawn(request, worker_map(alias)))
        except (IdgenError, DatabaseError) as error:
            context["problem"] = error_words(error)
        title = _("Worker ids of generator “%(alias)s”") % {"alias": alias}
        return self._page(request, "map.html", title, context)

    def _tabs(self, current: str) -> list[dict[str, Any]]:
        try:
            entries = current_settings().generators
        except SettingsError:
            return []
        return [
            {"alias": alias, "url": self._url("map", alias), "is_current": alias == current}
            for alias in entries
        ]

    def _drawn(self, request: HttpRequest, found: WorkerMap) -> dict[str, Any]:
        worker = _number(request.GET.get("worker"), found.workers)
        drawing = drawing_of(found.workers, _part(request, found.workers), worker)
        sort = request.GET.get("sort", "state")
        sort = sort if sort in SORTS else "state"
        page = Paginator(sorted_entries(found, sort), ROWS).get_page(request.GET.get("p"))
        may = self.has_release_permission(request)
        return {
            "map": found,
            "drawing": drawing,
            "whole": drawing.shown == found.workers,
            "last_shown": drawing.shown.stop - 1,
            "cells": cells_of(found, drawing, worker),
            "key": key_of(found.counts()),
            "chosen": self._chosen(found, worker, may),
            "sort": sort,
            "sorts": {name: _sorted_query(name, drawing.shown, found.workers) for name in SORTS},
            "page": page,
            "rows": [self._shown(found, each, may) for each in page],
            "here": self._url("map", found.alias),
        }

    def _chosen(self, found: WorkerMap, worker: int | None, may: bool) -> dict[str, Any] | None:
        if worker is None:
            return None
        entry = found.entries.get(worker)
        return {
            "worker": worker,
            "state": found.state(worker),
            "state_name": state_name(found.state(worker)),
            "shown": entry and self._shown(found, entry, may),
        }

    def _shown(self, found: WorkerMap, entry: WorkerEntry, may: bool) -> ShownEntry:
        releasable = may and entry.state in IN_USE
        url = self._url("release", entry.worker, found.alias) if releasable else ""
        return ShownEntry(entry, found.read_at, url)

    # --- freeing one by hand ------------------------------------------------------------------

    def release_view(self, request: HttpRequest, worker: int, alias: str) -> HttpResponse:
        if not self.has_release_permission(request):
            raise PermissionDenied
        try:
            found = worker_map(alias)
            entry = found.entries.get(worker)
            if entry is None or entry.state not in IN_USE:
                return self._back(request, alias, _nobody(worker), messages.WARNING)
            if request.method == "POST" and (answer := self._released(request, found, entry)):
                return answer
        except (IdgenError, DatabaseError) as error:
            return self._back(request, alias, error_words(error), messages.ERROR)
        title = _("Release worker id %(worker)d?") % {"worker": worker}
        context = {
            "map": found,
            "shown": ShownEntry(entry, found.read_at),
            "entry": entry,
            "seal": entry.lease,
            "is_live": entry.state is not WorkerState.EXPIRED,
            "refused": request.method == "POST",
            "map_url": self._url("map", alias),
            "map_query": urlencode({"worker": worker}),
        }
        return self._page(request, "release.html", title, context)

    def _released(
        self, request: HttpRequest, found: WorkerMap, entry: WorkerEntry
    ) -> HttpResponse | None:
        """Do what was confirmed; None if it was not."""
        if request.POST.get("seal") != entry.lease:
            return self._back(request, found.alias, _changed(entry.worker), messages.WARNING)
        live = entry.state is not WorkerState.EXPIRED
        if live and request.POST.get("confirm", "").strip() != str(entry.worker):
            return None
        if not release_worker(found.alias, entry.worker, entry.lease):
            now = worker_map(found.alias).entries.get(entry.worker)
            another = now is not None and now.lease not in ("", entry.lease)
            text = (_changed if another else _nobody)(entry.worker)
            return self._back(request, found.alias, text, messages.WARNING)
        self._log(request, found, entry)
        words = {"worker": entry.worker, "holder": entry.holder}
        text = _("Worker id %(worker)d, which “%(holder)s” held, was released.") % words
        return self._back(request, found.alias, text, messages.SUCCESS)

    def _log(self, request: HttpRequest, found: WorkerMap, entry: WorkerEntry) -> None:
        # A lease in Redis has no row; the log names it all the same.
        namespace = entry.namespace or found.namespace
        key = WorkerLease.key_of(namespace, entry.worker)
        lease = WorkerLease(id=key, namespace=namespace, worker=entry.worker)
        words = {"holder": entry.holder, "state": state_name(entry.state), "registry": found.kind}
        text = _("Released by hand; it was %(state)s by “%(holder)s” (registry: %(registry)s).")
        self.log_change(request, lease, text % words)

    # --- all of these pages ---------------------------------------------------------------

    def _back(self, request: HttpRequest, alias: str, text: str, level: int) -> HttpResponse:
        self.message_user(request, text, level)
        return HttpResponseRedirect(self._url("map", alias))

    def _page(
        self, request: HttpRequest, template: str, title: str, context: dict[str, Any]
    ) -> HttpResponse:
        request.current_app = self.admin_site.name
        common = {"title": title, "opts": self.opts, "list_url": self._url("changelist")}
        context = {**self.admin_site.each_context(request), **common, **context}
        return TemplateResponse(request, f"{TEMPLATES}/{template}", context)

    def _url(self, page: str, *args: Any) -> str:
        return reverse(f"{self.admin_site.name}:django_idgen_workerlease_{page}", args=args)


@admin.register(NamespaceRecord)
class NamespaceRecordAdmin(ReadOnlyAdmin):
    """What the holders of each namespace agreed on."""

    list_display = ("name", "generation", "fence", "largest_window", "workers_made", "server")
    search_fields = ("name",)


def _entry(lease: WorkerLease) -> WorkerEntry:
    found: WorkerEntry | None = getattr(lease, "idgen_entry", None)
    if found is None:  # not one of a list
        found = entries_of_rows([lease], lease._state.db or DEFAULT_DB_ALIAS)[lease.pk]
        lease.idgen_entry = found  # type: ignore[attr-defined]
    return found


def _number(text: str | None, workers: range) -> int | None:
    """A worker id of an address; None for what is none."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > DIGITS:
        return None
    return int(text) if int(text) in workers else None


def _part(request: HttpRequest, workers: range) -> range | None:
    """What part of the map an address asks for."""
    first = _number(request.GET.get("from"), workers)
    last = _number(request.GET.get("to"), range(workers.start, workers.stop + 1))
    if first is None:
        return None
    return range(first, workers.stop if last is None else last) or None


def _sorted_query(sort: str, shown: range, workers: range) -> str:
    part = {} if shown == workers else {"from": shown.start, "to": shown.stop}
    return f"?{urlencode({**part, 'sort': sort})}"


def _nobody(worker: int) -> str:
    return _("Nobody holds worker id %(worker)d: there is nothing to release.") % {"worker": worker}


def _changed(worker: int) -> str:
    text = _("Worker id %(worker)d has changed hands since you looked: nothing was done.")
    return text % {"worker": worker}

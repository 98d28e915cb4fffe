"""The pages of the worker ids of a generator: the map, and freeing one by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import DatabaseError, models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from ..core.errors import IdgenError
from ..models import WorkerLease
from ..ops.worker_map import WorkerEntry, WorkerMap, WorkerState, release_worker, worker_map
from ..process.handlers import current_settings
from ..settings.config import SettingsError
from .error_words import error_words
from .lease_map import (
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

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin

__all__ = ["LeasePages"]

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


class LeasePages(ModelAdmin):
    """Adds the pages to the admin of :class:`WorkerLease`."""

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
            first = next(iter(current_settings().generators))
        except SettingsError as error:
            self.message_user(request, error_words(error), messages.ERROR)
            return HttpResponseRedirect(self._url("changelist"))
        return HttpResponseRedirect(self._url("map", first))

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
            "is_live": entry.state is not WorkerState.LAPSED,
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
        live = entry.state is not WorkerState.LAPSED
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

    # ---------------------------------------------------------------------------------------------

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

"""The page of worker ids: who holds which, as a table and as a map, and releasing one by hand.

It asks the registry of a generator. So it shows what Redis lends, too, and not only the rows
of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError
from ..core.inspection import WorkerEntry, WorkerMap, WorkerState
from ..models import WorkerLease
from ..process.maps import current_settings, generator_settings
from ..settings import SettingsError
from .base import ViewOnlyAdmin
from .text import clock_offset_text, error_text, layout_text, seconds_text

ROWS = 100
"""Worker ids on one page of the table."""
LARGEST_MAP = 2048
"""Worker ids. A larger layout has the table alone."""
LABEL_EACH = 8
"""Worker ids from one label of the map to the next."""
DIGITS = 19

STATES: Mapping[WorkerState, tuple[str, Any, Any]] = {
    WorkerState.OVERDUE: (
        "◐",
        gettext_lazy("overdue"),
        gettext_lazy("The holder has missed a renewal: it is blocked, or was killed."),
    ),
    WorkerState.HELD: (
        "●",
        gettext_lazy("held"),
        gettext_lazy("A process holds it and renews it in time."),
    ),
    WorkerState.EXPIRED: (
        "○",
        gettext_lazy("expired"),
        gettext_lazy("The window has ended. The next process may take it."),
    ),
    WorkerState.FREE: ("·", gettext_lazy("free"), gettext_lazy("Never lent, or released.")),
    WorkerState.USED: (
        "×",
        gettext_lazy("used up"),
        gettext_lazy("Lent once. This registry lends no worker id again."),
    ),
    WorkerState.RESERVED: (
        "–",
        gettext_lazy("reserved"),
        gettext_lazy("Part of the layout, but this registry does not lend it."),
    ),
}
"""A sign (for those who see no colours), a name and a meaning; what needs a look comes first."""

IN_USE = (WorkerState.HELD, WorkerState.OVERDUE, WorkerState.EXPIRED)

SORTS: dict[str, Callable[[WorkerEntry], Any]] = {
    "worker": lambda entry: entry.worker,
    "state": lambda entry: (list(STATES).index(entry.state), entry.worker),
    "holder": lambda entry: (entry.holder, entry.worker),
    "seen": lambda entry: (entry.seen_at is None, entry.seen_at, entry.worker),
    "left": lambda entry: (entry.window_left is None, entry.window_left, entry.worker),
    "offset": lambda entry: (-abs(entry.clock_offset or 0.0), entry.worker),
}
"""The columns of the table, by their name in the address."""


def entries_in_use(found: WorkerMap, sort: str, search: str = "") -> list[WorkerEntry]:
    """The worker ids in use whose number or holder matches ``search``."""
    words = search.casefold().split()
    return sorted(
        (
            entry
            for entry in found.entries.values()
            if entry.state in IN_USE
            and all(word == str(entry.worker) or word in entry.holder.casefold() for word in words)
        ),
        key=SORTS[sort],
    )


def cells_of(found: WorkerMap, chosen: int | None) -> list[dict[str, Any]]:
    """A cell for each worker id; none for a layout that is too large to draw."""
    if len(found.workers) > LARGEST_MAP:
        return []
    return [_cell(found, worker, worker == chosen) for worker in found.workers]


def _cell(found: WorkerMap, worker: int, is_chosen: bool) -> dict[str, Any]:
    state = found.state(worker)
    sign, name, _meaning = STATES[state]
    title = _("%(worker)d: %(state)s") % {"worker": worker, "state": name}
    if state in IN_USE:
        title = _("%(title)s, %(holder)s") % {
            "title": title,
            "holder": found.entries[worker].holder or _("unnamed holder"),
        }
    return {
        "worker": worker,
        "state": state.value,
        "sign": sign,
        "title": title,
        "is_chosen": is_chosen,
        "has_label": worker % LABEL_EACH == 0,
    }


def _shown(entry: WorkerEntry, read_at: datetime) -> dict[str, Any]:
    """A worker id in use, as text."""
    seen_at = entry.seen_at
    return {
        "entry": entry,
        "state_name": STATES[entry.state][1],
        "seen_ago": seconds_text(
            None if seen_at is None else max(0.0, (read_at - seen_at).total_seconds())
        ),
        "time_left": seconds_text(entry.window_left),
        "clock_offset": clock_offset_text(entry.clock_offset),
    }


@admin.register(WorkerLease)
class WorkerLeaseAdmin(ViewOnlyAdmin):
    """The worker ids of each generator. No page shows a token, with which one could renew."""

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "django_idgen_workerlease_{}".format
        return [
            path("", wrap(self.first_view), name=name("changelist")),
            path("map/<path:alias>/", wrap(self.map_view), name=name("map")),
            path(
                "release/<int:worker>/<path:alias>/",
                wrap(self.release_view),
                name=name("release"),
            ),
        ]

    def has_release_permission(self, request: HttpRequest) -> bool:
        # Django's permission to change a lease, which no page does in any other way.
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))

    def first_view(self, request: HttpRequest) -> HttpResponse:
        """Lead to the page of the first generator."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        first = next(iter(_aliases()), "default")
        return HttpResponseRedirect(self.url_of("map", first))

    def map_view(self, request: HttpRequest, alias: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        # Imported here, since few processes show leases.
        from ..ops.workers import worker_map

        context: dict[str, Any] = {
            "problem": "",
            "alias": alias,
            "tabs": [(each, self.url_of("map", each)) for each in _aliases()],
        }
        try:
            context.update(self._map_context(request, worker_map(alias)))
        except (IdgenError, DatabaseError) as error:
            context["problem"] = error_text(error)
        return self.render_page(request, "workerlease/map.html", _("Worker ids"), **context)

    def _map_context(self, request: HttpRequest, found: WorkerMap) -> dict[str, Any]:
        worker = _number(request.GET.get("worker"), found.workers)
        sort, search = request.GET.get("sort", ""), request.GET.get("q", "")
        sort = sort if sort in SORTS else "state"
        entries = entries_in_use(found, sort, search)
        page = Paginator(entries, ROWS).get_page(request.GET.get("p"))
        counts, layout = found.counts(), generator_settings(found.alias).layout
        return {
            "map": found,
            "layout": layout_text(layout),
            "exhausted_at": layout.exhausted_at,
            "cells": cells_of(found, worker),
            "key": [
                {"state": state.value, "sign": sign, "name": name, "meaning": meaning, "count": n}
                for state, (sign, name, meaning) in STATES.items()
                if (n := counts[state]) or state is WorkerState.HELD
            ],
            "chosen": None if worker is None else self._chosen(request, found, worker),
            "sort": sort,
            "q": search,
            "query": urlencode({"q": search} if search else {}),
            "page": page,
            "rows": [_shown(each, found.read_at) for each in page],
            "here": self.url_of("map", found.alias),
        }

    def _chosen(self, request: HttpRequest, found: WorkerMap, worker: int) -> dict[str, Any]:
        entry, state = found.entries.get(worker), found.state(worker)
        chosen = {"worker": worker, "state": state.value, "state_name": STATES[state][1]}
        if entry is not None:
            chosen |= _shown(entry, found.read_at)
        if state in IN_USE and self.has_release_permission(request):
            chosen["release_url"] = self.url_of("release", worker, found.alias)
        return chosen

    # --- releasing one by hand ----------------------------------------------------------------

    def release_view(self, request: HttpRequest, worker: int, alias: str) -> HttpResponse:
        if not self.has_release_permission(request):
            raise PermissionDenied
        from ..ops.workers import worker_map

        try:
            found = worker_map(alias)
            entry = found.entries.get(worker)
            if entry is None or entry.state not in IN_USE:
                return self._back(request, alias, _not_held(worker), messages.WARNING)
            if request.method == "POST" and (answer := self._released(request, found, entry)):
                return answer
        except (IdgenError, DatabaseError) as error:
            return self._back(request, alias, error_text(error), messages.ERROR)
        return self.render_page(
            request,
            "workerlease/release.html",
            _("Release worker id %(worker)d?") % {"worker": worker},
            map=found,
            chosen=_shown(entry, found.read_at),
            entry=entry,
            seal=entry.lease,
            is_live=entry.state is not WorkerState.EXPIRED,
            refused=request.method == "POST",
            map_url=self.url_of("map", alias),
        )

    def _released(
        self, request: HttpRequest, found: WorkerMap, entry: WorkerEntry
    ) -> HttpResponse | None:
        """Release the lease that the page showed; None if it was not confirmed."""
        from ..ops.workers import release_worker, worker_map

        if request.POST.get("seal") != entry.lease:
            return self._back(request, found.alias, _changed(entry.worker), messages.WARNING)
        live = entry.state is not WorkerState.EXPIRED
        if live and request.POST.get("confirm", "").strip() != str(entry.worker):
            return None
        if not release_worker(found.alias, entry.worker, entry.lease):
            now = worker_map(found.alias).entries.get(entry.worker)
            another = now is not None and now.lease not in ("", entry.lease)
            text = (_changed if another else _not_held)(entry.worker)
            return self._back(request, found.alias, text, messages.WARNING)
        self._log(request, found, entry)
        values = {"worker": entry.worker, "holder": entry.holder}
        text = _("Worker id %(worker)d was released. “%(holder)s” held it.") % values
        return self._back(request, found.alias, text, messages.SUCCESS)

    def _log(self, request: HttpRequest, found: WorkerMap, entry: WorkerEntry) -> None:
        # A lease in Redis has no row; the log names it all the same.
        key = WorkerLease.key_of(found.namespace, entry.worker)
        lease = WorkerLease(id=key, namespace=found.namespace, worker=entry.worker)
        values = {
            "holder": entry.holder,
            "state": STATES[entry.state][1],
            "registry": found.kind,
        }
        text = _("Released by hand. Holder: %(holder)s (%(state)s); registry: %(registry)s.")
        self.log_change(request, lease, text % values)

    def _back(self, request: HttpRequest, alias: str, text: str, level: int) -> HttpResponse:
        self.message_user(request, text, level)
        return HttpResponseRedirect(self.url_of("map", alias))


def _aliases() -> list[str]:
    try:
        return list(current_settings().generators)
    except SettingsError:
        return []


def _number(text: str | None, workers: range) -> int | None:
    """The worker id in an address; None for anything else."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > DIGITS:
        return None
    return int(text) if int(text) in workers else None


def _not_held(worker: int) -> str:
    text = _("No process holds worker id %(worker)d. There is nothing to release.")
    return text % {"worker": worker}


def _changed(worker: int) -> str:
    text = _("Worker id %(worker)d now has another holder. It was not released.")
    return text % {"worker": worker}

"""The table of worker ids: who holds which, and releasing one by hand.

It asks the registry of a generator. So it shows what Redis lends, too, and not only the rows
of the database. No page shows a token, with which one could renew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.errors import IdgenError, one_line
from ..core.inspection import WorkerEntry, WorkerMap, WorkerState
from ..models import WorkerLease
from ..process.maps import current_settings, generator_settings
from ..settings import SettingsError
from .base import ViewOnlyAdmin
from .text import UNKNOWN, ago_text, layout_text, moment_text

MOST_ROWS = 1000
"""Worker ids in the table."""

STATES: Mapping[WorkerState, Any] = {
    WorkerState.OVERDUE: gettext_lazy("overdue"),
    WorkerState.HELD: gettext_lazy("held"),
    WorkerState.EXPIRED: gettext_lazy("expired"),
    WorkerState.FREE: gettext_lazy("free"),
    WorkerState.USED: gettext_lazy("used up"),
    WorkerState.RESERVED: gettext_lazy("reserved"),
}
"""Their names; what needs a look comes first."""
IN_USE = (WorkerState.OVERDUE, WorkerState.HELD, WorkerState.EXPIRED)


def entries_in_use(found: WorkerMap, search: str = "") -> list[WorkerEntry]:
    """The worker ids in use whose number or holder matches each word of ``search``."""
    words = search.casefold().split()
    return sorted(
        (
            entry
            for entry in found.entries.values()
            if entry.state in IN_USE
            and all(word == str(entry.worker) or word in entry.holder.casefold() for word in words)
        ),
        key=lambda entry: (IN_USE.index(entry.state), entry.worker),
    )


def _shown(entry: WorkerEntry, found: WorkerMap) -> dict[str, Any]:
    """A worker id in use, as text."""
    seen, left, offset = entry.seen_at, entry.window_left, entry.clock_offset
    return {
        "entry": entry,
        "state": STATES[entry.state],
        "since": moment_text(entry.acquired_at),
        "seen": ago_text(None if seen is None else (found.read_at - seen).total_seconds()),
        "left": UNKNOWN if left is None else _("%(number)s s") % {"number": round(left)},
        "offset": UNKNOWN if offset is None else f"{offset * 1000:+.0f} ms",
    }


@admin.register(WorkerLease)
class WorkerLeaseAdmin(ViewOnlyAdmin):
    """The worker ids of each generator."""

    def get_urls(self) -> list[URLPattern]:
        wrap, name = self.admin_site.admin_view, "django_idgen_workerlease_{}".format
        return [
            path("", wrap(self.changelist_view), name=name("changelist")),
            path("release/", wrap(self.release_view), name=name("release")),
        ]

    def has_release_permission(self, request: HttpRequest) -> bool:
        # Django's permission to change a lease, which no page does in any other way.
        user: Any = request.user
        return bool(user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}"))

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # noqa: ARG002
        if not self.has_view_permission(request):
            raise PermissionDenied
        aliases = _aliases()
        alias = request.GET.get("generator", next(iter(aliases), "default"))
        context: dict[str, Any] = {"aliases": aliases, "alias": alias}
        try:
            context |= self._table(request, alias)
        except (IdgenError, DatabaseError) as error:
            context["problem"] = one_line(error)
        return self.render_page(request, "workerlease/changelist.html", _("Worker ids"), **context)

    def _table(self, request: HttpRequest, alias: str) -> dict[str, Any]:
        # Imported here, since few processes show leases.
        from ..ops.workers import worker_map

        found, search = worker_map(alias), request.GET.get("q", "")
        entries, layout = entries_in_use(found, search), generator_settings(alias).layout
        counts = found.counts()
        return {
            "map": found,
            "used": sum(counts[state] for state in IN_USE),
            "counts": [(name, counts[state]) for state, name in STATES.items() if counts[state]],
            "q": search,
            "rows": [_shown(each, found) for each in entries[:MOST_ROWS]],
            "more": len(entries[MOST_ROWS:]),
            "may_release": self.has_release_permission(request),
            "release_url": self.url_of("release"),
            "read_at": moment_text(found.read_at),
            "layout": layout_text(layout),
            "exhausted_at": layout.exhausted_at,
        }

    def release_view(self, request: HttpRequest) -> HttpResponse:
        """Ask, and release the lease that the page showed."""
        if not self.has_release_permission(request):
            raise PermissionDenied
        from ..ops.workers import release_worker, worker_map

        alias, worker = request.GET.get("generator", "default"), request.GET.get("worker", "")
        level = messages.WARNING
        try:
            found = worker_map(alias)
            entry = next((e for e in entries_in_use(found) if str(e.worker) == worker), None)
            if entry is None:
                text = f"No process holds worker id {worker[:20]}. There is nothing to release."
            elif request.method != "POST":
                return self._ask(request, found, entry)
            elif request.POST.get("lease") == entry.lease and release_worker(
                alias, entry.worker, entry.lease
            ):
                self._log(request, found, entry)
                text, level = f"Worker id {worker} was released.", messages.SUCCESS
            else:
                text = f"Worker id {worker} has another holder now, or none. It was not released."
        except (IdgenError, DatabaseError) as error:
            text, level = one_line(error), messages.ERROR
        self.message_user(request, text, level)
        return HttpResponseRedirect(self._url(alias))

    def _ask(self, request: HttpRequest, found: WorkerMap, entry: WorkerEntry) -> HttpResponse:
        return self.render_page(
            request,
            "workerlease/release.html",
            _("Release worker id %(worker)d?") % {"worker": entry.worker},
            entry=entry,
            rows=[_shown(entry, found)],
            until=moment_text(entry.until),
            is_live=entry.state is not WorkerState.EXPIRED,
            back_url=self._url(found.alias),
        )

    def _url(self, alias: str) -> str:
        return f"{self.url_of('changelist')}?{urlencode({'generator': alias})}"

    def _log(self, request: HttpRequest, found: WorkerMap, entry: WorkerEntry) -> None:
        # A lease in Redis has no row; the log names it all the same.
        key = WorkerLease.key_of(found.namespace, entry.worker)
        lease = WorkerLease(id=key, namespace=found.namespace, worker=entry.worker)
        text = f"Released. Holder: {entry.holder} ({entry.state.name.lower()})."
        self.log_change(request, lease, text)


def _aliases() -> list[str]:
    try:
        return list(current_settings().generators)
    except SettingsError:
        return []

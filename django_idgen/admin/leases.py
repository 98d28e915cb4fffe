"""Who holds which worker id: the rows of the database; the map is in :mod:`.lease_pages`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

from django.contrib import admin
from django.contrib.admin.utils import display_for_value
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Case, IntegerField, When
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy

from ..core.moments import in_zone
from ..core.survey import WorkerEntry
from ..models import NamespaceRecord, WorkerLease
from ..ops.lease_state import told
from .base import FoundList, ReadOnlyAdmin
from .lease_map import state_name
from .lease_pages import LeasePages

__all__ = ["NamespaceRecordAdmin", "WorkerLeaseAdmin"]


class ToldList(FoundList):
    """The rows of a page, each with what the registry says of it."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        # A queryset keeps its rows: these are the ones that are shown.
        rows = cast("Iterable[WorkerLease]", self.result_list)
        entries = told(rows, self.root_queryset.db)
        for row in rows:
            row.told = entries[row.pk]  # type: ignore[attr-defined]


@admin.register(WorkerLease)
class WorkerLeaseAdmin(LeasePages, ReadOnlyAdmin):
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
        return ToldList

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


def _entry(lease: WorkerLease) -> WorkerEntry:
    found: WorkerEntry | None = getattr(lease, "told", None)
    if found is None:  # not one of a list
        found = told([lease], lease._state.db or DEFAULT_DB_ALIAS)[lease.pk]
        lease.told = found  # type: ignore[attr-defined]
    return found


@admin.register(NamespaceRecord)
class NamespaceRecordAdmin(ReadOnlyAdmin):
    """What the holders of each namespace agreed on."""

    list_display = ("name", "generation", "fence", "largest_window", "workers_made", "server")
    search_fields = ("name",)

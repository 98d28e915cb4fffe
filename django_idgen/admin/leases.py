"""Who holds which worker id: the rows of the database; the map is in :mod:`.lease_pages`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django.contrib import admin
from django.contrib.admin.utils import display_for_value
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..lease_state import LeaseState, promised_until, state_of, with_namespaces
from ..models import NamespaceRecord, WorkerLease
from .base import ReadOnlyAdmin
from .lease_pages import LeasePages

__all__ = ["NamespaceRecordAdmin", "WorkerLeaseAdmin"]


@admin.register(WorkerLease)
class WorkerLeaseAdmin(LeasePages, ReadOnlyAdmin):
    """Who holds which worker id. The token, which lets one renew, is not shown."""

    list_display = ("worker", "namespace", "state", "holder", "promised_until", "seen_at")
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
        "seen_at",
    )

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[models.Model]:
        return cast(
            "models.QuerySet[models.Model]",
            with_namespaces(cast("models.QuerySet[WorkerLease]", super().get_queryset(request))),
        )

    @admin.display(description=gettext_lazy("state"), ordering="token")
    def state(self, lease: WorkerLease) -> str:
        found = state_of(lease)
        return format_html(
            '<span class="idgen"><span class="idgen-badge idgen-{}">{}</span></span>',
            found.value,
            _STATES[found](),
        )

    @admin.display(description=gettext_lazy("promised until"), ordering="until")
    def promised_until(self, lease: WorkerLease) -> str:
        """The mark as a moment: no id of this worker is stamped later."""
        until = promised_until(lease)
        if until is not None:
            until = timezone.localtime(until)  # which Django's own display does not, without USE_TZ
        # As text: a page that only shows a row would print the value as Python has it.
        return str(display_for_value(until, self.get_empty_value_display()))


_STATES: dict[LeaseState, Callable[[], str]] = {
    LeaseState.FREE: lambda: _("free"),
    LeaseState.LAPSED: lambda: _("lapsed"),
    LeaseState.HELD: lambda: _("held"),
}


@admin.register(NamespaceRecord)
class NamespaceRecordAdmin(ReadOnlyAdmin):
    """What the holders of each namespace agreed on."""

    list_display = ("name", "generation", "fence", "largest_window", "workers_made", "server")
    search_fields = ("name",)

"""The page that takes an id apart: pasted in any form, drawn bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from ..core.clock import brief_date, in_zone
from ..core.errors import InvalidId
from ..core.layout import BitLayout
from ..models import LeafAlloc, SegmentHistory, WorkerLease
from ..ops.decoding import BitField, Reading, RowFound, SnowflakeReading, label, readings
from ..settings.config import SettingsError
from .base import ViewOnlyAdmin
from .words import error_words

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[models.Model]
else:
    ModelAdmin = admin.ModelAdmin

__all__ = ["Decode", "DecodeAdmin"]

BITS = 64
FIELD_NAMES = {
    "time": pgettext_lazy("field of an id", "time"),
    "worker": pgettext_lazy("field of an id", "worker"),
    "sequence": pgettext_lazy("field of an id", "sequence"),
    "batch": pgettext_lazy("field of an id", "batch"),
}
"""Of a layout, also for the template; parts of a worker id have names of the project's own."""


class Decode(models.Model):
    """No table: what makes the page stand in the admin's lists of pages, as a model does.

    It is kept out of Django's registry of models, so that there is nothing to migrate, and
    no permission of its own: see :meth:`DecodeAdmin.has_view_permission`.
    """

    id = models.BigAutoField(primary_key=True)

    class Meta:
        apps = Apps()
        app_label = "django_idgen"
        managed = False
        default_permissions = ()
        verbose_name = gettext_lazy("decoded id")
        verbose_name_plural = gettext_lazy("decode an id")


# By which themes find the name of the app that the page belongs to.
Decode._meta.apps.app_configs = apps.app_configs


@admin.register(Decode)
class DecodeAdmin(ViewOnlyAdmin):
    """For users who may view tags or leases; each sees of an id what those may."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.decode_view)
        info = (self.opts.app_label, self.opts.model_name)
        return [
            # The second name is the one that the admin's lists of pages look for.
            path("", view, name=f"{info[0]}_decode"),
            path("", view, name="{}_{}_changelist".format(*info)),
        ]

    def decode_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        given = request.GET.get("id", "")
        context = {
            **self.admin_site.each_context(request),
            "title": _("Decode an id"),
            "opts": self.opts,
            "given": given,
            **(self._found(request, given) if given.strip() else {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/django_idgen/decode/page.html", context)

    def _found(self, request: HttpRequest, given: str) -> dict[str, Any]:
        try:
            found = readings(given)
        except InvalidId as error:
            return {"problem": _("No id can be read from that."), "reason": error_words(error)}
        except SettingsError as error:
            return {"problem": error_words(error)}
        return {
            "shown": [Shown(self, request, each) for each in found],
            "sees_leases": _may_see(request, WorkerLease),
            "sees_tags": _may_see(request, LeafAlloc),
            "sees_history": _may_see(request, SegmentHistory),
        }

    # --- permissions: those of what is shown -------------------------------------------

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(
        self,
        request: HttpRequest,
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return any(_may_see(request, model) for model in (LeafAlloc, WorkerLease))


def _may_see(request: HttpRequest, model: type[models.Model]) -> bool:
    """By the permission to view it, or to change it, as Django's own pages have it."""
    user: Any = request.user
    opts = model._meta
    names = (get_permission_codename(action, opts) for action in ("view", "change"))
    return any(user.has_perm(f"{opts.app_label}.{name}") for name in names)


# --- what the template shows ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """One reading, for the template."""

    page: DecodeAdmin
    request: HttpRequest
    reading: Reading

    @property
    def plausible(self) -> list[ShownSnowflake]:
        return [each for each in self._snowflakes() if each.reading.is_plausible]

    @property
    def doubtful(self) -> list[ShownSnowflake]:
        return [each for each in self._snowflakes() if not each.reading.is_plausible]

    @property
    def rows(self) -> list[ShownRow]:
        """Of the models that the user may view; of others not even whether there is one."""
        return [self._row(each) for each in self.reading.rows if self._sees(each.field.model)]

    def _snowflakes(self) -> Iterator[ShownSnowflake]:
        for each in self.reading.snowflakes:
            yield ShownSnowflake(each, self._map_url(each))

    def _map_url(self, reading: SnowflakeReading) -> str:
        if reading.parts is None:
            return ""
        site = self.page.admin_site.name
        try:
            url = reverse(f"{site}:django_idgen_workerlease_map", args=[reading.alias])
        except NoReverseMatch:
            return ""
        return f"{url}?worker={reading.parts.worker}"

    def _sees(self, model: type[models.Model]) -> bool:
        model_admin = self._admin_of(model)
        if model_admin is None:
            return _may_see(self.request, model)
        return model_admin.has_view_permission(self.request)

    def _admin_of(self, model: type[models.Model]) -> ModelAdmin | None:
        return self.page.admin_site._registry.get(model)

    def _row(self, found: RowFound) -> ShownRow:
        row, model_admin = found.row, self._admin_of(found.field.model)
        name = label(found.field)
        if row is None or model_admin is None:
            return ShownRow(name, exists=row is not None, problem=found.problem)
        # As its own page has it, which may show each user other rows.
        seen = model_admin.get_queryset(self.request).filter(pk=row.pk).exists()
        if not seen or not model_admin.has_view_permission(self.request, row):
            return ShownRow(name, exists=False)
        return ShownRow(name, exists=True, title=str(row), url=self._row_url(row))

    def _row_url(self, row: models.Model) -> str:
        page = f"{row._meta.app_label}_{row._meta.model_name}_change"
        try:
            return reverse(f"{self.page.admin_site.name}:{page}", args=[quote(row.pk)])
        except NoReverseMatch:
            return ""  # an admin with pages of its own


@dataclass(frozen=True, slots=True)
class ShownRow:
    """Whether there is a row with the id; its name and page for those alone who may see it."""

    name: str
    exists: bool
    title: str = ""
    url: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShownSnowflake:
    """What a generator takes the id for."""

    reading: SnowflakeReading
    map_url: str

    @property
    def fields(self) -> list[BitField]:
        """With the bits above the layout's own, of which the sign is the first."""
        layout: BitLayout = self.reading.layout
        if not self.reading.fields:
            return []
        return [BitField("", BITS - layout.bits, layout.bits, 0), *self.reading.fields]

    @property
    def layout(self) -> str:
        """Its fields with their bits, and its clock."""
        layout: BitLayout = self.reading.layout
        words = {
            "fields": " | ".join(f"{FIELD_NAMES[name]} {bits}" for name, bits in layout.fields),
            "tick": layout.tick_us / 1000,
            "epoch": brief_date(layout.epoch_us),
        }
        return _("%(fields)s, ticks of %(tick)g ms from %(epoch)s") % words

    @property
    def moments(self) -> list[tuple[str, str]]:
        """The time in the user's zone and in UTC: the name of each zone, and what it shows."""
        parts = self.reading.parts
        if parts is None:
            return []
        local = in_zone(parts.created, timezone.get_current_timezone())
        name = "UTC" if local.tzinfo is UTC else timezone.get_current_timezone_name()
        found = [(name, _written(local))]
        if local.utcoffset() or found[0][0] != "UTC":
            found.append(("UTC", _written(parts.created.astimezone(UTC))))
        return found


def _written(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")

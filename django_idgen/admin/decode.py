"""The page that decodes an id: it takes any form of it, and draws its bits."""

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
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.clock import in_zone
from ..core.errors import InvalidId
from ..models import LeafAlloc, SegmentHistory, WorkerLease
from ..settings import SettingsError
from .base import ModelAdmin, ViewOnlyAdmin
from .text import error_text, layout_text

if TYPE_CHECKING:
    from ..core.layout import BitLayout
    from ..ops.decoding import BitField, Reading, RowFound, SnowflakeReading


BITS = 64


class Decode(models.Model):
    """A model without a table, so that the page is listed in the admin as those of models are.

    Django's registry of models does not know it: there is nothing to migrate, and it has no
    permissions (see :meth:`DecodeAdmin.has_view_permission`).
    """

    id = models.BigAutoField(primary_key=True)

    class Meta:
        apps = Apps()
        app_label = "django_idgen"
        managed = False
        default_permissions = ()
        verbose_name = gettext_lazy("decoded id")
        verbose_name_plural = gettext_lazy("decode an id")


# Themes look up the app's name there.
Decode._meta.apps.app_configs = apps.app_configs


@admin.register(Decode)
class DecodeAdmin(ViewOnlyAdmin):
    """For users who may view tags or leases. Of an id, they see only what they may view."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.decode_view)
        names = (f"{self.opts.app_label}_decode", f"{self.opts.app_label}_decode_changelist")
        # The admin's index links to the second name.
        return [path("", view, name=name) for name in names]

    def decode_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        given = request.GET.get("id", "")
        found = self._found(request, given) if given.strip() else {}
        return self.render_page(
            request, "decode/page.html", _("Decode an id"), given=given, **found
        )

    def _found(self, request: HttpRequest, given: str) -> dict[str, Any]:
        # Imported here, since few processes decode ids.
        from ..ops.decoding import readings

        try:
            found = readings(given)
        except InvalidId as error:
            return {"problem": _("This is not an id."), "reason": error_text(error)}
        except SettingsError as error:
            return {"problem": error_text(error)}
        return {
            "shown": [Shown(self, request, each) for each in found],
            "sees_leases": _may_view(request, WorkerLease),
            "sees_tags": _may_view(request, LeafAlloc),
            "sees_history": _may_view(request, SegmentHistory),
        }

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(
        self,
        request: HttpRequest,
        obj: models.Model | None = None,  # noqa: ARG002
    ) -> bool:
        return any(_may_view(request, model) for model in (LeafAlloc, WorkerLease))


def _may_view(request: HttpRequest, model: type[models.Model]) -> bool:
    """With the permission to view it or to change it, as on Django's own pages."""
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
        """The rows of models that the user may view. Nothing is said about other models."""
        rows = [self._row(each) for each in self.reading.rows if self._may_view(each.field.model)]
        if self.reading.spelling.is_named:
            return rows
        return [row for row in rows if row.exists or row.problem]

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

    def _may_view(self, model: type[models.Model]) -> bool:
        model_admin = self._admin_of(model)
        if model_admin is None:
            return _may_view(self.request, model)
        return model_admin.has_view_permission(self.request)

    def _admin_of(self, model: type[models.Model]) -> ModelAdmin | None:
        return self.page.admin_site._registry.get(model)

    def _row(self, found: RowFound) -> ShownRow:
        row, model_admin = found.row, self._admin_of(found.field.model)
        name = str(found.field)
        if row is None or model_admin is None:
            return ShownRow(name, exists=row is not None, problem=found.problem)
        # As on its own page, which may show each user other rows.
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
    """Whether a row has the id; with its name and page only if the user may view it."""

    name: str
    exists: bool
    title: str = ""
    url: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShownSnowflake:
    """The id as one of a generator."""

    reading: SnowflakeReading
    map_url: str

    @property
    def fields(self) -> list[BitField]:
        """The fields of the layout, below the sign bit and the bits that the layout leaves out."""
        from ..ops.decoding import BitField

        layout: BitLayout = self.reading.layout
        if not self.reading.fields:
            return []
        return [BitField("", BITS - layout.bits, layout.bits, 0), *self.reading.fields]

    @property
    def layout(self) -> str:
        return layout_text(self.reading.layout)

    @property
    def moments(self) -> list[tuple[str, str]]:
        """When the id was made: the zone and the time, in the user's zone and in UTC."""
        parts = self.reading.parts
        if parts is None:
            return []
        local = in_zone(parts.created, timezone.get_current_timezone())
        name = "UTC" if local.tzinfo is UTC else timezone.get_current_timezone_name()
        found = [(name, _moment_text(local))]
        if local.utcoffset() or found[0][0] != "UTC":
            found.append(("UTC", _moment_text(parts.created.astimezone(UTC))))
        return found


def _moment_text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(" ", "milliseconds")

"""The page that decodes an id: it takes any form of it, and draws its bits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

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
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..core.clock import in_zone
from ..core.errors import InvalidId, one_line
from ..models import LeafAlloc, SegmentHistory, WorkerLease
from ..settings import SettingsError
from .base import ViewOnlyAdmin

BITS = 64
Document = dict[str, Any]


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
            return {"problem": _("This is not an id."), "reason": one_line(error)}
        except SettingsError as error:
            return {"problem": one_line(error)}
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
    reading: Document

    @property
    def plausible(self) -> list[Document]:
        return [self._snowflake(each) for each in self.reading["generators"] if each["plausible"]]

    @property
    def doubtful(self) -> list[Document]:
        return [
            self._snowflake(each) for each in self.reading["generators"] if not each["plausible"]
        ]

    def _snowflake(self, reading: Document) -> Document:
        """A reading of a generator, with its bits as they are drawn."""
        parts, held = reading["parts"], reading["held_by"]
        return {
            "reading": reading,
            "worker_url": self._worker_url(reading["generator"], parts["worker"]) if parts else "",
            "fields": _drawn(reading["fields"]),
            "moments": _moments(parts["time"]) if parts else [],
            "since": _clock(held["acquired_at"]) if held and held["acquired_at"] else "",
        }

    @property
    def tags(self) -> list[Document]:
        """The readings of tags, with the times of their grants as text."""
        return [
            {**tag, "grants": [{**each, "at": _clock(each["taken_at"])} for each in tag["grants"]]}
            for tag in self.reading["tags"]
        ]

    @property
    def rows(self) -> list[Document]:
        """The rows of models that the user may view. Nothing is said about other models."""
        return [shown for each in self.reading["rows"] if (shown := self._row(each))]

    def _row(self, found: Document) -> Document | None:
        """Whether a row has the id; with its name and page only if the user may view it."""
        label, _dot, name = found["field"].rpartition(".")
        model = apps.get_model(label)
        model_admin = self.page.admin_site._registry.get(model)
        if model_admin is None:
            return found if _may_view(self.request, model) else None
        if not model_admin.has_view_permission(self.request):
            return None
        if not found["exists"]:
            return found
        # As on its own page, which may show each user other rows.
        row = model_admin.get_queryset(self.request).filter(**{name: self.reading["id"]}).first()
        if row is None or not model_admin.has_view_permission(self.request, row):
            return {**found, "exists": False}
        page = f"{model._meta.app_label}_{model._meta.model_name}_change"
        return {**found, "title": str(row), "url": self._url(page, quote(row.pk))}

    def _worker_url(self, alias: str, worker: object) -> str:
        url = self._url("django_idgen_workerlease_changelist")
        return url and f"{url}?{urlencode({'generator': alias, 'q': str(worker)})}"

    def _url(self, name: str, *arguments: object) -> str:
        try:
            return reverse(f"{self.page.admin_site.name}:{name}", args=arguments)
        except NoReverseMatch:
            return ""  # an admin with pages of its own


def _drawn(fields: list[Document]) -> list[Document]:
    """The fields of the layout, below the sign bit and the bits that the layout leaves out."""
    if not fields:
        return []
    above = BITS - sum(field["bits"] for field in fields)
    return [{"name": "", "bits": above, "digits": "0" * above}, *fields]


def _moments(time: str) -> list[str]:
    """When the id was made, in the user's zone and in UTC."""
    zones = (timezone.get_current_timezone(), UTC)
    created = [in_zone(datetime.fromisoformat(time), zone) for zone in zones]
    return list(dict.fromkeys(_shown_time(each, "milliseconds") for each in created))


def _clock(time: str) -> str:
    local = in_zone(datetime.fromisoformat(time), timezone.get_current_timezone())
    return _shown_time(local, "seconds")


def _shown_time(local: datetime, precision: str) -> str:
    return f"{local.replace(tzinfo=None).isoformat(' ', precision)} {local:%z}"

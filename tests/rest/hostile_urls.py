"""Every URL that the package has, and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

import django_idgen.ops.metrics
from django_idgen.ops import health
from tests.contrib.old_servers.urls import urlpatterns as old_servers

urlpatterns = [
    path("idgen/", include("django_idgen.rest.urls")),
    *old_servers,
    path("live", health.live),
    path("ready", health.ready),
    path("metrics", django_idgen.ops.metrics.view),
    path("admin/", admin.site.urls),
]

"""The addresses of :mod:`.tag_site`."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from .tag_site import measure

urlpatterns = [path("admin/", admin.site.urls), path("measure/", measure)]

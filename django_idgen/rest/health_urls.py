"""Part of :mod:`.urls`: for load balancers and orchestrators."""

from __future__ import annotations

from django.urls import URLPattern, path

from .health import LiveView, ReadyView

urlpatterns: list[URLPattern] = [
    path("health/live", LiveView.as_view(), name="health-live"),
    path("health/ready", ReadyView.as_view(), name="health-ready"),
]

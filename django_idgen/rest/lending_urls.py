"""Part of :mod:`.urls`: what lends whole segments and worker ids to other services."""

from __future__ import annotations

from django.urls import URLPattern, path

from . import tag_converter  # noqa: F401 - so that there is one
from .lending_leases import LeasesView, ReleaseView, RenewSeenView, RenewView
from .lending_segments import SegmentView

urlpatterns: list[URLPattern] = [
    path("tags/<idgen_tag:tag>/segment", SegmentView.as_view(), name="tag-segment"),
    path("generators/<str:alias>/leases", LeasesView.as_view(), name="generator-leases"),
    path("generators/<str:alias>/leases/renew", RenewView.as_view(), name="lease-renew"),
    path("generators/<str:alias>/leases/release", ReleaseView.as_view(), name="lease-release"),
    path("generators/<str:alias>/leases/renew-seen", RenewSeenView.as_view(), name="renew-seen"),
]

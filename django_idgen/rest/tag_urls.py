"""Part of :mod:`.urls`: tags and leases, ids taken apart, the API described."""

from __future__ import annotations

from django.urls import URLPattern, path, re_path

from . import tag_converter  # noqa: F401  (it registers the converter)
from .decode import DecodeView
from .leases import ReleaseLeaseView, WorkerLeasesView
from .management import NotThereView
from .openapi import SchemaView
from .tags import ClearView, PauseView, PreloadView, ResumeView, SkipView, TagsView, TagView

urlpatterns: list[URLPattern] = [
    path("tags/", TagsView.as_view(), name="tags"),
    path("tags/<idgen_tag:tag>/preload", PreloadView.as_view(), name="tag-preload"),
    path("tags/<idgen_tag:tag>/skip", SkipView.as_view(), name="tag-skip"),
    path("tags/<idgen_tag:tag>/clear", ClearView.as_view(), name="tag-clear"),
    path("tags/<idgen_tag:tag>/pause", PauseView.as_view(), name="tag-pause"),
    path("tags/<idgen_tag:tag>/resume", ResumeView.as_view(), name="tag-resume"),
    path("tags/<idgen_tag:tag>", TagView.as_view(), name="tag"),
    path("leases/", WorkerLeasesView.as_view(), name="leases"),
    path(
        "leases/<path:alias>/<int:worker>/release",
        ReleaseLeaseView.as_view(),
        name="worker-release",
    ),
    path("decode", DecodeView.as_view(), name="decode"),
    path("schema/", SchemaView.as_view(), name="schema"),
    # What can be no tag, and no alias: told as the rest of the API tells it.
    re_path(r"^(?:tags|generators|leases)/[\s\S]", NotThereView.as_view()),
]

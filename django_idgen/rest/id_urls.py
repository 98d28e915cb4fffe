"""Part of :mod:`.urls`: ids, one or many."""

from __future__ import annotations

from django.urls import URLPattern, path

from . import tag_converter  # noqa: F401  (it registers the converter)
from .ids import GeneratorIdsView, TagIdsView

urlpatterns: list[URLPattern] = [
    path("generators/<path:alias>/ids", GeneratorIdsView.as_view(), name="generator-ids"),
    path("tags/<idgen_tag:tag>/ids", TagIdsView.as_view(), name="tag-ids"),
]

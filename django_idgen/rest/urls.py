"""The native API: ``path("idgen/", include("django_idgen.rest.urls"))``.

========================================  ==========  ================================
``generators/<alias>/ids``                GET, POST   ids of a generator
``generators/<alias>/leases``             GET, POST   terms; borrow a worker id
``generators/<alias>/leases/renew``       POST        move the window's end up
``generators/<alias>/leases/release``     POST        give the worker id back
``generators/<alias>/leases/renew-seen``  POST        for a scheduler
``tags/``                                 GET, POST   list, make
``tags/<tag>``                            GET, PATCH  read, change
``tags/<tag>/ids``                        GET, POST   ids of a tag
``tags/<tag>/segment``                    GET, POST   terms; take a whole segment
``tags/<tag>/preload``                    POST        load ids ahead
``tags/<tag>/skip``                       POST        skip ids, never back
``tags/<tag>/clear``                      POST        give back the ids held here
``tags/<tag>/pause``                      POST        give out no ids
``tags/<tag>/resume``                     POST        give out ids again
``leases/``                               GET         who holds which worker id
``leases/<alias>/<worker>/release``       POST        free a worker id by hand
``decode``                                GET, POST   decode an id
``health/live``                           GET         whether the process answers
``health/ready``                          GET         whether it can give out ids
``schema/``                               GET         OpenAPI
========================================  ==========  ================================
"""

from __future__ import annotations

from django.urls import URLPattern, path, re_path

from ..core.errors import ConfigurationError

try:
    from .base import NotThereView
except ModuleNotFoundError as error:
    if error.name != "rest_framework":
        raise
    raise ConfigurationError(
        f"{__name__} needs Django REST framework: pip install 'django-idgen[drf]'."
    ) from error
from .health import LiveView, ReadyView
from .ids import DecodeView, GeneratorIdsView, TagIdsView
from .leases import ReleaseLeaseView, WorkerLeasesView
from .lending import LeasesView, ReleaseView, RenewSeenView, RenewView, SegmentView
from .schema import SchemaView
from .tags import ClearView, PauseView, PreloadView, ResumeView, SkipView, TagsView, TagView

app_name = "django_idgen"
# A tag may have a slash: the longer paths go first.
urlpatterns: list[URLPattern] = [
    path("health/live", LiveView.as_view(), name="health-live"),
    path("health/ready", ReadyView.as_view(), name="health-ready"),
    path("generators/<path:alias>/ids", GeneratorIdsView.as_view(), name="generator-ids"),
    path("tags/<idgen_tag:tag>/ids", TagIdsView.as_view(), name="tag-ids"),
    path("tags/<idgen_tag:tag>/segment", SegmentView.as_view(), name="tag-segment"),
    path("generators/<str:alias>/leases", LeasesView.as_view(), name="generator-leases"),
    path("generators/<str:alias>/leases/renew", RenewView.as_view(), name="lease-renew"),
    path("generators/<str:alias>/leases/release", ReleaseView.as_view(), name="lease-release"),
    path("generators/<str:alias>/leases/renew-seen", RenewSeenView.as_view(), name="renew-seen"),
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
    # Names that can't be a tag or an alias get this API's 404.
    re_path(r"^(?:tags|generators|leases)/[\s\S]", NotThereView.as_view()),
]

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

from typing import Any

from django.urls import URLPattern, URLResolver, path, re_path

from ..core.errors import ConfigurationError

try:
    from rest_framework.routers import DynamicRoute, Route, SimpleRouter

    from .base import NotThereView
except ModuleNotFoundError as error:
    if error.name != "rest_framework":
        raise
    raise ConfigurationError(
        f"{__name__} needs Django REST framework: pip install 'django-idgen[drf]'."
    ) from error
from ..ops.health import live, ready
from .ids import DecodeView, GeneratorIdsView, TagIdsView
from .leases import LeasesView
from .lending import LeaseView, SegmentView
from .schema import SchemaView
from .tags import TagsView

app_name = "django_idgen"


class TagRouter(SimpleRouter):
    """The addresses of the tags. A tag may have a slash: the longer ones go first."""

    routes: list[Route | DynamicRoute] = [  # noqa: RUF012
        Route("^{prefix}/$", {"get": "list", "post": "create"}, "{basename}s", False, {}),
        DynamicRoute("^{prefix}/{lookup}/{url_path}$", "{basename}-{url_name}", True, {}),
        Route(
            "^{prefix}/{lookup}$",
            {"get": "retrieve", "patch": "partial_update"},
            "{basename}",
            True,
            {},
        ),
    ]


tags = TagRouter(use_regex_path=False)
tags.register("tags", TagsView, basename="tag")


def _lease(name: str, suffix: str, **actions: str) -> Any:
    return path(f"generators/<str:alias>/leases{suffix}", LeaseView.as_view(actions), name=name)


_methods = ("get", "post", "put", "patch", "delete", "options")
_missing = NotThereView.as_view(dict.fromkeys(_methods, "missing"))
# A tag may have a slash: the longer paths go first.
urlpatterns: list[URLPattern | URLResolver] = [
    path("health/live", live, name="health-live"),
    path("health/ready", ready, name="health-ready"),
    path("generators/<path:alias>/ids", GeneratorIdsView.as_view(), name="generator-ids"),
    path("tags/<idgen_tag:tag>/ids", TagIdsView.as_view(), name="tag-ids"),
    path(
        "tags/<idgen_tag:tag>/segment",
        SegmentView.as_view({"get": "terms", "post": "take"}),
        name="tag-segment",
    ),
    _lease("generator-leases", "", get="terms", post="borrow"),
    _lease("lease-renew", "/renew", post="renew"),
    _lease("lease-release", "/release", post="release"),
    _lease("renew-seen", "/renew-seen", post="renew_seen"),
    *tags.urls,
    path("leases/", LeasesView.as_view({"get": "list"}), name="leases"),
    path(
        "leases/<path:alias>/<int:worker>/release",
        LeasesView.as_view({"post": "release"}),
        name="worker-release",
    ),
    path("decode", DecodeView.as_view({"get": "decode", "post": "decode"}), name="decode"),
    path("schema/", SchemaView.as_view({"get": "show"}), name="schema"),
    # Names that can't be a tag or an alias get this API's 404.
    re_path(r"^(?:tags|generators|leases)/[\s\S]", _missing),
]

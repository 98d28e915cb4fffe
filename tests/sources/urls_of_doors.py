"""All doors to tags, open."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from django_idgen.contrib.old_servers import cosid, go_leaf, tinyid

urlpatterns = [
    path("idgen/", include("django_idgen.rest.urls")),
    path("go/", include(go_leaf.urls(authentication=None, writes=True))),
    path("tinyid/", include(tinyid.urls(authentication=None))),
    path("cosid/", include(cosid.urls(authentication=None))),
    path("admin/", admin.site.urls),
]

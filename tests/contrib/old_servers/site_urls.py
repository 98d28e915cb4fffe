"""All that old clients ask for, for callers with a token."""

from __future__ import annotations

from django.urls import include, path

from django_idgen.contrib.old_servers import cosid, finger_mark, go_leaf, leaf, tinyid

urlpatterns = [
    path("leaf/", include(leaf.urls())),
    path("go/", include(go_leaf.urls())),
    path("tinyid/", include(tinyid.urls())),
    path("cosid/", include(cosid.urls(machines={"shop": "default"}))),
    path("finger/", include(finger_mark.urls())),
]

"""All old servers' URLs, closed as they come and open."""

from __future__ import annotations

from django.urls import include, path

from django_idgen.contrib.old_servers import cosid, finger_mark, go_leaf, leaf, tinyid

MACHINES = {"shop": "default", "other": "second"}

urlpatterns = [
    path("leaf/", include(leaf.urls())),
    path("go/", include(go_leaf.urls())),
    path("tinyid/", include(tinyid.urls())),
    path("cosid/", include(cosid.urls(machines=MACHINES))),
    path("finger/", include(finger_mark.urls(app_keys={"app": "second"}))),
    path("open/leaf/", include(leaf.urls(authentication=None))),
    path("open/go/", include(go_leaf.urls(authentication=()))),
    path("open/wide/", include(go_leaf.urls(authentication=None, writes=True))),
    path("open/tinyid/", include(tinyid.urls(authentication=None))),
    path("open/cosid/", include(cosid.urls(authentication=None, machines=MACHINES))),
    path("open/warehouse/", include(cosid.urls(authentication=None, namespace="stock"))),
    path("open/finger/", include(finger_mark.urls(authentication=None))),
    path("open/some/", include(leaf.urls(authentication=None, tags=["shop/*"], make_tags=True))),
]

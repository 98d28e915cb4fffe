"""The URLs of a project with a schema of its own: all of ours, beside its own API.

Its serializer and choices have names that ours have, too.
"""

from __future__ import annotations

from django.conf import settings
from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework import routers, serializers, viewsets

import django_idgen.ops.metrics
from django_idgen.contrib.old_servers import cosid, finger_mark, go_leaf, leaf, tinyid
from tests.app.models import Tag


class Problem(serializers.Serializer):  # type: ignore[type-arg]
    title = serializers.CharField()
    state = serializers.ChoiceField(["held", "sold"])


class Ticket(serializers.Serializer):  # type: ignore[type-arg]
    state = serializers.ChoiceField(["held", "sold"])


class TagInput(serializers.ModelSerializer):  # type: ignore[type-arg]
    form = serializers.ChoiceField(["square", "round"])
    generator = serializers.ChoiceField(["wind", "water"])
    problem = Problem(read_only=True)
    ticket = Ticket(read_only=True)

    class Meta:
        model = Tag
        fields = ("id", "name", "form", "generator", "problem", "ticket")


class Tags(viewsets.ModelViewSet):  # type: ignore[type-arg]
    queryset = Tag.objects.order_by("pk")
    serializer_class = TagInput


router = routers.SimpleRouter()
router.register("tags", Tags, "tag")

urlpatterns = [
    path("shop/", include(router.urls)),
    path("openapi", SpectacularJSONAPIView.as_view()),
    *(path(place, include("django_idgen.rest.urls", name)) for place, name in settings.MOUNTS),
    path("", include(leaf.urls())),
    path("", include(go_leaf.urls())),
    path("tinyid/", include(tinyid.urls())),
    path("", include(cosid.urls(machines={"shop": "default"}))),
    path("", include(finger_mark.urls())),
    path("metrics", django_idgen.ops.metrics.view),
]

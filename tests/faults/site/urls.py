"""One view: take ids and say which process took them."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import path

from .taking import take


def ids(request: HttpRequest, count: int) -> JsonResponse:
    return JsonResponse(take(count))


urlpatterns = [path("ids/<int:count>", ids)]

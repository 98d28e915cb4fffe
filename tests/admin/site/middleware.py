"""Everybody is the administrator; and no page may have styles or scripts of its own."""

from __future__ import annotations

import os
from collections.abc import Callable

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse

View = Callable[[HttpRequest], HttpResponse]
POLICY = "default-src 'self'"


def policed_admin(view: View) -> View:
    """Log in, and send the strictest policy that the theme itself can live with."""

    def answered(request: HttpRequest) -> HttpResponse:
        names = {"is_staff": True, "is_superuser": True}
        request.user, _ = get_user_model().objects.get_or_create(username="ada", defaults=names)
        answer = view(request)
        if request.path.startswith("/admin/") and not os.environ.get("IDGEN_TEST_THEME"):
            answer["Content-Security-Policy"] = POLICY
        return answer

    return answered

"""A project with Django's default middleware: our ids over HTTP, and bare views beside them.

Settings, URLs and WSGI application in one; ``REST_SITE`` is the path of its SQLite file.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

import django
from django.conf import settings

SECRET_KEY = "benchmark"
USE_TZ = True
ALLOWED_HOSTS = ["127.0.0.1"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("REST_SITE", ":memory:"),
    }
}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django_idgen",
]
# As "startproject" writes them.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = __name__
LOGGING_CONFIG = None
IDGEN = {
    "GENERATORS": {"default": {"OPTIONS": {"max_ahead": 1.0}}},
    "SEGMENTS": {"OPTIONS": {"default_step": 10_000_000}},
}
LEAF = find_spec("django_idgen.contrib.old_servers.leaf") is not None
"""Whether the answers in plain text are there."""

if not settings.configured:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", __name__)
    django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import include, path  # noqa: E402


def bare_json(_request: HttpRequest) -> HttpResponse:
    return JsonResponse({"id": "7205759403792793600"})


def bare_text(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("7205759403792793600", content_type="text/plain")


urlpatterns = [
    path("bare/json", bare_json),
    path("bare/text", bare_text),
    path("idgen/", include("django_idgen.rest.urls")),
]
if LEAF:
    leaf = import_module("django_idgen.contrib.old_servers.leaf")
    urlpatterns.append(path("leaf/", include(leaf.urls(authentication=None))))
application = get_wsgi_application()

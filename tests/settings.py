"""Settings of the test run. A server that is not found is left out of DATABASES."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests import servers
from tests.patience import wait_patiently
from tests.servers import use_pymysql_for_mysqlclient

use_pymysql_for_mysqlclient()
wait_patiently()

SECRET_KEY = "tests"
USE_TZ = True
TIME_ZONE = "UTC"
# Nothing is kept secret here, and the hasher for that is slow on purpose.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "django_idgen",
    "tests.app",
]
ROOT_URLCONF = "tests.app.urls"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "/static/"

_directory = tempfile.TemporaryDirectory(prefix="django-idgen-tests-")

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(Path(_directory.name) / "default.sqlite3"),
    },
    **{name: servers.database(name) for name in servers.URLS if servers.is_open(name)},
}

IDGEN = {"SCRAMBLE_KEYS": {"A": "the tests' key of gift cards"}}

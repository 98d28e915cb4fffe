"""A small shop, to try django_idgen with. Nothing here is meant for production.

Without any environment variable it keeps everything in a SQLite file beside
manage.py. ``SHOP_DATABASE_URL`` moves it to a server, for instance
``postgres://postgres@127.0.0.1:5432/shop`` or ``mysql://root@127.0.0.1:3306/shop``
(or to another file, ``sqlite:////tmp/shop.sqlite3``). On a server the database has to be
there, and its driver: psycopg for PostgreSQL; mysqlclient or PyMySQL for MariaDB and MySQL.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "only for trying things out on your own machine"
DEBUG = True
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_idgen",
    "orders",
]

# The APIs are there where Django REST framework is.
HAS_REST = find_spec("rest_framework") is not None
if HAS_REST:
    INSTALLED_APPS.append("rest_framework")
REST_FRAMEWORK = {
    # To look at, the shop is open; to change something, log in to the admin first.
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticatedOrReadOnly"],
    "DEFAULT_PAGINATION_CLASS": "rest_framework.pagination.LimitOffsetPagination",
    "PAGE_SIZE": 50,
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
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
            ],
        },
    },
]

ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# django_idgen needs no settings at all. These only show where they would go.
IDGEN: dict[str, Any] = {
    "GENERATORS": {"default": {"EPOCH": "2025-01-01T00:00:00Z"}},
    "SEGMENTS": {"OPTIONS": {"default_step": 100}},
}

HAS_PROMETHEUS = find_spec("prometheus_client") is not None
if HAS_PROMETHEUS:
    # What a Prometheus server sends; at least 16 characters.
    IDGEN["METRICS"] = {"token": os.environ.get("SHOP_METRICS_TOKEN")}


ENGINES = {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql"}


def _database(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.scheme in {"", "sqlite"}:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": parts.path or str(BASE_DIR / "db.sqlite3"),
            # Several processes write at once: better to wait at the start of a
            # transaction than to fail in its middle.
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        }
    if parts.scheme not in ENGINES:
        raise ImproperlyConfigured(
            f"SHOP_DATABASE_URL begins with {parts.scheme!r}: it must be one of "
            f"{', '.join(ENGINES)}, sqlite."
        )
    engine = ENGINES[parts.scheme]
    if engine == "mysql" and find_spec("MySQLdb") is None and find_spec("pymysql") is not None:
        import pymysql

        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": parts.path.lstrip("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }


DATABASES = {"default": _database(os.environ.get("SHOP_DATABASE_URL", ""))}

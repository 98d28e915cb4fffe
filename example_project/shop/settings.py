"""A small shop, to try django_idgen with. Nothing here is meant for production.

Without any environment variable it keeps everything in a SQLite file beside
manage.py. ``SHOP_DATABASE_URL`` moves it to a server, for instance
``postgres://postgres@127.0.0.1:5432/shop`` or ``mysql://root@127.0.0.1:3306/shop``
(or to another file, ``sqlite:////tmp/shop.sqlite3``). Create the database first (``createdb
shop``), and install its driver: psycopg for PostgreSQL; mysqlclient or PyMySQL for MariaDB and
MySQL. ``SHOP_REDIS_URL`` adds a pool of segments, ``SHOP_BROKER_URL`` a broker for Celery.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .databases import database

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

# django_idgen needs no settings, but for the key of ids that outsiders can't count
# (Customer.id). The others only show where they would go.
IDGEN: dict[str, Any] = {
    "GENERATORS": {"default": {"EPOCH": "2025-01-01T00:00:00Z"}},
    "SEGMENTS": {"OPTIONS": {"default_step": 100}},
    "SCRAMBLE_KEYS": {"A": os.environ.get("SHOP_SCRAMBLE_KEY", "only for trying things out")},
}

HAS_PROMETHEUS = find_spec("prometheus_client") is not None
if HAS_PROMETHEUS:
    # Prometheus sends it; at least 16 characters.
    IDGEN["METRICS"] = {"token": os.environ.get("SHOP_METRICS_TOKEN")}

DATABASES = {
    "default": database(
        os.environ.get("SHOP_DATABASE_URL", ""), default_file=BASE_DIR / "db.sqlite3"
    )
}

# With a Redis, Celery keeps segments ready in it, and they outlast a database that is down.
if redis_url := os.environ.get("SHOP_REDIS_URL"):
    CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "idgen": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_url},
    }
    IDGEN["SEGMENTS"]["SOURCE"] = {
        "BACKEND": "django_idgen.sources.pool.PoolSource",
        "OPTIONS": {"alias": "idgen"},
    }

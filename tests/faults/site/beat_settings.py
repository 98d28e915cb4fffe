"""The site with a Redis, and perhaps with django-celery-beat, for the tests of upkeep."""

from __future__ import annotations

import os

from .settings import *  # noqa: F403
from .settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, *filter(None, os.environ.get("SITE_APPS", "").split(","))]
DEFAULT_AUTO_FIELD = "django_idgen.fields.SnowflakeAutoField"
TIME_ZONE = "UTC"
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "idgen": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("SITE_REDIS", "redis://127.0.0.1:6379/0"),
    },
}

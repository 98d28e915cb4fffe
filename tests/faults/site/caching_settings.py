"""The settings with a Redis, and a package that answers queries out of a cache."""

from __future__ import annotations

import json
import os

from .redis_settings import *  # noqa: F403 - what else a settings module adds to

_PACKAGE = os.environ["SITE_QUERY_CACHE"]
DATABASES = json.loads(os.environ["SITE_DATABASES"])
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    _PACKAGE,
    "django_idgen",
    "tests.app",
]
CACHEOPS = {"*.*": {"ops": "all", "timeout": 3600}}
CACHEOPS_REDIS = os.environ["SITE_QUERY_CACHE_REDIS"]

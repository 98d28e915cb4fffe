"""The settings with a package that answers queries out of a cache."""

from __future__ import annotations

import json
import os

from .settings import *  # noqa: F403 - what else a settings module adds to

DATABASES = json.loads(os.environ["SITE_DATABASES"])
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    os.environ["SITE_QUERY_CACHE"],
    "django_idgen",
    "tests.app",
]
CACHEOPS = {"*.*": {"ops": "all", "timeout": 3600}}
CACHEOPS_REDIS = os.environ["SITE_QUERY_CACHE_REDIS"]

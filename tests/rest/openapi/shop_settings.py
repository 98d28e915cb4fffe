"""A project with a schema of its own: settings, some of them out of the environment."""

from __future__ import annotations

import json
import os

SECRET_KEY = "tests"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "rest_framework",
    "drf_spectacular",
    "django_idgen",
    "tests.app",
]
CHOSEN = json.loads(os.environ.get("SHOP", "{}"))
ROOT_URLCONF = "tests.rest.openapi.shop_urls"
MOUNTS = CHOSEN.get("mounts", [["idgen/", None]])
"""Where our URLs are, and in which namespace."""
REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    **CHOSEN.get("rest_framework", {}),
}
SPECTACULAR_SETTINGS = CHOSEN.get("spectacular", {})
SILENCED_SYSTEM_CHECKS = ["django_idgen.W011"]  # it never had a finger-mark server
IDGEN = {
    "GENERATORS": {"default": {}, "second": {"LAYOUT": "js_safe"}},
    "SCRAMBLE_KEYS": {"A": "the tests' key of gift cards"},
}

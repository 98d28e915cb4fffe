"""The sample project beside packages that keep a history of rows."""

from __future__ import annotations

from project_settings import *  # noqa: F403

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "rest_framework",
    "simple_history",
    "pgtrigger",
    "pghistory",
    "django_idgen",
    "ledger",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PGTRIGGER_INSTALL_ON_MIGRATE = True
IDGEN = {"SCRAMBLE_KEYS": {"A": "0123456789abcdefXYZ"}}
ROOT_URLCONF = "ledger.urls"

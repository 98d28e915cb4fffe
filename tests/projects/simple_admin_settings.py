"""The sample project with the admin that finds no admin modules unless the project asks it to."""

from __future__ import annotations

from typing import Any

from project_settings import *  # noqa: F403
from project_settings import INSTALLED_APPS, TEMPLATES

ROOT_URLCONF = "office.urls"
INSTALLED_APPS = [
    *INSTALLED_APPS,
    "office",
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
OPTIONS: dict[str, Any] = {
    "context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
}
TEMPLATES = [{**entry, "OPTIONS": OPTIONS} for entry in TEMPLATES]

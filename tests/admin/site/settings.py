"""A project whose admin a browser looks at; with ``IDGEN_TEST_THEME=unfold`` in that theme.

Whoever comes is logged in: a headless browser has no form to fill in.
"""

from __future__ import annotations

import os

SECRET_KEY = "tests"
DEBUG = True  # so that runserver serves the static files
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
TIME_ZONE = "Asia/Shanghai"
LANGUAGE_CODE = os.environ.get("IDGEN_TEST_LANGUAGE", "en")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    *([os.environ["IDGEN_TEST_THEME"]] if os.environ.get("IDGEN_TEST_THEME") else []),
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
    "django_idgen",
]
ROOT_URLCONF = "tests.admin.site.urls"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tests.admin.site.middleware.policed_admin",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
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
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("IDGEN_TEST_FILE", ":memory:"),
    }
}
IDGEN = {
    "GENERATORS": {
        "default": {"LEASES": {"OPTIONS": {"workers": [0, 1000]}}},
        "wide": {"LAYOUT": "uid"},
        "js": {"LAYOUT": "js_safe"},
        "batched": {"LAYOUT": "pear_flower"},
        "away": {
            "LEASES": {
                "BACKEND": "django_idgen.leases.http.HttpLeases",
                "OPTIONS": {"base_urls": "http://127.0.0.1:1/", "token": "x"},
            }
        },
    },
    "SEGMENTS": {"SOURCE": {"OPTIONS": {"history": True}}, "OPTIONS": {"timeout": 30}},
}

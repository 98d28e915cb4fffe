"""Settings of the sample project: django_idgen stands in INSTALLED_APPS and nowhere else.

None of Django's own apps is installed. The database comes from the environment, as JSON,
so that one project can be run on each of them; without it, it is in memory.
"""

from __future__ import annotations

import json
import os

IN_MEMORY = '{"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}'

DATABASES = json.loads(os.environ.get("SHOP_DATABASES", IN_MEMORY))

if any(entry["ENGINE"].endswith("mysql") for entry in DATABASES.values()):
    from tests.servers import use_pymysql_for_mysqlclient

    use_pymysql_for_mysqlclient()

SECRET_KEY = "shop"
USE_TZ = True
ROOT_URLCONF = "shop.urls"
STATIC_URL = "/static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
INSTALLED_APPS = ["django_idgen", "shop", *os.environ.get("SHOP_APPS", "").split()]
if "later" in INSTALLED_APPS:
    MIGRATION_MODULES = {"django_idgen": "later.idgen_migrations"}
if "accounts" in INSTALLED_APPS:
    # All of our tables are written to.
    IDGEN = {"SEGMENTS": {"SOURCE": {"OPTIONS": {"history": True}}}}

if os.environ.get("SHOP_LOGGING"):
    LOGGING = {
        "version": 1,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "INFO"},
    }

if os.environ.get("SHOP_NO_MIGRATIONS"):

    class NoMigrations:
        """The well-known way to have all tables made without migrations."""

        def __contains__(self, item: object) -> bool:
            return True

        def __getitem__(self, item: object) -> None:
            return None

    MIGRATION_MODULES = NoMigrations()

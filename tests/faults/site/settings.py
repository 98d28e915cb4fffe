"""Settings out of the environment, as :mod:`tests.faults.processes` sets it."""

from __future__ import annotations

import json
import os

from tests.patience import PATIENT_TIMEOUT, wait_patiently
from tests.servers import use_pymysql_for_mysqlclient

use_pymysql_for_mysqlclient()
wait_patiently()

SECRET_KEY = "tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.faults.site.urls"
INSTALLED_APPS = ["django_idgen", "tests.faults.site", *os.environ.get("SITE_APPS", "").split()]
DEFAULT_AUTO_FIELD = "django_idgen.fields.SnowflakeAutoField"  # of apps that are not ours
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    **json.loads(os.environ.get("SITE_CACHES", "{}")),
}
DATABASES = {"default": json.loads(os.environ["SITE_DATABASE"])}
IDGEN = json.loads(os.environ.get("SITE_IDGEN", "{}"))
# A registry's shipped 10 s count for the first connection, too, and a fleet's queue.
IDGEN.setdefault("GENERATORS", {"default": {"LEASES": {"OPTIONS": {"timeout": PATIENT_TIMEOUT}}}})

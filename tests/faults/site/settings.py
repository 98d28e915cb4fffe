"""Settings out of the environment, as :mod:`tests.faults.processes` sets it."""

from __future__ import annotations

import json
import os

try:
    import MySQLdb  # noqa: F401
except ImportError:
    import pymysql

    pymysql.version_info = (2, 2, 1, "final", 0)  # what Django asks of mysqlclient
    pymysql.install_as_MySQLdb()
    # It would load the host's certificates at each connect, and be slower than the fetch.
    pymysql.connections.SSL_ENABLED = False

SECRET_KEY = "tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.faults.site.urls"
INSTALLED_APPS = ["django_idgen", "tests.faults.site"]
DATABASES = {"default": json.loads(os.environ["SITE_DATABASE"])}
IDGEN = json.loads(os.environ.get("SITE_IDGEN", "{}"))

"""Settings of a process of a fleet, out of the environment."""

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
USE_TZ = True
INSTALLED_APPS = ["django_idgen"]
DATABASES = json.loads(os.environ["FLEET_DATABASES"])
CACHES = json.loads(os.environ["FLEET_CACHES"])
IDGEN = json.loads(os.environ["FLEET_IDGEN"])

"""Settings of Django's tests: the database and the key that the environment names."""

from __future__ import annotations

import os
from typing import Any

from tests import servers


def database(name: str, alias: str) -> dict[str, Any]:
    if name == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3"}
    found = servers.database(name)
    return found | {"TEST": {"NAME": f"{found['TEST']['NAME']}_{alias}"}}


DATABASES = {alias: database(os.environ["SUITE_DATABASE"], alias) for alias in ("default", "other")}
DEFAULT_AUTO_FIELD = os.environ["SUITE_FIELD"]
TEST_RUNNER = "tests.django_suite.runner.Recording"
SECRET_KEY = "django_tests_secret_key"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
USE_TZ = False
# A busy machine may take longer for a segment than the half second of the default.
IDGEN = {"SEGMENTS": {"OPTIONS": {"timeout": 30.0}}}

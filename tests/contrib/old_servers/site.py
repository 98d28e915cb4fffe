"""A project whose old servers' URLs real web servers serve: settings, out of the environment."""

from __future__ import annotations

import json
import os

from tests.faults.site.settings import *  # noqa: F403
from tests.faults.site.settings import DATABASES as DATABASES

ROOT_URLCONF = "tests.contrib.old_servers.urls"
DEBUG = os.environ.get("SITE_DEBUG") == "1"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_idgen"]
IDGEN = {
    "GENERATORS": {"default": {}, "second": {}},
    "SEGMENTS": {"OPTIONS": {"default_step": 20, "timeout": 20}},
    **json.loads(os.environ.get("SITE_IDGEN", "{}")),
}
STATIC_URL = "/static/"

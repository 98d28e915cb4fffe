"""The same settings, and a Redis."""

from __future__ import annotations

import json
import os

from .settings import *  # noqa: F403 - what else a settings module adds to

CACHES = json.loads(os.environ["SITE_CACHES"])

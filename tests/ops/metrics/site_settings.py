"""The site of the fault tests, with metrics: its views, and django-prometheus' way beside ours."""

from __future__ import annotations

from tests.faults.site.settings import *  # noqa: F403
from tests.faults.site.settings import IDGEN

TOKEN = "a-token-of-the-tests"
IDGEN["METRICS"] = {"token": TOKEN, "every": 0.2, "max_age": 0, **IDGEN.get("METRICS", {})}
ROOT_URLCONF = "tests.ops.metrics.site_urls"

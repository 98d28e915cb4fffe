"""The Celery application whose tasks take ids."""

from __future__ import annotations

import os
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.site.settings")
django.setup()

from .on_broker import celery_app  # noqa: E402
from .taking import take, take_early  # noqa: E402 - needs the settings

app = celery_app(result_backend=os.environ["SITE_BROKER"])


@app.task
def ids(count: int) -> dict[str, Any]:
    return take(count)


take_early()

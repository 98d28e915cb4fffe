"""The Celery application."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import django
from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.faults.site.settings")
django.setup()

from .taking import take, take_early  # noqa: E402 - needs the settings

spool = Path(os.environ.get("SITE_SPOOL", "."))
app = Celery("site")
app.conf.update(
    broker_url="filesystem://",
    broker_transport_options={
        "data_folder_in": str(spool / "queue"),
        "data_folder_out": str(spool / "queue"),
        "polling_interval": 0.02,
        "control_folder": str(spool / "control"),
        "processed_folder": str(spool / "processed"),
    },
    result_backend=f"file://{spool / 'results'}",
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
)


@app.task
def ids(count: int) -> dict[str, Any]:
    return take(count)


take_early()

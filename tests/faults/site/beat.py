"""The Celery application of the tests of upkeep, on a real broker, in a queue of its own."""

from __future__ import annotations

import os

import django

django.setup()

from django_idgen.ops import upkeep  # noqa: E402 - needs the settings
from django_idgen.tasks import BEAT_SCHEDULE  # noqa: E402

from .on_broker import celery_app  # noqa: E402

app = celery_app(beat_schedule={**BEAT_SCHEDULE}, beat_max_loop_interval=0.2)
app.autodiscover_tasks()

every = os.environ.get("SITE_PRELOAD_EVERY")
if every:
    app.conf.beat_schedule["idgen-preload-segments"]["schedule"] = float(every)
    upkeep.MEASURED_EVERY = 0.5

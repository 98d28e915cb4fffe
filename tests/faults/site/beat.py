"""The Celery application of the tests of upkeep, on a real broker, in a queue of its own."""

from __future__ import annotations

import os

import django
from celery import Celery

django.setup()

from django_idgen.tasks import BEAT_SCHEDULE  # noqa: E402
from django_idgen.upkeep import preloading  # noqa: E402 - needs the settings

queue = os.environ["SITE_QUEUE"]
app = Celery("site")
app.conf.update(
    broker_url=os.environ["SITE_BROKER"],
    broker_connection_retry_on_startup=True,
    # Nothing of other tests on the same Redis is seen, and nothing of this one left there.
    broker_transport_options={"global_keyprefix": f"{queue}:"}
    if "redis" in os.environ["SITE_BROKER"]
    else {},
    task_default_queue=queue,
    control_exchange=f"{queue}-control",
    event_exchange=f"{queue}-events",
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    beat_schedule={**BEAT_SCHEDULE},
    beat_max_loop_interval=0.2,
)
app.autodiscover_tasks()

every = os.environ.get("SITE_PRELOAD_EVERY")
if every:
    app.conf.beat_schedule["idgen-preload-segments"]["schedule"] = float(every)
    preloading.MEASURED_EVERY = 0.5

"""Celery applications on a real broker, each in a queue of its own."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

__all__ = ["celery_app"]


def celery_app(**more: Any) -> Celery:
    """One with the broker and the queue that the environment names, and settings besides."""
    queue = os.environ["SITE_QUEUE"]
    # Nothing of other tests on the same Redis is seen, and nothing of this one left there.
    prefix = {"global_keyprefix": f"{queue}:"}
    app = Celery("site")
    app.conf.update(
        broker_url=os.environ["SITE_BROKER"],
        broker_connection_retry_on_startup=True,
        broker_transport_options=prefix if "redis" in os.environ["SITE_BROKER"] else {},
        result_backend_transport_options=prefix,
        task_default_queue=queue,
        control_exchange=f"{queue}-control",
        event_exchange=f"{queue}-events",
        worker_prefetch_multiplier=1,
        task_acks_late=True,
        **more,
    )
    return app

"""Celery, for those who try it: ``celery -A shop worker`` and ``celery -A shop beat``.

Without ``SHOP_BROKER_URL`` (``redis://127.0.0.1:6379/0``, ``amqp://guest:guest@127.0.0.1//``)
messages are files in a temporary directory, so that no broker is needed.
"""

import os
import tempfile
from pathlib import Path

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

from django_idgen.tasks import BEAT_SCHEDULE

app = Celery("shop")
app.conf.broker_connection_retry_on_startup = True
app.conf.beat_schedule = {**BEAT_SCHEDULE}
if os.environ.get("SHOP_BUSY"):  # so that there is something to look at
    app.conf.beat_schedule["sell"] = {"task": "orders.tasks.sell_some", "schedule": 5.0}
app.autodiscover_tasks()

_directory = Path(tempfile.gettempdir()) / "django-idgen-shop"
_directory.mkdir(exist_ok=True)
app.conf.beat_schedule_filename = str(_directory / "beat")
app.conf.broker_url = os.environ.get("SHOP_BROKER_URL", "filesystem://")
if app.conf.broker_url == "filesystem://":
    queue, control = _directory / "queue", _directory / "control"
    for folder in (queue, control):
        folder.mkdir(exist_ok=True)
    app.conf.broker_transport_options = {
        "data_folder_in": str(queue),
        "data_folder_out": str(queue),
        "control_folder": str(control),
    }

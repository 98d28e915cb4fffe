"""Figures for Prometheus. They need ``pip install django-idgen[prometheus]``.

::

    IDGEN = {"METRICS": {"token": os.environ["METRICS_TOKEN"]}}   # count in every process
    urlpatterns = [path("metrics", django_idgen.ops.metrics.view)]    # and serve the figures

With ``IDGEN["METRICS"]`` (``{}`` is enough) every process counts from its start. Without it, a
process counts once its :data:`view` was called, or it has called :func:`start`. Giving out an id
costs nothing more: see :mod:`.process`.

A single process also has its figures in the default registry of prometheus_client, for
django-prometheus' view, or ``prometheus_client.start_http_server()`` in a Celery worker. With
several processes (gunicorn, prefork) set ``PROMETHEUS_MULTIPROC_DIR`` for all of them to a
directory that is empty before they start, as that library requires. The view of any process shows
the figures of all, as each one last wrote them, and drops the gauges of those that have ended.

Every metric is in :mod:`.definitions`, from which ``docs/reference-metrics.md`` is made.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, register

from ...settings.config import SettingsError, read_settings

if TYPE_CHECKING:
    from .exporter import start, view

__all__ = ["check_metrics", "start", "view"]


def __getattr__(name: str) -> Any:
    # Imported at the first use, since prometheus_client may be missing.
    if name not in {"start", "view"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import exporter

    return getattr(exporter, name)


@register("django_idgen")
def check_metrics(**_kwargs: Any) -> list[CheckMessage]:
    """E008. Registered on import; ``IDGEN["METRICS"]`` imports this module at the start."""
    try:
        wanted = read_settings().metrics is not None
    except SettingsError:
        return []  # E001 reports it
    if not wanted or find_spec("prometheus_client") is not None:
        return []
    return [
        Error(
            "IDGEN['METRICS'] asks for metrics, but prometheus_client is not installed.",
            hint="Run 'pip install django-idgen[prometheus]', or remove METRICS from IDGEN.",
            id="django_idgen.E008",
        )
    ]

"""Figures for Prometheus. They need ``pip install django-idgen[prometheus]``.

::

    IDGEN = {"METRICS": {"token": os.environ["METRICS_TOKEN"]}}   # count in every process
    urlpatterns = [path("metrics", django_idgen.ops.metrics.view)]    # and tell here

With ``IDGEN["METRICS"]`` (``{}`` will do) every process counts from its start. Without, one
does that has :data:`view` called, or calls :func:`start` itself. Nothing is added to the
giving out of ids.

In a single process the figures are in the default registry of prometheus_client, too, so
that django-prometheus' own view has them, or ``prometheus_client.start_http_server()`` in
a Celery worker. With many processes (gunicorn, prefork) set ``PROMETHEUS_MULTIPROC_DIR``
for all of them to a directory that is emptied before they start, as that library wants it.
Then each brings its own up to date every ``every`` seconds and at its end, any process'
view tells those of all, and gauges of processes that were killed are dropped by it.

Of each process; ``django_idgen_`` stands before every name. ``pid`` is added to the labels
of what each process has, where there are several:

================================ ========= ================ ==================================
name                             kind      labels           what
================================ ========= ================ ==================================
``ids_issued_total``             counter   generator        ids given out
``generator_waits_total``        counter   generator        times a caller slept for a tick
``generator_wait_seconds_total`` counter   generator        seconds that callers slept so
``ticks_borrowed_total``         counter   generator        ticks stamped before their time
``clock_backwards_total``        counter   generator        times time was behind the last id
``worker_changes_total``         counter   generator        worker ids changed as it stayed so
``ids_degraded_total``           counter   generator        ids given without a lease
``lease_renewals_total``         counter   generator        renewals
``lease_refusals_total``         counter   generator        times no lease was to be had
``lease_acquires_total``         counter   namespace        leases taken
``lease_held``                   gauge     generator (pid)  1 if the process holds a lease
``lease_seconds_left``           gauge     generator (pid)  left of its window
``worker_id``                    gauge     generator (pid)  the worker id that it holds
``clock_offset_seconds``         gauge     generator (pid)  wall clock less registry's time
``segment_ids_issued_total``     counter   tag              ids given out of segments
``segment_loads_total``          counter   tag              segments loaded
``segment_load_failures_total``  counter   tag              loads that failed
``segment_waits_total``          counter   tag              calls that had to wait for a load
``segment_ids_given_back_total`` counter   tag              ids that went back to the source
``segment_buffer_ids``           gauge     tag              ids held by all processes
``segment_issue_rate``           gauge     tag              ids a second, over about a minute
``segment_buffer_seconds``       gauge     tag              how long those held will last
``segment_wait_seconds``         histogram                  how long callers waited for a load
``segment_load_seconds``         histogram                  how long loads took
``errors_total``                 counter   event, error     by signal and class of exception
================================ ========= ================ ==================================

Of what all processes share, unless ``shared`` is False. It is asked at most every
``max_age`` seconds; what doesn't answer ``within`` seconds is left out, and ``up`` is 0:

================================ ========= ================ ==================================
``up``                           gauge     part             1 if it could be asked
``worker_ids``                   gauge     generator, state worker ids of the layout by state
``generator_exhaustion_seconds`` gauge     generator        until the layout's time ends
``tags``                         gauge     database         how many tags there are
``tag_max_id``                   gauge     database, tag    the first id not handed out
``tag_step``                     gauge     database, tag    ids taken at a time, at least
``tag_fetch_rate``               gauge     database, tag    ids a second that all processes fetched
``tag_paused``                   gauge     database, tag    1 if it is paused
``tag_exhaustion_seconds``       gauge     database, tag    until its ids end, at that rate
``tag_segment_seconds``          gauge     database, tag    left of the last fetch, expected
``tag_pool_ids``                 gauge     database, tag    ids ready in the pool
``tag_pool_seconds``             gauge     database, tag    how long these will last
``pool_memory_bytes``            gauge     alias            memory that the pool's Redis uses
================================ ========= ================ ==================================

``part`` is ``database:<alias>``, ``tags:<alias>``, ``redis:<alias>``, ``generator:<alias>``
(its registry) or ``settings``. ``state`` is one of ``ops.worker_map.WorkerState``.

A process has series by name of the ``tags`` tags (200 by default) that it uses; the rest is
added up as ``tag="other"``. The shared figures are those of as many tags, the busiest ones.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, register

from ...settings.config import SettingsError, read_settings

if TYPE_CHECKING:
    from .switch import start
    from .views import view

__all__ = ["check_metrics", "start", "view"]

_HOMES = {"start": "switch", "view": "views"}


def __getattr__(name: str) -> Any:
    # Not before it is used: what stands behind needs a library that may be missing.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


@register("django_idgen")
def check_metrics(**_kwargs: Any) -> list[CheckMessage]:
    """E008. Registered on import, which ``IDGEN["METRICS"]`` causes at the start."""
    try:
        wanted = read_settings().metrics is not None
    except SettingsError:
        return []  # E001 says so
    if not wanted or find_spec("prometheus_client") is not None:
        return []
    return [
        Error(
            "IDGEN['METRICS'] asks for metrics, and prometheus_client is not installed.",
            hint="Run 'pip install django-idgen[prometheus]', or take METRICS out of IDGEN.",
            id="django_idgen.E008",
        )
    ]

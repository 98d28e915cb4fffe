"""Periodic tasks for Celery, and their schedule: ``app.conf.beat_schedule = {**BEAT_SCHEDULE}``.

``renew_worker_leases`` keeps the worker ids of blocked processes, ``preload_segments`` keeps ids
ready for an outage of the database, ``extend_native`` extends the sequences of ``idgen_native``,
and ``prune_history`` deletes old rows. Each may come late, run twice at once, or be killed half
way. None needs a result backend. Each returns what it did, as JSON.

The work is in :mod:`.ops.upkeep` and :mod:`.ops.native`; ``manage.py idgen_upkeep`` does the same
without Celery. This module can be imported before Django is set up (from the project's
``celery.py`` or its settings). It can also be imported without Celery, since other task queues
import every app's ``tasks``, too; then the use of a name raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .core.errors import ConfigurationError
from .settings.config import DEFAULT_WINDOW, shortest_window

try:
    shared_task: Any = import_module("celery").shared_task
except ImportError:
    shared_task = None

__all__ = [
    "BEAT_SCHEDULE",
    "extend_native",
    "preload_segments",
    "prune_history",
    "renew_worker_leases",
]

_NEEDS_CELERY = __all__
RENEWED_A_WINDOW = 3
"""Renewals in a window: one run may be lost, and one late."""
LONGEST_INTERVAL = 60.0
PRELOADED_EVERY = 60.0
"""Seconds; an outage may begin so long after a run."""
EXTENDED_EVERY = 60.0
PRUNED_EVERY = 86_400.0
CLOCKS_DIFFER = 10.0
"""Seconds. Beat sets the expiry by its own clock, and the worker checks it by another one."""


def renewed_every() -> float:
    """Seconds between two renewals: a third of the shortest window, 60 at most.

    A whole number from one second on, as django-celery-beat requires.
    """
    try:
        window = shortest_window()
    except ImproperlyConfigured:
        window = DEFAULT_WINDOW  # the checks report wrong settings
    seconds = min(LONGEST_INTERVAL, window / RENEWED_A_WINDOW)
    return float(int(seconds)) if seconds >= 1 else seconds


def _task(work: str, expires: float, time_limit: int) -> Any:
    """The task of ``work``, a "module.function" of :mod:`.ops`, imported when it runs.

    A message expires when the next one comes, which asks for the same. The task itself has
    ``expires``, too, since django-celery-beat drops that of the schedule.
    """
    module, name = work.split(".")

    def run(*args: Any, **kwargs: Any) -> Any:
        # Imported here, since Django may not be set up before.
        found = import_module(f"{__package__}.ops.{module}")
        function: Callable[..., Any] = getattr(found, name)
        return function(*args, **kwargs)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"See :func:`{__package__}.ops.{work}`."
    decorate = shared_task(
        name=f"{__name__}.{name}",
        expires=expires,
        soft_time_limit=time_limit,
        time_limit=time_limit + 15,
    )
    return decorate(run)


def _entry(task: str, every: float, expires: float) -> dict[str, Any]:
    return {"task": f"{__name__}.{task}", "schedule": every, "options": {"expires": expires}}


if shared_task is not None:
    _renewed_every = renewed_every()
    _renewal_expires = max(_renewed_every, CLOCKS_DIFFER)

    renew_worker_leases = _task("upkeep.renew_worker_leases", _renewal_expires, 60)
    preload_segments = _task("upkeep.preload_segments", PRELOADED_EVERY, 60)
    extend_native = _task("native.extend_native", EXTENDED_EVERY, 60)
    prune_history = _task("upkeep.prune_history", PRUNED_EVERY, 600)

    BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
        "idgen-renew-worker-leases": _entry(
            "renew_worker_leases", _renewed_every, _renewal_expires
        ),
        "idgen-preload-segments": _entry("preload_segments", PRELOADED_EVERY, PRELOADED_EVERY),
        "idgen-extend-native": _entry("extend_native", EXTENDED_EVERY, EXTENDED_EVERY),
        "idgen-prune-history": _entry("prune_history", PRUNED_EVERY, PRUNED_EVERY),
    }
else:

    def __getattr__(name: str) -> Any:
        if name in _NEEDS_CELERY:
            raise ConfigurationError(
                f"{__name__}.{name} needs Celery: pip install 'django-idgen[celery]'. Without it, "
                f"run 'manage.py idgen_upkeep' once a minute."
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

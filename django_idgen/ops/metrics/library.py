"""prometheus_client, and what to do where it is not installed."""

from __future__ import annotations

try:
    import prometheus_client  # noqa: F401
    from prometheus_client import values
except ImportError as error:
    raise ImportError(
        "Metrics need prometheus_client, which is not installed. Install it by "
        "'pip install django-idgen[prometheus]', or take METRICS out of IDGEN and "
        "django_idgen.ops.metrics out of your URLs."
    ) from error

__all__ = ["is_multiprocess"]


def is_multiprocess() -> bool:
    """Whether figures go to the files of ``PROMETHEUS_MULTIPROC_DIR``.

    The library settles that when it is imported, and never again.
    """
    return bool(getattr(values.ValueClass, "_multiprocess", False))

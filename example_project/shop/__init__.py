"""The example project. Celery is optional here: without it there is just no ``celery_app``."""

try:
    import celery
except ImportError:
    celery = None
else:
    from .celery import app as celery_app  # noqa: F401 - for the tasks of all apps

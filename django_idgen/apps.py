"""The Django application."""

import logging
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate, pre_migrate
from django.utils.translation import gettext_lazy as _

logger = logging.getLogger("django_idgen")


class IdgenConfig(AppConfig):
    name = "django_idgen"
    verbose_name = _("Id generators")
    # Explicit: the project's default may be a field of this app.
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, signals
        from .db import sqlite
        from .ops.tags import loaded
        from .process import lifecycle, maps
        from .strings import registration

        checks.register()
        # In this order: at exit, worker ids are given back before files are removed.
        sqlite.watch()
        lifecycle.watch()
        signals.connect_logging()
        maps.import_backends_if_prefork()
        registration.register_installed()
        loaded.watch()
        _start_metrics()
        pre_migrate.connect(_before_migrate, sender=self, dispatch_uid="django_idgen")
        post_migrate.connect(_after_migrate, sender=self, dispatch_uid="django_idgen")
        setting_changed.connect(maps.on_setting_changed, dispatch_uid="django_idgen")


def _before_migrate(**kwargs: Any) -> None:
    # Imported here: it imports Django's migrations, which no server needs.
    from .db import tables
    from .ops.tags import migrated

    tables.before_migrate(**kwargs)
    migrated.before_migrate(**kwargs)


def _after_migrate(**kwargs: Any) -> None:
    from .db import tables
    from .ops.tags import migrated

    migrated.after_migrate(**kwargs)
    tables.after_migrate()


def _start_metrics() -> None:
    """Count from the start where metrics are on, even without a request."""
    from .core.errors import ConfigurationError
    from .process import maps
    from .settings import are_metrics_wanted

    # The checks report what is wrong or missing.
    with suppress(ConfigurationError, ImportError):
        if are_metrics_wanted() and maps.current_settings().metrics is not None:
            try:
                from .ops.metrics.exporter import start
            except OSError:  # prometheus_client opens its files
                logger.exception("There are no metrics. PROMETHEUS_MULTIPROC_DIR must be writable.")
            else:
                start()

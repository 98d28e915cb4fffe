"""The Django application."""

from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed
from django.db.models.signals import post_migrate, pre_migrate
from django.utils.translation import gettext_lazy as _


class IdgenConfig(AppConfig):
    name = "django_idgen"
    verbose_name = _("Id generators")
    # Ours, whatever the project's default: that may be a field of this very app.
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, signals
        from .db import tables
        from .db.sqlite import occasions
        from .ops.tags import loaded
        from .process import factory, handlers, lifecycle
        from .strings import registration

        checks.register()
        # In this order: at exit, worker ids are given back before files are removed.
        occasions.watch()
        lifecycle.watch()
        signals.connect_logging()
        factory.import_backends()
        registration.register_installed()
        loaded.watch()
        _start_metrics()
        pre_migrate.connect(tables.before_migrate, sender=self, dispatch_uid="django_idgen")
        pre_migrate.connect(_before_migrate, sender=self, dispatch_uid="django_idgen.ops.tags")
        post_migrate.connect(_after_migrate, sender=self, dispatch_uid="django_idgen.ops.tags")
        setting_changed.connect(handlers.on_setting_changed, dispatch_uid="django_idgen")


def _before_migrate(**kwargs: Any) -> None:
    from .ops.tags import migrated  # with all of Django's migrations, for which no server starts

    migrated.before_migrate(**kwargs)


def _after_migrate(**kwargs: Any) -> None:
    from .ops.tags import migrated

    migrated.after_migrate(**kwargs)


def _start_metrics() -> None:
    """Count from the start, where metrics are wanted: without a request, too."""
    from .core.errors import ConfigurationError
    from .process import handlers

    # What is wrong, or missing, is for the checks to say.
    with suppress(ConfigurationError, ImportError):
        if handlers.current_settings().metrics is not None:
            from .ops.metrics.switch import start

            start()

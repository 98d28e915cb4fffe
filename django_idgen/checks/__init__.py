"""System checks: what would go wrong, said before it does.

The fields make E002 to E007 and W009 themselves (:mod:`.fields`, :mod:`.generated`).

========  ======================================================================
E001      ``settings.IDGEN`` asks for something that can't work
E002      a field names a generator that ``IDGEN["GENERATORS"]`` doesn't have
E003      a field's segment tag can't be used
E004      a field's ``eager`` is neither True nor False
E005      a field of ours was given a ``default`` or a ``db_default``
E006      a field of ours is used without ``"django_idgen"`` in ``INSTALLED_APPS``
E007      a field's ``text_form`` or ``prefix`` can't be used
E008      ``IDGEN["METRICS"]`` is there, and prometheus_client is not
W001      ``DEFAULT_AUTO_FIELD`` is a field of ours, for every app at once
W002      a ``GenericForeignKey`` keeps ids in a column of 32 bits or fewer
W003      a column in the database that has to hold our ids has 32 bits or fewer
W004      the time bits of a generator's layout are used up within five years
W005      the Redis that django_idgen relies on is used as a cache, too
W006      the Redis that django_idgen relies on evicts keys
W007      an old server's URLs are mounted for anybody
W008      templates write our ids with thousand separators
W009      an id field is neither a key nor in a unique constraint
W011      an old server's URLs give snowflakes with another epoch than its own
W012      a library that makes JSON of models writes our ids as numbers
========  ======================================================================

W003 and W006 ask servers: they run with ``migrate`` and ``check --database``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning  # noqa: A004
from django.core.checks import register as register_check
from django.core.exceptions import FieldDoesNotExist
from django.db import DatabaseError, connections, models, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from ..fields.base import GeneratedOnSave
from ..process.factory import build_allocator, build_generator
from ..settings.config import SettingsError, read_settings
from ..strings.strings import check_registered
from .metrics import check_metrics
from .redis import check_eviction, check_shared_redis
from .rest import check_epochs, check_open_mounts
from .templates import check_thousand_separators

__all__ = [
    "check_columns",
    "check_default_auto_field",
    "check_exhaustion",
    "check_generic_keys",
    "check_settings",
    "generic_keys",
    "holds_ours",
    "narrow_columns",
    "register",
]

NARROW = frozenset(
    {
        "AutoField",
        "SmallAutoField",
        "IntegerField",
        "PositiveIntegerField",
        "PositiveSmallIntegerField",
        "SmallIntegerField",
    }
)
"""Internal types of 32 bits or fewer."""

EXHAUSTION_NOTICE = timedelta(days=5 * 365)

AnyModel = type[models.Model]


def register() -> None:
    """Register all of them (done when the app is ready)."""
    register_check(check_settings, "django_idgen")
    register_check(check_exhaustion, "django_idgen")
    register_check(check_default_auto_field, Tags.models)
    register_check(check_generic_keys, Tags.models)
    register_check(check_columns, Tags.database)
    register_check(check_thousand_separators, Tags.templates)
    register_check(check_shared_redis, Tags.caches)
    register_check(check_eviction, Tags.database)
    register_check(check_open_mounts, Tags.urls)
    register_check(check_epochs, Tags.urls)
    register_check(check_registered, Tags.urls)
    register_check(check_metrics, "django_idgen")


def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """E001. Builds what the settings describe, which opens no connection."""
    try:
        read = read_settings()
        for entry in read.generators.values():
            build_generator(entry).close()
        build_allocator(read.segments).close()
    except SettingsError as error:
        return [Error(str(error), id="django_idgen.E001")]
    return []


def check_exhaustion(**_kwargs: Any) -> list[CheckMessage]:
    """W004. Long enough before the end that a move can be planned."""
    try:
        entries = read_settings().generators.values()
    except SettingsError:
        return []  # E001 has said so
    now = datetime.now(UTC)
    soon = now + EXHAUSTION_NOTICE
    return [
        Warning(
            f"Generator {entry.alias!r} has no ids after {entry.layout.exhausted_at:%Y-%m-%d}"
            f"{', which is past' if entry.layout.exhausted_at < now else ''}: "
            f"the time bits of its layout ({entry.layout}) end there.",
            hint="Plan a move to a namespace whose layout has more time bits or a later EPOCH.",
            id="django_idgen.W004",
        )
        for entry in entries
        if entry.layout.exhausted_at < soon
    ]


def check_default_auto_field(**_kwargs: Any) -> list[CheckMessage]:
    """W001."""
    try:
        ours = issubclass(import_string(settings.DEFAULT_AUTO_FIELD), GeneratedOnSave)
    except (ImportError, TypeError):
        return []  # Django says so itself
    if not ours:
        return []
    return [
        Warning(
            f"DEFAULT_AUTO_FIELD = {settings.DEFAULT_AUTO_FIELD!r} also reaches apps that are not "
            f"yours: their old 32-bit columns can't hold our ids.",
            hint="Set default_auto_field in the AppConfig of each of your apps instead.",
            id="django_idgen.W001",
        )
    ]


def check_generic_keys(
    app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """W002. Only where some model's key is ours: any of them may be pointed at."""
    if not any(isinstance(model._meta.pk, GeneratedOnSave) for model in apps.get_models()):
        return []
    return [
        Warning(
            f"{model._meta.label}.{generic.name} points at rows by {column.name!r}, a "
            f"{column.get_internal_type()}: ids of django_idgen don't fit 32 bits.",
            hint=f"Make {column.name!r} a BigIntegerField, or a CharField.",
            obj=model,
            id="django_idgen.W002",
        )
        for model in _models(app_configs)
        for generic, column in generic_keys(model)
        if column.get_internal_type() in NARROW
    ]


def check_columns(
    app_configs: Sequence[AppConfig] | None = None,
    databases: Sequence[str] | None = None,
    **_kwargs: Any,
) -> list[CheckMessage]:
    """W003. A database or table that can't be asked is left to those who need it."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        # SQLite's integers have 64 bits, whatever the column is called.
        if connection.vendor != "sqlite":
            models_here = [m for m in _models(app_configs) if router.allow_migrate_model(alias, m)]
            with suppress(DatabaseError):
                tables = set(connection.introspection.table_names())
                for model in models_here:
                    if model._meta.db_table in tables:
                        found += _narrow_columns(connection, model)
    return found


def _narrow_columns(connection: BaseDatabaseWrapper, model: AnyModel) -> list[CheckMessage]:
    # A foreign table's server may be down, and a caller's transaction goes on.
    with suppress(DatabaseError), transaction.atomic(using=connection.alias):
        return [
            _narrow_column(connection.alias, model, field.column, kind)
            for field, kind in narrow_columns(connection, model, holds_ours)
        ]
    return []


def narrow_columns(
    connection: BaseDatabaseWrapper, model: AnyModel, holds: Callable[[Any], bool]
) -> Iterator[tuple[Any, str]]:
    """Field and kind of each column of 32 bits or fewer whose field ``holds`` our ids.

    The table of ``model`` has to be there; it is not asked if no field holds any.
    """
    wanted = {f.column: f for f in model._meta.local_concrete_fields if holds(f)}
    if not wanted:
        return
    introspection = connection.introspection
    with connection.cursor() as cursor:
        columns = introspection.get_table_description(cursor, model._meta.db_table)
    for column in columns:
        if column.name in wanted:
            # Django raises for a type that it doesn't know: an array, or money.
            with suppress(KeyError):
                kind = introspection.get_field_type(column.type_code, column)
                if kind in NARROW:
                    yield wanted[column.name], kind


def _narrow_column(alias: str, model: AnyModel, column: str, kind: str) -> CheckMessage:
    return Warning(
        f"Column {column!r} of table {model._meta.db_table!r} in database {alias!r} is of type "
        f"{kind}: ids of django_idgen don't fit 32 bits.",
        hint="Run the migrations if one of them widens it; else change the column to bigint.",
        obj=model,
        id="django_idgen.W003",
    )


def _models(app_configs: Sequence[AppConfig] | None) -> list[AnyModel]:
    wanted = None if app_configs is None else {config.label for config in app_configs}
    every = apps.get_models(include_auto_created=True)
    return [model for model in every if wanted is None or model._meta.app_label in wanted]


def generic_keys(model: AnyModel) -> Iterator[tuple[Any, Any]]:
    """Each ``GenericForeignKey`` of a model, and the field that keeps its ids."""
    for field in model._meta.private_fields:
        # By its shape: contenttypes need not be installed. Its class is GenericForeignKey.
        name = getattr(field, "fk_field", None)
        if name and hasattr(field, "ct_field"):
            # One that doesn't exist is contenttypes' to report.
            with suppress(FieldDoesNotExist):
                yield field, model._meta.get_field(name)


def holds_ours(field: Any) -> bool:
    """Whether ids of ours stand in the column of ``field``."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return isinstance(field, GeneratedOnSave)

"""System checks: problems, reported before they cause harm.

The fields themselves make E002 to E007, E009 and W009 (:mod:`.fields.base`). Optional features
register their own checks when the app is ready: metrics (:mod:`.ops.metrics`), the libraries that
write ids as JSON (:mod:`.strings.registration`). A module that is first imported while checks run
registers its own too late. The views of an old server have an attribute that :func:`check_mounts`
calls.

========  ======================================================================
E001      ``settings.IDGEN`` is wrong
E002      a field names a generator that ``IDGEN["GENERATORS"]`` doesn't have
E003      a field's segment tag can't be used
E004      a field's ``eager`` is neither True nor False
E005      a field of this app was given a ``default`` or a ``db_default``
E006      a field is used without ``"django_idgen"`` in ``INSTALLED_APPS``
E007      a field's ``text_form`` or ``prefix`` can't be used
E008      ``IDGEN["METRICS"]`` is set, but prometheus_client is not installed
E009      a field has ``scramble``, but no key, or the API sends ids as numbers
E010      the tables of this app are in the schema of each tenant
W001      ``DEFAULT_AUTO_FIELD`` is a field of this app, for every app at once
W002      a ``GenericForeignKey`` keeps ids in a column of 32 bits or fewer
W003      a column in the database, of 32 bits or fewer, will be too small for its ids
W004      the time bits of a generator's layout are used up within five years
W005      the Redis that django_idgen relies on is used as a cache, too
W006      the Redis that django_idgen relies on evicts keys
W007      an old server's URLs are open to everyone
W008      templates write ids with thousand separators
W009      an id field is neither a key nor in a unique constraint
W011      an old server's URLs give snowflakes with another epoch than its own
W012      a library that makes JSON of models writes ids as numbers
W013      a package writes ids as JSON numbers for browsers, which read them wrong
W014      any user of the host may write to a directory of marks
W015      under ASGI, bodies of any size are stored before a view refuses them
W020      a database, Redis, registry or service could not be examined
E021      tables of this app are missing or lack columns
E022      the columns of another program's table of tags don't fit
E023      a column in the database is too small for its ids, or will be within a year
E024      a tag has used up its ids, or will have within a year
W024      a tag will have used up its ids within five years
E025      all worker ids are taken, or will be within a week
W025      few worker ids are left
W026      the clock of this host, or of a holder of a worker id, is off
W027      the row of the installation is gone
E028      rows of tags, a database and the settings disagree about its part of the ids
I029      tags were last used on another server
E030      a sequence of ``idgen_native`` has ended, or would give ids that are taken
W030      a sequence of ``idgen_native`` is half used up
E031      the Redis that django_idgen relies on is a replica, or refuses commands
W031      the Redis that django_idgen relies on is older than version 7
E032      a service over HTTP refuses a generator or a tag of this project
E033      the id file beside a SQLite database can't be written
W033      the id file beside a SQLite database is gone, or on another file system
W034      the pool has no ids of tags that are in use
========  ======================================================================

W003, W006 and those from W020 on ask servers. They run with ``check --deploy --database ALIAS``
and in the doctor, which has what can be fixed, too (:mod:`.ops.doctor`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning  # noqa: A004
from django.core.checks import register as register_check
from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.template.backends.django import DjangoTemplates
from django.urls import URLPattern, get_resolver
from django.utils.module_loading import import_string

from .core.errors import ConfigurationError
from .fields.base import GeneratedOnSave
from .process.maps import wiring
from .settings import SettingsError

if TYPE_CHECKING:
    from .settings.config import SegmentSettings

__all__ = [
    "check_default_auto_field",
    "check_deployment",
    "check_exhaustion",
    "check_generic_keys",
    "check_mounts",
    "check_settings",
    "check_shared_redis",
    "check_thousand_separators",
    "generic_keys",
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
    """Register the checks of this module; called when the app is ready."""
    register_check(check_settings, "django_idgen")
    register_check(check_tenants, "django_idgen")
    register_check(check_exhaustion, "django_idgen")
    register_check(check_directories, "django_idgen")
    register_check(check_default_auto_field, Tags.models)
    register_check(check_generic_keys, Tags.models)
    register_check(check_thousand_separators, Tags.templates)
    register_check(check_mounts, Tags.urls)
    register_check(check_shared_redis, "django_idgen", Tags.caches)
    register_check(check_deployment, "django_idgen", Tags.database, deploy=True)


def check_shared_redis(**_kwargs: Any) -> list[CheckMessage]:
    """W005. See :mod:`.db.redis_checks`."""
    from .db import redis_checks

    return redis_checks.check_shared_redis()


def check_deployment(databases: Sequence[str] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """W003, W006, and those from 020 on. See :mod:`.ops.doctor`."""
    if not databases:
        return []
    from .ops import doctor  # not before a database is checked

    return doctor.check(databases)


def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """E001. Builds everything that the settings describe, without opening a connection."""
    try:
        read = wiring().read_settings()
        for entry in read.generators.values():
            wiring().build_generator(entry).close()
        for tagged in read.tag_generators.values():
            wiring().build_tag_generator(tagged).close()
            _check_segments(tagged.segments)
        _check_segments(read.segments)
        _check_redis()
    except ConfigurationError as error:
        return [Error(str(error), obj="IDGEN", id="django_idgen.E001")]
    return []


def check_tenants(**_kwargs: Any) -> list[CheckMessage]:
    """Report our tables in the schemas of tenants: they would give out the same ids."""
    kinds = getattr(settings, "TENANT_TYPES", {})
    public = getattr(settings, "PUBLIC_SCHEMA_NAME", "public")
    apps_of = {"TENANT_APPS": getattr(settings, "TENANT_APPS", ())} | {
        f"TENANT_TYPES[{kind!r}]['APPS']": each.get("APPS", ())
        for kind, each in kinds.items()
        if kind != public
    }
    return [
        Error(
            f"{name} has {entry!r}, so the schema of each tenant would have tables of its own, "
            f"and processes would mix the ids of tables that don't know each other.",
            hint="Name it in the apps of the shared schema alone. A tenant that counts on its own "
            "has its schema in the tag's name: docs/segments.md.",
            id="django_idgen.E010",
        )
        for name, entries in apps_of.items()
        for entry in entries
        if entry.partition(".")[0] == "django_idgen"
    ]


def _check_segments(segments: SegmentSettings) -> None:
    """Raises :class:`ConfigurationError`, also for SQLite among databases that share tags.

    The source itself refuses it only when it fetches, since a test may keep all marks in memory.
    """
    with closing(wiring().build_allocator(segments)) as allocator:
        source = allocator.source.behind
        if not source.is_routed and len(source.databases()) > 1:
            from .db.connection import place_of
            from .db.sqlite import refuse_sqlite

            for alias in source.databases():
                if not place_of(alias).in_process:
                    refuse_sqlite(alias)


def _check_redis() -> None:
    """Raises :class:`ConfigurationError` for an alias that is no Redis.

    A registry looks its alias up at the first lease only, since a test may need no Redis.
    """
    # Imported here, since only projects that use Redis have django-redis.
    from .db.redis_checks import redis_aliases

    for alias in sorted(redis_aliases()):
        from .db.redis_client import raw_client

        raw_client(alias)


def check_exhaustion(**_kwargs: Any) -> list[CheckMessage]:
    """W004. Early enough to plan a move."""
    try:
        entries = wiring().read_settings().generators.values()
    except SettingsError:
        return []  # E001 reports it
    now = datetime.now(UTC)
    soon = now + EXHAUSTION_NOTICE
    return [
        Warning(
            f"Generator {entry.alias!r} has no ids after "
            f"{entry.layout.exhausted_at:%Y-%m-%d}"
            f"{' (in the past)' if entry.layout.exhausted_at < now else ''}: "
            f"the time bits of its layout ({entry.layout}) end there.",
            hint=(
                "Plan to change to a later EPOCH, or to a LAYOUT with more time "
                f"bits{entry.layout.longer and f', such as {entry.layout.longer}'}. 'manage.py "
                "idgen_doctor --fix' moves the namespace, and refuses if ids would repeat. A "
                "generator that only decodes old ids needs no change."
            ),
            id="django_idgen.W004",
        )
        for entry in entries
        if entry.layout.exhausted_at < soon
    ]


def check_directories(**_kwargs: Any) -> list[CheckMessage]:
    """W014. A user who may write to a directory of marks can make ids repeat."""
    try:
        read = wiring().read_settings()
    except SettingsError:
        return []  # E001 reports it
    sources = [each.segments.source for each in read.tag_generators.values()]
    backends = [*(each.leases for each in read.generators.values()), *sources, read.segments.source]
    named = {found for each in backends for found in _directories(each.options)}
    return [
        Warning(
            f"Any user of this host may write to {directory!r}, where marks of ids are kept: a "
            f"file that another program puts there first can make ids repeat, or stop them.",
            hint=f"Make a directory of the service's own, such as with 'mkdir -m 700'. Move the "
            f"files of {directory!r} there while no process runs.",
            id="django_idgen.W014",
        )
        for directory in sorted(named)
        if _is_open_to_all(directory)
    ]


def _directories(options: Mapping[str, Any]) -> Iterator[str]:
    """Those of a backend, and of the registry that its options describe."""
    for name, value in options.items():
        if name == "directory":
            yield str(value)
        elif isinstance(value, Mapping):
            yield from _directories(value)


def _is_open_to_all(directory: str) -> bool:
    try:
        return os.name == "posix" and bool(os.stat(directory).st_mode & stat.S_IWOTH)
    except (OSError, ValueError):
        return False  # E001 reports it, or the first id does


def check_default_auto_field(**_kwargs: Any) -> list[CheckMessage]:
    """W001."""
    try:
        ours = issubclass(import_string(settings.DEFAULT_AUTO_FIELD), GeneratedOnSave)
    except (ImportError, TypeError):
        return []  # Django reports it
    if not ours:
        return []
    return [
        Warning(
            f"DEFAULT_AUTO_FIELD = {settings.DEFAULT_AUTO_FIELD!r} also applies to apps of "
            "installed packages: their old 32-bit columns can't hold ids of django_idgen.",
            hint="Set default_auto_field in the AppConfig of each of your apps instead.",
            id="django_idgen.W001",
        )
    ]


def check_generic_keys(
    app_configs: Sequence[AppConfig] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """W002. Only if a model has a key of this app, which a generic key may refer to."""
    if not _has_ids(lambda field: field.primary_key):
        return []
    return [
        Warning(
            f"{model._meta.label}.{generic.name} points at rows by {column.name!r}, a "
            f"{column.get_internal_type()}: ids of django_idgen don't fit in 32 bits.",
            hint=f"Make {column.name!r} a BigIntegerField, or a CharField.",
            obj=model,
            id="django_idgen.W002",
        )
        for model in _models(app_configs)
        for generic, column in generic_keys(model)
        if column.get_internal_type() in NARROW
    ]


def check_thousand_separators(**_kwargs: Any) -> list[CheckMessage]:
    """W008. Only Django's own templates group digits."""
    if not settings.USE_THOUSAND_SEPARATOR or not _has_ids() or not _has_django_templates():
        return []
    return [
        Warning(
            "USE_THOUSAND_SEPARATOR is True, so templates write {{ order.id }} as 1,234,567.",
            hint="Write {{ order.id|id_text }} after {% load idgen %}, then silence this check.",
            id="django_idgen.W008",
        )
    ]


def _has_ids(of_kind: Callable[[Any], bool] = lambda _field: True) -> bool:
    return any(
        isinstance(field, GeneratedOnSave) and of_kind(field)
        for model in apps.get_models()
        for field in model._meta.concrete_fields
    )


def _has_django_templates() -> bool:
    try:
        kinds = [import_string(str(entry["BACKEND"])) for entry in settings.TEMPLATES]
    except (ImportError, KeyError):
        return False  # Django reports it
    return any(issubclass(kind, DjangoTemplates) for kind in kinds)


def check_mounts(**_kwargs: Any) -> list[CheckMessage]:
    """W007, W011 and W015: calls ``view.idgen_check(prefix)`` of each mounted view that has it."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return []
    try:
        checks = dict.fromkeys(_checks_in(get_resolver(), ""))
    except Exception:  # noqa: BLE001  (Django reports a URL conf that can't be loaded)
        return []
    found: list[CheckMessage] = []
    for check, prefix in checks:
        found += [message for message in check(prefix) if message not in found]
    return found


def _checks_in(
    resolver: Any, prefix: str
) -> Iterator[tuple[Callable[[str], list[CheckMessage]], str]]:
    for entry in resolver.url_patterns:
        if not isinstance(entry, URLPattern):
            yield from _checks_in(entry, prefix + str(entry.pattern))
        elif check := getattr(entry.callback, "idgen_check", None):
            yield check, prefix


def _models(app_configs: Sequence[AppConfig] | None) -> list[AnyModel]:
    wanted = None if app_configs is None else {config.label for config in app_configs}
    every = apps.get_models(include_auto_created=True)
    return [model for model in every if wanted is None or model._meta.app_label in wanted]


def generic_keys(model: AnyModel) -> Iterator[tuple[Any, Any]]:
    """Each ``GenericForeignKey`` of a model, and the field that has its ids."""
    for field in model._meta.private_fields:
        # Recognised by its attributes, since contenttypes need not be installed.
        name = getattr(field, "fk_field", None)
        if name and hasattr(field, "ct_field"):
            # contenttypes reports a field that doesn't exist.
            with suppress(FieldDoesNotExist):
                yield field, model._meta.get_field(name)

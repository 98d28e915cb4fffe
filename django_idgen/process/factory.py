"""The wiring: makes generators, registries and sources of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.db import connections

from ..core.errors import ConfigurationError
from ..core.layout import BitLayout
from ..core.lease import Namespace, process_label
from ..core.registry import Registry
from ..core.segment_generator import SegmentAllocator
from ..leases.forbidden import UnlessForbidden
from ..settings.config import (
    DEFAULT_ALIAS,
    LEASE_OPTIONS,
    BackendSettings,
    GeneratorSettings,
    SegmentSettings,
    TagGeneratorSettings,
    nested_leases,
    nested_source,
    read_settings,
)
from ..signals import emit

__all__ = [
    "build_allocator",
    "build_generator",
    "build_namespace",
    "build_registry",
    "build_tag_generator",
    "import_backends",
    "lease_databases",
    "read_settings",
    "registry_kind",
]


def import_backends() -> None:
    """Import the classes that the settings name. The checks report settings that can't work."""
    with suppress(ConfigurationError, ImportError):
        settings = read_settings()
        for entry in settings.generators.values():
            _import_leases(entry.leases)
            entry.backend.load()
        _import_source(settings.segments.source)
        for tagged in settings.tag_generators.values():
            _import_source(tagged.segments.source)


def _import_leases(leases: BackendSettings) -> None:
    for name in leases.load().nested:
        _import_leases(nested_leases(leases, name))


def _import_source(source: BackendSettings) -> None:
    for name in source.load().nested:
        _import_source(nested_source(source, name))


def build_generator(settings: GeneratorSettings) -> Any:
    """The generator of one alias. Raises :class:`SettingsError`; opens nothing."""
    registry = build_registry(settings)
    options = dict(settings.backend.options)
    if settings.backend.takes("holder"):
        options.setdefault("holder", process_label())
    backend = replace(settings.backend, options=options)
    return backend.build(settings.layout, registry, emit=emit)


def build_tag_generator(settings: TagGeneratorSettings) -> Any:
    """The generator of an alias whose ids come from a tag, with its own source."""
    return settings.backend.build(build_allocator(settings.segments))


def build_registry(settings: GeneratorSettings) -> Registry:
    """The lease registry of one alias, with the registry it wraps."""
    return _registry(settings.leases, _namespace(settings), settings)


def build_namespace(settings: GeneratorSettings) -> Namespace:
    """What the holders of the namespace must agree on."""
    return _agreed(_namespace(settings), settings.leases)


def _registry(
    leases: BackendSettings, namespace: Namespace, settings: GeneratorSettings
) -> Registry:
    options = {key: value for key, value in leases.options.items() if key not in LEASE_OPTIONS}
    if "workers" in settings.leases.options and _is_told_its_workers(leases):
        # A registry that knows no other process needs the worker ids of this host.
        options["workers"] = namespace.workers
    for name in leases.load().nested:
        options[name] = _registry(nested_leases(leases, name), namespace, settings)
    also = LEASE_OPTIONS if leases is settings.leases else ()
    backend = replace(leases, options=options, also=also)
    made: Registry = backend.build(_agreed(namespace, leases))
    return UnlessForbidden(made) if made.uses_database else made


def _namespace(settings: GeneratorSettings) -> Namespace:
    layout = settings.layout
    reach = settings.backend.load().reach(layout, settings.backend.options)
    return Namespace(
        name=settings.namespace,
        epoch_us=layout.epoch_us,
        tick_us=layout.tick_us,
        max_ticks=layout.max_ticks,
        workers=settings.workers,
        window_ticks=_ticks(settings.window, layout),
        skew_ticks=_ticks(settings.skew_limit, layout),
        ahead_ticks=_ticks(reach, layout),
        fingerprint=layout.fingerprint(),
    )


def _agreed(namespace: Namespace, leases: BackendSettings) -> Namespace:
    """Add the kind of registry to the fingerprint: another kind would lend the ids again."""
    fingerprint = {**namespace.fingerprint, "registry": registry_kind(leases)}
    if not _is_told_its_workers(leases):  # else they differ from host to host
        fingerprint["workers"] = [namespace.workers.start, namespace.workers.stop]
    return replace(namespace, fingerprint=fingerprint)


def _is_told_its_workers(leases: BackendSettings) -> bool:
    return bool(leases.load().needs_workers)


def build_allocator(settings: SegmentSettings) -> SegmentAllocator:
    """The maker of segment generators. Raises :class:`SettingsError`."""
    source = _source(settings.source, settings.default_step)
    return SegmentAllocator(
        source,
        source.loader,
        timeout=settings.timeout,
        first_timeout=settings.first_timeout,
        growth=settings.growth,
        idle_after=settings.idle_after,
        on_event=emit,
    )


def _source(settings: BackendSettings, default_step: int, *, pooled: bool = False) -> Any:
    """Build a source and the sources it wraps. ``pooled``: it feeds a pool."""
    backend = settings.load()
    given = {"default_step": default_step} if "default_step" in backend.wired else {}
    options = dict(settings.options)
    if pooled and "measures" in backend.wired:
        # Ids that are fetched for the pool are not used yet.
        options.setdefault("measures", False)
    for name in backend.nested:
        inner = nested_source(settings, name)
        options[name] = _source(inner, default_step, pooled=backend.is_pool)
    return replace(settings, options=options).build(**given)


def registry_kind(leases: BackendSettings) -> str:
    """The name of the registry in fingerprints and statuses."""
    return str(leases.load().kind or leases.path)


def _ticks(seconds: float, layout: BitLayout) -> int:
    # Rounded up: a window is at least a tick.
    return -(-int(seconds * 1_000_000) // layout.tick_us)


def lease_databases() -> dict[str, list[GeneratorSettings]]:
    """By alias of each database that lends worker ids or is a registry's root: its generators."""
    found: dict[str, list[GeneratorSettings]] = {}
    for entry in read_settings().generators.values():
        for alias in dict.fromkeys(_named_by(entry.leases)):
            found.setdefault(alias, []).append(entry)
    return found


def _named_by(leases: BackendSettings) -> Iterator[str]:
    backend = leases.load()
    if backend.uses_database:
        alias = str(leases.options.get("database", DEFAULT_ALIAS))
        if alias in connections.settings:
            yield alias
    for name in backend.nested:
        yield from _named_by(nested_leases(leases, name))

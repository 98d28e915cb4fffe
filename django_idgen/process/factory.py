"""The wiring: settings in, generators out. The one place that knows both sides."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..core.errors import ConfigurationError
from ..core.layout import BitLayout
from ..core.lease import Namespace, process_label
from ..core.registry import Registry
from ..core.segment_allocator import SegmentAllocator
from ..settings.config import (
    LEASE_OPTIONS,
    NESTED_LEASE_OPTIONS,
    BackendSettings,
    GeneratorSettings,
    SegmentSettings,
    SettingsError,
    TagGeneratorSettings,
    nested_leases,
    nested_source,
    nested_workers,
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
    "read_settings",
    "registry_kind",
]


def import_backends() -> None:
    """Import the classes that the settings name. Settings that can't work are for the checks."""
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


def build_generator(settings: GeneratorSettings, *, threads: bool = True) -> Any:
    """The generator of one alias, which starts no thread if ``threads`` is False.

    Raises :class:`SettingsError`; opens nothing.
    """
    registry = build_registry(settings)
    options = {"holder": process_label(), **settings.backend.options}
    if not threads and settings.backend.load().has_background:
        options["background"] = False
    backend = replace(settings.backend, options=options)
    return backend.build(settings.layout, registry, emit=emit)


def build_tag_generator(settings: TagGeneratorSettings) -> Any:
    """The generator of an alias whose ids are those of a tag, with its own source."""
    return settings.backend.build(build_allocator(settings.segments))


def build_registry(settings: GeneratorSettings) -> Registry:
    """The lease registry of one alias, with those that it wraps."""
    return _registry(settings.leases, _namespace(settings), settings)


def build_namespace(settings: GeneratorSettings) -> Namespace:
    """What the holders of the namespace must agree on."""
    return _agreed(_namespace(settings), settings.leases)


def _registry(
    leases: BackendSettings, namespace: Namespace, settings: GeneratorSettings
) -> Registry:
    options = {key: value for key, value in leases.options.items() if key not in LEASE_OPTIONS}
    if "workers" in leases.options and _is_told_its_workers(leases):
        # One that knows no other process must be told which ids are this host's.
        options["workers"] = namespace.workers
    for name, part in _wrapped(leases, namespace).items():
        nested = nested_leases(leases, name)
        workers = nested_workers(nested, part.workers, settings.layout)
        options[name] = _registry(nested, replace(part, workers=workers), settings)
    also = LEASE_OPTIONS if leases is settings.leases else NESTED_LEASE_OPTIONS
    backend = replace(leases, options=options, also=also)
    made: Registry = backend.build(_agreed(namespace, leases))
    return made


def _wrapped(leases: BackendSettings, namespace: Namespace) -> Mapping[str, Namespace]:
    """The namespaces of the registries that this one wraps, by the option that describes each."""
    try:
        parts: Mapping[str, Namespace] = leases.load().wrapped(namespace)
    except ConfigurationError as error:
        raise SettingsError(f"{leases.where}['OPTIONS']: {error}") from error
    return parts


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
    """With the service in the fingerprint: another one would lend the same worker ids again."""
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
    """A source, with those that it takes from; ``pooled``: whether it stands behind a pool."""
    backend = settings.load()
    given = {"default_step": default_step} if "default_step" in backend.wired else {}
    options = dict(settings.options)
    if pooled and "measures" in backend.wired:
        # What is fetched for the pool is not used yet.
        options.setdefault("measures", False)
    for name in backend.nested:
        inner = nested_source(settings, name)
        options[name] = _source(inner, default_step, pooled=backend.is_pool)
    return replace(settings, options=options).build(**given)


def registry_kind(leases: BackendSettings) -> str:
    """What the registry of ``leases`` is called in fingerprints and statuses."""
    return str(leases.load().kind or leases.path)


def _ticks(seconds: float, layout: BitLayout) -> int:
    # Rounded up: a window is at least a tick.
    return -(-int(seconds * 1_000_000) // layout.tick_us)

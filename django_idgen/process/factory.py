"""The wiring: makes generators, registries and sources of the settings."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.db import connections

from ..core.errors import ConfigurationError
from ..core.layout import BitLayout
from ..core.lease import Namespace, process_label
from ..core.registry import Registry
from ..core.segment_allocator import SegmentAllocator
from ..settings.config import (
    DEFAULT_ALIAS,
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
from . import lifecycle

__all__ = [
    "KeptRegistries",
    "build_allocator",
    "build_generator",
    "build_namespace",
    "build_registry",
    "build_tag_generator",
    "import_backends",
    "lease_databases",
    "read_settings",
    "registry_kind",
    "registry_of",
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


def build_generator(settings: GeneratorSettings, *, threads: bool = True) -> Any:
    """The generator of one alias. It starts no thread if ``threads`` is False.

    Raises :class:`SettingsError`; opens nothing.
    """
    registry = build_registry(settings)
    options = {"holder": process_label(), **settings.backend.options}
    if not threads and settings.backend.load().has_background:
        options["background"] = False
    backend = replace(settings.backend, options=options)
    return backend.build(settings.layout, registry, emit=emit)


def build_tag_generator(settings: TagGeneratorSettings) -> Any:
    """The generator of an alias whose ids come from a tag, with its own source."""
    return settings.backend.build(build_allocator(settings.segments))


def build_registry(settings: GeneratorSettings) -> Registry:
    """The lease registry of one alias, with the registries it wraps."""
    return _registry(settings.leases, _namespace(settings), settings)


def build_namespace(settings: GeneratorSettings) -> Namespace:
    """What the holders of the namespace must agree on."""
    return _agreed(_namespace(settings), settings.leases)


def _registry(
    leases: BackendSettings, namespace: Namespace, settings: GeneratorSettings
) -> Registry:
    options = {key: value for key, value in leases.options.items() if key not in LEASE_OPTIONS}
    if "workers" in leases.options and _is_told_its_workers(leases):
        # A registry that knows no other process needs the worker ids of this host.
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
    """The namespaces of the registries it wraps, by the option that describes each."""
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


# --- registries that a process inspects or looks after, and holds no worker id of -----------


class KeptRegistries:
    """A registry for each generator's settings. Thread-safe; the child of a fork begins anew.

    A registry that is kept knows its Redis, and so can be asked while the database is down.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[GeneratorSettings, Registry]] = {}
        self._lock = threading.Lock()
        lifecycle.register(close=self.close, forget=self.forget)

    def of(self, entry: GeneratorSettings) -> Registry:
        """The registry of ``entry``, made on first use and when the settings have changed."""
        with self._lock:
            kept = self._kept.get(entry.alias)
            if kept is None or kept[0] != entry:
                if kept is not None:
                    kept[1].close()
                kept = self._kept[entry.alias] = entry, build_registry(entry)
                lifecycle.watch()
            return kept[1]

    def close(self) -> None:
        """Close the registries. May be called twice; the next use makes new ones."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for _, registry in kept.values():
            registry.close()

    def forget(self) -> None:
        """In the child of a fork, drop the parent's registries."""
        self._lock = threading.Lock()
        kept, self._kept = self._kept, {}
        for _, registry in kept.values():
            registry.abandon()


_registries = KeptRegistries()
registry_of = _registries.of


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

"""``settings.IDGEN``, read in one place and turned into frozen values.

Strict: a key that is not known, or a value that can't work, is refused with its
name, its value and what is allowed. Nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from django.conf import settings

from ..core.clock import SYSTEM_CLOCK
from ..core.errors import ConfigurationError
from ..core.generator import Generator
from ..core.layout import BitLayout
from ..core.presets import parse_layout
from ..core.registry import Registry
from ..core.segment import check_step
from ..core.segment_allocator import IDLE_AFTER
from ..core.segment_loads import SEGMENT_DURATION, Growth
from ..core.source import Source
from .backends import BackendSettings
from .metrics import MetricsSettings, metrics_settings
from .rest import RestSettings, rest_settings
from .values import DEFAULT_ALIAS, SettingsError, flag, mapping, seconds, text

__all__ = [
    "DEFAULT_ALIAS",
    "BackendSettings",
    "GeneratorSettings",
    "IdgenSettings",
    "SegmentSettings",
    "SettingsError",
    "nested_leases",
    "nested_source",
    "nested_workers",
    "read_settings",
]

DEFAULT_GENERATOR = "django_idgen.core.snowflake.SnowflakeGenerator"
DEFAULT_LEASES = "django_idgen.leases.database.DatabaseLeases"
REDIS_LEASES = "django_idgen.leases.redis.RedisLeases"
DEFAULT_SOURCE = "django_idgen.sources.database.DatabaseSource"
_BASES: dict[str, type] = {DEFAULT_LEASES: Registry, DEFAULT_SOURCE: Source}
"""What a class must derive from that stands in the place of the default."""
DEFAULT_WINDOW = 180.0
DEFAULT_SKEW_LIMIT = 10.0
DEFAULT_TIMEOUT = 0.5
DEFAULT_FIRST_TIMEOUT = 5.0
DEFAULT_STEP = 1000
DEFAULT_OUTAGE = 1200.0
IDLE_WINDOWS = 5
"""Windows after which a holder that was not seen is left to expire: 15 minutes by default."""

LEASE_OPTIONS = ("window", "workers", "idle_after")
"""Options of LEASES that the namespace takes, whatever the backend."""
NESTED_LEASE_OPTIONS = ("workers",)
"""Those of them that a registry within another has of its own."""
SEGMENT_OPTIONS = (
    "default_step",
    "timeout",
    "first_timeout",
    "segment_duration",
    "longest_step",
    "longest_chain",
    "idle_after",
    "outage",
    "make_tags",
)


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """One entry of ``IDGEN["GENERATORS"]``."""

    alias: str
    namespace: str
    layout: BitLayout
    window: float
    """Seconds."""
    idle_after: float
    """Seconds after which a scheduler no longer renews for a holder that it has not seen."""
    workers: range
    skew_limit: float
    """Seconds."""
    leases: BackendSettings
    backend: BackendSettings


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """``IDGEN["SEGMENTS"]``."""

    source: BackendSettings
    default_step: int
    timeout: float
    """Seconds that a caller with nothing left waits."""
    first_timeout: float
    """Seconds that it waits for a tag's first segment, as long as no load has failed."""
    growth: Growth
    idle_after: float
    """Seconds after which a tag that nobody uses gives its ids back."""
    outage: float
    """Seconds without a database that the segments kept ready in a pool are to last."""
    make_tags: bool
    """Whether ``segments[tag]`` makes a tag that is neither there nor a field's."""


@dataclass(frozen=True, slots=True)
class IdgenSettings:
    generators: Mapping[str, GeneratorSettings]
    segments: SegmentSettings
    rest: RestSettings
    metrics: MetricsSettings | None
    """None where nobody wants any."""


def read_settings() -> IdgenSettings:
    """The project's settings, checked. Raises :class:`SettingsError`."""
    where = "IDGEN"
    raw = mapping(
        where, getattr(settings, "IDGEN", {}), ("GENERATORS", "SEGMENTS", "REST", "METRICS")
    )
    entries = mapping(f"{where}['GENERATORS']", raw.get("GENERATORS", {}))
    entries = {DEFAULT_ALIAS: {}, **entries}
    generators = {alias: _generator(alias, entry) for alias, entry in entries.items()}
    _refuse_shared_namespaces(generators)
    segments = _segments(raw.get("SEGMENTS", {}))
    return IdgenSettings(
        generators,
        segments,
        rest_settings(raw.get("REST", {})),
        metrics_settings(raw.get("METRICS")),
    )


def _generator(alias: object, entry: object) -> GeneratorSettings:
    where = f"IDGEN['GENERATORS'][{alias!r}]"
    if not isinstance(alias, str) or not alias:
        raise SettingsError(f"{where}: an alias must be a string that is not empty.")
    raw = mapping(where, entry, ("BACKEND", "NAMESPACE", "LAYOUT", "EPOCH", "LEASES", "OPTIONS"))
    leases = _backend(f"{where}['LEASES']", raw.get("LEASES", {}), DEFAULT_LEASES)
    backend = BackendSettings(
        where,
        text(where, "BACKEND", raw.get("BACKEND", DEFAULT_GENERATOR)),
        mapping(f"{where}['OPTIONS']", raw.get("OPTIONS", {})),
        base=Generator,
    )
    layout = _layout(where, raw)
    options = leases.options
    window = seconds(leases.where, "window", options.get("window", DEFAULT_WINDOW))
    return GeneratorSettings(
        alias=alias,
        namespace=text(where, "NAMESPACE", raw.get("NAMESPACE", alias)),
        layout=layout,
        window=window,
        idle_after=_idle_after(leases, window),
        workers=_workers(leases.where, options.get("workers"), layout),
        skew_limit=seconds(
            where, "skew_limit", backend.options.get("skew_limit", DEFAULT_SKEW_LIMIT), least=0.0
        ),
        leases=leases,
        backend=backend,
    )


def _idle_after(leases: BackendSettings, window: float) -> float:
    longest = max(window, min(IDLE_WINDOWS * window, 1e6))
    # A holder renews by itself only once in a third of a window.
    return seconds(
        leases.where, "idle_after", leases.options.get("idle_after", longest), least=window
    )


def _layout(where: str, raw: Mapping[str, Any]) -> BitLayout:
    try:
        layout = parse_layout(raw.get("LAYOUT", "standard"), epoch=raw.get("EPOCH"))
        layout.check_epoch(SYSTEM_CLOCK.wall_ns() // 1000)
    except ConfigurationError as error:
        raise SettingsError(f"{where}: {error}") from error
    return layout


def _segments(entry: object) -> SegmentSettings:
    where = "IDGEN['SEGMENTS']"
    raw = mapping(where, entry, ("SOURCE", "OPTIONS"))
    options = mapping(f"{where}['OPTIONS']", raw.get("OPTIONS", {}), SEGMENT_OPTIONS)
    try:
        step = check_step(options.get("default_step", DEFAULT_STEP))
    except ConfigurationError as error:
        raise SettingsError(f"{where}['OPTIONS']['default_step']: {error}") from error
    timeout = seconds(where, "timeout", options.get("timeout", DEFAULT_TIMEOUT))
    first_timeout = options.get("first_timeout", max(timeout, DEFAULT_FIRST_TIMEOUT))
    return SegmentSettings(
        source=_backend(f"{where}['SOURCE']", raw.get("SOURCE", {}), DEFAULT_SOURCE),
        default_step=step,
        timeout=timeout,
        first_timeout=seconds(where, "first_timeout", first_timeout, least=timeout),
        growth=_growth(where, options),
        idle_after=seconds(where, "idle_after", options.get("idle_after", IDLE_AFTER)),
        outage=seconds(where, "outage", options.get("outage", DEFAULT_OUTAGE), least=0.0),
        make_tags=flag(f"{where}['OPTIONS']", "make_tags", options.get("make_tags", True)),
    )


def _growth(where: str, options: Mapping[str, Any]) -> Growth:
    duration = seconds(where, "segment_duration", options.get("segment_duration", SEGMENT_DURATION))
    counts = {name: options[name] for name in ("longest_step", "longest_chain") if name in options}
    try:
        return Growth(duration, **counts)
    except ConfigurationError as error:
        raise SettingsError(f"{where}['OPTIONS']: {error}") from error


def nested_leases(outer: BackendSettings, name: str) -> BackendSettings:
    """The registry that option ``name`` of another registry describes.

    Raises :class:`SettingsError`.
    """
    where = f"{outer.where}['OPTIONS'][{name!r}]"
    nested = _backend(where, outer.options.get(name, {}), DEFAULT_LEASES)
    for option in ("window", "idle_after"):
        if option in nested.options:
            raise SettingsError(
                f"{where}['OPTIONS'] has {option!r}, which goes one level up: it is the same for "
                f"a holder whoever lends to it."
            )
    return nested


def nested_source(outer: BackendSettings, name: str) -> BackendSettings:
    """The source that option ``name`` of another source describes.

    Raises :class:`SettingsError`.
    """
    where = f"{outer.where}['OPTIONS'][{name!r}]"
    return _backend(where, outer.options.get(name, {}), DEFAULT_SOURCE)


def nested_workers(leases: BackendSettings, default: range, layout: BitLayout) -> range:
    """The worker ids of a nested registry. Raises :class:`SettingsError`."""
    if "workers" not in leases.options:
        return default
    return _workers(leases.where, leases.options["workers"], layout)


def _backend(where: str, entry: object, default: str) -> BackendSettings:
    raw = mapping(where, entry, ("BACKEND", "OPTIONS"))
    path = text(where, "BACKEND", raw.get("BACKEND", default))
    options = mapping(f"{where}['OPTIONS']", raw.get("OPTIONS", {}))
    return BackendSettings(where, path, options, base=_BASES[default])


def _workers(where: str, value: object, layout: BitLayout) -> range:
    if value is None:
        return layout.workers
    pair = tuple(value) if isinstance(value, (list, tuple)) else ()
    whole = len(pair) == 2 and all(type(number) is int for number in pair)
    if not whole or not 0 <= pair[0] < pair[1] <= len(layout.workers):
        raise SettingsError(
            f"{where}['OPTIONS']['workers'] must be [first, end] with 0 <= first < end <= "
            f"{len(layout.workers)} (the end is not included), not {value!r}."
        )
    return range(*pair)


def _refuse_shared_namespaces(generators: Mapping[str, GeneratorSettings]) -> None:
    # One namespace may be used under two aliases only if their ids can't meet.
    for first, entry in combinations(generators.values(), 2):
        if first.namespace != entry.namespace:
            continue
        if _lender(first.leases) != _lender(entry.leases) and _overlap(first, entry):
            raise SettingsError(
                f"Generators {first.alias!r} and {entry.alias!r} share the namespace "
                f"{entry.namespace!r} but not the registry ({_lender(first.leases)}; "
                f"{_lender(entry.leases)}), so both would be lent the same worker ids. Give one "
                f"of them a NAMESPACE of its own, or ranges of 'workers' that do not overlap."
            )
        if first.layout != entry.layout:
            raise SettingsError(
                f"Generators {first.alias!r} and {entry.alias!r} share the namespace "
                f"{entry.namespace!r} but not the layout ({first.layout}; {entry.layout}), so "
                f"their ids would repeat. Give one of them a NAMESPACE of its own."
            )


def _lender(leases: BackendSettings) -> tuple[object, ...]:
    options = dict(leases.options)
    if leases.path in (DEFAULT_LEASES, REDIS_LEASES):
        options.setdefault("database", DEFAULT_ALIAS)
    if leases.path == REDIS_LEASES:
        options.setdefault("alias", DEFAULT_ALIAS)
    keys = ("database", "directory", "alias", "base_urls", "generator", "primary", "secondary")
    places = (str(options[key]) for key in keys if key in options)
    return (leases.path, *places)


def _overlap(first: GeneratorSettings, second: GeneratorSettings) -> bool:
    return max(first.workers.start, second.workers.start) < min(
        first.workers.stop, second.workers.stop
    )

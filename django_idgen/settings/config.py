"""``settings.IDGEN``, read in one place and turned into frozen values.

Strict: a key that is not known, or a value that can't work, is refused with its
name, its value and what is allowed. Nothing here opens a connection.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

from django.conf import settings
from django.utils.module_loading import import_string

from ..core.clock import SYSTEM_CLOCK
from ..core.encoding import VERSIONS
from ..core.errors import ConfigurationError, InvalidTag, WorkerOutOfRange
from ..core.generator import Generator
from ..core.layout import BitLayout, parse_layout
from ..core.options import check_flag, check_seconds, check_whole
from ..core.pace import SEGMENT_DURATION, Growth
from ..core.registry import Registry
from ..core.segment import LONGEST_STEP
from ..core.segment_generator import IDLE_AFTER
from ..core.source import Source
from ..core.tag_generator import TagGenerator
from . import DEFAULT_ALIAS, SettingsError, refuse_without_app

__all__ = [
    "DEFAULT_ALIAS",
    "BackendSettings",
    "GeneratorSettings",
    "IdgenSettings",
    "MetricsSettings",
    "RestSettings",
    "SegmentSettings",
    "SettingsError",
    "TagGeneratorSettings",
    "nested_leases",
    "nested_source",
    "read_settings",
    "shortest_window",
]

T = TypeVar("T")

# --- what is gone --------------------------------------------------------------------

REMOVED = {
    "django_idgen.leases.fallback.FallbackLeases": (
        "It was removed: a longer window, or CheckpointedLeases, covers an outage. Stop all "
        "processes, put its 'primary' in its place, and run 'manage.py idgen_doctor'."
    ),
    "history": (
        "Leases keep none any more: leave it out, and look for 'lease_acquired' in the log. The "
        "history of segments is an option of DatabaseSource."
    ),
    "token_env": "It was removed. Use 'token': lambda: os.environ[\"NAME\"].",  # nosec B105
    "token_file": "It was removed. Use 'token': Path(\"FILE\").read_text.",  # nosec B105
    "cert": "It was removed. Load the certificate into an ssl.SSLContext, and use it as 'verify'.",
    "longest_chain": "It was removed: a caller who waits doubles the step. Leave it out.",
}
"""Dotted paths and options of earlier versions, and what to do instead."""

# --- a BACKEND and its options -------------------------------------------------------

NO_OPTIONS = ("clock", "emit", "own")
"""Arguments of constructors that settings can't give, for tests and the wiring."""
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """A dotted path to a class, and the keyword arguments it is made with."""

    where: str
    """The path of the setting, for messages: ``IDGEN["GENERATORS"]["default"]["LEASES"]``."""
    path: str
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    """Options beside these that the wiring takes; for messages."""
    base: type = object
    """What the class must derive from."""

    def refuse_removed(self) -> None:
        """Raise :class:`SettingsError` for a class of an earlier version."""
        if self.path in REMOVED:
            raise SettingsError(f"{self.where}['BACKEND'] is {self.path!r}. {REMOVED[self.path]}")

    def load(self) -> Any:
        """The class. Raises :class:`SettingsError` if there is none."""
        self.refuse_removed()
        try:
            found = import_string(self.path)
        except ImportError as error:
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r}, which can't be imported: {error}"
            ) from error
        except ConfigurationError as error:
            # What it needs is not installed.
            raise SettingsError(f"{self.where}['BACKEND'] is {self.path!r}: {error}") from error
        except RuntimeError as error:
            refuse_without_app(error, f"{self.where}['BACKEND'] is {self.path!r}, which has tables")
        if not isinstance(found, type) or not issubclass(found, self.base):
            raise SettingsError(
                f"{self.where}['BACKEND'] is {self.path!r} ({found!r:.80}), which is not a "
                f"subclass of {self.base.__module__}.{self.base.__name__}. Leave BACKEND out for "
                "the default."
            )
        return found

    def takes(self, name: str) -> bool:
        """Whether the class's constructor has a parameter ``name``."""
        return name in inspect.signature(self.load()).parameters

    def build(self, *args: Any, **given: Any) -> Any:
        """An instance, from ``args``, what the wiring gives, and the options.

        Raises :class:`SettingsError` for options that the class doesn't take.
        """
        backend = self.load()
        # An option is a keyword argument of the constructor.
        taken = list(inspect.signature(backend).parameters.values())[len(args) :]
        known = (p.name for p in taken if p.name not in {*NO_OPTIONS, *given})
        where = f"{self.where}['OPTIONS']"
        refuse_unknown(where, self.options, tuple(dict.fromkeys((*self.also, *known))))
        needed = {p.name for p in taken if p.default is p.empty and p.kind in NAMED}
        if missing := needed - {*self.options, *given}:
            raise SettingsError(
                f"{where} lacks {', '.join(map(repr, sorted(missing)))}, which {self.path} needs."
            )
        try:
            return backend(*args, **given, **self.options)
        except (ConfigurationError, InvalidTag, WorkerOutOfRange) as error:
            raise SettingsError(f"{self.where}['OPTIONS']: {error}") from error


# --- values, each checked and refused in its own words -------------------------------


def mapping(where: str, value: object, allowed: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a dictionary, not {value!r}.")
    if allowed is not None:
        refuse_unknown(where, value, allowed)
    return dict(value)


def refuse_unknown(where: str, given: Mapping[Any, Any], allowed: tuple[str, ...]) -> None:
    for key in given:
        if key not in allowed:
            if key in REMOVED:
                raise SettingsError(f"{where} has the key {key!r}. {REMOVED[key]}")
            raise SettingsError(
                f"{where} has an unknown key {key!r}. Known: {', '.join(allowed) or 'none'}."
            )


def text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > 128:
        raise SettingsError(
            f"{where}[{key!r}] must be a string of 1 to 128 characters, not {value!r}."
        )
    if not value.isprintable():  # a database may refuse it, and a log does not show it
        raise SettingsError(
            f"{where}[{key!r}] is {value!r}, which has a character that can't be printed. "
            f"Leave it out."
        )
    return value


Check = Callable[[str, object], Any]
"""Checks the setting of that name, and returns its value."""
flag: Check = partial(check_flag, error=SettingsError)
count = partial(check_whole, least=1, most=1_000_000_000, error=SettingsError)
seconds = partial(check_seconds, most=1e6, error=SettingsError)


SHORTEST_SECRET = 16
HOW_TO_MAKE_ONE = "'python -c \"import secrets; print(secrets.token_urlsafe())\"'"


def _or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _setting(default: Any, check: Check) -> Any:
    """A field of a dataclass that :func:`_checked` makes."""
    return field(default=default, metadata={"check": check})


def _checks(kind: type) -> dict[str, Check]:
    """The check of each setting by its name, from the metadata of the dataclass ``kind``."""
    return {each.name: each.metadata["check"] for each in fields(kind) if each.metadata}


def _checked(where: str, entry: object, kind: type[T], **more: Any) -> T:
    """The settings of ``entry``, each checked as its field says. Raises :class:`SettingsError`."""
    checks = _checks(kind)
    raw = mapping(where, entry, tuple(checks))
    found = {key: checks[key](f"{where}[{key!r}]", value) for key, value in raw.items()}
    return kind(**found, **more)


# --- REST: what the HTTP API may hand out, and how fast ------------------------------


_RATE = re.compile(r"[1-9][0-9]{0,8}/(s|m|h|d)(ec|in|our|ay)?", re.ASCII)


def _rate(name: str, value: object) -> str:
    if not isinstance(value, str) or not _RATE.fullmatch(value):
        raise SettingsError(
            f"{name} must be None, or a number of requests and a unit of time (s, m, h or d) such "
            f"as '1000/s', not {value!r}."
        )
    return value


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The settings of the HTTP API. Frozen."""

    max_count: int = _setting(10_000, count)
    """Ids that one request may ask for."""
    max_segment: int = _setting(1_000_000, count)
    """Ids that a whole segment may have."""
    max_skip: int = _setting(1_000_000_000, count)
    """Ids that a caller may make a tag skip at once."""
    max_leases: int | None = _setting(None, _or_none(count))
    """Worker ids of a generator that one client may hold at a time; None: half of them."""
    make_tags: bool = _setting(False, flag)
    """Whether a request for an unknown tag makes it."""
    numbers: bool = _setting(False, flag)
    """Whether ids in the service's answers are JSON numbers by default."""
    strings: bool = _setting(True, flag)
    """Whether ids, and keys to them, are strings in the JSON of the project's own API."""
    token_max_age: float = _setting(60.0, partial(seconds, least=0.0))
    """Seconds that a token is cached, and that a revoked one still works."""
    token_outage: float = _setting(1200.0, partial(seconds, least=0.0))
    """Seconds that a cached token is valid while the database is down."""
    caller_rate: str | None = _setting(None, _or_none(_rate))
    """Requests that one caller may make, such as ``"1000/s"`` (s, m, h or d)."""
    tag_rate: str | None = _setting(None, _or_none(_rate))
    """Requests that all callers together may make for one tag, or one generator."""


# --- METRICS: for Prometheus ---------------------------------------------------------


def _token(name: str, value: object) -> str:
    fits = isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value
    if not fits or len(str(value)) < SHORTEST_SECRET:
        # Without the value, which is a secret.
        raise SettingsError(
            f"{name} must be a string of {SHORTEST_SECRET} or more ASCII characters without "
            f"spaces, as {HOW_TO_MAKE_ONE} makes."
        )
    return str(value)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """The settings of the metrics. Frozen."""

    token: str | None = field(default=None, repr=False, metadata={"check": _or_none(_token)})
    """The bearer token of a Prometheus server; without one, only staff may read the metrics."""
    tags: int = _setting(200, partial(check_whole, least=0, most=100_000, error=SettingsError))
    """Tags with figures of their own, per process and for the fleet; the rest are added up."""
    every: float = _setting(5.0, partial(seconds, least=0.1))
    """Seconds between two updates of a process's figures at the end of requests and tasks."""
    shared: bool = _setting(True, flag)
    """Whether to ask databases and Redis for the figures that all processes share."""
    max_age: float = _setting(10.0, partial(seconds, least=0.0))
    """Seconds that such an answer is valid."""
    within: float = _setting(3.0, partial(seconds, least=0.01))
    """Seconds that a scrape waits for all such answers."""


# --- SCRAMBLE_KEYS: ids that outsiders can't count -----------------------------------


def _scramble_keys(entry: object) -> dict[str, bytes]:
    """A secret for each version."""
    where = "IDGEN['SCRAMBLE_KEYS']"
    raw = mapping(where, entry)
    for version, secret in raw.items():
        if version not in VERSIONS:
            raise SettingsError(
                f"{where} has an unknown key {version!r}. A version is one letter of "
                f"{''.join(VERSIONS)}, which stands in every text."
            )
        if not isinstance(secret, str) or len(secret) < SHORTEST_SECRET:
            # Without the value, which is a secret.
            raise SettingsError(
                f"{where}[{version!r}] must be a string of {SHORTEST_SECRET} or more characters, "
                f"as {HOW_TO_MAKE_ONE} makes."
            )
    return {version: secret.encode() for version, secret in raw.items()}


# --- GENERATORS and SEGMENTS ---------------------------------------------------------

DEFAULT_GENERATOR = "django_idgen.core.snowflake.SnowflakeGenerator"
DEFAULT_LEASES = "django_idgen.leases.database.DatabaseLeases"
REDIS_LEASES = "django_idgen.leases.redis.RedisLeases"
DEFAULT_SOURCE = "django_idgen.sources.database.DatabaseSource"
_BASES: dict[str, type] = {DEFAULT_LEASES: Registry, DEFAULT_SOURCE: Source}
"""The base of a class that replaces the default."""
DEFAULT_WINDOW = 180.0
DEFAULT_SKEW_LIMIT = 10.0
DEFAULT_TIMEOUT = 0.5
DEFAULT_FIRST_TIMEOUT = 5.0
DEFAULT_STEP = 1000
IDLE_WINDOWS = 5
"""Windows after which an unseen holder expires: 15 minutes by default."""

LEASE_OPTIONS = ("window", "workers", "idle_after")
"""Options of LEASES for the namespace, whatever the backend."""
TAG_OPTIONS = ("default_step", "timeout", "first_timeout", "segment_duration", "longest_step")
"""Those that a generator of a tag has of its own."""


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """One entry of ``IDGEN["GENERATORS"]``."""

    alias: str
    namespace: str
    layout: BitLayout
    window: float
    """Seconds."""
    idle_after: float
    """Seconds after which a scheduler stops renewing for an unseen holder."""
    workers: range
    skew_limit: float
    """Seconds."""
    leases: BackendSettings
    backend: BackendSettings


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """``IDGEN["SEGMENTS"]``."""

    source: BackendSettings
    default_step: int = _setting(DEFAULT_STEP, count)
    timeout: float = _setting(0.0, seconds)
    """Seconds that a caller waits for a segment: 0.5 if not set."""
    first_timeout: float = _setting(0.0, seconds)
    """Seconds that it waits for a tag's first segment, while no load has failed."""
    segment_duration: float = _setting(SEGMENT_DURATION, seconds)
    longest_step: int = _setting(LONGEST_STEP, partial(count, most=LONGEST_STEP))
    idle_after: float = _setting(IDLE_AFTER, seconds)
    """Seconds after which an unused tag gives its ids back."""
    outage: float = _setting(1200.0, partial(seconds, least=0.0))
    """Seconds without a database that the segments in a pool should last."""
    make_tags: bool = _setting(True, flag)
    """Whether ``segments[tag]`` makes a tag that does not exist and is not a field's."""

    @property
    def growth(self) -> Growth:
        """How segments follow the consumption."""
        return Growth(self.segment_duration, self.longest_step)


SEGMENT_OPTIONS = tuple(_checks(SegmentSettings))


@dataclass(frozen=True, slots=True)
class TagGeneratorSettings:
    """An entry of ``IDGEN["GENERATORS"]`` whose ids are those of a tag."""

    alias: str
    segments: SegmentSettings
    backend: BackendSettings

    @property
    def tag(self) -> str:
        return str(self.backend.options.get("tag", self.alias))


@dataclass(frozen=True, slots=True)
class IdgenSettings:
    generators: Mapping[str, GeneratorSettings]
    """Generators that lease worker ids."""
    tag_generators: Mapping[str, TagGeneratorSettings]
    segments: SegmentSettings
    rest: RestSettings
    metrics: MetricsSettings | None
    """None for no metrics."""
    scramble_keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The secrets of scrambled texts, by version; the last one writes."""


def read_settings() -> IdgenSettings:
    """The project's settings, checked. Raises :class:`SettingsError`."""
    where = "IDGEN"
    known = ("GENERATORS", "SEGMENTS", "REST", "METRICS", "SCRAMBLE_KEYS")
    raw = mapping(where, getattr(settings, "IDGEN", {}), known)
    entries = mapping(f"{where}['GENERATORS']", raw.get("GENERATORS", {}))
    entries = {DEFAULT_ALIAS: {}, **entries}
    tagged = {alias: entry for alias, entry in entries.items() if _is_of_tag(entry)}
    generators = {
        alias: _generator(alias, entry) for alias, entry in entries.items() if alias not in tagged
    }
    _refuse_shared_namespaces(generators)
    segments = _segments(raw.get("SEGMENTS", {}))
    metrics = raw.get("METRICS")
    return IdgenSettings(
        generators,
        {alias: _tag_generator(alias, entry) for alias, entry in tagged.items()},
        segments,
        _checked("IDGEN['REST']", raw.get("REST", {}), RestSettings),
        None if metrics is None else _checked("IDGEN['METRICS']", metrics, MetricsSettings),
        _scramble_keys(raw.get("SCRAMBLE_KEYS", {})),
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
    window = _window(leases)
    return GeneratorSettings(
        alias=alias,
        namespace=text(where, "NAMESPACE", raw.get("NAMESPACE", alias)),
        layout=layout,
        window=window,
        idle_after=_idle_after(leases, window),
        workers=_workers(leases.where, leases.options.get("workers"), layout),
        skew_limit=seconds(
            f"{where}['OPTIONS']['skew_limit']",
            backend.options.get("skew_limit", DEFAULT_SKEW_LIMIT),
            least=0.0,
        ),
        leases=leases,
        backend=backend,
    )


def _is_of_tag(entry: object) -> bool:
    """Whether the entry's class takes ids of a tag. Loading refuses what can't be imported."""
    path = entry.get("BACKEND", DEFAULT_GENERATOR) if isinstance(entry, Mapping) else None
    if not isinstance(path, str) or path == DEFAULT_GENERATOR:
        return False
    try:
        return issubclass(BackendSettings("", path, base=Generator).load(), TagGenerator)
    except SettingsError:
        return False


def _tag_generator(alias: object, entry: object) -> TagGeneratorSettings:
    where = f"IDGEN['GENERATORS'][{alias!r}]"
    raw = mapping(where, entry, ("BACKEND", "SOURCE", "OPTIONS"))
    options = mapping(f"{where}['OPTIONS']", raw.get("OPTIONS", {}))
    own = {key: value for key, value in options.items() if key not in TAG_OPTIONS}
    backend = BackendSettings(
        where, raw["BACKEND"], {"tag": str(alias), **own}, TAG_OPTIONS, base=TagGenerator
    )
    shared = {key: value for key, value in options.items() if key in TAG_OPTIONS}
    source = {"BACKEND": backend.load().default_source, **mapping(where, raw.get("SOURCE", {}))}
    segments = _segments({"SOURCE": source, "OPTIONS": shared}, where)
    return TagGeneratorSettings(str(alias), segments, backend)


def shortest_window() -> float:
    """The shortest window of all generators, in seconds. Raises :class:`SettingsError`.

    It imports none of their classes, which may need models: callers may be earlier than these.
    """
    raw = mapping("IDGEN", getattr(settings, "IDGEN", {}))
    where = "IDGEN['GENERATORS']"
    entries = {
        alias: mapping(f"{where}[{alias!r}]", entry)
        for alias, entry in {DEFAULT_ALIAS: {}, **mapping(where, raw.get("GENERATORS", {}))}.items()
    }
    # An alias with ids of a tag has no LEASES, so that the default counts for it.
    return min(
        _window(_backend(f"{where}[{alias!r}]['LEASES']", entry.get("LEASES", {}), DEFAULT_LEASES))
        for alias, entry in entries.items()
    )


def _window(leases: BackendSettings) -> float:
    value = leases.options.get("window", DEFAULT_WINDOW)
    return seconds(f"{leases.where}['OPTIONS']['window']", value)


def _idle_after(leases: BackendSettings, window: float) -> float:
    longest = max(window, min(IDLE_WINDOWS * window, 1e6))
    # A holder renews only once in a third of a window.
    value = leases.options.get("idle_after", longest)
    return seconds(f"{leases.where}['OPTIONS']['idle_after']", value, least=window)


def _layout(where: str, raw: Mapping[str, Any]) -> BitLayout:
    try:
        layout = parse_layout(raw.get("LAYOUT", "standard"), epoch=raw.get("EPOCH"))
        layout.check_epoch(SYSTEM_CLOCK.wall_ns() // 1000)
    except ConfigurationError as error:
        raise SettingsError(f"{where}: {error}") from error
    return layout


def _segments(entry: object, where: str = "IDGEN['SEGMENTS']") -> SegmentSettings:
    raw = mapping(where, entry, ("SOURCE", "OPTIONS"))
    at = f"{where}['OPTIONS']"
    source = _backend(f"{where}['SOURCE']", raw.get("SOURCE", {}), DEFAULT_SOURCE)
    found = _checked(at, raw.get("OPTIONS", {}), SegmentSettings, source=source)
    timeout = found.timeout or DEFAULT_TIMEOUT
    first = found.first_timeout or max(timeout, DEFAULT_FIRST_TIMEOUT)
    seconds(f"{at}['first_timeout']", first, least=timeout)
    return replace(found, timeout=timeout, first_timeout=first)


def nested_leases(outer: BackendSettings, name: str) -> BackendSettings:
    """The registry that option ``name`` of another registry describes.

    Raises :class:`SettingsError`.
    """
    where = f"{outer.where}['OPTIONS'][{name!r}]"
    nested = _backend(where, outer.options.get(name, {}), DEFAULT_LEASES)
    nested.refuse_removed()
    for option in LEASE_OPTIONS:
        if option in nested.options:
            raise SettingsError(
                f"{where}['OPTIONS'] has {option!r}, which belongs one level up: it is the same "
                f"for both registries."
            )
    return nested


def nested_source(outer: BackendSettings, name: str) -> BackendSettings:
    """The source that option ``name`` of another source describes.

    Raises :class:`SettingsError`.
    """
    where = f"{outer.where}['OPTIONS'][{name!r}]"
    return _backend(where, outer.options.get(name, {}), DEFAULT_SOURCE)


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
        ours, theirs = first.workers, entry.workers
        overlap = max(ours.start, theirs.start) < min(ours.stop, theirs.stop)
        if overlap and _lender(first.leases) != _lender(entry.leases):
            first.leases.refuse_removed()
            entry.leases.refuse_removed()
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
    keys = ("database", "directory", "alias", "base_urls", "generator")
    places = (str(options[key]) for key in keys if key in options)
    inner = _lender(nested_leases(leases, "registry")) if "registry" in options else ()
    return (leases.path, *places, *inner)

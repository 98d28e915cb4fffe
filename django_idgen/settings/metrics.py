"""``IDGEN["METRICS"]``: what is told to Prometheus, and to whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from .values import SettingsError, mapping, seconds

__all__ = ["MetricsSettings", "are_wanted", "metrics_settings"]

WHERE = "IDGEN['METRICS']"
KNOWN = ("token", "tags", "every", "shared", "max_age", "within")
SHORTEST_TOKEN = 16
MOST_TAGS = 100_000


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """The settings of the metrics. Frozen."""

    token: str | None = field(default=None, repr=False)
    """What a Prometheus server sends as its bearer token; without one, staff alone may look."""
    tags: int = 200
    """Tags that have figures of their own, in a process and of the fleet; the rest are added up."""
    every: float = 5.0
    """Seconds between two updates of the files of ``PROMETHEUS_MULTIPROC_DIR``."""
    shared: bool = True
    """Whether to ask databases and Redis for what all processes share."""
    max_age: float = 10.0
    """Seconds that such an answer counts."""
    within: float = 3.0
    """Seconds that a scrape waits for such answers, in all."""


def are_wanted() -> bool:
    """Whether the settings speak of metrics, without reading the rest of ``IDGEN``."""
    idgen = getattr(settings, "IDGEN", None)
    return isinstance(idgen, dict) and idgen.get("METRICS") is not None


def metrics_settings(entry: object) -> MetricsSettings | None:
    """``entry`` checked; None for None. Raises :class:`SettingsError`."""
    if entry is None:
        return None
    raw = mapping(WHERE, entry, KNOWN)
    values: dict[str, Any] = {}
    if raw.get("token") is not None:
        values["token"] = _token(raw["token"])
    if "tags" in raw:
        values["tags"] = _count(raw["tags"])
    if "shared" in raw:
        values["shared"] = _flag(raw["shared"])
    for name, least in (("every", 0.1), ("max_age", 0.0), ("within", 0.01)):
        if name in raw:
            values[name] = seconds(WHERE, name, raw[name], least=least, options=False)
    return MetricsSettings(**values)


def _token(value: object) -> str:
    fits = isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value
    if not fits or len(str(value)) < SHORTEST_TOKEN:
        # Without the value, which is a secret.
        raise SettingsError(
            f"{WHERE}['token'] must be a string of {SHORTEST_TOKEN} or more ASCII characters "
            f"without spaces, as 'python -c \"import secrets; print(secrets.token_urlsafe())\"' "
            f"makes."
        )
    return str(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TAGS:
        raise SettingsError(
            f"{WHERE}['tags'] must be a whole number of 0 to {MOST_TAGS}, not {value!r}."
        )
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{WHERE}['shared'] must be True or False, not {value!r}.")
    return value

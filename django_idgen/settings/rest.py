"""``IDGEN["REST"]``: what the HTTP API may hand out, and how fast."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .values import SettingsError, flag, mapping, seconds

__all__ = ["RestSettings", "rest_settings"]

WHERE = "IDGEN['REST']"
KNOWN = (
    "max_count",
    "max_segment",
    "max_skip",
    "max_leases",
    "make_tags",
    "numbers",
    "strings",
    "token_max_age",
    "token_outage",
    "caller_rate",
    "tag_rate",
)
RATE = re.compile(r"[1-9][0-9]{0,8}/(s|m|h|d)(ec|in|our|ay)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The settings of the HTTP API. Frozen."""

    max_count: int = 10_000
    """Ids that one request may ask for."""
    max_segment: int = 1_000_000
    """Ids that a whole segment may have."""
    max_skip: int = 1_000_000_000
    """Ids by which a caller may have a tag skip ahead at once."""
    max_leases: int | None = None
    """Worker ids of a generator that one client may hold at a time; None: half of them."""
    make_tags: bool = False
    """Whether a request for an unknown tag makes it."""
    numbers: bool = False
    """Whether ids are JSON numbers unless a request says otherwise."""
    strings: bool = True
    """Whether ids, and keys to them, are strings in the JSON of the project's own API."""
    token_max_age: float = 60.0
    """Seconds that a token is believed unasked: a revoked one lives on for so long."""
    token_outage: float = 1200.0
    """Seconds that a token is believed while the database can't be asked."""
    caller_rate: str | None = None
    """Requests that one caller may make, such as ``"1000/s"`` (s, m, h or d)."""
    tag_rate: str | None = None
    """Requests that all callers together may make for one tag, or one generator."""


def rest_settings(entry: object) -> RestSettings:
    """``entry`` checked. Raises :class:`SettingsError`."""
    raw = mapping(WHERE, entry, KNOWN)
    values: dict[str, Any] = {}
    for name in ("max_count", "max_segment", "max_skip"):
        if name in raw:
            values[name] = _count(name, raw[name])
    if raw.get("max_leases") is not None:
        values["max_leases"] = _count("max_leases", raw["max_leases"])
    for name in ("make_tags", "numbers", "strings"):
        if name in raw:
            values[name] = flag(WHERE, name, raw[name])
    for name in ("token_max_age", "token_outage"):
        if name in raw:
            values[name] = seconds(WHERE, name, raw[name], least=0.0, options=False)
    for name in ("caller_rate", "tag_rate"):
        if raw.get(name) is not None:
            values[name] = _rate(name, raw[name])
    return RestSettings(**values)


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000_000:
        raise SettingsError(
            f"{WHERE}[{name!r}] must be a whole number of 1 to 1000000000, not {value!r}."
        )
    return value


def _rate(name: str, value: object) -> str:
    if not isinstance(value, str) or not RATE.fullmatch(value):
        raise SettingsError(
            f"{WHERE}[{name!r}] must be None, or a number of requests and a unit of time (s, m, h "
            f"or d) such as '1000/s', not {value!r}."
        )
    return value

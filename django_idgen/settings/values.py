"""Values of ``settings.IDGEN``, each checked and refused in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from ..core.errors import ConfigurationError

__all__ = ["DEFAULT_ALIAS", "SettingsError", "flag", "mapping", "refuse_unknown", "seconds", "text"]


DEFAULT_ALIAS = "default"


class SettingsError(ConfigurationError, ImproperlyConfigured):
    """``settings.IDGEN`` asks for something that can't work; the message says where."""


def mapping(where: str, value: object, allowed: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where} must be a dictionary, not {value!r}.")
    if allowed is not None:
        refuse_unknown(where, value, allowed)
    return dict(value)


def refuse_unknown(where: str, given: Mapping[Any, Any], allowed: tuple[str, ...]) -> None:
    for key in given:
        if key not in allowed:
            raise SettingsError(
                f"{where} has an unknown key {key!r}. Known: {', '.join(allowed) or 'none'}."
            )


def text(where: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > 128:
        raise SettingsError(
            f"{where}[{key!r}] must be a string of 1 to 128 characters, not {value!r}."
        )
    if not value.isprintable():  # some can't be stored, and none can be told apart in a log
        raise SettingsError(
            f"{where}[{key!r}] is {value!r}, which has a character that can't be printed. "
            f"Leave it out."
        )
    return value


def seconds(
    where: str, key: str, value: object, *, least: float = 0.001, options: bool = True
) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= float(value) <= 1e6:  # type: ignore[arg-type]
        place = f"{where}['OPTIONS']" if options else where
        raise SettingsError(
            f"{place}[{key!r}] must be {least:g} to 1000000 seconds, not {value!r}."
        )
    return float(value)  # type: ignore[arg-type]


def flag(where: str, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{where}[{key!r}] must be True or False, not {value!r}.")
    return value

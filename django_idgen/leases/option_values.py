"""Options that several registries have, checked: each raises :class:`ConfigurationError`."""

from __future__ import annotations

from ..core.errors import ConfigurationError

__all__ = ["checked_flag", "checked_seconds"]


def checked_seconds(name: str, value: object, *, most: float) -> float:
    """``value`` if it is a number of seconds above 0, up to ``most``."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < float(value) <= most:  # type: ignore[arg-type]
        raise ConfigurationError(
            f"{name} must be a number of seconds above 0, up to {most:g}, not {value!r}."
        )
    return float(value)  # type: ignore[arg-type]


def checked_flag(name: str, value: object) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}.")
    return value

"""Options that several registries have, checked: each raises :class:`ConfigurationError`."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from .errors import ConfigurationError

__all__ = ["checked_flag", "checked_seconds", "numbered_worker"]


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


def numbered_worker(
    name: str, value: object, workers: range, *, environ: Mapping[str, str] = os.environ
) -> int:
    """The one of ``workers`` that the number of this host or process says, counted from 0.

    ``value`` is ``"hostname"`` (``shop-3.internal`` is number 3, as a StatefulSet's pods are
    called) or ``"env:NAME"``, for a number in an environment variable.
    """
    if value == "hostname":
        text = socket.gethostname().partition(".")[0]
        found = re.search(r"[0-9]+$", text)
        what, number = f"host name {text!r}", found[0] if found else ""
    elif isinstance(value, str) and value.startswith("env:"):
        variable = value.removeprefix("env:")
        what, number = f"environment variable {variable!r}", environ.get(variable, "").strip()
    else:
        raise ConfigurationError(f"{name} must be 'hostname' or 'env:NAME', not {value!r}.")
    if not re.fullmatch(r"[0-9]{1,18}", number):
        raise ConfigurationError(
            f"{name} is {value!r}, but {what} has no number ({number!r}). Number the hosts, or "
            f"leave it out."
        )
    if int(number) >= len(workers):
        raise ConfigurationError(
            f"{name} is {value!r}, and {what} says {int(number)}, but there are {len(workers)} "
            f"worker ids ({workers.start} to {workers.stop - 1}). Widen 'workers', or number the "
            f"hosts from 0."
        )
    return workers[int(number)]

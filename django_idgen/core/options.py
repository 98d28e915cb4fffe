"""Checks of options, for settings and constructors alike.

Each check returns the value, or raises ``error``, which names the option, its value and what is
allowed.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from .errors import ConfigurationError


def check_flag(
    name: str, value: object, *, error: type[ConfigurationError] = ConfigurationError
) -> bool:
    if not isinstance(value, bool):
        raise error(f"{name} must be True or False, not {value!r}.")
    return value


def check_seconds(
    name: str,
    value: object,
    *,
    least: float = 0.001,
    most: float,
    error: type[ConfigurationError] = ConfigurationError,
) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= float(value) <= most:  # type: ignore[arg-type]
        raise error(f"{name} must be {least:g} to {most:.10g} seconds, not {value!r}.")
    return float(value)  # type: ignore[arg-type]


def check_whole(
    name: str,
    value: object,
    *,
    least: int,
    most: int,
    error: type[ConfigurationError] = ConfigurationError,
) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise error(f"{name} must be a whole number of {least} to {most}, not {value!r}.")
    return value


def check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string, not {value!r}.")
    return value


def numbered_worker(
    name: str, value: object, workers: range, *, environ: Mapping[str, str] = os.environ
) -> int:
    """The worker id of ``workers`` with the number of this host or process, counted from 0.

    ``value`` says where that number is: ``"hostname"`` (``shop-3.internal`` is number 3, as
    with the pods of a StatefulSet) or ``"env:NAME"``, an environment variable.
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
            f"leave {name} out."
        )
    if int(number) >= len(workers):
        raise ConfigurationError(
            f"{name} is {value!r}, and {what} says {int(number)}, but there are {len(workers)} "
            f"worker ids ({workers.start} to {workers.stop - 1}). Widen 'workers', or number the "
            f"hosts from 0."
        )
    return workers[int(number)]

"""Which databases a tag's ids come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections
from django.utils.module_loading import import_string

from ..core.errors import ConfigurationError
from ..core.segment import MAX_DELTA

__all__ = ["Route", "Router", "check_databases", "router_of"]

Route = tuple[str, ...]
"""Aliases, each once: the remainder of a database is its place."""
Router = Callable[[str], Route]


def router_of(function: object, *, most: int = MAX_DELTA) -> Router:
    """What asks ``function``, or the one at that dotted path, and checks the answer.

    It is given the tag, and returns an alias, or a list of
    up to ``most`` of them. Its answer for a tag
    must never change: another database knows nothing of the ids given out.
    Raises :class:`ConfigurationError`, now or when a tag is routed.
    """
    ask = _imported(function) if isinstance(function, str) else function
    if not callable(ask):
        raise ConfigurationError(
            f"'router' must be a function from a tag to an alias of DATABASES (or a list of "
            f"them), or its dotted path, not {function!r}."
        )
    name = getattr(ask, "__qualname__", repr(ask))

    def route(tag: str) -> Route:
        try:
            answer = ask(tag)
        except Exception as error:
            raise ConfigurationError(f"Router {name} failed for tag {tag!r}: {error!r}.") from error
        return check_databases(f"Router {name} says for tag {tag!r}", answer, most)

    return route


def check_databases(whose: str, value: object, most: int = MAX_DELTA) -> Route:
    """``value``, an alias or a list of up to ``most``, as a route.

    Raises :class:`ConfigurationError`.
    """
    aliases = [value] if isinstance(value, str) else value
    if (
        not isinstance(aliases, Sequence)
        or not 1 <= len(aliases) <= MAX_DELTA
        or len(set(map(str, aliases))) < len(aliases)
        or not all(isinstance(alias, str) and alias in connections.settings for alias in aliases)
    ):
        known = ", ".join(map(repr, connections.settings))
        several = "" if most == 1 else f", or a list of 1 to {MAX_DELTA} different ones"
        raise ConfigurationError(
            f"{whose} {value!r}; it must be a database alias{several}, out of DATABASES ({known})."
        )
    if len(aliases) > most:
        raise ConfigurationError(
            f"{whose} {value!r}. Several databases share a tag through "
            f"'django_idgen.contrib.sharding.ShardedSource': name it as the source's BACKEND."
        )
    return tuple(aliases)


def _imported(path: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"'router' is {path!r}, which can't be imported: {error}"
        ) from error

"""Failures of migrations in words: ``migrate`` shows the traceback of anything else."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.core.management.base import CommandError

from ...core.errors import IdgenError

__all__ = ["in_words"]

P = ParamSpec("P")
T = TypeVar("T")


def in_words(function: Callable[P, T]) -> Callable[P, T]:
    """Have ``function`` raise ``CommandError`` for what goes wrong on our own account."""

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except IdgenError as error:
            raise CommandError(" ".join(str(error).split())) from error

    return told

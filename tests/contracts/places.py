"""The databases that the contracts are kept in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from django_idgen.db.connection import Place, place_of

PATIENT = 60.0
"""Seconds for an answer on a loaded machine, where its absence is not the matter."""


def on(*kinds: Any) -> Callable[[type], type]:
    """The tests of a class have a ``database`` of each of ``kinds``, which they share."""
    each = pytest.mark.parametrize("database", kinds, indirect=True, scope="class")
    return lambda kept: each(pytest.mark.usefixtures("database")(kept))


def shared_name(database: str) -> str:
    """The name of ``database`` for another process. Raises :class:`NotImplementedError`."""
    if place_of(database) is Place.MEMORY:
        raise NotImplementedError
    return str(connections.settings[database]["NAME"])

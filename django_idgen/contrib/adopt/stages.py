"""Which kind of adoption a table needs."""

from __future__ import annotations

from django.db import models

from ...core.errors import ConfigurationError
from ...fields.base import GeneratedOnSave
from . import integer_keys, uuid_keys
from .project import Project
from .wishes import Wishes

__all__ = ["stages_of"]

INTEGERS = (models.AutoField, models.BigAutoField, models.SmallAutoField, GeneratedOnSave)


def stages_of(project: Project, wishes: Wishes) -> integer_keys.IntegerKey | uuid_keys.UuidKey:
    """Raises :class:`ConfigurationError` for a key of a kind that can't be adopted."""
    written = list(project.written((*integer_keys.OPERATIONS, *uuid_keys.OPERATIONS)))
    key = project.migrated_key
    if isinstance(key, models.UUIDField):
        return uuid_keys.UuidKey(project, wishes)
    if written and isinstance(written[-1].operation, uuid_keys.OPERATIONS):
        return uuid_keys.UuidKey(project, wishes)
    if isinstance(key, INTEGERS):
        return integer_keys.IntegerKey(project, wishes)
    raise ConfigurationError(
        f"The key of {project.name} is a {type(key).__name__}. AutoField, BigAutoField, "
        f"SmallAutoField and UUIDField can be adopted."
    )

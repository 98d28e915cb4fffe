"""The text form that goes with a model, a field, or a foreign key to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from ..core.encoding import TextForm
from ..core.errors import ConfigurationError
from .relations import id_held_by

__all__ = ["text_form"]

if TYPE_CHECKING:
    IdTarget = type[models.Model] | models.Field[Any, Any] | TextForm


def text_form(target: IdTarget) -> TextForm:
    """The form in which ids of ``target`` are written; a model stands for its primary key.

    Raises :class:`ConfigurationError` where that is no field of ours.
    """
    if isinstance(target, TextForm):
        return target
    field = target._meta.pk if isinstance(target, type) else target
    found = id_held_by(field)
    if found is None:
        raise ConfigurationError(
            f"{field} is no field of django_idgen, nor a foreign key to one, so its values have "
            f"no text form. Give the form itself, such as TextForm('base62', 'ord_')."
        )
    return found.text

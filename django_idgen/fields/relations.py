"""The id that an attribute of a model holds, if any, and its text form."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldDoesNotExist
from django.db import models

from ..core.encoding import TextForm
from ..core.errors import ConfigurationError
from ..core.segment import MAX_ID
from .base import GeneratedOnSave, id_held_by

if TYPE_CHECKING:
    IdTarget = type[models.Model] | models.Field[Any, Any] | TextForm


@lru_cache(maxsize=4096)
def id_behind(model: type, path: tuple[str, ...]) -> GeneratedOnSave | None:
    """The field of this app that ``path`` leads to from ``model``, or None.

    ``path`` consists of names of fields, columns (``order_id``) and reverse accessors, or
    ``pk``. A path that ends in a relation means the key that it holds. The result is None for
    a ``model`` that is no Django model.
    """
    if not (isinstance(model, type) and issubclass(model, models.Model)):
        return None
    field: Any = None
    at: type[models.Model] | None = model
    for name in path:
        field = None if at is None else _named(at, name)
        if field is None:
            return None
        at = field.related_model if field.is_relation else None
    return id_held_by(field)


def key_behind(model: type) -> GeneratedOnSave | None:
    """The field of this app that is the primary key of ``model``, or that its key refers to."""
    return id_behind(model, ("pk",))


def text_form(target: IdTarget) -> TextForm:
    """The text form of ``target``'s ids; a model means its primary key.

    Raises :class:`ConfigurationError` if the field is not of this app.
    """
    if isinstance(target, TextForm):
        return target
    field = target._meta.pk if isinstance(target, type) else target
    found = id_held_by(field)
    if found is None:
        raise ConfigurationError(
            f"{field} is not a field of django_idgen, nor a foreign key to one, so its values "
            f"have no text form. Give the form itself, such as TextForm('base62', 'ord_')."
        )
    return found.text


def written(text: TextForm, value: Any) -> Any:
    """The text form of a column's ``value``; None stays None.

    A key that no generator gives, such as 0, becomes its digits: an error would break the
    whole page.
    """
    if type(value) is int and text.is_plain:
        return str(value)
    if value is None:
        return None
    if isinstance(value, str):  # set by hand on an instance
        return text.format(text.read_trusted(value))
    if isinstance(value, int) and not 1 <= value <= MAX_ID:
        return str(int(value))
    return text.format(value)


def _named(model: type[models.Model], name: str) -> Any:
    if name == "pk":
        return model._meta.pk
    try:
        return model._meta.get_field(name)
    except FieldDoesNotExist:
        relations = model._meta.related_objects
        return next((each for each in relations if each.get_accessor_name() == name), None)

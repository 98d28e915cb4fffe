"""Which id an attribute of a model holds, if any, and how it is written."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldDoesNotExist
from django.db import models

from ..core.encoding import TextForm
from ..core.errors import ConfigurationError
from ..core.segment import MAX_ID
from .base import GeneratedOnSave

__all__ = ["id_behind", "id_held_by", "key_behind", "text_form", "written"]

if TYPE_CHECKING:
    IdTarget = type[models.Model] | models.Field[Any, Any] | TextForm


@lru_cache(maxsize=4096)
def id_behind(model: type[models.Model], path: tuple[str, ...]) -> GeneratedOnSave | None:
    """The field of this app whose value ``path`` leads to from ``model``, or None.

    ``path`` is made of names of fields, columns (``order_id``) and reverse accessors, or
    ``pk``. A path that ends in a relation means the key that it holds. ``model`` may be what
    another library calls a model: then the result is None.
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


def key_behind(model: type[models.Model]) -> GeneratedOnSave | None:
    """The field of this app that is the primary key of ``model``, or that its key refers to."""
    return id_behind(model, ("pk",))


def id_held_by(field: Any) -> GeneratedOnSave | None:
    """The field of this app whose ids ``field`` holds: itself, or what a relation refers to."""
    while field is not None and not isinstance(field, GeneratedOnSave):
        if isinstance(field, models.ForeignKey):
            field = field.target_field
        elif field.is_relation and field.related_model is not None:
            field = field.related_model._meta.pk
        else:
            return None
    return field


def text_form(target: IdTarget) -> TextForm:
    """The form in which ids of ``target`` are written; a model stands for its primary key.

    Raises :class:`ConfigurationError` where that is no field of this app.
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


def written(text: TextForm, value: Any) -> Any:
    """``value`` of an id's column in its text form; None stays None.

    A key that no generator gives, such as 0, is written as its digits: refusing it would keep
    the whole page from being shown.
    """
    if type(value) is int and text.is_plain:
        return str(value)
    if value is None:
        return None
    if isinstance(value, str):  # set by hand, on an instance that wasn't read back
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

"""django-filter: filters by id that take its text, and say what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django_filters import fields, filters, filterset  # type: ignore[import-untyped]

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from ..fields.base import GeneratedOnSave
from ..fields.forms import IdFormField
from ..fields.relations import id_behind
from .registration import Hooks

__all__ = ["IdFilter", "adopt"]


class IdFilter(filters.Filter):  # type: ignore[misc]
    """A filter by id, or by a key to one, that reads a number's digits or the text.

    ``FilterSet`` picks it for the fields of this app, with every look-up of a number.
    One declared by hand follows the model's field, unless ``target=`` gives the form
    (see :class:`~django_idgen.fields.forms.IdFormField`).
    """

    field_class = IdFormField

    @property
    def field(self) -> forms.Field:
        if "target" not in self.extra:
            self.extra["target"] = self._text()
        found: forms.Field = super().field
        return found

    def _text(self) -> TextForm:
        model = getattr(self, "model", None)
        path = tuple((self.field_name or "").split("__"))
        found = None if model is None else id_behind(model, path)
        return DECIMAL if found is None else found.text


def adopt(defaults: dict[Any, Any] = filterset.FILTER_FOR_DBFIELD_DEFAULTS) -> None:
    """Have every ``FilterSet`` made from now on pick :class:`IdFilter`. Idempotent.

    ``defaults`` is a mapping such as ``FilterSet.FILTER_DEFAULTS``.
    """
    defaults[GeneratedOnSave] = {
        "filter_class": IdFilter,
        "extra": lambda field: {"target": field.text},
    }
    HOOKS.put()


def _reading_choice(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A choice of one reads ids as strictly as every other field does."""

    def to_python(self: Any, value: Any) -> Any:
        return original(self, _digits(self, value, "invalid_choice", "value"))

    return to_python


def _reading_choices(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A choice of many reads ids as text: Django compares them with the keys' digits.

    It also sends numbers to the database that SQLite has no room for, and fails.
    """

    def _check_values(self: Any, values: Any) -> Any:
        return original(self, [_digits(self, each, "invalid_pk_value", "pk") for each in values])

    return _check_values


def _digits(field: Any, value: Any, error: str, name: str) -> Any:
    """``value`` as Django compares it; what stands for null, or for nothing, as it came."""
    found = id_behind(field.queryset.model, (field.to_field_name or "pk",))
    left_alone = value in field.empty_values or value == field.null_value
    if found is None or left_alone or isinstance(value, models.Model):
        return value
    try:
        return str(found.text.read(value))
    except InvalidId as refused:
        shown = str(value)[:SHOWN]
        raise ValidationError(
            field.error_messages[error], code=error, params={name: shown}
        ) from refused


SHOWN = 40
"""Characters of a wrong value that its error repeats."""


HOOKS = Hooks(
    (fields.ModelChoiceField, "to_python", _reading_choice),
    (fields.ModelMultipleChoiceField, "_check_values", _reading_choices),
)

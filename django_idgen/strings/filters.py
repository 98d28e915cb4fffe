"""django-filter: filters that read ids in their text form, and refuse other values."""

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


class IdFilter(filters.Filter):  # type: ignore[misc]
    """A filter by an id, or by a key to one, that reads digits or the text form.

    ``FilterSet`` picks it for the fields of this app, with every look-up of a number. A declared
    one uses the form of the model's field, or of ``target=``
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
    """Make every ``FilterSet`` defined from now on pick :class:`IdFilter`. Idempotent.

    ``defaults`` is a mapping such as ``FilterSet.FILTER_DEFAULTS``.
    """
    defaults[GeneratedOnSave] = {
        "filter_class": IdFilter,
        "extra": lambda field: {"target": field.text},
    }
    HOOKS.put()


def _reading_choice(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A single choice reads ids as strictly as all other fields."""

    def to_python(self: Any, value: Any) -> Any:
        return original(self, _digits(self, value, "invalid_choice", "value"))

    return to_python


def _reading_choices(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A multiple choice reads ids as text, which Django compares with the digits of the keys.

    Django also fails for numbers that are too large for SQLite.
    """

    def _check_values(self: Any, values: Any) -> Any:
        return original(self, [_digits(self, each, "invalid_pk_value", "pk") for each in values])

    return _check_values


def _digits(field: Any, value: Any, error: str, name: str) -> Any:
    """``value`` in the digits that Django compares; unchanged if it is empty or null."""
    found = id_behind(field.queryset.model, (field.to_field_name or "pk",))
    is_empty = value in field.empty_values or value == field.null_value
    if found is None or is_empty or isinstance(value, models.Model):
        return value
    try:
        return str(found.text.read(value))
    except InvalidId as refused:
        # A short error, however long the value is.
        raise ValidationError(
            field.error_messages[error], code=error, params={name: str(value)[:40]}
        ) from refused


HOOKS = Hooks(
    (fields.ModelChoiceField, "to_python", _reading_choice),
    (fields.ModelMultipleChoiceField, "_check_values", _reading_choices),
)

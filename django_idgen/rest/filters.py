"""django-filter: filters by id that take its text, and say what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from django_filters import fields, filters, filterset  # type: ignore[import-untyped]

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from ..generated import GeneratedOnSave
from .relations import id_behind, key_behind

__all__ = ["IdFilter", "IdFilterField", "adopt"]


class IdFilterField(forms.Field):
    """The field of an :class:`IdFilter`: an id as text, read to an ``int``."""

    default_error_messages = {"invalid": _("Enter a valid id. %(reason)s")}  # noqa: RUF012

    def __init__(self, *, text_form: str = "decimal", prefix: str = "", **kwargs: Any) -> None:
        self.text = TextForm(text_form, prefix)
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> int | None:
        if value in self.empty_values:
            return None
        try:
            return self.text.read(value.strip() if isinstance(value, str) else value)
        except InvalidId as error:
            raise ValidationError(
                self.error_messages["invalid"], code="invalid", params={"reason": str(error)}
            ) from error


class IdFilter(filters.Filter):  # type: ignore[misc]
    """A filter by id, or by a key to one; ``text_form=`` and ``prefix=`` as the field has them.

    ``FilterSet`` picks it for the fields of this app, with every look-up of a number.
    Declared by hand it goes by the model's field, unless told.
    """

    field_class = IdFilterField

    @property
    def field(self) -> forms.Field:
        if "text_form" not in self.extra and "prefix" not in self.extra:
            self.extra.update(_form_of(self._text()))
        found: forms.Field = super().field
        return found

    def _text(self) -> TextForm:
        model = getattr(self, "model", None)
        path = tuple((self.field_name or "").split("__"))
        found = None if model is None else id_behind(model, path)
        return DECIMAL if found is None else found.text


def _form_of(text: TextForm) -> dict[str, str]:
    return {"text_form": text.alphabet, "prefix": text.prefix}


def adopt(defaults: dict[Any, Any] = filterset.FILTER_FOR_DBFIELD_DEFAULTS) -> None:
    """Have every ``FilterSet`` made from now on pick :class:`IdFilter`. Idempotent.

    ``defaults`` is a mapping such as ``FilterSet.FILTER_DEFAULTS``.
    """
    defaults[GeneratedOnSave] = {
        "filter_class": IdFilter,
        "extra": lambda field: _form_of(field.text),
    }
    if fields.ModelMultipleChoiceField not in _adopted:
        _adopted.add(fields.ModelMultipleChoiceField)
        _read_choices(fields.ModelMultipleChoiceField)


_adopted: set[type] = set()


def _read_choices(owner: type[Any]) -> None:
    """Have a choice of many read ids as text: Django compares them with the keys' digits.

    A choice of one needs nothing: it is looked up, and the model's field reads the text.
    """
    original: Callable[[Any, Any], Any] = owner._check_values

    def _check_values(self: Any, value: Any) -> Any:
        found = key_behind(self.queryset.model) if self.to_field_name is None else None
        return original(self, value if found is None else list(_as_digits(found.text, value)))

    owner._check_values = _check_values


def _as_digits(text: TextForm, values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        try:
            yield str(text.read(value))
        except InvalidId:
            yield value  # Django says that it is no choice; "null" is one of django-filter's

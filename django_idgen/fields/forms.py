"""Ids in forms: a field that reads them in any form, and one for many-to-many relations.

A ``ModelForm`` needs nothing: ids of new rows are not editable, and a ``ModelChoiceField``
to a model with such ids puts plain digits into its options, and takes any form of an id
(in a raw id widget, for instance). ``IdFormField`` is for ids that people type or paste::

    class FindOrder(forms.Form):
        order = IdFormField(Order)
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from .relations import id_behind, text_form

if TYPE_CHECKING:
    from .relations import IdTarget

    MultipleChoice = forms.ModelMultipleChoiceField[Any]
else:
    MultipleChoice = forms.ModelMultipleChoiceField

__all__ = ["IdFormField", "IdModelMultipleChoiceField"]


class IdFormField(forms.Field):
    """Reads an id as an int, its decimal digits or its text; gives an int, shows the text.

    ``target`` says in which form: a model (its primary key), a field, a
    :class:`TextForm`, or nothing for plain decimal. The value is None where
    the field is not required and was left empty. What is no id is the form's error
    ``invalid``. To check that there is a row, use a ``ModelChoiceField``.
    """

    widget = forms.TextInput
    default_error_messages = {  # noqa: RUF012
        "invalid": _("Enter a valid id, such as %(example)s."),
    }

    def __init__(self, target: IdTarget = DECIMAL, **kwargs: Any) -> None:
        self.text = text_form(target)
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> int | None:
        if isinstance(value, str):
            value = value.strip()
        if value in self.empty_values:
            return None
        try:
            return self.text.read(value)
        except InvalidId as error:
            raise ValidationError(
                self.error_messages["invalid"],
                code="invalid",
                params={"example": self.text.format(1)},
            ) from error

    def prepare_value(self, value: Any) -> Any:
        # Shows wrong input as it was typed.
        with suppress(InvalidId):
            return value if isinstance(value, str) else self.text.format(value)
        return value

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return not self.disabled and self.to_python(initial) != self.to_python(data)
        except ValidationError:
            return True


class IdModelMultipleChoiceField(MultipleChoice):
    """A ``ModelMultipleChoiceField`` that takes each id in any form.

    Django's own compares what was sent with decimal digits, and refuses any other text. A
    value that is no id is the form's error ``invalid_pk_value``, and never reaches the
    database (SQLite raises ``OverflowError`` for an integer past 2**63 - 1).
    """

    def clean(self, value: Any) -> Any:
        return super().clean(self._plain(value))

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return super().has_changed(initial, self._plain(data))
        except ValidationError:
            return True

    def _plain(self, values: Any) -> Any:
        rows: Any = self.queryset
        field = id_behind(rows.model, (self.to_field_name or "pk",))
        if field is None or not isinstance(values, list | tuple):
            return values
        return [self._digits(field.text, value) for value in self.prepare_value(values)]

    def _digits(self, form: TextForm, value: Any) -> str:
        try:
            return str(form.read(value))
        except InvalidId as error:
            raise ValidationError(
                self.error_messages["invalid_pk_value"],
                code="invalid_pk_value",
                params={"pk": str(value)[:40]},
            ) from error

"""Form fields for ids, and for relations to rows that have them.

A ``ModelForm`` needs none of them: ids of new rows are not editable, and a
``ModelChoiceField`` writes plain digits into its options and takes any form of an id (in a raw
id widget, for instance). If ids are scrambled, declare the choices of related rows as
``IdModelChoiceField`` and ``IdModelMultipleChoiceField``, which write the texts and refuse
numbers. ``IdFormField`` is for ids that people type or paste::

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
from .relations import id_behind, text_form, written

if TYPE_CHECKING:
    from .relations import IdTarget

    Choice = forms.ModelChoiceField[Any]
    MultipleChoice = forms.ModelMultipleChoiceField[Any]
else:
    Choice, MultipleChoice = forms.ModelChoiceField, forms.ModelMultipleChoiceField


class IdFormField(forms.Field):
    """Reads an id as an int, its decimal digits or its text. Cleans to an int, shows the text.

    ``target`` gives the text form: a model (its primary key), a field, a :class:`TextForm`, or
    nothing for plain decimal. The value is None if the field is not required and empty. Other
    input is the error ``invalid``. To check that a row exists, use a ``ModelChoiceField``.
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
        # Wrong input is shown as it was typed.
        with suppress(InvalidId):
            return value if isinstance(value, str) else self.text.format(value)
        return value

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            before = None if initial in self.empty_values else self.text.read_trusted(initial)
            return not self.disabled and before != self.to_python(data)
        except (InvalidId, ValidationError):
            return True


class _IdChoice(Choice):
    """Shows texts as options if the ids are scrambled."""

    refused: tuple[str, str]
    """The error code for a value that is not an id, and the value's name in the message."""

    @property
    def _text(self) -> TextForm | None:
        rows: Any = self.queryset
        found = id_behind(rows.model, (self.to_field_name or "pk",))
        return None if found is None else found.text

    def prepare_value(self, value: Any) -> Any:
        shown, text = super().prepare_value(value), self._text
        if text is None or text.takes_numbers:
            return shown
        if isinstance(shown, list | tuple):
            return [self._written(text, each) for each in shown]
        return self._written(text, shown)

    def _written(self, text: TextForm, value: Any) -> Any:
        # Wrong input is shown as it was sent.
        return written(text, value) if isinstance(value, int) else value

    def _digits(self, text: TextForm, value: Any) -> str:
        try:
            return str(text.read(value))
        except InvalidId as error:
            code, name = self.refused
            raise ValidationError(
                self.error_messages[code], code=code, params={name: str(value)[:40]}
            ) from error


class IdModelChoiceField(_IdChoice):
    """A ``ModelChoiceField`` that takes the id in any form, and scrambled ids only as texts.

    A value that is not an id is the error ``invalid_choice``.
    """

    refused = ("invalid_choice", "value")

    def to_python(self, value: Any) -> Any:
        text = self._text
        if text is not None and value not in self.empty_values and isinstance(value, str | int):
            value = self._digits(text, value)
        return super().to_python(value)


class IdModelMultipleChoiceField(_IdChoice, MultipleChoice):
    """A ``ModelMultipleChoiceField`` that takes each id in any form.

    Django's own field compares the input with decimal digits, and refuses any other text. A
    value that is not an id is the error ``invalid_pk_value``, and never reaches the database
    (SQLite raises ``OverflowError`` for an integer past 2**63 - 1).
    """

    refused = ("invalid_pk_value", "pk")

    def clean(self, value: Any) -> Any:
        return super().clean(self._plain(value))

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            plain = self._plain(data)
            if self._text is not None and isinstance(plain, list):
                plain = self.prepare_value([int(each) for each in plain])
            return super().has_changed(initial, plain)
        except ValidationError:
            return True

    def _plain(self, values: Any) -> Any:
        text = self._text
        if text is None or not isinstance(values, list | tuple):
            return values
        return [self._digits(text, value) for value in self.prepare_value(values)]

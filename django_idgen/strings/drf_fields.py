"""The serializer field of ids: strings out, strings or numbers in.

JavaScript reads every number as a double, which is exact up to 2**53 only: an id of 63
bits that travels as a JSON number arrives as another one.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models.fields import NOT_PROVIDED
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from ..core.segment import MAX_ID
from ..fields.base import GeneratedOnSave
from ..fields.relations import id_behind, written

__all__ = ["DERIVED", "FOUND", "SHOWN", "IdField", "id_of", "model_said_by", "note_model"]

# What a serializer field keeps, so that a row costs next to nothing more:
SHOWN = "_idgen_model"
"""The class of the row that it showed last."""
FOUND = "_idgen_id"
"""The field of ours that its source leads to, or None."""
DERIVED = "_idgen_pk_field"
"""Of a relation: what follows from that for its own ``pk_field``."""


class IdField(serializers.Field[int, Any, str, Any]):
    """An id: an ``int`` in Python, a string in JSON; numbers are read as well.

    It is written as the model's field says (``text_form=``, ``prefix=``), which the
    serializer's ``Meta.model`` and the field's ``source`` lead to. ``text_form`` and
    ``prefix`` given here go before that, and are needed where a form other than decimal
    has to be read without a model. ``min_value`` and ``max_value`` narrow down 1 to
    2**63 - 1.

    Error codes: ``invalid``, ``min_value``, ``max_value``, besides those of every field.
    Raises :class:`~django_idgen.core.errors.ConfigurationError` for a form that isn't one.
    """

    default_error_messages = {  # noqa: RUF012
        "invalid": _("A valid id is required. {reason}"),
        "min_value": _("Ensure this value is greater than or equal to {min_value}."),
        "max_value": _("Ensure this value is less than or equal to {max_value}."),
    }

    def __init__(
        self,
        *,
        text_form: str | None = None,
        prefix: str | None = None,
        min_value: int = 1,
        max_value: int = MAX_ID,
        **kwargs: Any,
    ) -> None:
        # What ModelSerializer finds in a model field that has a default but no value for it.
        if kwargs.get("default") is NOT_PROVIDED:
            kwargs["default"] = (
                serializers.empty
                if kwargs.get("read_only")
                else serializers.CreateOnlyDefault(None)
            )
        self.min_value = min_value
        self.max_value = max_value
        self._text = (
            None
            if text_form is None and prefix is None
            else TextForm(text_form or "decimal", prefix or "")
        )
        super().__init__(**kwargs)

    @property
    def text(self) -> TextForm:
        """How ids are written here."""
        if self._text is not None:
            return self._text
        known = id_of(self)
        if known is None:
            return DECIMAL
        if model_said_by(self) is not None:
            self._text = known.text
        return known.text

    def get_attribute(self, instance: Any) -> Any:
        if self._text is None:
            note_model(self, instance)
        return super().get_attribute(instance)

    def to_representation(self, value: Any) -> str:
        text: str = written(self.text, value)
        return text

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, int) and not isinstance(data, bool):
            return self._within(data)
        try:
            return self._within(self.text.read(data))
        except InvalidId as error:
            self.fail("invalid", reason=str(error))

    def _within(self, value: int) -> int:
        if value < max(self.min_value, 1):
            self.fail("min_value", min_value=max(self.min_value, 1))
        if value > min(self.max_value, MAX_ID):
            self.fail("max_value", max_value=min(self.max_value, MAX_ID))
        return value


def note_model(field: serializers.Field[Any, Any, Any, Any], instance: object) -> None:
    """Keep in mind of which model ``field`` shows instances: a plain serializer can't say.

    Of rows of several models, each is written by its own.
    """
    noted, kind = field.__dict__, type(instance)
    if noted.get(SHOWN) is kind:
        return
    noted[SHOWN] = kind
    for each in (field, noted.get("child_relation")):
        if each is not None:
            each.__dict__.pop(FOUND, None)
            each.__dict__.pop(DERIVED, None)


def id_of(field: serializers.Field[Any, Any, Any, Any]) -> GeneratedOnSave | None:
    """The model field of ours that the source of ``field`` leads to, as far as is known."""
    kept = field.__dict__
    if FOUND not in kept:
        owner = _owner(field)
        model = model_said_by(field) or owner.__dict__.get(SHOWN)
        if model is None or not hasattr(owner, "source_attrs"):
            return None
        kept[FOUND] = id_behind(model, tuple(owner.source_attrs))
    found: GeneratedOnSave | None = kept[FOUND]
    return found


def model_said_by(field: serializers.Field[Any, Any, Any, Any]) -> type[models.Model] | None:
    """The ``Meta.model`` of the serializer, which counts for whatever rows it shows."""
    return getattr(getattr(_owner(field).parent, "Meta", None), "model", None)


def _owner(field: Any) -> Any:
    """What the serializer has under a name: ``field``, or the list that it is the child of."""
    while isinstance(field.parent, serializers.ManyRelatedField | serializers.ListField):
        field = field.parent
    return field

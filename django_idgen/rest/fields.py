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
from ..generated import GeneratedOnSave
from ..relations import id_behind, written

__all__ = ["IdField"]


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
        if self._text is None:
            known = id_of(self)
            if known is None:
                return DECIMAL
            self._text = known.text
        return self._text

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
    """Keep in mind of which model ``field`` shows instances: a plain serializer can't say."""
    noted = field.__dict__
    if "_idgen_model" not in noted and isinstance(instance, models.Model):
        noted["_idgen_model"] = type(instance)


def id_of(field: serializers.Field[Any, Any, Any, Any]) -> GeneratedOnSave | None:
    """The model field of ours that the source of ``field`` leads to, as far as is known."""
    kept = field.__dict__
    if "_idgen_id" not in kept:
        where = _source(field)
        if where is None:
            return None
        kept["_idgen_id"] = id_behind(*where)
    found: GeneratedOnSave | None = kept["_idgen_id"]
    return found


def _source(
    field: serializers.Field[Any, Any, Any, Any],
) -> tuple[type[models.Model], tuple[str, ...]] | None:
    owner: Any = field
    while isinstance(owner.parent, serializers.ManyRelatedField | serializers.ListField):
        owner = owner.parent
    meta = getattr(owner.parent, "Meta", None)
    model = getattr(meta, "model", None) or owner.__dict__.get("_idgen_model")
    if model is None or not hasattr(owner, "source_attrs"):
        return None
    return model, tuple(owner.source_attrs)

"""django-ninja: ids as strings in JSON, in schemas of models and in your own.

::

    from django_idgen.strings.ninja import Id, id_type

    @api.get("/orders/{order_id}")
    def order(request, order_id: Id): ...          # an int, read from a string or a number

    OrderId = id_type("base62", prefix="ord_")     # "ord_0ISQUWhLyEa"

``ModelSchema`` and ``create_schema`` pick the type for this app's fields, and for keys to them, in
the field's form. For numbers declare ``id: int`` in the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from django.db import models
from ninja.orm import factory, fields
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from ..fields.base import GeneratedOnSave, id_held_by
from ..fields.relations import text_form as form_of
from ..fields.relations import written
from .registration import Hooks

if TYPE_CHECKING:
    from ..fields.relations import IdTarget


@dataclass(frozen=True)
class IdText:
    """Makes pydantic's ``int`` an id: ``Annotated[int, IdText(TextForm())]``.

    It reads a string in the form, decimal digits if the form allows them, or an integer. In a
    response and in JSON it is a string; in ``model_dump()`` an ``int``.
    """

    text: TextForm

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self._read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._write, info_arg=True
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.text.pattern}$"}

    def _read(self, value: Any, info: core_schema.ValidationInfo) -> int:
        if isinstance(value, models.Model):  # of a many-to-many relation
            value = value.pk
        if _is_answer(info) and type(value) is int:
            return value  # show a stored key even if it is no id
        try:
            return self.text.read(value)
        except InvalidId as error:
            raise PydanticCustomError("id", "{reason}", {"reason": str(error)}) from error

    def _write(self, value: Any, info: core_schema.SerializationInfo) -> Any:
        return written(self.text, value) if info.mode == "json" or _is_answer(info) else value


def _is_answer(info: Any) -> bool:
    """Whether ninja is making a response, which it notes in pydantic's context."""
    return "response_status" in (info.context or ())


def id_type(text_form: str | IdTarget = "decimal", prefix: str = "") -> Any:
    """The type of ids in ``text_form``, after ``prefix``.

    ``text_form``: the name of a form, a model, a field or a :class:`TextForm`. Raises
    :class:`ConfigurationError` for an unknown form.
    """
    if isinstance(text_form, str):
        return Annotated[int, IdText(TextForm(text_form, prefix))]
    return Annotated[int, IdText(form_of(text_form))]


Id = Annotated[int, IdText(DECIMAL)]
"""An id in decimal digits."""


def adopt() -> None:
    """Make ninja's schemas of models treat ids as strings. Idempotent.

    Ninja's ``register_field`` can't: it goes by the type of the column, which is any integer's.
    """
    HOOKS.put()


def release() -> None:
    """Undo :func:`adopt`, for tests. Existing schemas keep their types."""
    HOOKS.release()


def _typing(original: Callable[..., Any]) -> Callable[..., Any]:
    def get_schema_field(field: Any, *, depth: int = 0, **options: Any) -> Any:
        kind, info = original(field, depth=depth, **options)
        found = None if field.is_relation and depth > 0 else id_held_by(field)
        return (kind, info) if found is None else _typed(field, found, kind, info)

    return get_schema_field


def _typed(field: Any, found: GeneratedOnSave, kind: Any, info: FieldInfo) -> tuple[Any, FieldInfo]:
    typed = id_type(found)
    if field.one_to_many or field.many_to_many:
        typed = list[typed]  # type: ignore[valid-type]
    if field is found:  # optional, since save() makes it
        return typed | None, _optional(info)
    return (typed | None if type(None) in get_args(kind) else typed), info


def _optional(info: FieldInfo) -> FieldInfo:
    """``info`` with None as default, which ninja would take from the model's field."""
    return FieldInfo(
        default=None,
        alias=info.alias,
        validation_alias=info.validation_alias,
        serialization_alias=info.serialization_alias,
        title=info.title,
        description=info.description,
    )


HOOKS = Hooks(
    (fields, "get_schema_field", _typing),
    (factory, "get_schema_field", _typing),  # which has imported it
)

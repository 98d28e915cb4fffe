"""django-ninja: ids as strings in JSON, in schemas of models and in the user's own.

::

    from django_idgen.strings.ninja import Id, id_type

    @api.get("/orders/{order_id}")
    def order(request, order_id: Id): ...          # an int, read from a string or a number

    OrderId = id_type("base62", prefix="ord_")     # "ord_0ISQUWhLyEa"

``ModelSchema`` and ``create_schema`` pick the type for this app's fields, and for keys to
them, in the form that the field has. ``id: int`` in a schema asks for numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

from django.db import models
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from ..fields.base import GeneratedOnSave
from ..fields.relations import id_held_by, written
from ..fields.relations import text_form as form_of
from .registration import Hooks

if TYPE_CHECKING:
    from ..fields.relations import IdTarget

__all__ = ["Id", "IdText", "adopt", "id_type", "release"]


@dataclass(frozen=True)
class IdText:
    """Makes pydantic's ``int`` an id: ``Annotated[int, IdText(TextForm())]``.

    It reads a string in the form, decimal digits where the form allows them, or a number,
    but no float or bool. In a response and in JSON it is a string; ``model_dump()`` of what
    was read has the ``int``.
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
            return value  # a stored key is shown, even one that is no id
        try:
            return self.text.read(value)
        except InvalidId as error:
            raise PydanticCustomError("id", "{reason}", {"reason": str(error)}) from error

    def _write(self, value: Any, info: core_schema.SerializationInfo) -> Any:
        return written(self.text, value) if info.mode == "json" or _is_answer(info) else value


def _is_answer(info: Any) -> bool:
    """Whether ninja is making a response: it says so in pydantic's context."""
    return "response_status" in (info.context or ())


def id_type(text_form: str | IdTarget = "decimal", prefix: str = "") -> Any:
    """The type of ids that are written in ``text_form``, after ``prefix``.

    Instead of a form's name it takes a model, a field or a :class:`TextForm`. Raises
    :class:`ConfigurationError` for an unknown form.
    """
    if isinstance(text_form, str):
        return Annotated[int, IdText(TextForm(text_form, prefix))]
    return Annotated[int, IdText(form_of(text_form))]


Id = Annotated[int, IdText(DECIMAL)]
"""An id in decimal digits."""


def adopt() -> None:
    """Have ninja's schemas of models treat ids as strings. Idempotent.

    Its own ``register_field`` goes by the kind of the column, which is that of any integer.
    """
    from ninja.orm import factory, fields

    if not _hooks:
        places = (fields, factory)  # the latter has it under a name of its own
        _hooks.append(Hooks(*((place, "get_schema_field", _typing) for place in places)))
    _hooks[0].put()


def release() -> None:
    """Undo :func:`adopt`, for tests. Schemas that were made keep what they have."""
    for hooks in _hooks:
        hooks.release()


_hooks: list[Hooks] = []


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
    if field is found:  # made when the row is saved, unless it was given
        return typed | None, _optional(info)
    return (typed | None if type(None) in get_args(kind) else typed), info


def _optional(info: FieldInfo) -> FieldInfo:
    """Without the value that ninja takes for a default: the field has none yet."""
    return FieldInfo(
        default=None,
        alias=info.alias,
        validation_alias=info.validation_alias,
        serialization_alias=info.serialization_alias,
        title=info.title,
        description=info.description,
    )

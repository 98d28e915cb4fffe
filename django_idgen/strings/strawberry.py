"""Ids as texts in strawberry-django, of type ``ID``.

:func:`adopt` adds the fields of this app to its maps of types. It replaces the method that
resolves a field of a model, and the functions that make and read global ids and cursors. A number
that a resolver of the user's own returns for a field of type ``ID`` becomes the text, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import isawaitable
from typing import Any

import strawberry
from django.db.models import Model
from strawberry import relay
from strawberry.types.base import StrawberryContainer
from strawberry.types.fields.resolver import StrawberryResolver
from strawberry_django.fields.field import StrawberryDjangoField
from strawberry_django.fields.types import DjangoModelType, field_type_map, relay_field_type_map
from strawberry_django.relay import cursor_connection
from strawberry_django.utils.typing import get_django_definition

from .. import fields
from ..core.encoding import TextForm
from ..fields.base import GeneratedOnSave, id_held_by
from ..fields.relations import id_behind, written
from .registration import Hooks

Method = Callable[..., Any]
AUTO = fields.SnowflakeAutoField, fields.SegmentAutoField


def _id_at(model: Any, path: str) -> GeneratedOnSave | None:
    """The field of this app whose ids ``path`` leads to from ``model``; None for other values."""
    return id_behind(model, tuple(path.split("__")))


def _shown(text: TextForm, value: Any) -> Any:
    """``value`` as a text; later, if it is awaited."""
    if isawaitable(value):

        async def later() -> Any:
            return _shown(text, await value)

        return later()
    return written(text, value) if type(value) is int else value


def _is_id(field: StrawberryDjangoField) -> bool:
    kind: Any = field.type
    while isinstance(kind, StrawberryContainer):
        kind = kind.of_type
    return kind is strawberry.ID


def _getting(original: Method) -> Method:
    def get_result(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        value = original(self, source, *args, **kwargs)
        if not isinstance(source, Model) or (self.base_resolver is not None and not _is_id(self)):
            return value
        held = _id_at(type(source), self.django_name or self.python_name)
        return value if held is None else _shown(held.text, value)

    return get_result


def _identifying(original: Method) -> Method:
    def resolve_model_id(source: Any, root: Any, **kwargs: Any) -> Any:
        held = _id_at(type(root), source.resolve_id_attr())
        value = original(source, root, **kwargs)
        if held is None:
            return value
        # It is read as digits, or later as a number.
        return _shown(held.text, int(value) if isinstance(value, str) else value)

    return resolve_model_id


def _finding(original: Method) -> Method:
    def resolve_model_nodes(
        source: Any, *, node_ids: Iterable[Any] | None = None, **kwargs: Any
    ) -> Any:
        if node_ids is not None and not issubclass(source, Model):
            model = get_django_definition(source, strict=True).model
            held = _id_at(model, source.resolve_id_attr())
            if held is not None:  # the original finds rows by their numbers
                plain = (i.node_id if isinstance(i, relay.GlobalID) else i for i in node_ids)
                node_ids = [held.to_python(each) for each in plain]
        return original(source, node_ids=node_ids, **kwargs)

    return resolve_model_nodes


def _pointing(original: Method) -> Method:
    def extract(model: Any, expr: Any, attname: str) -> str | None:
        value: str | None = original(model, expr, attname)
        held = id_held_by(expr.output_field)
        return value if held is None or value is None else written(held.text, int(value))

    return extract


def _key(root: Any) -> strawberry.ID:
    held = _id_at(type(root), "pk")
    return strawberry.ID(root.pk if held is None else written(held.text, root.pk))


def _resolving_keys(definition: Any) -> Any:
    """The type of a related row that has no type of its own."""
    (field,) = definition.fields
    field.base_resolver = StrawberryResolver(_key)
    return definition


TYPES = import_module("strawberry_django.type")  # the package has a function of that name
HOOKS = Hooks(
    (StrawberryDjangoField, "get_result", _getting),
    (TYPES, "resolve_model_id", _identifying),
    (TYPES, "resolve_model_nodes", _finding),
    (cursor_connection, "_extract_expression_value", _pointing),
    (DjangoModelType, "__strawberry_definition__", _resolving_keys),
)


def adopt() -> None:
    """Make strawberry-django treat ids as texts. Idempotent. Call it before types are defined."""
    for kind in (fields.SnowflakeField, fields.SegmentIdField, *AUTO):
        field_type_map[kind] = strawberry.ID
    for kind in AUTO:
        relay_field_type_map[kind] = relay.GlobalID
    HOOKS.put()

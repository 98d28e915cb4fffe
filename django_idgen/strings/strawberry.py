"""Ids as texts in strawberry-django, of type ``ID``.

:func:`adopt` adds the fields of this app to its maps of types. It replaces the method that
resolves a field of a model, and the function that makes the global id of a node. A number that a
resolver of the user's own returns becomes the text, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from inspect import isawaitable
from typing import Any

import strawberry
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Model
from strawberry import relay
from strawberry_django.fields.field import StrawberryDjangoField
from strawberry_django.fields.types import field_type_map, relay_field_type_map

from .. import fields
from ..core.encoding import TextForm
from ..fields.base import id_held_by
from ..fields.relations import written
from .registration import Hooks

Method = Callable[..., Any]
AUTO = fields.SnowflakeAutoField, fields.SegmentAutoField


@lru_cache(maxsize=4096)
def _text_of(model: Any, name: str) -> TextForm | None:
    """The text form of the ids in a field of ``model``; None for any other attribute."""
    meta = model._meta
    try:
        field = meta.pk if name == "pk" else meta.get_field(name)
    except FieldDoesNotExist:
        return None
    held = id_held_by(field)
    return None if held is None else held.text


def _shown(text: TextForm, value: Any) -> Any:
    """``value`` as a text; later, if it is awaited."""
    if isawaitable(value):

        async def later() -> Any:
            return _shown(text, await value)

        return later()
    return written(text, value) if type(value) is int else value


def _getting(original: Method) -> Method:
    def get_result(self: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        value = original(self, source, *args, **kwargs)
        if not isinstance(source, Model):
            return value
        text = _text_of(type(source), self.django_name or self.python_name)
        return value if text is None else _shown(text, value)

    return get_result


def _identifying(original: Method) -> Method:
    def resolve_model_id(source: Any, root: Any, **kwargs: Any) -> Any:
        model: Any = type(root)
        text = _text_of(model, source.resolve_id_attr())
        value = original(source, root, **kwargs)
        if text is None:
            return value
        # It is read as digits, or later as a number.
        return _shown(text, int(value) if isinstance(value, str) else value)

    return resolve_model_id


HOOKS = Hooks(
    (StrawberryDjangoField, "get_result", _getting),
    # The package has a function of that name.
    (import_module("strawberry_django.type"), "resolve_model_id", _identifying),
)


def adopt() -> None:
    """Make strawberry-django treat ids as texts. Idempotent. Call it before types are defined."""
    for kind in (fields.SnowflakeField, fields.SegmentIdField, *AUTO):
        field_type_map[kind] = strawberry.ID
    for kind in AUTO:
        relay_field_type_map[kind] = relay.GlobalID
    HOOKS.put()

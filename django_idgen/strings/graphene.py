"""Ids as texts in graphene-django, of type ``ID``.

:func:`adopt` registers the fields of this app with its converter of fields, and replaces
``DjangoObjectType.resolve_id()``, which global ids are made from. A resolver of the user's own is
called as before; a number that it returns becomes the text.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from graphene import ID, Field
from graphene_django.converter import convert_django_field
from graphene_django.types import DjangoObjectType

from ..core.encoding import TextForm
from ..fields.base import GeneratedOnSave
from ..fields.relations import key_behind, written
from .registration import Hooks

Method = Callable[..., Any]


class IdText(Field):  # type: ignore[misc]
    """A field of type ``ID`` that writes an int in a text form."""

    def __init__(self, text: TextForm, **kwargs: Any) -> None:
        super().__init__(ID, **kwargs)
        self.text = text

    def wrap_resolve(self, parent_resolver: Method) -> Method:
        resolver: Method = super().wrap_resolve(parent_resolver)

        async def later(value: Any) -> Any:
            return self._shown(await value)

        def resolve(*args: Any, **kwargs: Any) -> Any:
            value = resolver(*args, **kwargs)
            return later(value) if isawaitable(value) else self._shown(value)

        return resolve

    def _shown(self, value: Any) -> Any:
        return written(self.text, value) if type(value) is int else value


def _convert(field: GeneratedOnSave, _registry: object = None) -> IdText:
    description = str(field.help_text) or None
    return IdText(field.text, description=description, required=not field.null)


def _resolving(original: Method) -> Method:
    def resolve_id(self: Any, info: Any) -> Any:
        value = original(self, info)
        key = key_behind(type(self))
        return value if key is None or type(value) is not int else written(key.text, value)

    return resolve_id


HOOKS = Hooks((DjangoObjectType, "resolve_id", _resolving))


def adopt() -> None:
    """Make graphene-django treat ids as texts. Idempotent. Call it before types are defined."""
    convert_django_field.register(GeneratedOnSave, _convert)
    HOOKS.put()

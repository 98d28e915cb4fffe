"""Ids as texts in djangorestframework-jsonapi.

It writes the key of a row without a serializer's field, so what Django REST framework learned in
:mod:`.drf` doesn't reach it. :func:`adopt` replaces a few of its functions. Each replacement calls
the original, and changes nothing where the key is no id of this app.

======================================  ====================================================
``get_resource_id()``                   a resource's own ``"id"``
``JSONRenderer``                        relationships by Django REST framework's own fields
``ResourceRelatedField``                rows that a method of the serializer returns
``HyperlinkedMixin``                    links of relationships
``ResourceIdentifierObjectSerializer``  what the views of relationships write and read
======================================  ====================================================
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from rest_framework_json_api import relations, renderers, serializers, utils

from ..core.errors import InvalidId
from ..fields.relations import id_behind, key_behind, written
from .registration import Hooks

Method = Callable[..., Any]


def adopt() -> None:
    """Make djangorestframework-jsonapi treat ids as strings. Idempotent."""
    HOOKS.put()


def _key_of(row: Any) -> str | None:
    """The text of the key of ``row``; None if it is no row, has no key, or another kind of key."""
    key = key_behind(type(row))
    text: str | None = None if key is None else written(key.text, row.pk)
    return text


def _identifying(original: Method) -> Method:
    def get_resource_id(resource_instance: Any, resource: Any) -> Any:
        if not resource or "id" not in resource:
            text = _key_of(resource_instance)
            if text is not None:
                return text
        return original(resource_instance, resource)

    return get_resource_id


def _relating(original: Any) -> Any:
    def extract_relationships(cls: Any, fields: Any, resource: Any, resource_instance: Any) -> Any:
        found = original.__func__(cls, fields, resource, resource_instance)
        model: type[Model] = type(resource_instance)
        for name, field in fields.items() if found else ():
            many = getattr(field, "child_relation", field)
            if isinstance(many, relations.ResourceRelatedField):
                continue  # its data is what the field wrote
            shown = found.get(utils.format_field_name(name)) or {}
            key = id_behind(model, tuple((field.source or "").split(".")))
            if key is None or not shown.get("data"):
                continue
            data = shown["data"]
            for each in data if isinstance(data, list) else [data]:
                with suppress(ValueError):  # set by hand on the instance: a text already
                    each["id"] = written(key.text, int(each["id"]))
        return found

    return classmethod(extract_relationships)


def _related(original: Method) -> Method:
    def get_resource_id(self: Any, value: Any) -> Any:
        text = _key_of(value)  # None for the key alone: the field knows its model
        return original(self, value) if text is None else text

    return get_resource_id


def _linking(original: Method) -> Method:
    def get_links(self: Any, obj: Any = None, lookup_field: str = "pk") -> Any:
        found = id_behind(type(obj), (lookup_field,)) if isinstance(obj, Model) else None
        if found is not None and not found.text.is_plain:
            text = written(found.text, getattr(obj, lookup_field))
            try:
                return original(self, SimpleNamespace(**{lookup_field: text}), lookup_field)
            except ImproperlyConfigured:
                pass  # such as <int:pk>
        return original(self, obj, lookup_field)

    return get_links


def _writing(original: Method) -> Method:
    def to_representation(self: Any, instance: Any) -> Any:
        shown = original(self, instance)
        text = _key_of(instance)
        return shown if text is None else {**shown, "id": text}

    return to_representation


def _reading(original: Method) -> Method:
    def to_internal_value(self: Any, data: Any) -> Any:
        key = key_behind(self.model_class)
        if key is not None:
            try:
                data = {**data, "id": key.text.read(str(data["id"]))}
            except InvalidId:
                self.fail("does_not_exist", pk_value=data["id"])
        return original(self, data)

    return to_internal_value


_Identifier = serializers.ResourceIdentifierObjectSerializer
HOOKS = Hooks(
    (renderers, "get_resource_id", _identifying),
    (renderers.JSONRenderer, "extract_relationships", _relating),
    (relations.ResourceRelatedField, "get_resource_id", _related),
    (relations.HyperlinkedMixin, "get_links", _linking),
    (_Identifier, "to_representation", _writing),
    (_Identifier, "to_internal_value", _reading),
)

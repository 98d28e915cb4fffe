"""Ids as strings in serializers that don't say so.

``ModelSerializer`` looks :class:`IdField` up in its mapping, as for any field. The
other classes have no such place, and users name them in their serializers: so what is
replaced are a few methods of theirs, each of which goes on to the original where no id of
ours is at hand. Subclasses that override these methods keep their own way.

=============================  =============================================================
``ModelSerializer``            picks ``IdField``, also with a mapping of the user's own
``PrimaryKeyRelatedField``     gets a ``pk_field`` (DRF's own option) where none was given
``SlugRelatedField``           reads and writes the text where the slug is an id
``HyperlinkedRelatedField``    puts the text into the URL where the form isn't decimal
``ReadOnlyField``              writes the text: that is what ``fields = ["order_id"]`` makes
=============================  =============================================================

``IDGEN["REST"]["strings"] = False`` switches all of it off.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from django.db import models
from django.urls import NoReverseMatch
from rest_framework import serializers
from rest_framework.relations import ManyRelatedField

from ..core.errors import InvalidId
from ..fields.base import GeneratedOnSave
from ..fields.relations import id_behind, key_behind, written
from .drf_fields import DERIVED, FOUND, SHOWN, IdField, id_of, model_said_by, note_model
from .hooks import Hooks

__all__ = ["adopt", "release"]

Method = Callable[..., Any]


def adopt() -> None:
    """Have the classes of Django REST framework treat ids as strings. Idempotent."""
    serializers.ModelSerializer.serializer_field_mapping[GeneratedOnSave] = IdField
    HOOKS.put()


def release() -> None:
    """Undo :func:`adopt`, for tests. Serializers that were built keep what they have."""
    serializers.ModelSerializer.serializer_field_mapping.pop(GeneratedOnSave, None)
    HOOKS.release()


# --- fields of models ------------------------------------------------------------


def _building(original: Method) -> Method:
    def build_standard_field(self: Any, field_name: str, model_field: Any) -> Any:
        field_class, kwargs = original(self, field_name, model_field)
        if not isinstance(model_field, GeneratedOnSave):
            return field_class, kwargs
        if field_class in PLAIN and not _names_ours(self.serializer_field_mapping, model_field):
            field_class = IdField
        if issubclass(field_class, IdField):
            _say_form(kwargs, model_field)
        return field_class, kwargs

    return build_standard_field


PLAIN = (serializers.IntegerField, getattr(serializers, "BigIntegerField", None))
"""What an integer's column gets by a mapping that doesn't know of ours."""


def _names_ours(mapping: dict[Any, Any], model_field: GeneratedOnSave) -> bool:
    """Whether a mapping has a class of ours: not if the user copied it before we came."""
    kinds = type(model_field).__mro__
    return any(issubclass(kind, GeneratedOnSave) and kind in mapping for kind in kinds)


def _say_form(kwargs: dict[str, Any], model_field: GeneratedOnSave) -> None:
    # The field may be used without the serializer, as drf-spectacular does for a path.
    if not model_field.text.is_plain:
        kwargs["text_form"] = model_field.text_form
        kwargs["prefix"] = model_field.prefix


# --- relations -------------------------------------------------------------------


class DerivedPkField:
    """``PrimaryKeyRelatedField.pk_field``: the one that was given, or ours for ids of ours."""

    def __get__(self, field: Any, owner: type | None = None) -> Any:
        if field is None:
            return None
        kept = field.__dict__
        given = kept.get("pk_field")
        if given is not None:
            return given
        return kept[DERIVED] if DERIVED in kept else _derived(field)

    def __set__(self, field: Any, value: Any) -> None:
        field.__dict__["pk_field"] = value


def _derived(field: Any) -> IdField | None:
    key = _key_of_relation(field)
    made = None if key is None else IdField(text_form=key.text_form, prefix=key.prefix)
    if _target(field) is not None or FOUND in field.__dict__:
        field.__dict__[DERIVED] = made  # None, too: that is what most relations have
    return made


def _key_of_relation(field: Any) -> GeneratedOnSave | None:
    """The key of ours that a relation refers to, as far as is known without a query."""
    model = _target(field)
    return id_of(field) if model is None else key_behind(model)


def _target(field: Any) -> Any:
    """The model that a relation says it refers to. What DRF takes for a queryset may have none."""
    return getattr(field.queryset, "model", None) or field.__dict__.get("_idgen_target")


def _noting_model(original: Method) -> Method:
    def get_attribute(self: Any, instance: Any) -> Any:
        if self.__dict__.get(SHOWN) is not type(instance):
            note_model(self, instance)
            if model_said_by(self) is not None:
                _retire(self, get_attribute, original)
        return original(self, instance)

    return get_attribute


def _retire(field: Any, ours: Method, original: Method) -> None:
    """Have ``field`` go to the original at once, from the next row on: there is nothing to do."""
    name = original.__name__
    if getattr(type(field), name) is ours:
        field.__dict__[name] = MethodType(original, field)


def _reading_pk(original: Method) -> Method:
    def to_internal_value(self: Any, data: Any) -> Any:
        if self.queryset is None:  # get_queryset() is the user's, and called in any case
            self.__dict__["_idgen_target"] = getattr(self.get_queryset(), "model", None)
            self.__dict__.pop(DERIVED, None)
        return original(self, data)

    return to_internal_value


def _writing_slug(original: Method) -> Method:
    def to_representation(self: Any, obj: Any) -> Any:
        value = original(self, obj)
        kind = type(obj)
        seen = self.__dict__.get("_idgen_slug")
        if seen is None or seen[0] is not kind:
            seen = self.__dict__["_idgen_slug"] = kind, _slug(kind, self.slug_field)
        return value if seen[1] is None else written(seen[1].text, value)

    return to_representation


def _reading_slug(original: Method) -> Method:
    def to_internal_value(self: Any, data: Any) -> Any:
        rows = self.get_queryset() if self.queryset is None else self.queryset
        found = _slug(getattr(rows, "model", None), self.slug_field)
        if found is not None:
            try:
                data = found.text.read(data)
            except InvalidId:
                self.fail("invalid")
        return original(self, data)

    return to_internal_value


def _slug(model: Any, slug_field: str) -> GeneratedOnSave | None:
    # What is shown need not be a model's instance.
    return id_behind(model, tuple(slug_field.split("__")))


def _linking(original: Method) -> Method:
    def get_url(self: Any, obj: Any, view_name: str, request: Any, format: Any) -> Any:  # noqa: A002
        found = _looked_up(self, type(obj))
        plain = found is None or found.text.is_plain
        value = None if plain else getattr(obj, self.lookup_field, None)
        if found is not None and value is not None:
            kwargs = {self.lookup_url_kwarg: written(found.text, value)}
            try:
                return self.reverse(view_name, kwargs=kwargs, request=request, format=format)
            except NoReverseMatch:
                pass  # such as <int:pk>
        return original(self, obj, view_name, request, format)

    return get_url


def _looked_up(field: Any, kind: type) -> GeneratedOnSave | None:
    if issubclass(kind, models.Model):
        return id_behind(kind, (field.lookup_field,))
    return _key_of_relation(field) if field.lookup_field == "pk" else None  # only a key is known


def _writing_property(original: Method) -> Method:
    def get_attribute(self: Any, instance: Any) -> Any:
        value = original(self, instance)
        if type(value) is not int:
            return value
        kept = self.__dict__
        if kept.get(SHOWN) is not type(instance):
            note_model(self, instance)
            if id_of(self) is None and model_said_by(self) is not None:
                _retire(self, get_attribute, original)
        found = kept[FOUND] if FOUND in kept else id_of(self)
        return value if found is None else written(found.text, value)

    return get_attribute


HOOKS = Hooks(
    (serializers.ModelSerializer, "build_standard_field", _building),
    (serializers.PrimaryKeyRelatedField, "pk_field", lambda _: DerivedPkField()),
    (serializers.PrimaryKeyRelatedField, "get_attribute", _noting_model),
    (serializers.PrimaryKeyRelatedField, "to_internal_value", _reading_pk),
    (ManyRelatedField, "get_attribute", _noting_model),
    (serializers.SlugRelatedField, "to_representation", _writing_slug),
    (serializers.SlugRelatedField, "to_internal_value", _reading_slug),
    (serializers.HyperlinkedRelatedField, "get_url", _linking),
    (serializers.ReadOnlyField, "get_attribute", _writing_property),
)

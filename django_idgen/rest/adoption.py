"""Ids as strings in serializers that don't say so.

``ModelSerializer`` looks :class:`~.fields.IdField` up in its mapping, as for any field. The
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
from typing import Any

from django.urls import NoReverseMatch
from rest_framework import serializers
from rest_framework.relations import ManyRelatedField

from ..core.errors import InvalidId
from ..generated import GeneratedOnSave
from ..relations import id_behind, key_behind, written
from .fields import IdField, id_of, note_model
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
        given = field.__dict__.get("pk_field")
        if given is None:
            key = _key_of_relation(field)
            given = key and _pk_field(key)
            if given is not None:
                field.__dict__["pk_field"] = given
        return given

    def __set__(self, field: Any, value: Any) -> None:
        field.__dict__["pk_field"] = value


def _pk_field(key: GeneratedOnSave) -> IdField:
    return IdField(text_form=key.text_form, prefix=key.prefix)


def _key_of_relation(field: Any) -> GeneratedOnSave | None:
    """The key of ours that a relation refers to, as far as is known without a query."""
    model = getattr(field.queryset, "model", None) or field.__dict__.get("_idgen_target")
    return id_of(field) if model is None else key_behind(model)


def _noting_model(original: Method) -> Method:
    def get_attribute(self: Any, instance: Any) -> Any:
        note_model(self, instance)
        return original(self, instance)

    return get_attribute


def _reading_pk(original: Method) -> Method:
    def to_internal_value(self: Any, data: Any) -> Any:
        if self.queryset is None:  # get_queryset() is the user's, and called in any case
            self.__dict__["_idgen_target"] = self.get_queryset().model
        return original(self, data)

    return to_internal_value


def _writing_slug(original: Method) -> Method:
    def to_representation(self: Any, obj: Any) -> Any:
        value = original(self, obj)
        found = _slug(type(obj), self.slug_field)
        return value if found is None else written(found.text, value)

    return to_representation


def _reading_slug(original: Method) -> Method:
    def to_internal_value(self: Any, data: Any) -> Any:
        found = _slug(self.get_queryset().model, self.slug_field)
        if found is not None:
            try:
                data = found.text.read(data)
            except InvalidId:
                self.fail("invalid")
        return original(self, data)

    return to_internal_value


def _slug(model: Any, slug_field: str) -> GeneratedOnSave | None:
    # What is shown need not be a model's instance.
    return id_behind(model, tuple(slug_field.split("__"))) if hasattr(model, "_meta") else None


def _linking(original: Method) -> Method:
    def get_url(self: Any, obj: Any, view_name: str, request: Any, format: Any) -> Any:  # noqa: A002
        found = _looked_up(self, type(obj))
        value = getattr(obj, self.lookup_field, None)
        if found is not None and not found.text.is_plain and value is not None:
            kwargs = {self.lookup_url_kwarg: written(found.text, value)}
            try:
                return self.reverse(view_name, kwargs=kwargs, request=request, format=format)
            except NoReverseMatch:
                pass  # such as <int:pk>
        return original(self, obj, view_name, request, format)

    return get_url


def _looked_up(field: Any, kind: type) -> GeneratedOnSave | None:
    if hasattr(kind, "_meta"):
        return id_behind(kind, (field.lookup_field,))
    return _key_of_relation(field) if field.lookup_field == "pk" else None  # only a key is known


def _writing_property(original: Method) -> Method:
    def get_attribute(self: Any, instance: Any) -> Any:
        note_model(self, instance)
        value = original(self, instance)
        if type(value) is not int:
            return value
        found = id_of(self)
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

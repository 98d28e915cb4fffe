"""Ids as strings in Django REST framework, in declared fields and in all others.

Ids are written as strings, and read as strings or numbers. JavaScript reads every number as a
double, which is exact up to 2**53 only: a 63-bit id sent as a JSON number arrives as another one.

``ModelSerializer`` finds :class:`IdField` in its mapping. The other classes have no mapping, so
:func:`adopt` replaces a few of their methods. Each replacement calls the original for fields
without an id of this app. Subclasses that override these methods keep their behaviour.

=============================  =============================================================
``ModelSerializer``            picks ``IdField``, also with a mapping of the user's own
``PrimaryKeyRelatedField``     gets a ``pk_field`` (DRF's own option) if none was given
``SlugRelatedField``           reads and writes the text if the slug is an id
``HyperlinkedRelatedField``    puts the text into the URL if the form isn't decimal
``get_object()`` of views      refuses plain numbers for a scrambled id
``ReadOnlyField``              writes the text: ``fields = ["order_id"]`` makes one
=============================  =============================================================

``IDGEN["REST"]["strings"] = False`` switches all of this off, except for declared fields.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import models
from django.http import Http404
from django.urls import NoReverseMatch
from django.utils.translation import gettext_lazy as _
from rest_framework import generics, serializers
from rest_framework.relations import ManyRelatedField

from ..core.encoding import DECIMAL, TextForm
from ..core.errors import InvalidId
from ..core.segment import MAX_ID
from ..fields.base import GeneratedDefault, GeneratedOnSave, id_held_by
from ..fields.relations import id_behind, key_behind, written
from .registration import Hooks

Method = Callable[..., Any]

# Attributes that cache on a serializer field what one row tells about the next:
SHOWN = "_idgen_model"
"""The class of the last row."""
FOUND = "_idgen_id"
"""The id field of the source, or None."""
DERIVED = "_idgen_pk_field"
"""The ``pk_field`` of a relation."""


class IdField(serializers.Field[int, Any, str, Any]):
    """An id: an ``int`` in Python, a string in JSON; numbers are read as well.

    The model's field (found by the serializer's ``Meta.model`` and the field's ``source``) says how
    to write it: ``text_form=``, ``prefix=``, ``scramble=``. ``text_form`` (a name or a
    :class:`TextForm`) and ``prefix`` given here override that. Without a model they are needed to
    read a form other than decimal. ``min_value`` and ``max_value`` narrow down 1 to 2**63 - 1.

    Error codes: ``invalid``, ``min_value``, ``max_value``, besides those of every field.
    Raises :class:`~django_idgen.core.errors.ConfigurationError` for an unknown form.
    """

    default_error_messages = {  # noqa: RUF012
        "invalid": _("A valid id is required. {reason}"),
        "min_value": _("Ensure this value is greater than or equal to {min_value}."),
        "max_value": _("Ensure this value is less than or equal to {max_value}."),
    }

    def __init__(
        self,
        *,
        text_form: str | TextForm | None = None,
        prefix: str | None = None,
        min_value: int = 1,
        max_value: int = MAX_ID,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("read_only") and isinstance(kwargs.get("default"), GeneratedDefault):
            del kwargs["default"]  # ModelSerializer passes that of a field in a unique set
        self.min_value = min_value
        self.max_value = max_value
        self._text: TextForm | None = None
        if isinstance(text_form, TextForm):
            self._text = text_form
        elif text_form is not None or prefix is not None:
            self._text = TextForm(text_form or "decimal", prefix or "")
        super().__init__(**kwargs)

    @property
    def text(self) -> TextForm:
        """The text form of the ids."""
        if self._text is not None:
            return self._text
        known = id_of(self)
        if known is None:
            return DECIMAL
        if declared_model(self) is not None:
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
        whole = isinstance(data, int) and not isinstance(data, bool)
        if whole and self.text.takes_numbers:
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
    """Remember the model of ``instance``, since a plain serializer does not name one.

    In a list of several models each row is written as its own model says.
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
    """The id field that the source of ``field`` leads to; None also if no model is known yet."""
    kept = field.__dict__
    if FOUND not in kept:
        owner = _owner(field)
        model = declared_model(field) or owner.__dict__.get(SHOWN)
        if model is None or not hasattr(owner, "source_attrs"):
            return None
        kept[FOUND] = id_behind(model, tuple(owner.source_attrs))
    found: GeneratedOnSave | None = kept[FOUND]
    return found


def declared_model(field: serializers.Field[Any, Any, Any, Any]) -> type[models.Model] | None:
    """The ``Meta.model`` of the serializer. It counts for all rows."""
    return getattr(getattr(_owner(field).parent, "Meta", None), "model", None)


def _owner(field: Any) -> Any:
    """``field``, or the list field that it is the child of."""
    while isinstance(field.parent, serializers.ManyRelatedField | serializers.ListField):
        field = field.parent
    return field


# --- serializers that name no field ---------------------------------------------------


def adopt() -> None:
    """Make the classes of Django REST framework treat ids as strings. Idempotent."""
    serializers.ModelSerializer.serializer_field_mapping[GeneratedOnSave] = IdField
    HOOKS.put()


def release() -> None:
    """Undo :func:`adopt`, for tests. Existing serializers keep their fields."""
    serializers.ModelSerializer.serializer_field_mapping.pop(GeneratedOnSave, None)
    HOOKS.release()


# --- fields of models ------------------------------------------------------------


def _building(original: Method) -> Method:
    def build_standard_field(self: Any, field_name: str, model_field: Any) -> Any:
        field_class, kwargs = original(self, field_name, model_field)
        held = id_held_by(model_field)
        if held is None:
            return field_class, kwargs
        is_plain_column = not isinstance(model_field, GeneratedOnSave)
        has_field = _has_id_field(self.serializer_field_mapping, held)
        if field_class in PLAIN and (is_plain_column or not has_field):
            field_class = IdField
        if issubclass(field_class, IdField) and not held.text.is_plain:
            # The field may be used without its serializer, as drf-spectacular does for a path.
            kwargs["text_form"] = held.text
        return field_class, kwargs

    return build_standard_field


PLAIN = (serializers.IntegerField, getattr(serializers, "BigIntegerField", None))
"""The fields that a mapping without :class:`IdField` gives an integer column."""


def _has_id_field(mapping: dict[Any, Any], model_field: GeneratedOnSave) -> bool:
    """Whether a mapping has this app's fields. One copied before :func:`adopt` has not."""
    kinds = type(model_field).__mro__
    return any(issubclass(kind, GeneratedOnSave) and kind in mapping for kind in kinds)


# --- relations -------------------------------------------------------------------


class DerivedPkField:
    """``PrimaryKeyRelatedField.pk_field``: the one given, or an :class:`IdField`."""

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
    made = None if key is None else IdField(text_form=key.text)
    if _target(field) is not None or FOUND in field.__dict__:
        field.__dict__[DERIVED] = made  # also None, which most relations have
    return made


def _key_of_relation(field: Any) -> GeneratedOnSave | None:
    """This app's key that a relation refers to, if that is known without a query."""
    model = _target(field)
    return id_of(field) if model is None else key_behind(model)


def _target(field: Any) -> Any:
    """The model that a relation refers to, if its queryset has one."""
    return getattr(field.queryset, "model", None) or field.__dict__.get("_idgen_target")


def _noting_model(original: Method) -> Method:
    def get_attribute(self: Any, instance: Any) -> Any:
        if self.__dict__.get(SHOWN) is not type(instance):
            note_model(self, instance)
            if declared_model(self) is not None:
                _retire(self, get_attribute, original)
        return original(self, instance)

    return get_attribute


def _retire(field: Any, replacement: Method, original: Method) -> None:
    """Make ``field`` call the original from the next row on, since it shows no id."""
    name = original.__name__
    if getattr(type(field), name) is replacement:
        field.__dict__[name] = MethodType(original, field)


def _reading_pk(original: Method) -> Method:
    def to_internal_value(self: Any, data: Any) -> Any:
        if self.queryset is None:  # the original calls the user's get_queryset() anyway
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
    # ``model`` may be any class.
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


def _linked_row(original: Method) -> Method:
    def get_object(self: Any, view_name: str, view_args: Any, view_kwargs: Any) -> Any:
        found = _looked_up(self, getattr(self.get_queryset(), "model", object))
        given = view_kwargs.get(self.lookup_url_kwarg)
        if found is not None and _is_refused(found.text, given):
            raise ObjectDoesNotExist
        return original(self, view_name, view_args, view_kwargs)

    return get_object


def _looking_up(original: Method) -> Method:
    """The function by which views find the row of a URL."""

    def get_object_or_404(queryset: Any, *args: Any, **kwargs: Any) -> Any:
        for name, given in kwargs.items():
            found = id_behind(getattr(queryset, "model", None), tuple(name.split("__")))
            if found is not None and _is_refused(found.text, given):
                raise Http404
        return original(queryset, *args, **kwargs)

    return get_object_or_404


def _is_refused(text: TextForm, given: Any) -> bool:
    """Whether ``given`` is no id in this form. A URL converter has read an int already."""
    if text.takes_numbers or not isinstance(given, str):
        return False
    try:
        text.read(given)
    except InvalidId:
        return True
    return False


def _looked_up(field: Any, kind: type) -> GeneratedOnSave | None:
    if issubclass(kind, models.Model):
        return id_behind(kind, (field.lookup_field,))
    return _key_of_relation(field) if field.lookup_field == "pk" else None


def _writing_property(original: Method) -> Method:
    def get_attribute(self: Any, instance: Any) -> Any:
        value = original(self, instance)
        if type(value) is not int:
            return value
        kept = self.__dict__
        if kept.get(SHOWN) is not type(instance):
            note_model(self, instance)
            if id_of(self) is None and declared_model(self) is not None:
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
    (serializers.HyperlinkedRelatedField, "get_object", _linked_row),
    (generics, "get_object_or_404", _looking_up),
    (serializers.ReadOnlyField, "get_attribute", _writing_property),
)

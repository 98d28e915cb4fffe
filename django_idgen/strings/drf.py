"""Ids as strings in Django REST framework, in declared fields and in all others.

Ids are written as strings, and read as strings or numbers. JavaScript reads every number as a
double, which is exact up to 2**53 only: a 63-bit id sent as a JSON number arrives as another one.

``ModelSerializer`` picks :class:`IdField`, also with a mapping of the user's own. A field that a
serializer declares learns of ids when it is bound to its serializer, which knows its model:

=============================  =============================================================
``PrimaryKeyRelatedField``     gets a ``pk_field`` (DRF's own option) if none was given
``SlugRelatedField``           reads and writes the text if the slug is an id
``HyperlinkedRelatedField``    puts the text into the URL if the form isn't decimal
``ReadOnlyField``              writes the text: ``fields = ["order_id"]`` makes one
=============================  =============================================================

A plain serializer names no model, so its fields ask each row. The methods of a user's own fields
run as before. ``get_object()`` of views refuses plain numbers for a scrambled id.

``IDGEN["REST"]["strings"] = False`` switches all of this off, except for declared fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
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

Field = serializers.Field[Any, Any, Any, Any]
LISTS = (ManyRelatedField, serializers.ListField)
"""The fields that have a child."""


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
        self._shown: type = object  # the class of the last row, which a plain serializer shows
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
        declared = declared_model(self)
        known = id_behind(declared or self._shown, path_of(self))
        text = DECIMAL if known is None else known.text
        if declared is not None:
            self._text = text
        return text

    def get_attribute(self, instance: Any) -> Any:
        self._shown = type(instance)
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


def path_of(field: Field) -> tuple[str, ...]:
    """The way from a row to the value of ``field``; a name of no attribute before it is bound."""
    return tuple(getattr(_owner(field), "source_attrs", ("",)))


def declared_model(field: Field) -> type[models.Model] | None:
    """The ``Meta.model`` of the serializer. It counts for all rows."""
    return getattr(getattr(_owner(field).parent, "Meta", None), "model", None)


def _owner(field: Any) -> Any:
    """``field``, or the list field that it is the child of."""
    while isinstance(field.parent, LISTS):
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


# --- fields that a serializer declares ------------------------------------------------------


def _binding(original: Method) -> Method:
    def bind(self: Any, field_name: str, parent: Any) -> None:
        original(self, field_name, parent)
        inner = self
        while isinstance(inner, LISTS):
            inner = inner.child_relation if isinstance(inner, ManyRelatedField) else inner.child
        if isinstance(inner, TAUGHT) and _owner(inner) is self:
            next(teach for kind, teach in TEACH.items() if isinstance(inner, kind))(inner)

    return bind


def _teach_key(field: Any) -> None:
    """Find the ``pk_field`` now, or from the first row or value."""
    if field.pk_field is not None:
        return

    path = path_of(field)

    def learn(key: GeneratedOnSave | None) -> None:
        field.pk_field = None if key is None else _id_field(key.text)

    def learn_from(row: Any) -> None:
        if isinstance(row, models.Model):  # not the values of a form, say
            learn(id_behind(row.__class__, path))

    declared = declared_model(field)
    if _has_rows(field):
        learn(key_behind(field.queryset.model))
    elif declared is not None:
        learn(id_behind(declared, path))
    else:
        _before(_owner(field), "get_attribute", learn_from)
    if field.queryset is None and not field.read_only:  # a get_queryset() of the user's
        _before(field, "to_internal_value", lambda _: learn(key_behind(_model_of_rows(field))))


def _teach_slug(field: Any) -> None:
    path = tuple(field.slug_field.split("__"))
    write, read = field.to_representation, field.to_internal_value

    def to_representation(row: Any) -> Any:
        return _as_text(id_behind(row.__class__, path), write(row))

    def to_internal_value(data: Any) -> Any:
        found = id_behind(_model_of_rows(field), path)
        if found is not None:
            try:
                data = found.text.read(data)
            except InvalidId:
                field.fail("invalid")
        return read(data)

    field.to_representation, field.to_internal_value = to_representation, to_internal_value


def _teach_link(field: Any) -> None:
    get_url, get_object, reverse = field.get_url, field.get_object, field.reverse
    name = field.lookup_url_kwarg

    def looked_up(kind: type) -> GeneratedOnSave | None:
        if issubclass(kind, models.Model):
            return id_behind(kind, (field.lookup_field,))
        if field.lookup_field != "pk":
            return None
        # The row has the key alone.
        if _has_rows(field):
            return key_behind(field.queryset.model)
        return id_behind(declared_model(field) or object, path_of(field))

    def text_url(obj: Any, *args: Any, **kwargs: Any) -> Any:
        found = looked_up(type(obj))
        if found is None or found.text.is_plain:
            field.reverse = reverse
        else:
            field.reverse = partial(_reverse, reverse, name, found)
        return get_url(obj, *args, **kwargs)

    def object_of_text(view_name: str, view_args: Any, view_kwargs: Any) -> Any:
        found = looked_up(_model_of_rows(field))
        if found is not None and _is_refused(found.text, view_kwargs.get(name)):
            raise ObjectDoesNotExist
        return get_object(view_name, view_args, view_kwargs)

    field.get_url, field.get_object = text_url, object_of_text


def _reverse(
    original: Method, name: str, found: GeneratedOnSave, view_name: str, **options: Any
) -> Any:
    kwargs = options.pop("kwargs")
    if name in kwargs:
        try:
            texts = {**kwargs, name: _as_text(found, kwargs[name])}
            return original(view_name, kwargs=texts, **options)
        except NoReverseMatch:
            pass  # such as <int:pk>
    return original(view_name, kwargs=kwargs, **options)


def _teach_property(field: Any) -> None:
    declared, path = declared_model(field), path_of(field)
    if declared is not None and id_behind(declared, path) is None:
        return
    get_attribute = field.get_attribute

    def text_of(row: Any) -> Any:
        return _as_text(id_behind(declared or row.__class__, path), get_attribute(row))

    field.get_attribute = text_of


TEACH: dict[type, Callable[[Any], None]] = {
    serializers.PrimaryKeyRelatedField: _teach_key,
    serializers.SlugRelatedField: _teach_slug,
    serializers.HyperlinkedRelatedField: _teach_link,
    serializers.ReadOnlyField: _teach_property,
}
TAUGHT = tuple(TEACH)


@lru_cache(maxsize=256)
def _id_field(text: TextForm) -> IdField:
    return IdField(text_form=text)


def _before(field: Any, name: str, note: Callable[[Any], None]) -> None:
    """Make ``field`` call ``note`` with what its method ``name`` is given, and then the method."""
    method = getattr(field, name)

    def noting(given: Any) -> Any:
        note(given)
        return method(given)

    setattr(field, name, noting)


def _as_text(found: GeneratedOnSave | None, value: Any) -> Any:
    return written(found.text, value) if found is not None and type(value) is int else value


def _has_rows(field: Any) -> bool:
    return getattr(field.queryset, "model", None) is not None


def _model_of_rows(field: Any) -> type:
    """The model of the rows to choose from; any class if there are none."""
    rows = field.get_queryset() if field.queryset is None else field.queryset
    model: type = getattr(rows, "model", object)
    return model


# --- views ---------------------------------------------------------------------------


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


HOOKS = Hooks(
    (serializers.ModelSerializer, "build_standard_field", _building),
    (serializers.Field, "bind", _binding),
    (generics, "get_object_or_404", _looking_up),
)

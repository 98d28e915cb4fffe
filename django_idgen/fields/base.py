"""The base of the fields of this app: a value that is made when the row is first saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partialmethod, wraps
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.apps import apps
from django.core import checks
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.fields import NOT_PROVIDED
from django.utils.functional import cached_property

from ..core.encoding import TextForm
from ..core.errors import ConfigurationError, InvalidId
from ..core.segment import MAX_ID

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    FieldMixin = models.Field[Any, Any]
else:

    class FieldMixin: ...


class GeneratedOnSave(FieldMixin, ABC):
    """The base of the four fields. Subclasses provide the next id."""

    default_validators = [MinValueValidator(1), MaxValueValidator(MAX_ID)]  # noqa: RUF012
    # Nothing is read back, even if the base class is an AutoField.
    db_returning = False
    eager = False
    copied_from: GeneratedOnSave | None = None
    """The field of which this one is a copy, in a table of a history or an audit.

    A copy holds the values of the original, has its texts, and generates nothing.
    """
    # They change no column, so SQLite rebuilds no table for them.
    non_db_attrs = (*models.Field.non_db_attrs, "text_form", "prefix")
    forced: ClassVar[Mapping[str, bool]] = {"blank": True, "editable": False}

    def __init__(
        self, *args: Any, text_form: str = "decimal", prefix: str = "", **kwargs: Any
    ) -> None:
        kwargs.update(self.forced)
        self.text_form = text_form
        self.prefix = prefix
        super().__init__(*args, **kwargs)

    @cached_property
    def text(self) -> TextForm:
        """The form of this field's ids in URLs, JSON and forms.

        Raises :class:`~django_idgen.core.errors.ConfigurationError`.
        """
        return self._make_text()

    def _make_text(self) -> TextForm:
        return TextForm(self.text_form, self.prefix)

    @abstractmethod
    def next_value(self, using: str | None = None) -> int:
        """The next id; raises :class:`~django_idgen.core.errors.IdgenError`."""

    @abstractmethod
    def next_values(self, count: int) -> list[int]:
        """The next ``count`` ids; raises likewise."""

    @abstractmethod
    def _check_source(self) -> list[checks.CheckMessage]:
        """Check the generator or tag that gives the ids."""

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        for forced in self.forced:
            kwargs.pop(forced, None)
        if isinstance(self.default, GeneratedDefault):
            del kwargs["default"]
        if self.text_form != "decimal":
            kwargs["text_form"] = self.text_form
        if self.prefix:
            kwargs["prefix"] = self.prefix
        return name, path, args, kwargs

    def contribute_to_class(  # type: ignore[override]  # AutoFieldMixin has this signature
        self, cls: type[models.Model], name: str, **kwargs: Any
    ) -> None:
        # A field that "copy.copy" made of another model's still has these.
        model, named = self.__dict__.get("model"), self.name
        super().contribute_to_class(cls, name, **kwargs)
        self.copied_from = _original(cls, name) or _copied(model, named, cls)
        # Django never tries an UPDATE for a key with a default, and a user may have given this one.
        if self.copied_from is not None:
            self.default = NOT_PROVIDED
        elif (self.eager or not self.primary_key) and not _is_historical(cls):
            self.default = GeneratedDefault(self)
        display = f"get_{self.name}_display"
        if self.choices is None and display not in cls.__dict__:
            setattr(cls, display, partialmethod(_display, field=self))
        if self.copied_from is None:
            _insert_new_keys(cls)

    def to_python(self, value: Any) -> Any:
        """Read an integer, or a string in the field's text form."""
        try:
            return super().to_python(self._number(value))
        except InvalidId as error:
            raise ValidationError(str(error), code="invalid", params={"value": value}) from error

    def get_prep_value(self, value: Any) -> Any:
        return super().get_prep_value(self._number(value))

    def value_to_string(self, obj: models.Model) -> str:
        """Write the text form, as :meth:`to_python` could take digits for a text.

        A scrambled field writes digits: fixtures and sessions outlive its keys.
        """
        value = self.value_from_object(obj)
        if self.text.is_plain or not self.text.takes_numbers or value is None:
            return super().value_to_string(obj)
        return self.text.format(self.to_python(value))

    def _number(self, value: Any) -> Any:
        # Django reads plain digits.
        if not isinstance(value, str) or self.text.is_plain:
            return value
        return self.text.read_trusted(value)

    def get_default(self) -> int | None:
        if self.copied_from is not None:
            return None
        if _is_historical(self.model):
            # A migration uses one default for all rows of a table.
            return None if self.default is NOT_PROVIDED else self.default
        return self.next_value() if self.eager else None

    def get_pk_value_on_save(self, instance: models.Model) -> int:  # noqa: ARG002
        # For bulk_create(). save() has made the key before: see _insert_new_keys().
        return self.next_value()

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        # Off the primary key. Django 6 asks twice for one INSERT: hence the setattr.
        value = getattr(model_instance, self.attname)
        if value is None and add and self.copied_from is None:
            value = self.next_value()
            setattr(model_instance, self.attname, value)
        return value

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        # Generated values need no conversion, which would slow bulk_create down: it calls this
        # for every row.
        if type(value) is int and self._prepares_as_django_does:
            return connection.ops.adapt_integerfield_value(value, "BigIntegerField")
        return super().get_db_prep_save(value, connection)

    @cached_property
    def _prepares_as_django_does(self) -> bool:
        """Whether no subclass has overridden how values are prepared."""
        kind = type(self)
        return (
            kind.get_prep_value is GeneratedOnSave.get_prep_value
            and kind.get_db_prep_value in (_INTEGER_DB_PREP, GeneratedAuto.get_db_prep_value)
            and kind.get_internal_type in (_INTEGER_TYPE, GeneratedAuto.get_internal_type)
        )

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        if self.copied_from is not None:
            return super().check(**kwargs)
        return [
            *super().check(**kwargs),
            *self._check_installed(),
            *self._check_source(),
            *self._check_default(),
            *self._check_text(),
            *self._check_unique(),
        ]

    def _check_unique(self) -> list[checks.CheckMessage]:
        # A generator repeats no id, but people who edit rows, or a tag, may.
        if self.unique or self.name in _names_in_unique_constraints(self.model):
            return []
        return [
            checks.Warning(
                f"{type(self).__name__} gives unique values, but the table does not keep them "
                f"unique: an edited or copied row may repeat one.",
                hint="Give the field 'unique=True', or the model a UniqueConstraint without a "
                "condition that includes the field.",
                obj=self,
                id="django_idgen.W009",
            )
        ]

    def _check_text(self) -> list[checks.CheckMessage]:
        try:
            _ = self.text
        except ConfigurationError as error:
            return [checks.Error(str(error), obj=self, id="django_idgen.E007")]
        return []

    def _check_installed(self) -> list[checks.CheckMessage]:
        # Checked here, as the app's own checks do not run without the app.
        if apps.is_installed("django_idgen"):
            return []
        return [
            checks.Error(
                f"{type(self).__name__} needs 'django_idgen' in INSTALLED_APPS.",
                hint="Add it there, then run the migrations.",
                obj=self,
                id="django_idgen.E006",
            )
        ]

    def _check_default(self) -> list[checks.CheckMessage]:
        is_own = self.default is NOT_PROVIDED or isinstance(self.default, GeneratedDefault)
        if is_own and self.db_default is NOT_PROVIDED:
            return []
        return [
            checks.Error(
                f"{type(self).__name__} takes neither 'default' nor 'db_default'.",
                hint=(
                    "Its value comes from a generator. To choose the value, set it on the instance."
                ),
                obj=self,
                id="django_idgen.E005",
            )
        ]


class GeneratedDefault:
    """What other packages find as the default of a ``field``: what a new instance has.

    An id where the field is eager, else None.
    """

    requires_context = True
    """Has DRF pass its own field."""

    def __init__(self, field: GeneratedOnSave) -> None:
        self.field = field

    def __call__(self, serializer_field: Any = None) -> int | None:
        if serializer_field is not None and serializer_field.parent.instance is not None:
            from rest_framework.fields import SkipField

            raise SkipField  # the row has one
        return self.field.get_default()


class GeneratedAuto(GeneratedOnSave):
    """A ``BigAutoField`` without an identity column.

    Two kinds of tables get an ordinary ``BigAutoField`` instead: automatic many-to-many
    tables and ``django_migrations``. Their keys are never shown, and no migration can widen
    them. For many-to-many tables a migration uses the global setting and the running model
    that of its app: with this field in only one of them, every insert would fail.
    """

    forced = {"blank": True}  # noqa: RUF012

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def contribute_to_class(  # type: ignore[override]  # AutoFieldMixin has this signature
        self, cls: type[models.Model], name: str, **kwargs: Any
    ) -> None:
        if _is_bookkeeping(cls):
            plain = models.BigAutoField(self.verbose_name, primary_key=True, auto_created=True)
            plain.contribute_to_class(cls, name)
        else:
            super().contribute_to_class(cls, name, **kwargs)

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        # Not that of AutoFieldMixin, which protects an AUTO_INCREMENT; there is none.
        return models.BigIntegerField.get_db_prep_value(
            cast("models.BigIntegerField[Any, Any]", self), value, connection, prepared
        )


_INTEGER_DB_PREP = models.BigIntegerField.get_db_prep_value
_INTEGER_TYPE = models.BigIntegerField.get_internal_type


def _display(instance: models.Model, *, field: GeneratedOnSave) -> str:
    """The id in the field's text form; empty if there is none yet."""
    value = getattr(instance, field.attname)
    return "" if value is None else field.text.format(field.to_python(value))


def _insert_new_keys(model: type[models.Model]) -> None:
    """Let ``save()`` of ``model`` make the key of a row that has none, and INSERT it at once.

    Django never tries an UPDATE for a key with a default, even if the user gave the key.
    Without a default it tries an UPDATE first, even if the field made the key. Only
    ``_save_table()`` can tell the two apart.
    """
    save_table = cast(Any, model)._save_table
    if hasattr(save_table, "makes_keys"):
        return  # another field or a base class has done it

    @wraps(save_table)
    def inserting(
        self: Any,
        raw: bool = False,
        cls: Any = None,
        force_insert: Any = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Any = None,
    ) -> bool:
        unset = [field for field in cls._meta.pk_fields if _is_unset(self, field)]
        if not unset:
            return bool(
                save_table(self, raw, cls, force_insert, force_update, using, update_fields)
            )
        if force_update or update_fields:
            raise ValueError("Cannot force an update in save() with no primary key.")
        try:
            for field in unset:
                setattr(self, field.attname, field.next_value(using))
            return bool(save_table(self, raw, cls, True, False, using, None))
        except BaseException:
            for field in unset:
                setattr(self, field.attname, None)  # no row has that key
            raise

    inserting.makes_keys = True  # type: ignore[attr-defined]
    cast(Any, model)._save_table = inserting


def _original(model: type[models.Model], name: str) -> GeneratedOnSave | None:
    """The field of this app that ``name`` is in the model whose history ``model`` keeps."""
    for attribute in HISTORY_OF:
        tracked = getattr(model, attribute, None)
        if isinstance(tracked, type) and issubclass(tracked, models.Model):
            return _named(tracked, name)
    return None


def _copied(
    model: type[models.Model] | None, name: str, to: type[models.Model]
) -> GeneratedOnSave | None:
    """The field ``name`` of ``model``, of which a copy was put into another model ``to``.

    Inheritance copies the fields of abstract models, and migrations those of their states.
    """
    if model is None or model is to or model._meta.abstract or _is_historical(model):
        return None
    return _named(model, name)


def _named(model: type[models.Model], name: str) -> GeneratedOnSave | None:
    with suppress(FieldDoesNotExist):
        found = model._meta.get_field(name)
        if isinstance(found, GeneratedOnSave):
            return found.copied_from or found
    return None


HISTORY_OF = ("instance_type", "pgh_tracked_model")
"""Where django-simple-history and django-pghistory name the model."""


def id_held_by(field: Any) -> GeneratedOnSave | None:
    """The field of this app whose ids ``field`` holds.

    Itself, the target of a relation, or the original of a column that a history made plain.
    """
    while field is not None and not isinstance(field, GeneratedOnSave):
        if isinstance(field, models.ForeignKey):
            field = field.target_field
        elif field.is_relation and field.related_model is not None:
            field = field.related_model._meta.pk
        else:
            return _original(field.model, field.name) if hasattr(field, "model") else None
    return field


def _is_unset(instance: models.Model, field: Any) -> bool:
    return (
        isinstance(field, GeneratedOnSave)
        and field.copied_from is None
        and getattr(instance, field.attname) is None
    )


def _names_in_unique_constraints(model: type[models.Model]) -> set[str]:
    """The fields of composite keys, and of unique constraints over all rows."""
    meta = model._meta
    names = {field.name for field in meta.pk_fields}
    for together in meta.unique_together:
        names.update(together)
    for constraint in meta.constraints:
        if isinstance(constraint, models.UniqueConstraint) and constraint.condition is None:
            names.update(constraint.fields)
            # Only the column itself: several values can give the same expression.
            plain: list[Any] = [e for e in constraint.expressions if isinstance(e, models.F)]
            names.update(each.name for each in plain)
    return names


def _is_historical(model: type[models.Model]) -> bool:
    return model.__module__ == "__fake__"


def _is_bookkeeping(model: type[models.Model]) -> bool:
    return bool(model._meta.auto_created) or model.__module__ == "django.db.migrations.recorder"

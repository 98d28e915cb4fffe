"""Model fields whose value comes from a generator when the row is first saved.

=====================  =================  ==========================================
field                  value              use
=====================  =================  ==========================================
``SnowflakeField``     time-ordered id    a declared key, or any other column
``SegmentIdField``     1, 2, 3, … by tag  a declared key, or any other column
``SnowflakeAutoField`` time-ordered id    ``default_auto_field`` of an app
``SegmentAutoField``   1, 2, 3, … by tag  ``default_auto_field`` of an app
=====================  =================  ==========================================

The column is a plain ``bigint`` on every database: no identity, no sequence, no
``AUTO_INCREMENT``. A new row is one ``INSERT``; nothing is read back.

The fields are lazy: ``instance.pk`` stays ``None`` until the row is saved, so
forms, admin pages and failed validation use up no ids, and Django still notices
an unsaved parent. A value that was set by hand is kept. As with any key that
has a default, ``Model(pk=known).save()`` is an ``INSERT``: use
``update_or_create()`` or ``force_update=True`` to overwrite a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.core import checks
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.fields import NOT_PROVIDED
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from .conf import SettingsError, read_settings
from .core.errors import InvalidTag
from .core.segment import MAX_ID, check_tag
from .handlers import generators, segments

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    IntegerColumn = models.BigIntegerField[int | str | None, int]
    AutoColumn = models.BigAutoField[int | str | None, int]
    FieldMixin = models.Field[Any, Any]
else:
    IntegerColumn, AutoColumn, FieldMixin = models.BigIntegerField, models.BigAutoField, object

__all__ = ["SegmentAutoField", "SegmentIdField", "SnowflakeAutoField", "SnowflakeField"]


class GeneratedOnSave(FieldMixin):
    """What the four fields share. Subclasses say where the next id comes from."""

    default_validators = [MinValueValidator(1), MaxValueValidator(MAX_ID)]  # noqa: RUF012
    # Nothing is read back, also where the base class is an AutoField.
    db_returning = False
    eager = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["blank"] = True
        kwargs["editable"] = False
        super().__init__(*args, **kwargs)

    def next_value(self) -> int:
        """The next id; raises :class:`~django_idgen.core.errors.IdgenError`."""
        raise NotImplementedError

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        for forced in ("blank", "editable"):
            kwargs.pop(forced, None)
        return name, path, args, kwargs

    def has_default(self) -> bool:
        # Tells Model.save() that a new row has no earlier one to UPDATE first. The fields
        # that makemigrations asks are of no model: it must find out that there is no value
        # for the rows which a table has already, or MySQL would make all of them 0.
        return self.primary_key or hasattr(self, "model")

    def get_default(self) -> int | None:
        if _is_historical(self.model):
            # A migration asks for one default for all the rows of a table.
            return None if self.default is NOT_PROVIDED else self.default
        return self.next_value() if self.eager else None

    def get_pk_value_on_save(self, instance: models.Model) -> int:
        # A new id is a new row, also for a copy made by ``obj.pk = None``.
        instance._state.adding = True
        return self.next_value()

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        # Off the primary key. Django 6 asks twice for one INSERT: hence the setattr.
        value = getattr(model_instance, self.attname)
        if value is None and add:
            value = self.next_value()
            setattr(model_instance, self.attname, value)
        return value

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        # Our own values need none of the conversions, of which bulk_create would
        # otherwise feel the cost: it calls this for every row.
        if type(value) is int and self._prepares_as_django_does:
            return connection.ops.adapt_integerfield_value(value, "BigIntegerField")
        return super().get_db_prep_save(value, connection)

    @cached_property
    def _prepares_as_django_does(self) -> bool:
        """False for a subclass that prepares values in a way of its own."""
        kind = type(self)
        return (
            kind.get_prep_value in (models.IntegerField.get_prep_value, _AUTO_PREP)
            and kind.get_db_prep_value in (_INTEGER_DB_PREP, GeneratedAuto.get_db_prep_value)
            and kind.get_internal_type in (_INTEGER_TYPE, GeneratedAuto.get_internal_type)
        )

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        return [
            *super().check(**kwargs),
            *self._check_installed(),
            *self._check_source(),
            *self._check_default(),
        ]

    def _check_installed(self) -> list[checks.CheckMessage]:
        # Ours to say: without the app, none of its own checks run.
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

    def _check_source(self) -> list[checks.CheckMessage]:
        raise NotImplementedError

    def _check_default(self) -> list[checks.CheckMessage]:
        if self.default is NOT_PROVIDED and self.db_default is NOT_PROVIDED:
            return []
        return [
            checks.Error(
                f"{type(self).__name__} takes neither 'default' nor 'db_default'.",
                hint="Its value comes from a generator. Set it on the instance to choose one.",
                obj=self,
                id="django_idgen.E005",
            )
        ]


class SnowflakeSource(GeneratedOnSave):
    """Ids of ``generators[generator]``; with ``eager`` as soon as an instance is made."""

    # None of them changes the column: no table is rebuilt for them on SQLite.
    non_db_attrs = (*models.Field.non_db_attrs, "generator", "eager")

    def __init__(
        self, *args: Any, generator: str = "default", eager: bool = False, **kwargs: Any
    ) -> None:
        self.generator = generator
        self.eager = eager
        super().__init__(*args, **kwargs)

    def next_value(self) -> int:
        return generators[self.generator].next_id()

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        if self.generator != "default":
            kwargs["generator"] = self.generator
        if self.eager:
            kwargs["eager"] = self.eager
        return name, path, args, kwargs

    def _check_source(self) -> list[checks.CheckMessage]:
        return [*self._check_generator(), *self._check_eager()]

    def _check_generator(self) -> list[checks.CheckMessage]:
        try:
            known = read_settings().generators
        except SettingsError:
            return []  # django_idgen.E001 has said so
        if isinstance(self.generator, str) and self.generator in known:
            return []
        return [
            checks.Error(
                f"There is no generator {self.generator!r}.",
                hint=f"Known: {', '.join(sorted(known))}. Others go into IDGEN['GENERATORS'].",
                obj=self,
                id="django_idgen.E002",
            )
        ]

    def _check_eager(self) -> list[checks.CheckMessage]:
        if isinstance(self.eager, bool):
            return []
        return [
            checks.Error(
                f"'eager' must be True or False, not {self.eager!r}.",
                obj=self,
                id="django_idgen.E004",
            )
        ]


class SegmentSource(GeneratedOnSave):
    """Ids of ``segments[tag]``; the tag is ``app_label.modelname`` unless told.

    Inherited tables and proxies share the parent's. Renaming the model makes
    another tag, which starts at 1 again: write the old one down (``tag=``)
    before you do.
    """

    non_db_attrs = (*models.Field.non_db_attrs, "tag")

    def __init__(self, *args: Any, tag: str | None = None, **kwargs: Any) -> None:
        self.tag = tag
        super().__init__(*args, **kwargs)

    @property
    def resolved_tag(self) -> str:
        """The tag in ``LeafAlloc``. Known once the field belongs to a model."""
        # ``self.model`` has the column: never a proxy, nor a child table's model.
        return self.model._meta.label_lower if self.tag is None else self.tag

    def next_value(self) -> int:
        return segments[self.resolved_tag].next_id()

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        if self.tag is not None:
            kwargs["tag"] = self.tag
        return name, path, args, kwargs

    def _check_source(self) -> list[checks.CheckMessage]:
        try:
            check_tag(self.resolved_tag)
        except InvalidTag as error:
            hint = "Give the field a 'tag' of 1 to 128 printable characters."
            return [checks.Error(str(error), hint=hint, obj=self, id="django_idgen.E003")]
        return []


class GeneratedAuto(GeneratedOnSave):
    """What makes a ``BigAutoField`` of ours: its place, but not its identity column.

    Two kinds of tables get an ordinary ``BigAutoField`` instead: automatic
    many-to-many tables and ``django_migrations``. Nobody sees their keys, no
    migration can widen them, and for the former a migration goes by the global
    setting while the running model goes by its app's: with a key of ours in one
    of the two places, every insert would fail.
    """

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
        # Not AutoFieldMixin's: it guards an AUTO_INCREMENT that isn't there.
        return models.BigIntegerField.get_db_prep_value(
            cast("models.BigIntegerField[Any, Any]", self), value, connection, prepared
        )


class SnowflakeField(SnowflakeSource, IntegerColumn):
    """A ``bigint`` that is given a time-ordered id when the row is first saved.

    ``generator`` is an alias of ``IDGEN["GENERATORS"]``. With ``eager=True`` the
    id is there as soon as an instance is made; then every form and every
    discarded instance uses one up. Not editable, and blank in forms.

    Saving raises :class:`~django_idgen.core.errors.IdgenError` when no id can
    be had. Works as the primary key, off it, and in a ``CompositePrimaryKey``.
    """

    description = _("Snowflake id (64 bits)")


class SegmentIdField(SegmentSource, IntegerColumn):
    """A ``bigint`` that is given the next number of a tag when the row is first saved.

    Numbers rise in each process but are not free of gaps: processes take them
    ``step`` at a time. See :class:`SegmentSource` for the tag.
    """

    description = _("Segment id (64 bits)")


class SnowflakeAutoField(GeneratedAuto, SnowflakeSource, AutoColumn):
    """:class:`SnowflakeField` as a ``default_auto_field``."""

    description = _("Snowflake id (64 bits)")


class SegmentAutoField(GeneratedAuto, SegmentSource, AutoColumn):
    """:class:`SegmentIdField` as a ``default_auto_field``."""

    description = _("Segment id (64 bits)")


_AUTO_PREP = models.BigAutoField.get_prep_value
_INTEGER_DB_PREP = models.BigIntegerField.get_db_prep_value
_INTEGER_TYPE = models.BigIntegerField.get_internal_type


def _is_historical(model: type[models.Model]) -> bool:
    return model.__module__ == "__fake__"


def _is_bookkeeping(model: type[models.Model]) -> bool:
    return bool(model._meta.auto_created) or model.__module__ == "django.db.migrations.recorder"

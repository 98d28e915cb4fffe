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

The fields are lazy: ``instance.pk`` stays ``None`` until the row is saved, so forms, admin
pages and failed validation use up no ids, and Django still notices an unsaved parent. A key
that you set is kept: as with ``BigAutoField``, ``Model(pk=known).save()`` updates the row with
this key, or inserts one. A save that fails resets the key that it made to ``None``.

An id is an ``int`` in Python and in the column. ``text_form`` (``decimal``, ``base36``,
``base62``, ``crockford``) and ``prefix`` (such as ``"ord_"``) define its text:
``get_<name>_display()`` returns the text, and queries, forms, URLs and serializers take the
text as well as the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import models
from django.utils.translation import gettext_lazy as _

from ..core.encoding import ScrambledForm, TextForm
from ..core.errors import InvalidTag
from ..core.segment import check_tag
from ..process.maps import current_settings, generators, segments
from ..settings import SettingsError
from .base import GeneratedAuto, GeneratedOnSave
from .lookups import Created

if TYPE_CHECKING:
    IntegerColumn = models.BigIntegerField[int | str | None, int]
    AutoColumn = models.BigAutoField[int | str | None, int]
else:
    IntegerColumn, AutoColumn = models.BigIntegerField, models.BigAutoField


class SnowflakeSource(GeneratedOnSave):
    """Ids of ``generators[generator]``; with ``eager``, made with the instance."""

    non_db_attrs = (*GeneratedOnSave.non_db_attrs, "generator", "eager")

    def __init__(
        self, *args: Any, generator: str = "default", eager: bool = False, **kwargs: Any
    ) -> None:
        self.generator = generator
        self.eager = eager
        super().__init__(*args, **kwargs)

    def next_value(self, using: str | None = None) -> int:
        return generators.of_field(self, using).next_id()

    def next_values(self, count: int) -> list[int]:
        return generators.of_field(self).next_ids(count)

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
            known = list(generators)
        except SettingsError:
            return []  # django_idgen.E001 reports it
        if isinstance(self.generator, str) and self.generator in known:
            return []
        return [
            checks.Error(
                f"There is no generator {self.generator!r}.",
                hint=f"Known: {', '.join(sorted(known))}. Add others to IDGEN['GENERATORS'].",
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


def _scramble_keys() -> Mapping[str, bytes]:
    return current_settings().scramble_keys


class SegmentSource(GeneratedOnSave):
    """Ids of ``segments[tag]``; by default the tag is ``app_label.modelname``.

    Inherited tables and proxies share the parent's tag. A renamed model gets a new tag, which
    continues above the rows of the table: see :mod:`..ops.tags.migrated`.

    With ``scramble`` the texts of ids can't be counted or guessed without a key of
    ``IDGEN["SCRAMBLE_KEYS"]``, and numbers from outside are refused. The texts use the alphabet
    of ``text_form`` (``crockford`` by default), and depend on the tag.
    """

    non_db_attrs = (*GeneratedOnSave.non_db_attrs, "tag", "scramble")

    def __init__(
        self, *args: Any, tag: str | None = None, scramble: bool = False, **kwargs: Any
    ) -> None:
        self.tag = tag
        self.scramble = scramble
        super().__init__(*args, **kwargs)

    def _make_text(self) -> TextForm:
        if not self.scramble:
            return super()._make_text()
        alphabet = "crockford" if self.text_form == "decimal" else self.text_form
        return ScrambledForm(alphabet, self.prefix, name=self.resolved_tag, keys=_scramble_keys)

    @property
    def resolved_tag(self) -> str:
        """The tag in ``LeafAlloc``. The field must belong to a model."""
        if isinstance(self.copied_from, SegmentSource):
            return self.copied_from.resolved_tag
        # ``self.model`` is the model with the column, never a proxy or a child.
        return self.model._meta.label_lower if self.tag is None else self.tag

    def next_value(self, using: str | None = None) -> int:
        return segments.of_field(self, using).next_id()

    def next_values(self, count: int) -> list[int]:
        return segments.of_field(self).next_ids(count)

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        if self.tag is not None:
            kwargs["tag"] = self.tag
        if self.scramble:
            kwargs["scramble"] = self.scramble
        return name, path, args, kwargs

    def _check_source(self) -> list[checks.CheckMessage]:
        try:
            check_tag(self.resolved_tag)
        except InvalidTag as error:
            hint = "Give the field a 'tag' of 1 to 128 printable characters."
            return [checks.Error(str(error), hint=hint, obj=self, id="django_idgen.E003")]
        return self._check_scramble()

    def _check_scramble(self) -> list[checks.CheckMessage]:
        problem = ""
        hint = (
            "Give IDGEN['SCRAMBLE_KEYS'] one, such as {'A': env['SCRAMBLE_KEY']}: 16 or more "
            "characters that stay secret."
        )
        if not isinstance(self.scramble, bool):
            problem = f"'scramble' must be True or False, not {self.scramble!r}."
        elif self.scramble:
            with suppress(SettingsError):  # django_idgen.E001 reports it
                if not _scramble_keys():
                    problem = f"{type(self).__name__} with 'scramble' needs a key."
                elif not current_settings().rest.strings:
                    problem = (
                        f"IDGEN['REST']['strings'] is False, so the project's API sends and takes "
                        f"the plain numbers of {type(self).__name__} with 'scramble'."
                    )
                    hint = (
                        "Leave 'strings' out. Where an API has to send other ids as numbers, "
                        "declare IntegerField(read_only=True) in its serializers."
                    )
        return [checks.Error(problem, hint=hint, obj=self, id="django_idgen.E009")] * bool(problem)


class SnowflakeField(SnowflakeSource, IntegerColumn):
    """A ``bigint`` that gets a time-ordered id when the row is first saved.

    ``generator`` is an alias of ``IDGEN["GENERATORS"]``. With ``eager=True`` an instance has its
    id from the start: every form and every discarded instance uses one up, and ``save()`` of a
    new instance always inserts, as with any key that has a default. The field is not editable.

    Saving raises :class:`~django_idgen.core.errors.IdgenError` if there is no id. The field works
    as the primary key, off it, and in a ``CompositePrimaryKey``.
    """

    description = _("Snowflake id (64 bits)")


class SegmentIdField(SegmentSource, IntegerColumn):
    """A ``bigint`` that gets the next number of a tag when the row is first saved.

    Numbers rise in each process, with gaps: processes take them ``step`` at a time. ``tag``: the
    counter that they come from, by default ``app_label.modelname``; inherited tables and proxies
    share the parent's. ``scramble``: write texts that can't be counted.
    """

    description = _("Segment id (64 bits)")


class SnowflakeAutoField(GeneratedAuto, SnowflakeSource, AutoColumn):
    """:class:`SnowflakeField` as a ``default_auto_field``."""

    description = _("Snowflake id (64 bits)")


class SegmentAutoField(GeneratedAuto, SegmentSource, AutoColumn):
    """:class:`SegmentIdField` as a ``default_auto_field``."""

    description = _("Segment id (64 bits)")


for _field in (SnowflakeField, SnowflakeAutoField):
    _field.register_lookup(Created)

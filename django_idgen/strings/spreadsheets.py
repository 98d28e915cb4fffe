"""Ids as texts in files of django-import-export, and back.

A spreadsheet keeps numbers as doubles: an id past 2**53 comes back as that of another row, or of
none. :func:`adopt` replaces the method of ``ModelResource`` that picks widgets. Widgets that a
resource names itself are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import Field
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, IntegerWidget, ManyToManyWidget, Widget

from ..core.encoding import TextForm
from ..fields.base import GeneratedOnSave, id_held_by
from ..fields.relations import written
from .registration import Hooks, below

EXACT = 1 << 53
"""From here on a double skips whole numbers."""


def _as_typed(value: Any) -> Any:
    """A cell's ``value``. Raises ValueError for a number that a spreadsheet has rounded."""
    if not isinstance(value, float):
        return value.strip() if isinstance(value, str) else value
    if value.is_integer() and abs(value) < EXACT:
        return int(value)
    raise ValueError(
        f"{value!r} is not exactly the number that was in the cell. Export the rows again: ids are "
        "written as texts. Format the column as text before you type ids into it."
    )


class IdWidget(Widget):  # type: ignore[misc]
    """A cell with an id of ``field``: its text, or a number that is exact."""

    def __init__(self, field: GeneratedOnSave, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.field = field

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:  # noqa: ARG002
        value = _as_typed(value)
        return None if value in ("", None) else self.field.to_python(value)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> Any:  # noqa: ARG002
        return _shown(self.field.text, value)


class IdKeyWidget(ForeignKeyWidget):  # type: ignore[misc]
    """A cell with the id of a row that a foreign key leads to."""

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        return super().clean(_as_typed(value), row, **kwargs)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> Any:
        value = super().render(value, obj, **kwargs)
        text = _text_of(self)
        return value if text is None else _shown(text, value)


class IdKeysWidget(ManyToManyWidget):  # type: ignore[misc]
    """A cell with the ids of several rows."""

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        return super().clean(_as_typed(value), row, **kwargs)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> Any:
        text = _text_of(self)
        if text is None or value is None:
            return super().render(value, obj, **kwargs)
        return self.separator.join(str(written(text, each.pk)) for each in value.all())


def _text_of(widget: ForeignKeyWidget | ManyToManyWidget) -> TextForm | None:
    """The text form of the keys by which ``widget`` finds rows; None if it goes by a name."""
    key = widget.model._meta.pk
    # django-import-export before 4.4 has keys in cells that should go by a name.
    by_key = widget.field in ("pk", key.name) or getattr(widget, "key_is_id", False)
    held = id_held_by(key) if by_key else None
    return None if held is None else held.text


def _shown(text: TextForm, value: Any) -> Any:
    return written(text, value) if type(value) is int else ("" if value is None else value)


# --- which cells ---------------------------------------------------------------------------

CHOSEN = {IntegerWidget: IdWidget, ForeignKeyWidget: IdKeyWidget, ManyToManyWidget: IdKeysWidget}
"""By the widget that the original picks: the one that stands for it."""


def _ours(field: Any, chosen: Any) -> Any:
    """``chosen``, which makes the widget of ``field``, or what makes one of this module."""
    kind = chosen.func if isinstance(chosen, partial) else chosen
    held = id_held_by(field) if isinstance(field, Field) else None
    if held is None or kind not in CHOSEN:
        return chosen
    if kind is IntegerWidget:
        return partial(IdWidget, held)
    if chosen.keywords.get("use_natural_foreign_keys"):
        return chosen
    return partial(CHOSEN[kind], **chosen.keywords)


def _choosing(original: Any) -> Any:
    def widget_from_django_field(cls: Any, f: Any, default: Any = Widget) -> Callable[..., Any]:
        made: Callable[..., Any] = _ours(f, original.__func__(cls, f, default))
        return made

    return classmethod(widget_from_django_field)


def _choose_again(resource: Any) -> None:
    """Replace the widgets of ``resource``, which was defined before: by the admin's start."""
    for name, column in resource.fields.items():
        if type(column.widget) not in CHOSEN:
            continue
        with suppress(FieldDoesNotExist):
            field = resource._meta.model._meta.get_field(name)
            made = resource.field_from_django_field(name, field, readonly=column.readonly)
            if type(made.widget) is CHOSEN[type(column.widget)]:
                column.widget = made.widget


HOOKS = Hooks((ModelResource, "widget_from_django_field", _choosing))


def adopt() -> None:
    """Make resources write ids as texts. Idempotent."""
    HOOKS.put()
    resource: Any
    for resource in below(ModelResource):
        if resource._meta.model is not None:
            _choose_again(resource)

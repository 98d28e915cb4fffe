"""Ids as texts in files of django-import-export, and back.

A spreadsheet keeps numbers as doubles: an id past 2**53 comes back as that of another row, or of
none. :func:`adopt` replaces the method of ``ModelResource`` that picks widgets. Widgets that a
resource names itself are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db.models import Field, ForeignKey, ManyToManyField
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, ManyToManyWidget, Widget

from ..core.encoding import TextForm
from ..fields.base import GeneratedOnSave, id_held_by
from ..fields.relations import written
from .registration import Hooks

EXACT = 1 << 53
"""From here on a double skips whole numbers."""


def _not_rounded(value: Any) -> Any:
    """A cell's ``value``. Raises ValueError for a number that a spreadsheet has rounded."""
    if not isinstance(value, float):
        return value
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
        value = _not_rounded(value.strip() if isinstance(value, str) else value)
        return None if value in ("", None) else self.field.to_python(value)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> Any:  # noqa: ARG002
        return _shown(self.field.text, value)


class IdKeyWidget(ForeignKeyWidget):  # type: ignore[misc]
    """A cell with the id of a row that a foreign key leads to."""

    def __init__(self, text: TextForm, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text = text

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        return super().clean(_not_rounded(value), row, **kwargs)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> Any:
        return _shown(self.text, super().render(value, obj, **{**kwargs, "force_native_type": 1}))


class IdKeysWidget(ManyToManyWidget):  # type: ignore[misc]
    """A cell with the ids of several rows."""

    def __init__(self, text: TextForm, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text = text

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        return super().clean(_not_rounded(value), row, **kwargs)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> Any:  # noqa: ARG002
        rows = () if value is None else value.all()
        return self.separator.join(str(written(self.text, each.pk)) for each in rows)


def _shown(text: TextForm, value: Any) -> Any:
    return written(text, value) if type(value) is int else ("" if value is None else value)


def _choosing(original: Any) -> Any:
    def widget_from_django_field(cls: Any, f: Any, default: Any = Widget) -> Callable[..., Any]:
        chosen: Callable[..., Any] = original.__func__(cls, f, default)
        held = id_held_by(f) if isinstance(f, Field) else None
        if held is None:
            return chosen
        if isinstance(f, ManyToManyField):
            return partial(IdKeysWidget, held.text, model=f.related_model)
        if not isinstance(f, ForeignKey):
            return partial(IdWidget, held)
        if chosen.keywords["use_natural_foreign_keys"]:  # type: ignore[attr-defined]
            return chosen
        return partial(IdKeyWidget, held.text, model=f.related_model)

    return classmethod(widget_from_django_field)


HOOKS = Hooks((ModelResource, "widget_from_django_field", _choosing))


def adopt() -> None:
    """Make resources write ids as texts. Idempotent. Call it before resources are defined."""
    HOOKS.put()

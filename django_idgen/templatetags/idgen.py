"""``{% load idgen %}``: ids as text in templates, never with thousand separators."""

from __future__ import annotations

from typing import Any

from django import template
from django.db import models

from ..core.encoding import ALPHABETS, TextForm
from ..core.errors import ConfigurationError
from ..core.segment import MAX_ID
from ..fields.relations import id_behind

register = template.Library()


@register.filter
def id_text(value: Any, form: str = "") -> str:
    """An id as text: ``{{ order|id_text }}``, ``{{ order.id|id_text:"base62" }}``.

    * An instance: its primary key in its field's form. With the name of a field, such as
      ``{{ order|id_text:"customer" }}``, the id in that field, without a query.
    * A number: decimal digits, or ``form``: an alphabet, or an alphabet and a prefix
      (``"base62:ord_"``).

    None becomes an empty text, a number that can't be an id plain digits. A text stays as it is.
    Raises :class:`~django_idgen.core.errors.ConfigurationError` for an unknown form or field.
    """
    if isinstance(value, models.Model):
        name, form = ("pk", form) if _is_form(form) else (form, "")
        own = _own_form(type(value), name)
        meta: Any = type(value)._meta
        value = getattr(value, "pk" if name == "pk" else meta.get_field(name).attname)
    else:
        own = TextForm()
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    text = TextForm(*form.split(":", 1)) if form else own
    return text.format(value) if 1 <= value <= MAX_ID else str(int(value))


def _is_form(text: str) -> bool:
    return not text or text.partition(":")[0] in ALPHABETS


def _own_form(model: type[models.Model], name: str) -> TextForm:
    found = id_behind(model, (name,))
    if found is None and name != "pk":
        raise ConfigurationError(
            f"id_text: {name!r} is neither an alphabet ({', '.join(ALPHABETS)}) nor a field of "
            f"{model._meta.label} that holds ids of django_idgen."
        )
    return TextForm() if found is None else found.text

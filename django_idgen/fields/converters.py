"""Ids in URLs, as path converters.

The plain one reads decimal digits; :func:`converter_for` makes one for a model, a field
or a text form. Register them where the URLs are::

    register_converter(IdConverter, "id")
    register_converter(converter_for(Order), "order_id")

    path("invoices/<id:pk>/", ...), path("orders/<order_id:pk>/", ...)

A view gets an ``int``. ``reverse()`` takes an ``int``, or the text of an id. What is no id in
the form (another alphabet, another prefix, a leading zero, an id past 2**63 - 1) doesn't
match: 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.encoding import DECIMAL, TextForm
from .relations import text_form

if TYPE_CHECKING:
    from .relations import IdTarget

__all__ = ["IdConverter", "converter_for"]


class IdConverter:
    """Plain decimal digits; the base of those for other forms. Stateless, freely shared."""

    form: TextForm = DECIMAL
    regex: str = DECIMAL.pattern

    def to_python(self, value: str) -> int:
        """Raises :class:`InvalidId`, a ``ValueError``: no match."""
        return self.form.read(value)

    def to_url(self, value: object) -> str:
        """Raises :class:`InvalidId`: ``NoReverseMatch``."""
        return self.form.format(self.form.read_trusted(value))


def converter_for(target: IdTarget) -> type[IdConverter]:
    """A converter of ``target``'s ids: a model (its primary key), a field, or a text form.

    Raises :class:`ConfigurationError` for a field of another kind.
    """
    form = text_form(target)
    return type("IdConverter", (IdConverter,), {"form": form, "regex": form.pattern})

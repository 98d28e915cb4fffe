"""Path converters for ids in URLs.

:class:`IdConverter` reads decimal digits; :func:`converter_for` makes a converter for a model,
a field or a text form. Register them in the URLconf::

    register_converter(IdConverter, "id")
    register_converter(converter_for(Order), "order_id")

    path("invoices/<id:pk>/", ...), path("orders/<order_id:pk>/", ...)

A view gets an ``int``. ``reverse()`` takes an ``int`` or the text of an id. A text that is not
an id in this form (another alphabet, another prefix, a leading zero, an id past 2**63 - 1)
does not match: 404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.encoding import DECIMAL, TextForm
from .relations import text_form

if TYPE_CHECKING:
    from .relations import IdTarget


class IdConverter:
    """Plain decimal digits; the base of converters for other forms. Stateless."""

    form: TextForm = DECIMAL
    regex: str = DECIMAL.pattern

    def to_python(self, value: str) -> int:
        """Raises :class:`InvalidId`, a ``ValueError``: Django tries the next pattern."""
        return self.form.read(value)

    def to_url(self, value: object) -> str:
        """Raises :class:`InvalidId`, which becomes ``NoReverseMatch``."""
        return self.form.format(self.form.read_trusted(value))


def converter_for(target: IdTarget) -> type[IdConverter]:
    """A converter for the ids of a model (its primary key), a field, or a text form.

    Raises :class:`ConfigurationError` for other fields.
    """
    form = text_form(target)
    return type("IdConverter", (IdConverter,), {"form": form, "regex": form.pattern})

"""drf-spectacular: this app's fields, views and tokens in any schema.

Import it before a schema is made, as :mod:`.registration` does.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerFieldExtension,
    OpenApiViewExtension,
)
from drf_spectacular.settings import spectacular_settings

from ..core.encoding import TextForm
from ..core.segment import MAX_ID

EXAMPLE = 249_817_364_518_924_288


class IdFieldExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """A string; with ``COMPONENT_SPLIT_REQUEST``, requests take a string or an integer.

    Without that setting one schema describes requests and answers, and answers hold strings only.
    """

    target_class = "django_idgen.strings.drf.IdField"
    match_subclasses = True

    def map_serializer_field(
        self,
        auto_schema: Any,  # noqa: ARG002
        direction: Any,
    ) -> dict[str, Any]:
        text = as_string(self.target.text)
        split = direction == "request" and spectacular_settings.COMPONENT_SPLIT_REQUEST
        if not (split and self.target.text.takes_numbers):
            return text
        return {"oneOf": [text, as_integer(self.target.min_value, self.target.max_value)]}


def as_string(text: TextForm) -> dict[str, Any]:
    """The schema of an id in its text form."""
    # JavaScript knows no escaped hyphen. No other character of a prefix is escaped.
    pattern = text.pattern.replace("\\-", "-")
    schema = {"type": "string", "pattern": f"^{pattern}$", "example": text.format(EXAMPLE)}
    if text.is_plain:
        schema["format"] = "int64"
    return schema


def as_integer(least: int = 1, most: int = MAX_ID) -> dict[str, Any]:
    """The schema of an id as a number."""
    return {"type": "integer", "format": "int64", "minimum": least, "maximum": most}


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The scheme of access tokens."""

    target_class = "django_idgen.rest.authentication.TokenAuthentication"
    name = "idgenToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:  # noqa: ARG002
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An access token of django_idgen, for programs.",
        }


class ViewExtension(OpenApiViewExtension):  # type: ignore[no-untyped-call]
    """The views of the native API, and subclasses of them."""

    target_class = "django_idgen.rest.base.IdgenView"
    match_subclasses = True

    def view_replacement(self) -> type:
        found: type = self.target.described()
        return found

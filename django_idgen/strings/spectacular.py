"""drf-spectacular: this app's fields, views and tokens in any schema.

Import it before a schema is made, as :mod:`.registration` does.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerFieldExtension,
    OpenApiViewExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework.serializers import Serializer

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


class MarkExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """Ticks and ids of the native API: text in answers, a number or text in requests."""

    target_class = "django_idgen.rest.serializers.Mark"
    match_subclasses = True

    def map_serializer_field(
        self,
        auto_schema: Any,  # noqa: ARG002
        direction: Any,
    ) -> dict[str, Any]:
        text = {"type": "string", "pattern": "^[0-9]{1,20}$", "example": "5001"}
        if direction == "response":
            return text
        return {"oneOf": [text, as_integer(self.target.min_value, self.target.max_value)]}


class ChoiceExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """Words without a name. drf-spectacular names a set of choices after its field.

    If a field of the project has the same name, it would give both sets other names.
    """

    target_class = "django_idgen.rest.serializers.Choice"

    def map_serializer_field(
        self,
        auto_schema: Any,  # noqa: ARG002
        direction: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        # Two parts, since a single one would be taken out of its list, and named.
        return {"allOf": [{"type": "string"}, {"enum": list(self.target.choices)}]}


class Described(AutoSchema):
    """What drf-spectacular says of a view of the native API: who may call it, too."""

    def get_auth(self) -> list[Any]:
        view: Any = self.view
        is_for = {True: view.for_tokens, False: view.for_users}
        found: list[Any] = super().get_auth()
        return [each for each in found if is_for[TokenScheme.name in each]]


class ViewExtension(OpenApiViewExtension):  # type: ignore[no-untyped-call]
    """The views of the native API, and subclasses of them."""

    target_class = "django_idgen.rest.base.IdgenView"
    match_subclasses = True

    def view_replacement(self) -> type:
        view = self.target
        described = {
            action: _described(getattr(view, action), view.inputs.get(action), answer)
            for action in {**view.inputs, **view.answers}
            for answer in [view.answers.get(action, OpenApiTypes.OBJECT)]
        }
        return type(view.__name__, (view,), {**described, "schema": Described()})


def _name(kind: Any) -> None:
    """Give ``kind`` and what it contains names of their own: the project may have such names."""
    extend_schema_serializer(component_name=f"Idgen{kind.__name__}")(kind)
    for field in kind._declared_fields.values():
        if isinstance(field, Serializer):
            _name(type(field))


def _described(method: Any, asked: Any, answer: Any) -> Any:
    """A copy of ``method`` with what drf-spectacular shows of it."""
    for kind in {asked, answer} - {None, OpenApiTypes.OBJECT}:
        _name(kind)
    copy: Any = wraps(method)(lambda *args, **kwargs: method(*args, **kwargs))
    copy.schema = Described
    sent = extend_schema(methods=["POST", "PATCH"], request=asked, responses=answer)(copy)
    return extend_schema(methods=["GET"], parameters=asked and [asked], responses=answer)(sent)

"""drf-spectacular: what the fields of requests take."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerFieldExtension

from ..core.encoding import PREFIX
from ..core.segment import MAX_ID, MAX_TAG_LENGTH
from ..process.handlers import generators

__all__ = ["FINGERPRINT", "ID", "ID_SHOWN", "MARK", "TAG", "WHOLE", "number_or_text"]

ID: dict[str, Any] = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "example": "5001"}
"""An id, or a mark among ids, in an answer."""
MARK = ID
ID_SHOWN = "54901763806867456"
TAG: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TAG_LENGTH,
    "format": "idgen-tag",
    "example": "orders",
}

WHOLE: dict[str, Any] = {"type": "integer"}
FINGERPRINT: dict[str, Any] = {
    "type": "object",
    "description": "What holders of worker ids must agree on; what is not named is left out.",
    "properties": {
        "fields": {
            "type": "array",
            "description": "Each part of an id with its bits, the highest first.",
            "items": {
                "type": "array",
                "items": {"oneOf": [{"type": "string"}, WHOLE]},
                "minItems": 2,
                "maxItems": 2,
            },
        },
        "tick_us": {**WHOLE, "description": "Length of a tick in µs."},
        "epoch_us": {**WHOLE, "description": "Where time begins, in µs since 1970."},
        "workers": {
            "type": "array",
            "description": "The first worker id, and the one after the last.",
            "items": WHOLE,
            "minItems": 2,
            "maxItems": 2,
        },
    },
    "additionalProperties": {},
}
"""Of a layout, an epoch and worker ids."""


def number_or_text(least: int, most: int) -> dict[str, Any]:
    """A whole number that JavaScript may not be able to hold."""
    text = {"type": "string", "pattern": _digits(least, most)}
    return {"oneOf": [{"type": "integer", "minimum": least, "maximum": most}, text]}


def _digits(least: int, most: int) -> str:
    """A pattern of decimal text that is surely in range: without the longest numbers."""
    length = len(str(most)) - 1
    return f"^[1-9][0-9]{{0,{length - 1}}}$" if least else f"^[0-9]{{1,{length}}}$"


class _FieldExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    match_subclasses = False

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:  # noqa: ARG002
        return self.schema()

    def schema(self) -> dict[str, Any]:
        raise NotImplementedError


class WholeExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.strict_input.Whole"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.target.least, "maximum": self.target.most}


class IdNumberExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.strict_input.IdNumber"

    def schema(self) -> dict[str, Any]:
        return number_or_text(self.target.least, min(self.target.most, MAX_ID))


class TagNameExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.strict_input.TagName"

    def schema(self) -> dict[str, Any]:
        return dict(TAG)


class TextExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.strict_input.Text"

    def schema(self) -> dict[str, Any]:
        least = {} if self.target.allow_blank else {"minLength": 1}
        # A NUL is no text for a database.
        most = {"maxLength": self.target.max_length}
        return {"type": "string", **least, **most, "format": "idgen-text"}


class WordsExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.lending_input.Words"

    def schema(self) -> dict[str, Any]:
        least = {} if self.target.allow_blank else {"minLength": 1}
        most = {"maxLength": self.target.max_length}
        return {"type": "string", **least, **most, "format": "idgen-words"}


class WholeNumberExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.lending_input.WholeNumber"

    def schema(self) -> dict[str, Any]:
        return {
            "oneOf": [
                {"type": "integer", "minimum": self.target.least, "maximum": self.target.most},
                {"type": "string", "pattern": _digits(self.target.least, self.target.most)},
            ]
        }


class FingerprintExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.lending_input.Fingerprint"

    def schema(self) -> dict[str, Any]:
        return {**FINGERPRINT, "minProperties": 1}


class AnyIdExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.decode.AnyId"

    def schema(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": 1, "maximum": MAX_ID}
        return {"oneOf": [number, {"type": "string"}], "example": ID_SHOWN}


class PrefixExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.decode.Prefix"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^({PREFIX.pattern})?$"}


class AliasExtension(_FieldExtension):  # type: ignore[no-untyped-call]
    target_class = "django_idgen.rest.decode.Alias"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(generators)}

"""What a request may send: JSON, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

__all__ = ["StrictJSONParser"]


class StrictJSONParser(JSONParser):
    """JSON in UTF-8, in which no key stands twice and nothing nests without end."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,  # noqa: ARG002
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        """Raises :class:`ParseError`."""
        try:
            text = stream.read().decode("utf-8")
            found = json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
            # An escaped half of a character is no text: no database takes it, no answer has it.
            # Nor may an answer say infinity, which is what 1e999 is to Python.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8")
        except RecursionError as error:
            raise ParseError("The JSON nests too deeply.") from error
        except ValueError as error:
            raise ParseError(f"This is no JSON: {error}") from error
        return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found

"""Tells drf-spectacular what the operations of the views take and answer.

It is imported only when a schema is made, for ``schema/`` or by the project: the views work without
drf-spectacular.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent, append_meta
from drf_spectacular.settings import patched_settings
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse

from ..strings.spectacular import TokenScheme
from .base import ManagementView
from .lending import LeaseView
from .serializers import TAG, Described, Input, NoInput, Operation, Shape
from .urls import urlpatterns

PROBLEM: Shape = {"$ref": "#/components/schemas/IdgenProblem"}
WRONG: Shape = {"anyOf": [{"$ref": "#/components/schemas/IdgenWrongFields"}, PROBLEM]}
COMPONENTS: Mapping[str, Shape] = {
    "IdgenProblem": {
        "type": "object",
        "description": "What went wrong, as a text and as a code to branch on.",
        "properties": {"detail": {"type": "string"}, "code": {"type": "string"}},
        "required": ["detail", "code"],
        "example": {"detail": "There is no tag 'orders'.", "code": "not_found"},
    },
    "IdgenWrongFields": {
        "type": "object",
        "description": "What is wrong, by the field of the request.",
        "additionalProperties": {},
        "example": {"step": ["It must be a whole number of 1 to 1000000000."]},
    },
}
ERRORS: Mapping[int, tuple[Shape, str]] = {
    400: (WRONG, "Something is wrong in the request; the field is named."),
    401: (PROBLEM, "The request has no valid credentials."),
    403: (PROBLEM, "The caller may not do this."),
    404: (PROBLEM, "There is no such tag or generator."),
    406: (PROBLEM, "Only JSON is available."),
    409: (PROBLEM, "It conflicts with the current state; `code` says why."),
    411: (PROBLEM, "The body's length is not given."),
    413: (PROBLEM, "The body, or the URL, is too large."),
    415: (PROBLEM, "Only JSON is read."),
    429: (PROBLEM, "Too many requests; see `Retry-After`."),
    503: (PROBLEM, "Not possible just now; see `Retry-After`."),
}
ANY_ERRORS = (401, 403, 406, 413, 503)
BODY_ERRORS = (400, 411, 413, 415)
RETRY_AFTER = OpenApiParameter(
    "Retry-After",
    {"type": "integer", "minimum": 0},
    OpenApiParameter.HEADER,
    response=[429, 503],
    description="Seconds to wait before the next try.",
)
IN_PATH = {
    "tag": OpenApiParameter(
        "tag", TAG, OpenApiParameter.PATH, description="A segment tag; it may have slashes."
    ),
    "alias": OpenApiParameter(
        "alias",
        {"type": "string", "minLength": 1, "example": "default"},
        OpenApiParameter.PATH,
        description="A generator: an alias of IDGEN['GENERATORS'].",
    ),
    "worker": OpenApiParameter(
        "worker",
        {"type": "integer", "minimum": 0, "maximum": 4_194_303, "example": 3},
        OpenApiParameter.PATH,
        description="A worker id of the generator's layout.",
    ),
}


class IdgenAutoSchema(AutoSchema):
    """Reads :class:`Operation`. Requests are in JSON."""

    view: Any

    @property
    def operation(self) -> Operation:
        found: Operation = self.view.operation_of(self.method)
        return found

    def is_excluded(self) -> bool:
        return self.view.operation_of(self.method) is None

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: Any
    ) -> Any:
        for name, schema in COMPONENTS.items():
            registry.register_on_missing(_component(name, "schemas", deepcopy(schema), name))
        parent: Any = super()
        # A copy, since hooks of the project change what they get.
        return deepcopy(parent.get_operation(path, path_regex, path_prefix, method, registry))

    def get_operation_id(self) -> str:
        return "_".join([*self._mount(), self.operation.name])

    def _mount(self) -> list[str]:
        """The parts of the path before the API's own, which may be mounted more than once."""
        depth = next(DEPTHS[kind] for kind in type(self.view).__mro__ if kind in DEPTHS)
        return re.findall(r"\w+", "/".join(self.path.split("/")[1:-depth]))

    def get_summary(self) -> str:
        return self.operation.summary

    def get_description(self) -> str:  # type: ignore[override]
        return self.operation.description or self.operation.summary

    def get_tags(self) -> list[str]:
        return [f"idgen {self.view.group}"]

    def get_override_parameters(self) -> list[Any]:
        named = [IN_PATH[name] for name in self._names() if name in IN_PATH]
        query = self.operation.query
        asked = [] if query is None or query is NoInput else [query]
        return [*named, *asked, RETRY_AFTER]

    def _names(self) -> list[str]:
        """The names of the path's variables."""
        return re.findall(r"{(\w+)}", self.path)

    def get_request_serializer(self) -> Any:
        return None if self.operation.body is NoInput else self.operation.body

    def get_response_serializers(self) -> Any:
        operation = self.operation
        answers = dict.fromkeys(self._examples(), operation.answer)
        if self._is_open():
            return answers or {operation.status: operation.answer}
        codes = {*ANY_ERRORS, *operation.errors}
        codes |= {400} if operation.query else set()
        codes |= set(BODY_ERRORS) if operation.body else set()
        codes |= {404} if not IN_PATH.keys().isdisjoint(self._names()) else set()
        refused = {
            code: OpenApiResponse(schema, description=words)
            for code, (schema, words) in ERRORS.items()
            if code in codes
        }
        return {operation.status: operation.answer, **answers, **refused}

    def _examples(self) -> Mapping[int, Any]:
        """Examples of the answer, by status."""
        operation = self.operation
        shown = getattr(operation.answer, "example", None)
        return operation.examples or ({} if shown is None else {operation.status: shown})

    def get_examples(self) -> list[OpenApiExample]:
        body = self.operation.body
        asked = None if body is None else body.example
        return [
            *([] if asked is None else [OpenApiExample("A request", asked, request_only=True)]),
            *(
                OpenApiExample("An answer", shown, response_only=True, status_codes=[str(status)])
                for status, shown in self._examples().items()
            ),
        ]

    def _is_open(self) -> bool:
        return bool(self.view.group == "health")

    def map_parsers(self) -> list[str]:
        return ["application/json"]

    def map_renderers(self, attribute: str) -> list[str]:
        return ["application/json"] if attribute == "media_type" else ["json"]

    def get_auth(self) -> list[Any]:
        found: list[Any] = [] if self._is_open() else super().get_auth()
        if isinstance(self.view, ManagementView):  # tokens have no permission
            return [each for each in found if TokenScheme.name not in each]
        if isinstance(self.view, LeaseView):  # only tokens may borrow
            return [each for each in found if TokenScheme.name in each]
        return found

    def resolve_serializer(
        self, serializer: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        # Inline: as a component it could clash with a name of the project.
        schema = self._map_serializer(serializer, direction, bypass_extensions)
        return _in_place("body", "schemas", schema, serializer)

    def _map_serializer(
        self, serializer: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        parent: Any = super()
        found = parent._map_serializer(serializer, direction, bypass_extensions)
        kind = serializer if isinstance(serializer, type) else type(serializer)
        if direction == "response" or issubclass(kind, Input):
            found["additionalProperties"] = False
        return _just_one(found) if getattr(kind, "just_one", False) else found

    def _map_serializer_field(
        self, field: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        parent: Any = super()
        if not isinstance(field, Described):
            return parent._map_serializer_field(field, direction, bypass_extensions)
        meta = parent._get_serializer_field_meta(field, direction)
        return append_meta(field.shape(direction == "request"), meta)


class _InPlace(ResolvedComponent):
    @property
    def ref(self) -> Any:
        return self.schema


_component: Any = ResolvedComponent
_in_place: Any = _InPlace


def _just_one(schema: Shape) -> Shape:
    """An object with one of its properties."""
    return {
        "oneOf": [
            {**schema, "properties": {name: each}, "required": [name]}
            for name, each in schema["properties"].items()
        ]
    }


_patterns: list[Any] = [*urlpatterns]
DEPTHS = {each.callback.cls: str(each.pattern).count("/") + 1 for each in _patterns}
"""By view: the number of parts of its path below the mount."""


def described(view: Any) -> type:
    """The class that drf-spectacular reads instead of ``view``."""
    return type(view.__name__, (view,), {"schema": IdgenAutoSchema()})


# --- the description ---------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "TITLE": "django_idgen",
    "VERSION": "1",
    "DESCRIPTION": "Unique 64-bit ids, and what they come from. Ids are JSON strings, since "
    "JavaScript reads numbers past 2^53 wrong.",
    "SCHEMA_PATH_PREFIX": "",
    "SCHEMA_PATH_PREFIX_TRIM": False,
    "SCHEMA_PATH_PREFIX_INSERT": "",
    "APPEND_COMPONENTS": {},
    "PREPROCESSING_HOOKS": [],
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enum_id_removal"],
    "CAMELIZE_NAMES": False,
    "SERVERS": [],
    "TAGS": [],
    "WEBHOOKS": [],
    "SECURITY": [],
    "EXTENSIONS_INFO": {},
    "EXTENSIONS_ROOT": {},
    "EXTERNAL_DOCS": {},
    "CONTACT": {},
    "LICENSE": {},
    "TOS": None,
}


def describe() -> dict[str, Any]:
    """The schema of the native API. Not thread-safe."""
    with patched_settings(SETTINGS):
        make: Any = SchemaGenerator
        found: dict[str, Any] = make(urlconf=f"{__package__}.urls").get_schema(
            request=None, public=True
        )
    return found

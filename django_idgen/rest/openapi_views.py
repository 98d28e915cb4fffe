"""What drf-spectacular is told of our views, from outside of them.

They work without it, and so it is this module alone that has to be imported for the API
to be described, be it in ``schema/`` or in a project's own schema.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiViewExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from drf_spectacular.utils import extend_schema

from .management import ManagementView
from .openapi_answers import COMPONENTS
from .openapi_fields import TokenScheme
from .openapi_operations import OPERATIONS, Saying
from .strict_input import Input

__all__ = ["IdgenAutoSchema", "describe"]


class IdgenAutoSchema(AutoSchema):
    """Requests in JSON, that take no field which is not named."""

    def map_parsers(self) -> list[str]:
        return ["application/json"]

    def map_renderers(self, attribute: str) -> list[str]:
        return ["application/json"] if attribute == "media_type" else ["json"]

    def get_auth(self) -> list[Any]:
        found: list[Any] = super().get_auth()
        if not isinstance(self.view, ManagementView):
            return found
        return [each for each in found if TokenScheme.name not in each]  # they have no permission

    def _map_serializer(
        self, serializer: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        parent: Any = super()
        found = parent._map_serializer(serializer, direction, bypass_extensions)
        kind = serializer if isinstance(serializer, type) else type(serializer)
        if issubclass(kind, Input) and "$ref" not in found:
            found["additionalProperties"] = False
        return found


def _register(path: str, saying: Saying) -> type:
    def view_replacement(self: Any) -> type:
        target = self.target
        methods = {
            method: extend_schema(**words)(_copy(getattr(target, method)))
            for method, words in saying.items()
        }
        return type(target.__name__, (target,), {"schema": IdgenAutoSchema(), **methods})

    # The registry of drf-spectacular takes each subclass up.
    return type(
        f"{path.rpartition('.')[2]}Extension",
        (OpenApiViewExtension,),
        {"target_class": f"{__package__}.{path}", "view_replacement": view_replacement},
    )


def _copy(method: Any) -> Any:
    # What is said is written onto the function, which the view itself keeps as it is.
    def described(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    described.kwargs = {"schema": IdgenAutoSchema}  # type: ignore[attr-defined]
    return described


EXTENSIONS = [_register(path, saying) for path, saying in OPERATIONS.items()]


# --- the description ---------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "TITLE": "django_idgen",
    "VERSION": "1",
    "DESCRIPTION": "Unique 64-bit ids, and what they come from. Ids are JSON strings, since "
    "JavaScript reads numbers past 2^53 wrong.",
    "SCHEMA_PATH_PREFIX": "",
    "SCHEMA_PATH_PREFIX_TRIM": False,
    "SCHEMA_PATH_PREFIX_INSERT": "",
    "COMPONENT_SPLIT_REQUEST": True,
    "COMPONENT_SPLIT_PATCH": True,
    "APPEND_COMPONENTS": {"schemas": COMPONENTS},
    "PREPROCESSING_HOOKS": [],
    "POSTPROCESSING_HOOKS": [],
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
    """All of the native API. Not to be called by two threads at a time."""
    with patched_settings(SETTINGS):
        make: Any = SchemaGenerator
        found: dict[str, Any] = make(urlconf=f"{__package__}.urls").get_schema(
            request=None, public=True
        )
    return found

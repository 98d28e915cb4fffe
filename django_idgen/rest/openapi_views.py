"""What drf-spectacular reads instead of our views, which work without it.

:class:`ViewExtension` imports this where a schema is made of one of them,
be it for ``schema/`` or a project's own.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.settings import patched_settings, spectacular_settings
from drf_spectacular.utils import extend_schema

from ..strings.schema_extension import TokenScheme
from .ids import MayTake
from .lending_leases import LeaseView
from .management import ManagementView
from .openapi_answers import COMPONENTS
from .openapi_operations import OPERATIONS, Saying
from .strict_input import Input
from .urls import urlpatterns

__all__ = ["IdgenAutoSchema", "describe", "described"]

HERE = f"{__package__}."


class IdgenAutoSchema(AutoSchema):
    """Requests in JSON, that take no field which is not named."""

    def get_operation(
        self, path: str, path_regex: str, path_prefix: str, method: str, registry: Any
    ) -> Any:
        for name, schema in COMPONENTS.items():
            registry.register_on_missing(_component(name, "schemas", deepcopy(schema), name))
        parent: Any = super()
        # A copy: hooks of the project write into what they get.
        found = deepcopy(parent.get_operation(path, path_regex, path_prefix, method, registry))
        found["operationId"] = "_".join([*self._mount(), found["operationId"]])
        return _null_as_type(found) if spectacular_settings.OAS_VERSION.startswith("3.1") else found

    def _mount(self) -> list[str]:
        """The words of the path before the API's own: it may be mounted more than once."""
        depth = next(DEPTHS[kind] for kind in type(self.view).__mro__ if kind in DEPTHS)
        return re.findall(r"\w+", "/".join(self.path.split("/")[1:-depth]))

    def map_parsers(self) -> list[str]:
        return ["application/json"]

    def map_renderers(self, attribute: str) -> list[str]:
        return ["application/json"] if attribute == "media_type" else ["json"]

    def get_auth(self) -> list[Any]:
        found: list[Any] = super().get_auth()
        if isinstance(self.view, ManagementView):  # tokens have no permission
            return [each for each in found if TokenScheme.name not in each]
        if isinstance(self.view, LeaseView):  # only tokens may borrow
            return [each for each in found if TokenScheme.name in each]
        return found

    def resolve_serializer(
        self, serializer: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        # In its place: as a component it could have the name of one of the project's.
        schema = self._map_serializer(serializer, direction, bypass_extensions)
        return _in_place("body", "schemas", schema, serializer)

    def _map_serializer(
        self, serializer: Any, direction: Any, bypass_extensions: bool = False
    ) -> Any:
        parent: Any = super()
        found = parent._map_serializer(serializer, direction, bypass_extensions)
        kind = serializer if isinstance(serializer, type) else type(serializer)
        if issubclass(kind, Input):
            found["additionalProperties"] = False
        return found


class _InPlace(ResolvedComponent):
    @property
    def ref(self) -> Any:
        return self.schema


_component: Any = ResolvedComponent
_in_place: Any = _InPlace


def _null_as_type(part: Any) -> Any:
    """OpenAPI 3.1 for what says ``nullable`` in the words of 3.0."""
    if isinstance(part, list):
        return [_null_as_type(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {key: _null_as_type(value) for key, value in part.items() if key != "nullable"}
    return {"oneOf": [found, {"type": "null"}]} if part.get("nullable") is True else found


_patterns: list[Any] = [*urlpatterns]
DEPTHS = {each.callback.cls: str(each.pattern).count("/") + 1 for each in _patterns}
"""Of each view: the parts of its path, without what it is mounted at."""


def described(view: type) -> type:
    """What drf-spectacular reads instead of ``view``."""
    for kind in view.__mro__:
        sayings = OPERATIONS.get(f"{kind.__module__}.{kind.__name__}".removeprefix(HERE))
        if sayings is not None:
            return _replaced(view, sayings)
    return view


def _replaced(view: Any, sayings: Saying) -> type:
    methods = {
        method: extend_schema(**words)(_copy(getattr(view, method)))
        for method, words in sayings.items()
    }
    # It asks for the tag in the URL, which there is none of.
    needed = [each for each in view.permission_classes if each is not MayTake]
    replaced = {"schema": IdgenAutoSchema(), "permission_classes": needed}
    return type(view.__name__, (view,), {**replaced, **methods})


def _copy(method: Any) -> Any:
    # What is said is written onto the function, which the view itself keeps as it is.
    def described(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs)

    described.kwargs = {"schema": IdgenAutoSchema}  # type: ignore[attr-defined]
    return described


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
    """All of the native API. Not to be called by two threads at a time."""
    with patched_settings(SETTINGS):
        make: Any = SchemaGenerator
        found: dict[str, Any] = make(urlconf=f"{__package__}.urls").get_schema(
            request=None, public=True
        )
    return found

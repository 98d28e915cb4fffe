"""Answers as finger-mark's server does: ``path("", include(finger_mark.urls()))``.

====================================  ================================================
``GET idGen/getId``                   ``{"id":1,"status":"SUCCESS","msg":""}``
``GET idGen/getIdByAppKey/<appKey>``  the same, of the generator of that application
====================================  ================================================

What is no id has ``"id":null``, ``"status":"EXCEPTION"`` and an HTTP status that says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern

from ...conf import DEFAULT_ALIAS
from ...handlers import generators
from ..failures import Failure
from ..ids import UnknownGenerator
from .mounting import DEFAULT, Authentication, Door, Mount
from .taking import checked_alias, of_generator

__all__ = ["urls"]

JSON = "application/json;charset=UTF-8"


def urls(
    *,
    authentication: Authentication = DEFAULT,
    generator: str = DEFAULT_ALIAS,
    app_keys: Mapping[str, str] | None = None,
) -> list[URLPattern]:
    """The URL patterns, for ``include()``.

    ``authentication``: DRF's classes, one of which has to know the caller; by default
    access tokens, then the project's own. None lets anybody take ids, of which a system
    check warns. ``generator``: the alias whose ids ``getId`` gives. ``app_keys``: the
    alias for each application key; without it a key is an alias.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    door = Door(authentication)
    known = None if app_keys is None else {key: checked_alias(app_keys[key]) for key in app_keys}
    views = _Views(door, checked_alias(generator), known)
    mount = Mount("finger_mark", door, _failed)
    return [
        mount.path("idGen/getId", get=views.of_default),
        mount.path("idGen/getIdByAppKey/<idgen_old_key:key>", get=views.of_application),
    ]


class _Views:
    def __init__(self, door: Door, alias: str, app_keys: Mapping[str, str] | None) -> None:
        self._door = door
        self._alias = alias
        self._app_keys = app_keys

    def of_default(self, request: HttpRequest) -> HttpResponse:
        return self._id(request, self._alias)

    def of_application(self, request: HttpRequest, key: str) -> HttpResponse:
        self._door.caller(request)  # who is not known hears nothing of what there is
        alias = key if self._app_keys is None else self._app_keys.get(key)
        if alias is None or alias not in generators:
            raise UnknownGenerator(key)
        return self._id(request, alias)

    def _id(self, request: HttpRequest, alias: str) -> HttpResponse:
        value = of_generator(self._door.caller(request), alias).next_id()
        return _answer(value, "SUCCESS", "")


def _answer(value: int | None, state: str, message: str, status: int = 200) -> HttpResponse:
    content = {"id": value, "status": state, "msg": message}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return HttpResponse(text, status=status, content_type=JSON)


def _failed(error: Exception, failure: Failure) -> HttpResponse:  # noqa: ARG001
    return _answer(None, "EXCEPTION", failure.detail, failure.status)

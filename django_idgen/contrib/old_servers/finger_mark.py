"""Answers as finger-mark's server does: ``path("", include(finger_mark.urls()))``.

====================================  ================================================
``GET idGen/getId``                   ``{"id":1,"status":"SUCCESS","msg":null}``
``GET idGen/getIdByAppKey/<appKey>``  the same, of the generator of that application
====================================  ================================================

A key without a generator of its own gets ids of the default one. Any error is
``{"id":-1,"status":"ERROR","msg":"system error!"}`` with HTTP status 200; but 401, 403 and 429
for callers without access, and 413 for a request that is too large.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from rest_framework.exceptions import APIException

from ...process.maps import generators
from ...settings import DEFAULT_ALIAS
from .mounting import DEFAULT, KEY, Authentication, OldServer, json_answer

JSON = "application/json;charset=UTF-8"
NO_ID, NO_ID_MESSAGE = -1, "system error!"
CLOSED = (401, 403, 413, 429)


def urls(
    *,
    authentication: Authentication = DEFAULT,
    generator: str = DEFAULT_ALIAS,
    app_keys: Mapping[str, str] | None = None,
) -> list[URLPattern]:
    """The URL patterns, for ``include()``.

    ``authentication``: DRF's classes, one of which must know the caller; by default access tokens,
    then the project's own. None lets all callers take ids, and a system check warns of it.
    ``generator``: the alias whose ids ``getId`` gives. ``app_keys``: the alias for each application
    key; without it a key is an alias. ``generator`` serves all other keys.

    Raises :class:`~django.core.exceptions.ImproperlyConfigured`.
    """
    server = FingerMark(authentication, generator, app_keys)
    return [
        server.path("idGen/getId", get=server.of_default),
        server.path(f"idGen/getIdByAppKey/(?P<key>{KEY})", get=server.of_application),
    ]


class FingerMark(OldServer):
    name = "finger_mark"
    epoch = "1970-01-01T00:00:00Z"

    def __init__(
        self, authentication: Authentication, alias: str, app_keys: Mapping[str, str] | None
    ) -> None:
        super().__init__(authentication, alias, more=(app_keys or {}).values())
        self._app_keys = app_keys

    def of_default(self, request: HttpRequest) -> HttpResponse:
        return self._id(request, self.alias)

    def of_application(self, request: HttpRequest, key: str) -> HttpResponse:
        alias = key if self._app_keys is None else self._app_keys.get(key, self.alias)
        return self._id(request, alias if alias in generators else self.alias)

    def _id(self, request: HttpRequest, alias: str) -> HttpResponse:
        value = self.of_generator(self.door.caller(request), alias).next_id()
        return _answer(value, "SUCCESS", None)

    def failed(self, error: Exception, answer: APIException, request: HttpRequest) -> HttpResponse:  # noqa: ARG002
        status = answer.status_code if answer.status_code in CLOSED else 200
        return _answer(NO_ID, "ERROR", NO_ID_MESSAGE, status)


def _answer(value: int, state: str, message: str | None, status: int = 200) -> HttpResponse:
    return json_answer({"id": value, "status": state, "msg": message}, JSON, status)

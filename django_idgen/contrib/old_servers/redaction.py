"""Keeps secrets in URLs out of logs and error reports.

TinyID's clients send their token as a parameter. Mounting its URLs installs
:class:`RedactTokens` on Django's own loggers, and each view strips the token from the request
once it has read it. A server in front of Django writes its own logs. gunicorn takes the request
line from the stripped environment, but only for requests that reached the view. So install the
filter there, too, in ``gunicorn.conf.py``::

    def on_starting(server):
        import logging
        from django_idgen.contrib.old_servers.redaction import RedactTokens
        logging.getLogger("gunicorn.access").addFilter(RedactTokens())

Do the same for ``uvicorn.access`` and ``granian.access``. A proxy has its own settings for it.
"""

from __future__ import annotations

import logging
import re
import string
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote_plus

from django.conf import settings
from django.http import HttpRequest, QueryDict

REDACTED = "[redacted]"
PARAMETER = "token"
LOGGERS = ("django.server", "django.request")
IN_URL = ("QUERY_STRING", "RAW_URI", "REQUEST_URI", "HTTP_REFERER")
"""The places of a query in a request's environment."""
MOST_TEXT = 8192
"""Characters to read; the rest is cut. Servers take longer headers than URLs."""
# Linear time: a name begins where the last one ended, without backtracking.
_PAIR = re.compile(r"(?<![^?&;=\s\"'])([^?&;=\s\"']++)=([^&;\s\"']*+)")
# An access token. django_idgen.rest.tokens can't be imported before the apps are loaded.
_SECRET = re.compile(r"idgen_[A-Za-z0-9_-]{43}")
_IN_SECRETS = string.ascii_letters + string.digits + "_-"
CUT = "[cut]"


class RedactTokens(logging.Filter):
    """Removes the values of ``token`` parameters, and all access tokens, from log records.

    For loggers and handlers. It drops no record. Thread-safe.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            # With arguments it is a format, which can't be cut.
            record.msg = (_redacted if record.args else redacted)(record.msg)
        args: Any = record.args
        if isinstance(args, MutableMapping):
            # In place: gunicorn's own class has defaults for missing keys.
            args.update({key: _redacted_value(value) for key, value in args.items()})
        elif isinstance(args, tuple):
            record.args = tuple(map(_redacted_value, args))
        return True


def redacted(text: str) -> str:
    """``text`` (a URL, a query, a request line) without secrets, cut to :data:`MOST_TEXT`."""
    if len(text) > MOST_TEXT:
        # Not in the middle of a word, which may be a secret.
        return _redacted(text[:MOST_TEXT].rstrip(_IN_SECRETS)) + CUT
    return _redacted(text)


def _redacted(text: str) -> str:
    return _SECRET.sub(REDACTED, _PAIR.sub(_redacted_pair, text))


def install() -> None:
    """Add the filter to Django's loggers. Idempotent."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, RedactTokens) for each in logger.filters):
            logger.addFilter(RedactTokens())


def take_token(request: HttpRequest) -> str | None:
    """Remove the ``token`` from the query of ``request``, and return it.

    Raises what reading a query does; the request is cleaned then, too.
    """
    if request.encoding is not None:
        # The client's charset may be no codec for text.
        request.encoding = settings.DEFAULT_CHARSET
    try:
        given = request.GET
    finally:
        _clean(request)
    request.GET = _stripped(given)
    return given.get(PARAMETER)


def _clean(request: HttpRequest) -> None:
    meta = request.META
    for name in IN_URL:
        if isinstance(meta.get(name), str):
            meta[name] = redacted(meta[name])
    scope: dict[str, Any] | None = getattr(request, "scope", None)
    if scope is not None:  # ASGI servers log it
        scope["query_string"] = meta["QUERY_STRING"].encode()


def take_token_of_form(request: HttpRequest) -> str | None:
    """Remove the ``token`` from a posted form, and return it. Raises what reading a body does."""
    found = request.POST.get(PARAMETER)
    if found is not None:
        request.POST = _stripped(request.POST)
        if hasattr(request, "_body"):
            request._body = request.POST.urlencode().encode()
    return found


def _stripped(values: QueryDict) -> Any:
    if PARAMETER not in values:
        return values
    kept = values.copy()
    kept.setlist(PARAMETER, [REDACTED])
    kept._mutable = False
    return kept


def _redacted_pair(pair: re.Match[str]) -> str:
    name = unquote_plus(pair[1])
    return f"{pair[1]}={REDACTED}" if name.casefold() == PARAMETER else pair[0]


def _redacted_value(value: object) -> object:
    return redacted(value) if isinstance(value, str) else value

"""Secrets that clients put into URLs, kept out of logs and error reports.

TinyID's clients send their token as a parameter. Mounting its URLs installs
:class:`RedactTokens` on Django's own loggers, and each view strips the token from the request
once it has read it. A server in front of Django writes logs of its own: gunicorn takes the
request line from the stripped environment, but only of requests that came as far as the view;
so have it filter, too, in its ``gunicorn.conf.py``::

    def on_starting(server):
        import logging
        from django_idgen.contrib.old_servers.redaction import RedactTokens
        logging.getLogger("gunicorn.access").addFilter(RedactTokens())

Do the same for ``uvicorn.access`` and ``granian.access``, and configure a proxy in its own way.
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

__all__ = ["REDACTED", "RedactTokens", "install", "redacted", "take_token", "take_token_of_form"]

REDACTED = "[redacted]"
PARAMETER = "token"
LOGGERS = ("django.server", "django.request")
IN_URL = ("QUERY_STRING", "RAW_URI", "REQUEST_URI", "HTTP_REFERER")
"""Where servers put a query into a request's environment."""
MOST_TEXT = 8192
"""Characters to look at; the rest is left out. Servers take longer headers than URLs."""
# A name begins where the last one ended, and gives nothing back: else a long text without "="
# would be gone through once for each of its characters.
_PAIR = re.compile(r"(?<![^?&;=\s\"'])([^?&;=\s\"']++)=([^&;\s\"']*+)")
# An access token (django_idgen.rest.tokens, which can't be imported before the apps are loaded).
_SECRET = re.compile(r"idgen_[A-Za-z0-9_-]{43}")
_IN_SECRETS = string.ascii_letters + string.digits + "_-"
CUT = "[cut]"


class RedactTokens(logging.Filter):
    """Takes the values of ``token`` parameters, and all access tokens, out of log records.

    For loggers and handlers; it lets every record pass. Thread-safe.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):
            # What has arguments is a format, which can't be cut.
            record.msg = (_redacted if record.args else redacted)(record.msg)
        args: Any = record.args
        if isinstance(args, MutableMapping):
            # In place: gunicorn's has a class of its own, which knows what is missing.
            args.update({key: _redacted_value(value) for key, value in args.items()})
        elif isinstance(args, tuple):
            record.args = tuple(map(_redacted_value, args))
        return True


def redacted(text: str) -> str:
    """``text`` without secrets: a URL, a query, a request line; cut where it is too long."""
    if len(text) > MOST_TEXT:
        # Not within a word, which may be the first part of a secret.
        return _redacted(text[:MOST_TEXT].rstrip(_IN_SECRETS)) + CUT
    return _redacted(text)


def _redacted(text: str) -> str:
    return _SECRET.sub(REDACTED, _PAIR.sub(_redacted_pair, text))


def install() -> None:
    """Have Django's loggers redact. May be called again."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, RedactTokens) for each in logger.filters):
            logger.addFilter(RedactTokens())


def take_token(request: HttpRequest) -> str | None:
    """Take the ``token`` out of the query of ``request``.

    Raises what reading a query does; the query is cleaned then, too.
    """
    if request.encoding is not None:
        # Not the client's, which may be no codec for text at all.
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
    if scope is not None:  # what ASGI servers log of it
        scope["query_string"] = meta["QUERY_STRING"].encode()


def take_token_of_form(request: HttpRequest) -> str | None:
    """The ``token`` in a form that was posted, likewise. Raises what reading a body does."""
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

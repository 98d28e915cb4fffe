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
from collections.abc import MutableMapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, QueryDict

REDACTED = "[redacted]"
PARAMETER = "token"
LOGGERS = ("django.server", "django.request")
_NAME = "".join(f"(?:{each}|%{ord(each):x}|%{ord(each.upper()):x})" for each in PARAMETER)
"""The parameter as a URL may write it."""
# In linear time. A name begins where the last value ended. The second part is an access token:
# django_idgen.rest.tokens can't be imported before the apps are loaded.
_SECRET = re.compile(
    rf"(?<![^?&;=\s\"'])({_NAME}=)[^&;\s\"']*|idgen_[\w-]{{43}}", re.ASCII | re.IGNORECASE
)


class RedactTokens(logging.Filter):
    """Removes the values of ``token`` parameters, and all access tokens, from log records.

    For loggers and handlers. It drops no record. Thread-safe.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = redacted(record.msg)
        args: Any = record.args
        if isinstance(args, MutableMapping):
            # In place: gunicorn's own class has defaults for missing keys.
            args.update({key: redacted(value) for key, value in args.items()})
        elif isinstance(args, tuple):
            record.args = tuple(map(redacted, args))
        return True


_FILTER = RedactTokens()


def redacted(text: Any) -> Any:
    """``text`` (a URL, a query, a request line) without secrets; any other value as it is."""
    if not isinstance(text, str):
        return text
    return _SECRET.sub(lambda found: f"{found[1] or ''}{REDACTED}", text)


def install() -> None:
    """Add the filter to Django's loggers. Idempotent."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


def take_token(request: HttpRequest) -> str | None:
    """Remove the ``token`` from the query of ``request``, and return it.

    Writes the query anew wherever servers log it. Raises what reading a query does; then nothing of
    the query stays.
    """
    if request.encoding is not None:
        # The client's charset may be no codec for text.
        request.encoding = settings.DEFAULT_CHARSET
    meta, left = request.META, ""
    try:
        given = request.GET
        request.GET = _stripped(given)
        left = request.GET.urlencode(safe="[]/")
        return given.get(PARAMETER)
    finally:
        meta["QUERY_STRING"] = left
        meta.pop("HTTP_REFERER", None)
        for name in meta.keys() & {"RAW_URI", "REQUEST_URI"}:
            meta[name] = request.get_full_path()
        if hasattr(request, "scope"):  # ASGI servers log it
            request.scope["query_string"] = left.encode()


def take_token_of_form(request: HttpRequest) -> str | None:
    """Remove the ``token`` from a posted form, and return it. Raises what reading a body does."""
    given = request.POST
    request.POST = _stripped(given)
    if PARAMETER in given and hasattr(request, "_body"):
        request._body = request.POST.urlencode().encode()
    return given.get(PARAMETER)


def _stripped(values: QueryDict) -> Any:
    kept = values.copy()
    if PARAMETER in kept:
        kept.setlist(PARAMETER, [REDACTED])
    kept._mutable = False
    return kept

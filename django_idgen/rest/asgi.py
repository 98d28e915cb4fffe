"""A limit for bodies under ASGI, where Django stores a whole body before any view sees it.

In ``asgi.py``: ``application = BodyLimit(get_asgi_application(), under="/idgen/")``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004
from django.utils.module_loading import import_string

from .failures import MOST_BODY

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
TOO_LARGE = b'{"detail":"The body is too large.","code":"too_large"}'


class BodyLimit:
    """An ASGI application: ``app``, but 413 for bodies of more than ``most`` bytes.

    Only for paths that begin with ``under``, or with one of them. They are written as in the URL
    configuration, without the server's ``root_path`` and ``FORCE_SCRIPT_NAME``. It reads no more
    than ``most`` bytes. Thread-safe.
    """

    def __init__(
        self, app: Any, *, under: str | tuple[str, ...] = "/", most: int = MOST_BODY
    ) -> None:
        self.app, self.under, self.most = app, under, most

    def covers(self, path: str) -> bool:
        return path.startswith(self.under)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self.covers(_path_info(scope)):
            await self.app(scope, receive, send)
            return
        left = self.most

        async def counted() -> Any:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            # Django reads the whole body before it answers, and then closes what it has stored.
            return message if left >= 0 else {"type": "http.disconnect"}

        await self.app(scope, counted, send)
        if left < 0:
            headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 413, "headers": headers})
            await send({"type": "http.response.body", "body": TOO_LARGE})


def _path_info(scope: Any) -> str:
    """The path that Django resolves; it removes the prefix in the same way."""
    path: str = scope["path"]
    return path.removeprefix(settings.FORCE_SCRIPT_NAME or scope.get("root_path") or "")


def check_body_limit(prefix: str) -> list[CheckMessage]:
    """W015, if no limit covers the URLs below ``prefix``; see :func:`..checks.check_mounts`."""
    path = getattr(settings, "ASGI_APPLICATION", None)
    if path is None:
        return []
    try:
        app = import_string(path)
    except ImportError:
        return []  # the server will report it
    prefix = prefix.replace("^", "")  # of a regular expression
    is_limited = isinstance(app, BodyLimit)
    if is_limited and app.covers(f"/{prefix}"):
        return []
    if is_limited:
        what = f"Add '/{prefix}' to the paths in BodyLimit(under=...) of {path!r}"
    else:
        what = f"Wrap the application of {path!r} in django_idgen.rest.asgi.BodyLimit"
    return [
        Warning(
            f"Under ASGI, Django stores a body of any size on the disk before a view below "
            f"'/{prefix}' can refuse it.",
            hint=f"{what}. Or limit bodies in the proxy, and silence this check.",
            id="django_idgen.W015",
        )
    ]

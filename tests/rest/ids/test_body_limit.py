"""Under ASGI a body that is too large is refused before it is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.core.checks import run_checks
from django.test import override_settings

from django_idgen.rest.asgi import BodyLimit

from .conftest import URL

CHUNK = b"x" * 1024
application = get_asgi_application()
limited = BodyLimit(application, under="/idgen/", most=4096)


def sent(app: Any, chunks: int, path: str = URL) -> tuple[int, int]:
    """The status of a POST of so many chunks, and how many of them were read."""
    read, status = 0, 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        if read == chunks:
            await asyncio.Event().wait()  # the client waits for the answer
        read += 1
        return {"type": "http.request", "body": CHUNK, "more_body": read < chunks}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    headers = [(b"content-type", b"application/json"), (b"host", b"testserver")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    asyncio.run(app(scope, receive, send))
    return status, read


@pytest.mark.django_db
def test_a_body_that_is_too_large_is_read_no_further() -> None:
    """Hazard 112: 413 with the first byte too many. Other paths and smaller bodies pass."""
    assert sent(limited, 100_000) == (413, 5)
    assert sent(limited, 4)[1] == 4
    assert sent(limited, 100, "/elsewhere") == (404, 100)


def test_a_check_asks_for_a_limit() -> None:
    """W015 where there is an ASGI application without one, as the service is mounted."""
    for name, wanted in (("application", ["django_idgen.W015"]), ("limited", []), (None, [])):
        path = None if name is None else f"{__name__}.{name}"
        with override_settings(ASGI_APPLICATION=path, ROOT_URLCONF="tests.remote.urls"):
            assert [each.id for each in run_checks(tags=["urls"])] == wanted

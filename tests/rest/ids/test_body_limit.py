"""Under ASGI a body that is too large is refused before it is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.core.checks import run_checks
from django.test import override_settings
from django.urls import include, path, re_path

from django_idgen.contrib.old_servers import leaf, tinyid
from django_idgen.rest.asgi import BodyLimit

from .conftest import URL

CHUNK = b"x" * 1024
application = get_asgi_application()
limited = BodyLimit(application, under="/idgen/", most=4096)
all_limited = BodyLimit(application, under=("/idgen/", "/leaf/", "/tinyid/"))
everything_limited = BodyLimit(application)


def sent(app: Any, chunks: int, path: str = URL, **more: str) -> tuple[int, int]:
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
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, **more}
    asyncio.run(app(scope, receive, send))
    return status, read


@pytest.mark.django_db
def test_a_body_that_is_too_large_is_read_no_further() -> None:
    """Hazard 112: 413 with the first byte too many. Other paths and smaller bodies pass."""
    assert sent(limited, 100_000) == (413, 5)
    assert sent(limited, 4)[1] == 4
    assert sent(limited, 100, "/elsewhere") == (404, 100)


@pytest.mark.django_db
def test_a_limit_holds_below_the_root_path_of_a_server() -> None:
    """Django removes it, whether it is the server's or a setting of the project's."""
    assert sent(limited, 100, f"/root{URL}", root_path="/root") == (413, 5)
    assert sent(limited, 100, URL, root_path="/root") == (413, 5)  # old servers leave it out
    assert sent(limited, 100, "/idgen/elsewhere", root_path="/idgen") == (404, 100)
    with override_settings(FORCE_SCRIPT_NAME="/root"):
        assert sent(limited, 100, f"/root{URL}") == (413, 5)


def test_a_check_asks_for_a_limit() -> None:
    """W015 where there is an ASGI application without one, as the service is mounted."""
    for name, wanted in (("application", ["django_idgen.W015"]), ("limited", []), (None, [])):
        path = None if name is None else f"{__name__}.{name}"
        with override_settings(ASGI_APPLICATION=path, ROOT_URLCONF="tests.remote.urls"):
            assert [each.id for each in run_checks(tags=["urls"])] == wanted


def test_a_check_names_each_mount_that_a_limit_leaves_out() -> None:
    """W015 for the old servers beside the service, until the limit covers them."""
    mounts = (
        path("idgen/", include("django_idgen.rest.urls")),
        path("leaf/", include(leaf.urls())),
        re_path("^tinyid/", include(tinyid.urls())),
    )
    for name, missing in (
        ("application", ["/idgen/", "/leaf/", "/tinyid/"]),
        ("limited", ["/leaf/", "/tinyid/"]),
        ("all_limited", []),
        ("everything_limited", []),
    ):
        with override_settings(ASGI_APPLICATION=f"{__name__}.{name}", ROOT_URLCONF=mounts):
            found = [each for each in run_checks(tags=["urls"]) if each.id == "django_idgen.W015"]
        assert len(found) == len(missing), name
        for each, mount in zip(found, missing, strict=True):
            assert f"'{mount}'" in each.msg
            assert name == "application" or f"'{mount}'" in str(each.hint)

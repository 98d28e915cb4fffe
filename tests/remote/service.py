"""A service that lends, in this process: Django's own threaded server over HTTP/1.1."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import TCPServer
from typing import Any
from unittest import mock

from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer
from django.test import override_settings
from django.test.testcases import QuietWSGIRequestHandler

from django_idgen.rest.authentication import TOKENS
from django_idgen.rest.tokens import KnownToken
from django_idgen.sources.http import HttpSource

SECRET = "idgen_a-secret-of-the-tests-that-opens-everything"
EVERYTHING = KnownToken(1, "tests", tags=("*",), generators=("*",), leases=("*",), expires_at=None)


class Quiet(QuietWSGIRequestHandler):
    timeout = 30  # seconds after which an idle connection's thread ends

    def log_message(self, *args: Any) -> None:
        """A client that goes away is no news."""


class Server(ThreadedWSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


@contextmanager
def in_thread(server: TCPServer) -> Iterator[None]:
    """``server`` serves for the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


@contextmanager
def serving(port: int = 0) -> Iterator[str]:
    """The address of the API of this very process, for the block."""
    server = Server(("127.0.0.1", port), Quiet, connections_override={})
    server.set_app(WSGIHandler())
    with in_thread(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/idgen/"


@contextmanager
def one_token(token: KnownToken = EVERYTHING) -> Iterator[None]:
    """``SECRET`` is known, and no other secret; no database is asked."""
    TOKENS.clear()
    with mock.patch.object(TOKENS, "_find", lambda text: token if text == SECRET else None):
        yield
    TOKENS.clear()


@contextmanager
def service(idgen: dict[str, Any]) -> Iterator[str]:
    """A service with the setting ``IDGEN`` of its own, and its address."""
    with (
        override_settings(IDGEN=idgen, ROOT_URLCONF="tests.remote.urls", ALLOWED_HOSTS=["*"]),
        one_token(),
        serving() as url,
    ):
        yield url


def installation_of(url: str) -> str:
    """The installation that the service at ``url`` lends for."""
    source = HttpSource(base_urls=url, token=SECRET, timeout=60)
    try:
        return source.owner("orders")
    finally:
        source.close()

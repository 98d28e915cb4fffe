"""Servers that answer as a test wishes, and wires that lose what it wishes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers import free_port
from tests.wires import TcpProxy

from .service import in_thread

Said = tuple[int, dict[str, str], bytes]
Script = Callable[[str, dict[str, Any]], Said]
"""From the path and the body of a request to the status, headers and body of its answer."""


def as_json(body: object, status: int = 200, **headers: str) -> Said:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(body).encode()


def refusal(code: str, status: int, **more: object) -> Said:
    """An error of the API."""
    return as_json({"detail": "No.", "code": code, **more}, status)


def segment(asked: dict[str, Any], **changes: object) -> Said:
    """The answer of a sound service to ``asked``, but for ``changes`` (None: left out)."""
    start = max(int(asked.get("floor", 0)), 1)
    sound = {
        "tag": asked.get("tag", "t"),
        "start": str(start),
        "stop": str(start + 10),
        "step": 10,
        "delta": 1,
        "installation": "one",
        "max_segment": 1000,
        "nonce": asked.get("nonce"),
    }
    return as_json({k: v for k, v in {**sound, **changes}.items() if v is not None})


class Scripted:
    """A server that runs ``script`` for each request; ``requests`` has what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[tuple[str, str, dict[str, Any], dict[str, str]]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/idgen/"

    @property
    def posts(self) -> list[dict[str, Any]]:
        return [body for method, _, body, _ in self.requests if method == "POST"]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self._answer(json.loads(self.rfile.read(length) or b"{}"))

            def do_GET(self) -> None:
                self._answer({})

            def _answer(self, body: dict[str, Any]) -> None:
                outer.requests.append((self.command, self.path, body, dict(self.headers)))
                status, headers, content = outer.script(self.path, body)
                with suppress(OSError):
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(content)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *args: Any) -> None:
                """Nobody reads it."""

        return Handler


@contextmanager
def scripted(script: Script) -> Iterator[Scripted]:
    made = Scripted(script)
    with in_thread(made.server):
        yield made


class Wire(TcpProxy):
    """A TCP proxy before the server at ``port`` that may keep what the server answers.

    ``mode``: ``pass``; ``cut`` (the answer came, and the client's connection breaks),
    ``half`` (so much of it goes on), ``drip`` (a byte now and then, for ever),
    ``silent`` (nothing goes on, and nothing breaks).
    """

    def __init__(self, port: int) -> None:
        self.mode = "pass"
        self.answers = 0
        """How many answers of the server came in."""
        self._over = threading.Event()
        super().__init__(("127.0.0.1", port))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/idgen/"

    def close(self) -> None:
        self._over.set()
        super().close()

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        up = threading.Thread(target=_pump, args=(client, server), daemon=True)
        up.start()
        try:
            while data := server.recv(65536):
                self.answers += data.startswith(b"HTTP/")
                if self.mode != "pass":
                    self._spoil(client, data)
                    break
                client.sendall(data)
        finally:
            with suppress(OSError):  # closing alone would leave the other thread reading
                client.shutdown(socket.SHUT_RDWR)
            up.join()

    def _spoil(self, client: socket.socket, data: bytes) -> None:
        if self.mode == "half":
            client.sendall(data[: len(data) - 20])
        elif self.mode == "drip":
            client.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
            while not self._over.wait(0.05):
                client.sendall(b"x")
        elif self.mode == "silent":
            self._over.wait()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """A :class:`Wire` before the service at ``url``."""
    made = Wire(int(url.rpartition(":")[2].partition("/")[0]))
    try:
        yield made
    finally:
        made.close()


def closed_url() -> str:
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}/idgen/"

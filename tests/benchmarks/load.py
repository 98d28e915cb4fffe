"""A client that costs little: the same request over and over, on a few connections.

``python -m tests.benchmarks.load`` reads lines ``port keep_alive requests request`` (the
request as JSON text) from its standard input, and answers each with the nanoseconds that
the requests took, or with what went wrong.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from time import perf_counter_ns

CONNECTIONS = 4
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)


class Connection:
    """A connection that is opened again where the server doesn't keep it."""

    def __init__(self, port: int, request: bytes, *, keep: bool) -> None:
        self._address = ("127.0.0.1", port)
        self._request = request
        self._keep = keep
        self._socket: socket.socket | None = None

    def ask(self, times: int) -> None:
        for _ in range(times):
            self._ask()
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(self._request)
        answer = self._read(self._socket)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {answer[:200]!r}")
        if not self._keep:
            self.close()

    def _read(self, link: socket.socket) -> bytes:
        data = link.recv(65536)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more(link)
        found = LENGTH.search(data, 0, end + 2)
        if found is None:
            raise RuntimeError(f"the answer has no length: {data[:200]!r}")
        missing = end + 4 + int(found[1]) - len(data)
        while missing > 0:
            missing -= len(self._more(link))
        return data

    def _more(self, link: socket.socket) -> bytes:
        data = link.recv(65536)
        if not data:
            raise RuntimeError("the server hung up")
        return data


def timed(port: int, keep: bool, requests: int, request: bytes) -> int:
    """Nanoseconds that so many requests take."""
    failures: list[Exception] = []

    def work() -> None:
        try:
            Connection(port, request, keep=keep).ask(requests // CONNECTIONS)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    begun = perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return perf_counter_ns() - begun


def main() -> None:
    for line in sys.stdin:
        port, keep, requests, request = json.loads(line)
        try:
            print(timed(port, keep, requests, request.encode()), flush=True)
        except Exception as error:
            print(f"failed: {error!r}", flush=True)


if __name__ == "__main__":
    main()

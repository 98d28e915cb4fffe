"""A wire to Redis that can be cut after a script was applied, before its answer is heard."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from select import select


class RedisWire:
    """A TCP proxy before the Redis at ``port``."""

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.scripts = 0
        """How often a script was sent."""
        self.losing = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Stop listening, and wait for the connections to end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._carry, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _carry(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            while True:
                for source in select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    is_script = source is client and b"EVALSHA" in data
                    self.scripts += is_script
                    (server if source is client else client).sendall(data)
                    if is_script and self.losing:
                        server.recv(65536)  # it is done; the client never hears of it
                        return

"""TCP proxies: what goes through them can be counted, and lost."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from select import select

SCRIPT = re.compile(rb"EVAL(SHA)?\r\n")
"""A script on its way to Redis, by its hash or in full."""
COMMIT = re.compile(rb"(?<!AUTO)COMMIT(?!TED)")
"""The end of a transaction, in either database's words."""


class TcpProxy:
    """Lets clients through to ``server``, each in a thread, in which :meth:`carry` runs."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        """Carry what either says to the other. Its end, or an OSError, ends both connections."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop listening, end the connections, and wait for their threads."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)  # by now there are no more clients to come
        for client in self._clients:
            with suppress(OSError):  # it has ended
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._clients.append(client)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            self.carry(client, server)


class CutWire(TcpProxy):
    """A proxy that can be cut: what either side says is on its way then, until it is mended."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._mended = threading.Event()
        self.mend()
        super().__init__(server)

    def cut(self) -> None:
        self._mended.clear()

    def mend(self) -> None:
        self._mended.set()

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for source in select([client, server], [], [])[0]:
                self._mended.wait()
                data = source.recv(65536)
                if not data:
                    return
                (server if source is client else client).sendall(data)

    def close(self) -> None:
        self.mend()
        super().close()


class LossyWire(TcpProxy):
    """A proxy that can let through what matches ``counted`` and lose the answer, or lose it."""

    def __init__(self, server: tuple[str, int], counted: re.Pattern[bytes]) -> None:
        self._counted = counted
        self.sent = 0
        """How often a client has sent what is counted."""
        self.losing = False
        """Whether what is counted is done, and the client never hears of it."""
        self.dropping = False
        """Whether it never arrives: the server sees the client go."""
        super().__init__(server)

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for source in select([client, server], [], [])[0]:
                data = source.recv(65536)
                if not data:
                    return
                counted = source is client and self._counted.search(data) is not None
                self.sent += counted
                if counted and self.dropping:
                    return
                (server if source is client else client).sendall(data)
                if counted and self.losing:
                    server.recv(65536)  # it is done by then
                    return

"""Ports of this machine that nobody listens on."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that was free just now: for a server to listen on, or to knock at in vain.

    Another process may be quicker; who starts a server tries again with another one.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port

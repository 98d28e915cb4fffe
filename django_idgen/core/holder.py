"""The label of a process that holds grants: ``web-1:4242 gunicorn``.

The process id tells the workers of one host apart, the name says what they are. After a
restart both may differ: who comes back for a worker id is told by the rest.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from functools import lru_cache
from pathlib import Path

from .lease import OLD_CLIENTS

__all__ = ["LONGEST_HOLDER", "identity_of", "process_label"]

LONGEST_HOLDER = 200
"""Characters that the registries keep of a label."""
# No quote behind it: a service writes the name of a token before the label, as JSON.
_MADE_HERE = re.compile(r'(.+):[0-9]+ [^:"]+', re.DOTALL)


def process_label() -> str:
    """``host:pid name`` of this process; another one in the child of a fork. Thread-safe."""
    return _label(os.getpid())


def identity_of(holder: str) -> str:
    """What a process keeps over a restart: the host, or a label that somebody chose."""
    made = None if holder.startswith(OLD_CLIENTS) else _MADE_HERE.fullmatch(holder)
    return holder if made is None else made[1]


@lru_cache(maxsize=1)
def _label(pid: int) -> str:
    # One text for all who keep it: there may be one for each of many tags.
    program = re.sub('[:"]', "?", _program())
    words = f"{socket.gethostname()}:{pid} {program}"
    return "".join(char if char.isprintable() else "?" for char in words)[:LONGEST_HOLDER]


def _program() -> str:
    """The name of what runs: ``gunicorn``, ``celery``, ``manage.py``."""
    path = Path(sys.argv[0] if getattr(sys, "argv", None) else "")
    # ``python -m celery`` runs celery/__main__.py.
    name = path.parent.name if path.name == "__main__.py" else path.name
    return name if name.strip("-") not in ("", "c", "m") else "python"

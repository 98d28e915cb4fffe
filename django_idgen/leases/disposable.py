"""Worker ids that are used once, as with uid-generator: each start takes the next one.

The rows of the worker ids are its ``WORKER_NODE``. The holder's label has the host, the process
and the type of machine (``actual`` or ``container``), and the row has the time of the start.
Each worker id still has a window, so that a process that is cut off ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.lease import LONGEST_HOLDER, Grant, Namespace
from ..core.options import check_flag
from .database import DatabaseLeases

_VARIABLES = ("KUBERNETES_SERVICE_HOST", "JPAAS_HOST", "container")
_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))


class DisposableLeases(DatabaseLeases):
    """A registry in a database that lends no worker id again. Thread-safe.

    When all are used up, :class:`NoFreeWorker` says so; with ``recycle`` the one that is free
    longest is lent from then on, from the end of its last window. A start asks for one row,
    however many there are. The other options are those of :class:`DatabaseLeases`.

    Where the namespace's record is lost with all rows of worker ids, it begins at the first one
    again, past every window that may have been lent: worker ids repeat then, ids do not.
    """

    kind = "disposable"

    def __init__(
        self,
        namespace: Namespace,
        *,
        database: str = "default",
        recycle: bool = False,
        timeout: float = 10.0,
        server_identity: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            replace(namespace, unused="first" if check_flag("recycle", recycle) else "only"),
            database=database,
            timeout=timeout,
            server_identity=server_identity,
            clock=clock,
        )

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        kind = f" ({machine_type()})"
        label = holder if self._lends_on else holder[: LONGEST_HOLDER - len(kind)] + kind
        return super().acquire(holder=label, not_before=not_before, avoid=avoid)


def machine_type(environ: Mapping[str, str] = os.environ) -> str:
    """``container`` or ``actual``: what uid-generator calls the types of a worker node."""
    contained = any(environ.get(name) for name in _VARIABLES)
    return "container" if contained or any(path.exists() for path in _FILES) else "actual"

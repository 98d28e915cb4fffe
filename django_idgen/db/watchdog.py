"""Giving up a PostgreSQL server that keeps silent in the middle of a job.

Its driver waits for an answer as long as the other side's kernel is alive, also
when the server process was stopped or its disk hangs; then all later jobs of the
alias would wait behind that one. MySQL's drivers have a read timeout for it.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress

from django.db.backends.base.base import BaseDatabaseWrapper

from ..core.clock import SYSTEM_CLOCK
from ..core.loader import BackgroundThread

__all__ = ["SilenceGuard"]


class SilenceGuard:
    """Ends ``connection`` when one job on it takes longer than ``limit`` seconds.

    The job's thread then gets the error of a broken connection. The guard's own
    thread lives from the first job to :meth:`stop`.
    """

    def __init__(self, connection: BaseDatabaseWrapper, limit: float) -> None:
        self._connection = connection
        self._limit = limit
        self._began: float | None = None
        self._stopped = threading.Event()
        self._thread = BackgroundThread(f"idgen-guard-{connection.alias}", self._watch)
        self._thread.start_if_possible()

    def job_began(self) -> None:
        self._began = SYSTEM_CLOCK.stopwatch()

    def job_ended(self) -> None:
        self._began = None

    def stop(self) -> None:
        """Before the connection is closed: its socket's number may soon be another's."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._limit / 4):
            began = self._began
            if began is not None and SYSTEM_CLOCK.stopwatch() - began > self._limit:
                self._end()
                return

    def _end(self) -> None:
        driver_error = self._connection.Database.Error  # type: ignore[attr-defined]
        with suppress(driver_error, OSError, AttributeError):  # it is closed, or not open yet
            number = os.dup(self._connection.connection.fileno())
            with socket.socket(fileno=number) as ours:
                ours.shutdown(socket.SHUT_RDWR)

"""A loader for fetches that wait for one of several databases."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from django.db import connections

from ..core.generator import is_prefork
from ..core.loader import InlineLoader, Loader

__all__ = ["FetchThreads"]

T = TypeVar("T")

MOST = 16
"""Fetches under way at a time. Each waits for the thread of its database."""


class _FetchThread:
    def __init__(self, number: int) -> None:
        # Receivers of signals may open connections in its thread.
        self.loader = Loader(f"idgen-thread-{number}", on_idle=connections.close_all)
        self.jobs: set[object] = set()  # adding and discarding are atomic

    def submit(self, fn: Callable[[], T], urgent: bool) -> Future[T]:
        job = object()
        self.jobs.add(job)

        def run() -> T:
            try:
                return fn()
            finally:
                self.jobs.discard(job)

        return self.loader.submit(run, urgent=urgent)


class FetchThreads:
    """Runs jobs in a few threads, so that one which waits for a dead server stops no other.

    The threads are daemons that end when there is nothing to do. ``is_background``
    says whether the databases are servers; if not, jobs run in the caller's thread.
    Safe to share between threads.
    """

    def __init__(self, is_background: Callable[[], bool]) -> None:
        self._is_background = is_background
        self._inline = InlineLoader()
        self.reset()

    @property
    def background(self) -> bool:
        return self._is_background()

    def submit(self, fn: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        """Run ``fn`` in the thread with the least to do."""
        if is_prefork() or not self.background:
            return self._inline.submit(fn, urgent=urgent)
        if self._pid != os.getpid():
            self.reset()
        return min(self._threads, key=lambda thread: len(thread.jobs)).submit(fn, urgent)

    def reset(self) -> None:
        """After a fork: forget the threads and their jobs."""
        self._threads = [_FetchThread(number) for number in range(MOST)]
        self._pid = os.getpid()

"""The threads of ours that work behind a test's back."""

from __future__ import annotations

import threading

from django_idgen.core.clock import SYSTEM_CLOCK

PATIENCE = 30
"""Seconds that a thread may take, on a loaded machine."""


def wait_for_threads(*aliases: str) -> None:
    """Come back when no thread uses the databases ``aliases`` any more, unless it hangs.

    Before they are other databases, or are gone: a thread closes the connections of the
    aliases that are there at its end.
    """
    # A LoaderPool and questions first: they have the loaders of the databases work for them.
    for names in (("idgen-fetch-", "idgen-readiness"), tuple(f"idgen-{each}" for each in aliases)):
        for thread in threading.enumerate():
            if thread.name.startswith(names):
                _join(thread)


def _join(thread: threading.Thread) -> None:
    deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
    while SYSTEM_CLOCK.stopwatch() < deadline:
        try:
            thread.join(PATIENCE)
        except RuntimeError:
            SYSTEM_CLOCK.sleep(0.01)  # it is on the list, and just being started
        else:
            return

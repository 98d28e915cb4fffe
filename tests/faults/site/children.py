"""What child processes run. Importable by itself, as ``spawn`` needs it."""

from __future__ import annotations

import os
import sys
import traceback

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from .taking import record, take, wait_for


def take_and_record(count: int) -> None:
    record(take(count))


def fork(work: str, *, leave: str = "end") -> int:
    """Run ``work`` in a child made by a plain fork; returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        exec(work, {"take": take, "record": record, "wait_for": wait_for, "fork": fork, "os": os})
    except SystemExit:
        raise  # of a child of this child
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if leave == "vanish":
        os._exit(0)
    sys.exit(0)


def join(pids: list[int]) -> None:
    """Wait for the children; all must have done their work."""
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

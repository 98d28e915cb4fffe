"""A process whose children take ids of one tag, and account for them as ranges.

``python -m tests.faults.site.counting CHILDREN BATCHES``: each child takes so many batches
once the file ``go`` is there, and leaves ``account-N.json`` behind.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

import django

django.setup()

from django.db import connection  # noqa: E402 - needs the settings

from django_idgen import segments  # noqa: E402
from django_idgen.core.segment import Segment, runs  # noqa: E402
from django_idgen.core.segment_generator import SegmentStats  # noqa: E402
from django_idgen.signals import segment_loaded, segment_waited  # noqa: E402

from .taking import TAG, wait_for  # noqa: E402

BATCH = 500
PATIENCE = 60


class Account:
    """What this process was granted, and what it took of it, as [start, stop) pairs."""

    def __init__(self) -> None:
        self.granted: list[list[int]] = []
        self.taken: list[list[int]] = []
        self.longest_wait = 0.0

    def note_granted(self, segment: Segment, **_: object) -> None:
        self.granted.append([segment.start, segment.stop])

    def note_wait(self, seconds: float, **_: object) -> None:
        self.longest_wait = max(self.longest_wait, seconds)

    def note_taken(self, ids: list[int]) -> None:
        for run in runs(ids, 1):
            if self.taken and self.taken[-1][1] == run.start:
                self.taken[-1][1] = run.stop
            else:
                self.taken.append([run.start, run.stop])

    def leave_as(self, path: Path, stats: SegmentStats) -> None:
        account = {
            "granted": self.granted,
            "taken": self.taken,
            "loads": stats.loads,
            "failures": stats.failures,
            "waits": stats.waits,
            "longest_wait": self.longest_wait,
        }
        path.with_suffix(".part").write_text(json.dumps(account))
        path.with_suffix(".part").rename(path)


def count(number: int, batches: int) -> None:
    account = Account()
    segment_loaded.connect(account.note_granted)
    segment_waited.connect(account.note_wait)
    wait_for("go")
    for _ in range(batches):
        account.note_taken(segments[TAG].next_ids(BATCH))
    # Lets the load that is under way come in, so that what was granted is known in full.
    segments[TAG].preload(PATIENCE)
    stats = segments[TAG].stats()
    while len(account.granted) < stats.loads:  # receivers run in a thread of theirs
        time.sleep(0.01)
    account.leave_as(Path(f"account-{number}.json"), stats)


def main(children: int, batches: int) -> None:
    # Or each child would have to import the driver first.
    connection.ensure_connection()
    connection.close()
    made = []
    for number in range(children):
        pid = os.fork()
        if not pid:
            try:
                count(number, batches)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        made.append(pid)
    Path("ready").touch()
    results = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in made]
    assert results == [0] * children


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Taking ids, and telling which process took them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django_idgen import generators, segments

TAG = "orders"


def take(count: int) -> dict[str, Any]:
    """``count`` ids of the default generator and of the tag, and who took them."""
    generator = generators["default"]
    ids = generator.next_ids(count)
    return {
        "pid": os.getpid(),
        "worker": generator.layout.unpack(ids[0]).worker,
        "ids": ids,
        "tag": [segments[TAG].next_id() for _ in range(count)],
    }


def record(taken: dict[str, Any]) -> None:
    """Add to the journal, which outlives the process. A line at once, so safe to share."""
    line = json.dumps(taken) + "\n"
    journal = os.open(os.environ["SITE_JOURNAL"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    try:
        os.write(journal, line.encode())
    finally:
        os.close(journal)


def take_early() -> None:
    """Take ids now if the environment asks for it: at import, before a server forks."""
    count = int(os.environ.get("SITE_EARLY", "0"))
    if count:
        with noting_threads() as started:
            taken = take(count)
        record({**taken, "threads": started})


@contextmanager
def noting_threads() -> Iterator[list[str]]:
    """The names of the threads that are started in the block, also of those that end in it."""
    started: list[str] = []
    start = threading.Thread.start

    def noting(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    threading.Thread.start = noting  # type: ignore[method-assign]
    try:
        yield started
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def wait_for(path: str) -> None:
    """Come back once somebody has made the file."""
    import time

    while not Path(path).exists():
        time.sleep(0.005)

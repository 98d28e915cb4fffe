"""Threads that take ids all the time, and write down what came of it twice a second."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from django_idgen import next_id, segments
from django_idgen.core.errors import IdgenError

from .taking import record

THREADS = 4
BATCH = 10
PAUSE = 0.02


def take(tag: str, until: Path) -> None:
    """Take about 2000 ids a second of ``tag``, and as many snowflakes, until the file is there."""
    threads = [threading.Thread(target=_take, args=(tag, until)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _take(tag: str, until: Path) -> None:
    taken = _nothing()
    noted = time.monotonic()
    while not until.exists():
        begun = time.monotonic()
        try:
            taken["tag"] += segments[tag].next_ids(BATCH)
            taken["ids"] += [next_id() for _ in range(BATCH)]
        except IdgenError as error:
            taken["errors"].append(f"{type(error).__name__}: {error}")
        taken["longest"] = max(taken["longest"], time.monotonic() - begun)
        if time.monotonic() - noted > 0.5:
            record({**taken, "at": time.time()})
            taken, noted = _nothing(), time.monotonic()
        time.sleep(PAUSE)
    record({**taken, "at": time.time()})


def _nothing() -> dict[str, Any]:
    return {"ids": [], "tag": [], "errors": [], "longest": 0.0}

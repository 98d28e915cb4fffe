"""Ids through the HTTP source: whole segments of a service under gunicorn, given out here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from django_idgen.client import Client
from tests import servers

from .bars import Row, Skipped, at_least, paired
from .batches import BATCH
from .project import NAME, own_database

ROUNDS = 7
SECONDS = 1.0
PATIENCE = 60.0
STEP = 100_000


def rows() -> Iterator[Row]:
    """One thread of a client, with all that it fetches meanwhile."""
    with own_database(), _service() as url, _client(url) as client:
        tag = client.segments["bench"]
        _grow(tag.next_ids)
        medians, _ = paired([partial(_ids_a_second, tag.next_ids)], ROUNDS)
        loads = f"{tag.stats().loads} segments fetched"
    what = "segments through the HTTP source, next_ids(1000)"
    yield at_least(what, 15, medians[0] / 1e6, "M ids/s", f"this machine's; {loads}")


def _client(url: str) -> Client:
    from tests.remote.service import SECRET  # needs the settings

    return Client(url, token=SECRET, wait=30, timeout=30)


def _grow(next_ids: object) -> None:
    """Let the segments come to the length that they have in the long run."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        next_ids(BATCH)  # type: ignore[operator]


def _ids_a_second(next_ids: object) -> float:
    taken, begun = 0, time.perf_counter()
    until = begun + SECONDS
    while (now := time.perf_counter()) < until:
        taken += len(next_ids(BATCH))  # type: ignore[operator]
    return taken / (now - begun)


@contextmanager
def _service() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    idgen = {
        "REST": {"make_tags": True},
        "SEGMENTS": {"OPTIONS": {"default_step": STEP}},
    }
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.faults.site.settings",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "SITE_DATABASE": json.dumps({**servers.database("postgres"), "NAME": NAME}),
        "SITE_IDGEN": json.dumps(idgen),
    }
    gunicorn = str(Path(sys.executable).with_name("gunicorn"))
    if not Path(gunicorn).exists():
        raise Skipped("gunicorn is not installed")
    options = ("--bind", f"127.0.0.1:{port}", "--threads", "4", "--log-level", "error")
    argv = (gunicorn, "tests.remote.site:application", "--no-control-socket", *options)
    with subprocess.Popen(argv, env=environment) as process:
        try:
            _await(port, process)
            yield f"http://127.0.0.1:{port}/idgen/"
        finally:
            process.terminate()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Skipped("gunicorn did not start")

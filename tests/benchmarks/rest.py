"""Ids over HTTP against a bare Django view, under granian and gunicorn.

Both views are asked in the same server, a single worker that is bound to one processor;
the client is bound to the other, asks on four connections at a time, and looks at no
more of an answer than its length. So the time of a request is the server's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .bars import Row, Skipped, at_least, paired

ROUNDS = 31
REQUESTS = 400
BATCH = 1000
SITE = "tests.benchmarks.rest_site"
ROOT = Path(__file__).parents[2]
PREPARE = f"""
import {SITE}
from django.core.management import call_command
from django_idgen.rest.tokens import make_token
from django_idgen import segments
call_command("migrate", verbosity=0)
segments["orders"].next_id()
print(make_token("benchmark", tags=["*"], generators=["*"])[1])
"""
SERVERS: dict[str, tuple[bool, str]] = {
    "granian": (
        True,
        "granian --interface wsgi --workers 1 --no-access-log --log-level warning --port {port}",
    ),
    "gunicorn": (
        False,  # its plain workers keep no connection
        "gunicorn --workers 1 --log-level warning --no-control-socket --bind 127.0.0.1:{port}",
    ),
}


def rows() -> Iterator[Row]:
    if not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2:
        raise Skipped("it takes two processors, and processes that can be bound to them")
    missing = [name for name in ("rest_framework", *SERVERS) if find_spec(name) is None]
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)}")
    with TemporaryDirectory(prefix="idgen-rest-") as directory:
        env = {**os.environ, "REST_SITE": f"{directory}/site.sqlite3", "PYTHONPATH": str(ROOT)}
        env.pop("DJANGO_SETTINGS_MODULE", None)
        prepared = subprocess.run(
            [sys.executable, "-c", PREPARE], env=env, cwd=ROOT, capture_output=True, check=True
        )
        secret = prepared.stdout.decode().split()[-1]
        for server in SERVERS:
            with Asked.served(server, env, secret) as asked:
                yield from _rows(server, asked)


class Asked:
    """A server that is running, and the client that asks it."""

    def __init__(self, port: int, keep: bool, secret: str, client: subprocess.Popen[str]) -> None:
        self._port, self._keep, self._secret, self._client = port, keep, secret, client

    @classmethod
    @contextmanager
    def served(cls, server: str, env: dict[str, str], secret: str) -> Iterator[Asked]:
        keep, command = SERVERS[server]
        port = _free_port()
        program = [*command.format(port=port).split(), f"{SITE}:application"]
        program[0] = str(Path(sys.executable).with_name(program[0]))
        load = [sys.executable, "-m", "tests.benchmarks.load"]
        with ExitStack() as stack:
            process = stack.enter_context(_running(program, env, processor=0))
            client = stack.enter_context(_running(load, env, processor=1))
            _await(port, process)
            yield cls(port, keep, secret, client)

    def per_request(self, path: str, *, token: bool = False, requests: int = REQUESTS) -> float:
        """Nanoseconds a request."""
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", "Accept: */*"]
        # As long with a token as without: it is not the server's parser that is measured.
        lines.append(f"Authorization: Bearer {self._secret}" if token else "User-Agent: benchmark")
        request = "\r\n".join([*lines, "", ""])
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        print(json.dumps([self._port, self._keep, requests, request]), file=self._client.stdin)
        self._client.stdin.flush()
        answer = self._client.stdout.readline()
        if not answer.strip().isdigit():
            raise RuntimeError(f"GET {path}: {answer}")
        return int(answer) / requests


def _rows(server: str, asked: Asked) -> Iterator[Row]:
    tag = partial(asked.per_request, "/idgen/tags/orders/ids", token=True)
    generator = partial(asked.per_request, "/idgen/generators/default/ids", token=True)
    bare = partial(asked.per_request, "/bare/json")
    yield from _against(f"{server}: JSON, a token", 0.8, bare, [tag, generator])
    if find_spec("django_idgen.contrib.old_servers.leaf") is not None:
        plain = partial(asked.per_request, "/leaf/api/segment/get/orders")
        bare = partial(asked.per_request, "/bare/text")
        yield from _against(f"{server}: text, open", 0.9, bare, [plain])
    batch = f"/idgen/tags/orders/ids?count={BATCH}"
    medians, _ = paired([partial(asked.per_request, batch, token=True, requests=80)], ROUNDS)
    note = f"{medians[0] / 1e3:.0f} µs a request"
    speed = BATCH * 1e3 / medians[0]
    yield at_least(f"{server}: {BATCH} ids a request", 1, speed, "M ids/s", note)


def _against(what: str, bar: float, bare: Any, ours: list[Any]) -> Iterator[Row]:
    for job in (bare, *ours):
        job()
    medians, ratios = paired([bare, *ours], ROUNDS)
    for name, median, ratio in zip(("a tag", "a generator"), medians[1:], ratios[1:], strict=False):
        note = f"{median / 1e3:.0f} against {medians[0] / 1e3:.0f} µs a request"
        yield at_least(f"{what}, of {name}: speed, of a bare view's", bar, 1 / ratio, note=note)


@contextmanager
def _running(
    command: list[str], env: dict[str, str], *, processor: int
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=env,
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _await(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise Skipped("a server did not start")

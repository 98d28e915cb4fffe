"""Python processes that are forked from one which has Django imported already.

A user's ``manage.py`` starts anew for each command, and most of what it computes then is imports.
Here a server without settings has done these; each command is a child of it, which runs as
``python`` would run it and ends as an interpreter does. ``IDGEN_LONG=1`` starts each one anew.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

LONG = os.environ.get("IDGEN_LONG") == "1"
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRELOAD = [
    "concurrent.futures.process",
    "django.contrib.admin.options",
    "django.core.management.commands.check",
    "django.core.management.commands.makemigrations",
    "django.core.management.commands.migrate",
    "django.core.management.commands.shell",
    "django.core.management.commands.test",
    "django.core.servers.basehttp",
    "django.db.backends.mysql.schema",
    "django.db.backends.postgresql.psycopg_any",
    "django.db.backends.postgresql.schema",
    "django.db.backends.sqlite3.schema",
    "django.test",
    "django.test.runner",
    "django.views.debug",
    "django_idgen.core.segment_generator",
    "django_idgen.core.snowflake",
    "multiprocessing.pool",
    "psycopg",
    "pymysql",
    "unittest.mock",
]


def run(
    command: list[str], *, cwd: Any, env: dict[str, str], timeout: float = 120, cold: bool = False
) -> subprocess.CompletedProcess[str]:
    """What ``python`` ``command`` printed, both streams as one, and its exit status.

    ``cold``: start it anew, for what is about imports or starts processes of its own.

    Raises :class:`subprocess.TimeoutExpired`, with the process killed.
    """
    if LONG or cold:
        return subprocess.run(
            [sys.executable, *command],
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    read, write = os.pipe()
    ours, theirs = socket.socketpair()
    with open(read, errors="replace") as printed, ours:
        request = json.dumps([command, os.fspath(cwd), env, timeout]).encode()
        with theirs:
            socket.send_fds(_server(), [b"."], [theirs.fileno(), write])
        os.close(write)
        ours.sendall(request)
        ours.shutdown(socket.SHUT_WR)
        output = printed.read()
        status = ours.recv(16).decode()
    if status == "late":
        raise subprocess.TimeoutExpired(command, timeout, output)
    return subprocess.CompletedProcess(command, int(status), output)


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=FOLDER,
            env={key: value for key, value in os.environ.items() if not key.startswith("DJANGO")},
        )
    atexit.register(_end, ours, process)
    return ours


def _end(requests: socket.socket, process: subprocess.Popen[bytes]) -> None:
    requests.close()
    process.wait()


def _serve(requests: socket.socket) -> list[str] | None:
    """In a child: the command that it is to run. ``None`` when the tests are over."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended children leave no zombies
    while True:
        word, descriptors, *_ = socket.recv_fds(requests, 1, 2)
        if not word:
            return None
        if os.fork() == 0:
            requests.close()
            return _watch(socket.socket(fileno=descriptors[0]), descriptors[1])
        for each in descriptors:
            os.close(each)


def _watch(answers: socket.socket, output: int) -> list[str]:
    """In a grandchild: the command. The child waits for it, and sends its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with answers.makefile() as asked:
        command, cwd, environment, timeout = json.load(asked)
    child = os.fork()
    if child == 0:
        answers.close()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(cwd)
        return list(command)
    os.close(output)
    late: list[bool] = []

    def kill(*_: Any) -> None:
        late.append(True)
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, kill)
    signal.alarm(int(timeout) + 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answers.sendall(b"late" if late else str(status).encode())
    os._exit(0)


def _run(command: list[str]) -> None:
    """As ``python`` runs it: ``-W action``, then ``-c code`` or a file."""
    sys.path[0:1] = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    while command[0] == "-W":
        warnings.simplefilter(command[1])  # type: ignore[arg-type]
        sys.warnoptions.append(command[1])
        command = command[2:]
    sys.argv = command
    if command[0] == "-c":
        code = sys.argv.pop(1)
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    sys.path[0] = FOLDER  # not that of the tests, where "http" is another one
    for name in PRELOAD:
        with suppress(ImportError):  # of a driver that is not installed
            import_module(name)
    if command := _serve(socket.socket(fileno=int(sys.argv[1]))):
        _run(command)

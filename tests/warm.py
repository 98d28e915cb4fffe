"""Python processes that are forked from one which has Django imported already.

A user's ``manage.py`` starts anew for each command, and most of what it computes then is imports.
Here a server without settings has done these; each command is a child of it, which runs as
``python`` would run it. It ends as an interpreter does, but leaves it to the system to free its
memory. ``IDGEN_LONG=1`` starts each one anew.
"""

from __future__ import annotations

import atexit
import gc
import json
import multiprocessing.process
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any

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
    "django.db.backends.postgresql.base",
    "django.db.backends.postgresql.psycopg_any",
    "django.db.backends.postgresql.schema",
    "django.db.backends.sqlite3.base",
    "django.db.backends.sqlite3.schema",
    "django.db.models.sql.compiler",
    "django.test",
    "django.test.runner",
    "django.views.debug",
    "django_idgen.core.book",
    "django_idgen.core.segment_generator",
    "django_idgen.core.snowflake",
    "django_idgen.core.tag_generator",
    "django_idgen.settings.config",
    "multiprocessing.pool",
    "psycopg",
    "pymysql",
    "unittest.mock",
    # What REST framework imports if it is there.
    "markdown",
    "pygments.formatters",
    "requests",
    "uritemplate",
    "yaml",
]


class Process:
    """A command that was started as ``python`` ``command``: the part of ``Popen`` that tests use.

    ``cold``: start it anew, for what is about imports, or has Python start more processes.
    """

    def __init__(
        self,
        command: list[str],
        *,
        cwd: Any = None,
        env: dict[str, str] | None = None,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = None,
        stderr: Any = None,
        text: bool = False,
        start_new_session: bool = False,
        cold: bool = False,
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        self._cold: subprocess.Popen[Any] | None = None
        if LONG or cold:
            self._cold = subprocess.Popen(
                [sys.executable, *command],
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                text=text,
                start_new_session=start_new_session,
            )
            self.pid = self._cold.pid
            self.stdin, self.stdout = self._cold.stdin, self._cold.stdout
            return
        mode = "" if text else "b"
        self.stdin = self.stdout = None
        with ExitStack() as theirs:
            if stdin == subprocess.PIPE:
                stdin, write = os.pipe()
                theirs.callback(os.close, stdin)
                self.stdin = os.fdopen(write, f"w{mode}")
            if stdout == subprocess.PIPE:
                read, stdout = os.pipe()
                theirs.callback(os.close, stdout)
                self.stdout = os.fdopen(read, f"r{mode}")
            streams = [_number(stdin, 0, theirs), _number(stdout, 1, theirs)]
            streams.append(
                streams[1] if stderr == subprocess.STDOUT else _number(stderr, 2, theirs)
            )
            self._status, other = socket.socketpair()
            theirs.enter_context(other)
            socket.send_fds(_server(), [b"."], [other.fileno(), *streams])
        environment = dict(os.environ) if env is None else env
        request = [command, os.fspath(cwd or os.getcwd()), environment, start_new_session]
        self._status.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._status.recv(16, socket.MSG_WAITALL))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        for stream in (self.stdin, self.stdout):
            if stream is not None:
                stream.close()
        self.wait()

    def poll(self) -> int | None:
        """Its exit status, once it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises :class:`subprocess.TimeoutExpired`."""
        if self._cold is not None:
            self.returncode = self._cold.wait(timeout)
        elif self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._status.recv(16))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it, if the process has not ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, text: Any = None, timeout: float | None = None) -> tuple[Any, None]:
        """Say ``text`` to it, and return what it printed once it has ended."""
        if self.stdin is not None:
            if text is not None:
                self.stdin.write(text)
            self.stdin.close()
        said = None
        if self.stdout is not None:
            with self.stdout:
                said = self.stdout.read()
        self.wait(timeout)
        return said, None


def _number(stream: Any, standard: int, closing: ExitStack) -> int:
    """The descriptor of what ``Popen`` takes for a stream."""
    if stream is None:
        return standard
    if stream == subprocess.DEVNULL:
        null = os.open(os.devnull, os.O_RDWR)
        closing.callback(os.close, null)
        return null
    return stream if isinstance(stream, int) else int(stream.fileno())


def run(
    command: list[str],
    *,
    cwd: Any,
    env: dict[str, str] | None = None,
    said: str = "",
    timeout: float = 120,
    cold: bool = False,
) -> subprocess.CompletedProcess[str]:
    """What ``python`` ``command`` printed, and its exit status.

    Raises :class:`subprocess.TimeoutExpired`, with the process killed.
    """
    with TemporaryFile() as answers, TemporaryFile() as output, TemporaryFile() as errors:
        answers.write(said.encode())
        answers.seek(0)
        process = Process(
            command, cwd=cwd, env=env, stdin=answers, stdout=output, stderr=errors, cold=cold
        )
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(command, status, _read(output), _read(errors))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


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
    gc.freeze()  # or a child that looks for garbage copies the memory of all that is imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended children leave no zombies
    while True:
        word, descriptors, *_ = socket.recv_fds(requests, 1, 4)
        if not word:
            return None
        if os.fork() == 0:
            requests.close()
            return _watch(socket.socket(fileno=descriptors[0]), descriptors[1:])
        for each in descriptors:
            os.close(each)


def _watch(answers: socket.socket, streams: list[int]) -> list[str]:
    """In a grandchild: the command. The child waits for it, and sends its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with answers.makefile() as asked:
        command, cwd, environment, new_session = json.loads(asked.readline())
    child = os.fork()
    if child == 0:
        answers.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        if new_session:
            os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        os.chdir(cwd)
        multiprocessing.process.ORIGINAL_DIR = cwd  # to which it takes the main script's path to be
        return list(command)
    for stream in streams:
        os.close(stream)
    answers.sendall(b"%16d" % child)  # as long as what is read: the status follows at once
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):  # it was not waited for
        answers.sendall(str(status).encode())
    os._exit(0)


def _run(command: list[str]) -> None:
    """As ``python`` runs it: ``-W action``, then ``-c code``, ``-m module`` or a file."""
    sys.path[0:1] = ["", *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    while command[0] == "-W":
        warnings.simplefilter(command[1])  # type: ignore[arg-type]
        sys.warnoptions.append(command[1])
        command = command[2:]
    sys.argv = command
    if command[0] == "-c":
        code = sys.argv.pop(1)
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))
    elif command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        runpy.run_path(command[0], run_name="__main__")


_ended: int | None = None
"""The exit status of a command that has run."""


def _leave() -> None:
    """End a command's process, once all else that is to be done at its exit is done."""
    if _ended is not None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):  # it was closed
                stream.flush()
        # The interpreter would free each object: the time of many imports.
        os._exit(_ended & 0xFF)


if __name__ == "__main__":
    atexit.register(_leave)  # first, so that it is called last
    sys.path[0] = FOLDER  # not that of the tests, where "http" is another one
    for name in PRELOAD:
        with suppress(ImportError):  # of a driver that is not installed
            import_module(name)
    if command := _serve(socket.socket(fileno=int(sys.argv[1]))):
        try:
            _run(command)
            _ended = 0
        except SystemExit as end:
            _ended = end.code if isinstance(end.code, int) else int(end.code is not None)
            raise
        except Exception:
            _ended = 1
            raise

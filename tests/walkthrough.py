"""A page that a reader follows in a new project: each file is written, each command is run.

A Python block with a title is a file. The paragraph above it says what happens to it: "Add"
appends to the file, "Replace" and "Create" write it. A console block has commands after ``$``, and
what they print. A pycon block below ``manage.py shell`` is typed into that shell.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from tests.ports import free_port

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
INSTALLS = re.compile(r"(python3? -m )?(pip install|venv)|source |docker |redis-server|createdb ")
SERVERS = {"runserver": "", "celery -A": "celery@"}
"""Commands that go on running, by a part of them, and what they log when they are ready."""
KEPT = re.compile(r"(\w+)=\$\(")
"""A shell variable, which the commands below it use."""
PATIENCE = 120

SHELL = r"""
import doctest, os, re, sys
class Checker(doctest.OutputChecker):
    def check_output(self, want, got, flags):
        return super().check_output(*(
            re.sub(r"(\b[a-z]+_)[0-9A-Za-z]{11}\b", r"\1TEXT", re.sub(r"\d{17,19}", "ID", text))
            for text in (want, got)), flags)
examples = doctest.DocTestParser().get_doctest(os.environ["EXAMPLES"], {}, "page", None, 0)
runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
runner.run(examples, out=sys.stderr.write)
sys.exit(runner.failures)
"""


@dataclass(frozen=True)
class Block:
    """A code block: ``lead`` is the paragraph above it."""

    language: str
    file: str | None
    lead: str
    body: str


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        lead = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
        yield Block(match["language"], match["file"], lead, match["body"])


class Walkthrough:
    """A reader in ``directory``, who has a Redis at ``redis_port``, and no project yet."""

    def __init__(self, directory: Path, redis_port: int) -> None:
        directory.mkdir()
        self.directory = directory
        self.ports = {"6379": str(redis_port), "8000": str(free_port())}
        self.servers: list[subprocess.Popen[bytes]] = []
        self.opened = ""
        self.web: subprocess.Popen[bytes] | None = None
        self.followed = 0
        self.environment = {
            **{key: value for key, value in os.environ.items() if "DJANGO" not in key},
            "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "C_FORCE_ROOT": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        left = [server for server in self.servers if server.poll() is None]
        for server in left:
            server.send_signal(signal.SIGTERM)
        for server in left:
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)

    def follow(self, page: Path) -> None:
        """Do all that the page says."""
        for block in blocks(page.read_text("utf-8")):
            if block.file is not None:
                self.write(block)
            elif block.language == "console":
                self.type(block.body)
            elif block.language == "pycon":
                self.shell(block.body)

    def write(self, block: Block) -> None:
        """Do with a file what the page says."""
        assert block.file is not None
        path = self.directory / block.file
        body = self.here(block.body)
        if re.search(r"\badd\b", block.lead, re.IGNORECASE):
            body = f"{path.read_text('utf-8')}\n{body}"
        else:
            word = "replace" if path.exists() else "create"
            assert word in block.lead.lower(), f"{block.file}: {word}? {block.lead}"
        path.write_text(body, "utf-8")
        self.followed += 1

    def here(self, text: str) -> str:
        """Return the text with the ports of this test."""
        for port, mine in self.ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{mine}")
        return text

    def type(self, body: str) -> None:
        """Run the commands of a console block, and compare what they print."""
        for entry in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, printed = entry.partition("\n")
            command = self.here(re.sub(r"\s+# .*", "", command))
            if INSTALLS.match(command):
                continue
            self.followed += 1
            if command.startswith("cd "):
                self.directory /= command.removeprefix("cd ")
            elif (ready := next((r for c, r in SERVERS.items() if c in command), None)) is not None:
                self.start(command, ready)
            elif command.endswith(" shell"):
                self.opened = command
            elif kept := KEPT.match(command):
                said = f'exec 2>/dev/null; {command}; printf %s "${kept[1]}"'
                self.environment[kept[1]] = self.run(["bash", "-c", said])
            else:
                self.compare(command, printed, self.run(["bash", "-c", command]))

    def run(self, words: list[str], **more: str) -> str:
        done = subprocess.run(
            words,
            cwd=self.directory,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def shell(self, examples: str) -> None:
        """Type the examples into the Python shell that was opened, and compare its answers."""
        self.run([*self.opened.split(), "-v", "0", "-c", SHELL], EXAMPLES=examples)
        self.opened = ""

    def compare(self, command: str, wanted: str, got: str) -> None:
        """Compare what a command printed. "…" stands for anything, alone for any lines."""
        if not wanted.strip():
            return
        pattern = re.escape(wanted.strip())
        pattern = re.sub(r"\d{17,19}", r"\\d{17,19}", pattern)
        pattern = re.sub(r"ord_[0-9A-Za-z]{11}", "ord_[0-9A-Za-z]{11}", pattern)
        pattern = re.sub(r"(^|\\\n)…(\\\n|$)", r"\1(?s:.*)\2", pattern).replace("…", ".*")
        assert re.fullmatch(pattern, got.strip()), f"$ {command}\n{wanted}\n--- but\n{got}"

    def start(self, command: str, ready: str) -> None:
        """Start what goes on running, and wait until it is ready."""
        port = self.ports["8000"]
        if "runserver" in command:
            if self.web is not None:
                self.web.send_signal(signal.SIGINT)
                self.web.wait(PATIENCE)
            command = f"{command} --noreload 127.0.0.1:{port}"
        log = self.directory / f"{len(self.servers)}.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                command.split(),
                cwd=self.directory,
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=out,
                start_new_session=True,
                # A shell's background jobs ignore it, and so does what they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.servers.append(server)
        if "runserver" in command:
            self.web = server
        deadline = monotonic() + PATIENCE
        while monotonic() < deadline:
            assert server.poll() is None, log.read_text("utf-8")
            if ready:
                if re.search(rf"{ready}\S+ ready", log.read_text("utf-8")):
                    return
            else:
                with suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                    return
            sleep(0.1)
        raise AssertionError(log.read_text("utf-8"))

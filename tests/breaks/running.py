"""A copy of the project, and what pytest says of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from .definition import Break

__all__ = ["Copy", "Outcome", "finding"]

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".tox", ".hypothesis", ".*_cache", "__pycache__", "*.egg-info", "*.sqlite3*",
    "build", "dist",
)  # fmt: skip
LEAVE_WITHIN = 20.0
"""Seconds for a run that is broken off to stop the servers it has started."""
CRASHED = re.compile(
    r"^\W*(?:\w+\.)*(NameError|UnboundLocalError|SyntaxError|IndentationError|ImportError"
    r"|ModuleNotFoundError)\b|Error compiling script|nonexistent global variable"
)
"""The words of code that doesn't run, which proves nothing of what it would do."""

# An editable install points at the original. Children of the tests begin here, too.
GUARD = '''\
"""Refuses any django_idgen but the one beside this file."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


class Guard:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "django_idgen":
            spec = PathFinder.find_spec(name, path, target)
            origin = Path(spec and spec.origin or "/")
            if not origin.is_relative_to(Path(__file__).parent):
                raise ImportError(f"the tests of a copy would import {spec}")
        return None


sys.meta_path.insert(0, Guard)
'''


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a run."""

    name: str
    """``tests.contracts.test_memory.TestMemoryLeases.test_loss_is_noticed[x]``"""
    verdict: str
    """``passed``, ``failed``, ``error`` (in a fixture) or ``skipped``."""
    words: str = ""

    def is_of(self, test: str) -> bool:
        """Whether pytest has run it for ``test``."""
        wanted = test.removesuffix(".py").replace(".py::", ".").replace("::", ".")
        wanted = wanted.partition("[")[0].replace("/", ".") + "".join(test.partition("[")[1:])
        return self.name == wanted or self.name.startswith((f"{wanted}[", f"{wanted}."))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of pytest came to."""

    code: int | None
    """Its exit code; None if it had to be killed."""
    seconds: float
    cases: tuple[Case, ...]
    output: str

    def of(self, verdict: str) -> list[Case]:
        return [case for case in self.cases if case.verdict == verdict]


def finding(outcome: Outcome) -> tuple[bool, str]:
    """Whether a run has found its break, and by what or why not."""
    failed = outcome.of("failed")
    honest = [case for case in failed if not CRASHED.search(case.words)]
    if outcome.code == 1 and honest:
        hung = "timeout" in honest[0].words.lower() and "pytest-timeout" in honest[0].words
        return True, honest[0].name.rpartition(".")[2] + " (it hung)" * hung
    if outcome.code is None:
        return False, "the run hung, and pytest-timeout did not end it"
    if failed or outcome.of("error"):
        words = (failed or outcome.of("error"))[0].words
        return False, f"the broken code doesn't run, which proves nothing: {words:.200}"
    if outcome.code != 0:
        return False, f"pytest came to no result (exit code {outcome.code})"
    if not outcome.of("passed"):
        return False, "the tests were skipped: is there a server that they need?"
    return False, "all its tests stayed green"


class Copy:
    """The project at ``original``, copied to ``root``.

    ``timeout``: seconds of a test with a break. ``options``: what else pytest is told.
    """

    def __init__(
        self, original: Path, root: Path, *, timeout: float = 120.0, options: Sequence[str] = ()
    ) -> None:
        self.root = root
        self._timeout = timeout
        self._options = options
        self._changes = 0
        shutil.copytree(original, root, ignore=LEFT_OUT)
        (root / "sitecustomize.py").write_text(GUARD, encoding="utf-8")
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(root),
            # Compiled once for all breaks, and beside the copy: pytest compiles libraries, too.
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": f"{root}-compiled",
        }

    @contextmanager
    def broken(self, each: Break) -> Iterator[None]:
        """With ``each`` in it, as long as the block lasts. Raises :class:`.Unported`."""
        text = each.broken(self.root)
        path = self.root / each.file
        before, stat = path.read_bytes(), path.stat()
        path.write_text(text, encoding="utf-8")
        # Python tells compiled code that is old by the second: each break has one of its own.
        self._changes += 1
        os.utime(path, (stat.st_atime, stat.st_mtime + self._changes))
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(self, tests: Sequence[str], *, first_only: bool, late: bool = False) -> Outcome:
        """What pytest says of ``tests``; with ``first_only``, for a break, up to the first failure.

        ``late``: none of them runs on push.
        """
        report = self.root / "report.xml"
        report.unlink(missing_ok=True)
        options = ["-q", "-p", "no:cacheprovider", *self._options]
        options += [f"--junitxml={report}", "-o", "junit_logging=no"]
        if first_only:  # else no test is to fail, and each has all the time that it has on push
            options += ["-x", "-o", f"timeout={self._timeout:g}"]
        began = time.monotonic()
        # A file, and no pipe: what a broken test leaves running would keep that open.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *dict.fromkeys(tests)],
                cwd=self.root,
                env={**self.environment, "IDGEN_LONG": "1" if late else ""},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that a Ctrl-C reaches it once, from here
            )
            code = self._awaited(process, len(tests))
            output.seek(0)
            words = output.read()
        cases = tuple(_cases(report)) if report.exists() else ()
        return Outcome(code, time.monotonic() - began, cases, words)

    def _awaited(self, process: subprocess.Popen[bytes], tests: int) -> int | None:
        try:
            # pytest-timeout ends each test; this is for what not even that can end.
            return process.wait((self._timeout + LEAVE_WITHIN) * (tests + 1))
        except subprocess.TimeoutExpired:
            return None
        finally:
            _clear_away(process)


def _clear_away(process: subprocess.Popen[bytes]) -> None:
    """End ``process``, which may stop its servers first, and whatever it has left running."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_WITHIN)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _cases(report: Path) -> Iterator[Case]:
    verdicts = {"failure": "failed", "error": "error", "skipped": "skipped"}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        found = [child for child in case if child.tag in verdicts]
        if not found:
            yield Case(name, "passed")
        for child in found:
            yield Case(name, verdicts[child.tag], child.get("message") or child.text or "")

"""The other Pythons of this machine. ``python -m tests.interpreters`` prints the newest, if any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

MINORS = range(30, 11, -1)
"""Of Python 3, newest first; the oldest that we support is the one that CI runs on."""


@cache
def others() -> tuple[str, ...]:
    """A released Python of each version from 3.12 on, but for ours; newest first."""
    minors = (minor for minor in MINORS if (3, minor) != sys.version_info[:2])
    return tuple(path for minor in minors if (path := _find(minor)) is not None)


def _find(minor: int) -> str | None:
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [shutil.which(name), *sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}"))]
    return next((str(place) for place in places if place and _runs(str(place))), None)


def _runs(path: str) -> bool:
    """Whether it is a released Python: pyenv has shims of versions that are not switched on."""
    code = "import sys, venv, ensurepip; assert sys.version_info.releaselevel == 'final'"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    print(next(iter(others()), ""))

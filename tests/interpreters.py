"""The other Pythons of this machine, for tests of the long tier."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tiers import LONG

MINORS = range(30, 11, -1)
"""Of Python 3, newest first; the oldest that we support is the one that CI runs on."""


def others() -> tuple[str, ...]:
    """A released Python of each version from 3.12 on, but for ours; newest first; none on push."""
    minors = (minor for minor in MINORS if LONG and (3, minor) != sys.version_info[:2])
    return tuple(path for minor in minors if (path := _find(minor)) is not None)


def _find(minor: int) -> str | None:
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [shutil.which(name), *sorted(pyenv.glob(f"versions/3.{minor}.*/bin/{name}"))]
    return next((str(place) for place in places if place and _runs(str(place))), None)


def _runs(path: str) -> bool:
    """Whether it is a released Python: pyenv has shims of versions that are not switched on."""
    code = "import sys; assert sys.version_info.releaselevel == 'final'"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0

"""Everything that grants ids, on simulated time: no run repeats an id, and one seed is one run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.tiers import LONG

ROOT = Path(__file__).parents[2]
SECONDS, LEAST = (600, 10**8) if LONG else (20, 10**5)


def simulated(*words: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_run_repeats_an_id() -> None:
    """I1 to I7 after every event, whatever fails; the seed is printed by a run that does not."""
    told = simulated("--seconds", SECONDS)
    ids = re.search(r"([\d,]+) ids", told)
    assert ids is not None
    assert int(ids[1].replace(",", "")) > LEAST, told


def test_one_seed_is_one_run() -> None:
    """The same events, ids, calls and errors, so that what fails fails again."""
    one, other = (simulated("--seed", 7, "--events", 300, PYTHONHASHSEED=str(n)) for n in (1, 2))
    assert one == other

"""Everything that grants ids, on simulated time: no run repeats an id, and one seed is one run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.breaks.catalogue import BREAKS
from tests.breaks.running import Copy
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


def test_a_run_that_fails_is_shrunk_and_told(tmp_path: Path) -> None:
    """Exit 1, what came twice, and a story of a few events instead of the fifty that it took."""
    copy = Copy(ROOT, tmp_path / "copy")
    name = "a fetch reads the row before it has moved it"
    words = ("--seed", "0", "--events", "1000")
    with copy.broken(next(each for each in BREAKS if each.name == name)):
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation", *words],
            cwd=copy.root, env=copy.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Repeated(" in done.stdout
    story = done.stdout.partition("The shortest run that was found has ")[2].splitlines()
    assert 2 <= int(story[0].split()[0]) <= 10, done.stdout
    assert re.search(r"start: process \d+ .*1 from \w+", done.stdout)

"""Which deliberate breaks the simulation finds alone: ``python -m tests.simulation.breaks``.

Each break of :mod:`tests.breaks` in the code that the simulation runs is put into a copy of the
project, and a few seeds are run. It prints after how many events each was found.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.breaks.catalogue import BREAKS
from tests.breaks.definition import Break
from tests.breaks.running import Copy

ROOT = Path(__file__).parents[2]
COVERED = (
    "core/book", "core/lease", "core/snowflake", "core/keeper", "core/buffered", "core/segment",
    "core/generator", "core/store", "leases/server", "leases/database", "leases/root",
    "leases/redis/", "sources/server", "sources/pool/", "db/lua/", "db/dialects",
)  # fmt: skip
"""What the simulation runs, below ``django_idgen/``."""


def is_covered(each: Break) -> bool:
    return each.file.startswith(tuple(f"django_idgen/{part}" for part in COVERED))


def found_after(copy: Copy, seed: int, events: int) -> tuple[int, str] | None:
    """The number of the event at which a run fails, and how; None if it does not."""
    words = ("--seed", str(seed), "--events", str(events), "--as-it-is")
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *words],
        cwd=copy.root, env=copy.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return None
    told = re.search(r"After ([\d,]+) events: (.*)", done.stdout)
    if told is None:
        raise AssertionError(f"The run broke off: {done.stderr[-2000:]}")
    return int(told[1].replace(",", "")), told[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.breaks", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="parts of the names of breaks")
    parser.add_argument("--events", type=int, default=10_000, help="of each run")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    chosen = [each for each in BREAKS if is_covered(each)]
    if given.patterns:
        chosen = [each for each in chosen if any(part in each.name for part in given.patterns)]
    found, begun = 0, time.monotonic()
    with TemporaryDirectory(prefix="idgen-simulated-") as directory:
        copy = Copy(ROOT, Path(directory) / "copy")
        for each in chosen:
            with copy.broken(each):
                runs = (found_after(copy, seed, given.events) for seed in range(given.seeds))
                first = next(filter(None, runs), None)
            found += first is not None
            number, how = first or (0, "")
            print(f"{number or 'missed':>8}  {each.name} ({each.rule}) {how[:90]}", flush=True)
    print(f"{found} of {len(chosen)} found in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The soak finds a repeat, and runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .__main__ import ROOT, repeats_in


def write(directory: Path, name: str, *ids: int) -> None:
    np.array(ids, dtype=np.int64).tofile(directory / f"{name}.ids")


def test_a_repeat_is_found_in_whatever_way_the_ids_came(tmp_path: Path) -> None:
    """Within a kind, also over HTTP; two kinds may have the same ids. Those of a process rise."""
    write(tmp_path, "orders.1.1", 1, 2, 3)
    write(tmp_path, "orders.http.2.1", 4, 5)
    write(tmp_path, "tickets.1.1", 1, 2)
    assert repeats_in(tmp_path) == 0
    write(tmp_path, "orders.http.3.1", 3, 9)
    assert repeats_in(tmp_path) == 1
    write(tmp_path, "tickets.4.1", 12, 11)
    assert repeats_in(tmp_path) == 2


@pytest.mark.long
def test_half_a_minute_of_it() -> None:
    """All kinds give ids beside faults, and none twice."""
    words = [sys.executable, "-m", "tests.soak", "--minutes", "0.7", "--rate", "30000"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 came twice; 0 did not rise" in done.stdout

"""Measure everything, or the groups named: ``python -m tests.benchmarks [group ...]``."""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module

from .bars import Row, Skipped

GROUPS = (
    *("single", "claims", "batches", "threads", "slow"),
    *("pool", "tags", "inserts", "start", "first", "ways", "rest", "http", "scale"),
)


def main(named: list[str]) -> int:
    unknown = sorted(set(named) - set(GROUPS))
    if unknown:
        print(f"There is no group {', '.join(unknown)}. There are: {', '.join(GROUPS)}.")
        return 2
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} processors, "
        f"{platform.machine()}, {platform.system()}. Medians of interleaved rounds."
    )
    _warn_of_load()
    short = [row for group in named or GROUPS for row in _measured(group) if not row.passed]
    print(f"{len(short)} short." if short else "All pass.")
    return 1 if short else 0


def _warn_of_load() -> None:
    # Others who use the processors slow down one side of a ratio more than the other.
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > (os.cpu_count() or 1) / 2:
        print(f"The machine is busy (load {load:.1f}): measure again when it is quiet.")


def _measured(group: str) -> list[Row]:
    rows = []
    print(f"-- {group}", flush=True)
    try:
        for row in import_module(f".{group}", __package__).rows():
            print(row, flush=True)
            rows.append(row)
    except Skipped as reason:
        print(f"not measured: {reason}")
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

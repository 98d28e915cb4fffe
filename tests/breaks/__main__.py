"""``python -m tests.breaks``: is each line that a repeat hangs on held by a test?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from .catalogue import BREAKS
from .definition import Break, Unported
from .running import Copy, Outcome, finding

ROOT = Path(__file__).parents[2]
OPTIONS = (
    # Tests of the core alone would go by a file, and a conftest, of their own.
    *("-c", "pyproject.toml"),
    # Schemathesis' plugin takes as long to import as most breaks do to be found.
    *("-p", "no:schemathesis"),
    "--hypothesis-profile=breaks",
)
NOT_FOUND, INTERRUPTED = 1, 130


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.breaks", description=__doc__)
    parser.add_argument(
        "pattern", nargs="*", help="only breaks whose name, rule or file has one of these in it"
    )
    parser.add_argument("--list", action="store_true", help="show them, and run nothing")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="stop at one not found")
    parser.add_argument(
        "--timeout", type=float, default=120.0, help="seconds of a test with a break (120)"
    )
    given = parser.parse_args(words)
    chosen = chosen_of(BREAKS, given.pattern)
    if not chosen:
        parser.error(f"no break has any of {given.pattern} in its name, rule or file")
    if given.list:
        show(chosen)
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="idgen-breaks-") as directory:
            copy = Copy(ROOT, Path(directory) / "copy", timeout=given.timeout, options=OPTIONS)
            return try_all(copy, chosen, stop_early=given.exitfirst)
    except KeyboardInterrupt:
        print("\ninterrupted; the copy is removed", file=sys.stderr)
        return INTERRUPTED


def chosen_of(breaks: Sequence[Break], patterns: Sequence[str]) -> list[Break]:
    """Those that have one of ``patterns`` in their words; all of them without any."""
    wanted = [pattern.lower() for pattern in patterns]
    return [
        each
        for each in breaks
        if not wanted
        or any(word in f"{each.name}\n{each.rule}\n{each.file}".lower() for word in wanted)
    ]


def show(breaks: Sequence[Break]) -> None:
    for each in breaks:
        print(f"{each.name} ({each.rule})\n    {each.file}\n    {' '.join(each.tests)}")
    print(f"{len(breaks)} breaks")


def try_all(copy: Copy, breaks: Sequence[Break], *, stop_early: bool) -> int:
    """Try each of ``breaks`` on ``copy``: 0 if all are found, else 1."""
    began = time.monotonic()
    for each in breaks:
        each.broken(copy.root)  # names a break that has to be ported, before anything runs
    if not is_green(copy, breaks):
        return NOT_FOUND
    missed = []
    for number, each in enumerate(breaks, 1):
        with copy.broken(each):
            outcome = copy.run(each.tests, first_only=True, late=bool(each.late))
        found, words = finding(outcome)
        told = f"{each.name} ({each.rule}): {words}, {outcome.seconds:.1f} s"
        print(f"{number:3}/{len(breaks)} {'found ' if found else 'MISSED'} {told}", flush=True)
        if not found:
            missed.append(each)
            if stop_early:
                break
    seconds = time.monotonic() - began
    print(f"{len(missed)} of {len(breaks)} breaks not found" if missed else
          f"all {len(breaks)} breaks found", f"in {seconds:.0f} s")  # fmt: skip
    for each in missed:
        print(f"  {each.name}: {each.file}\n    {' '.join(each.tests)}")
    return NOT_FOUND if missed else 0


def is_green(copy: Copy, breaks: Sequence[Break]) -> bool:
    """Whether each test passes without any break: one that is red anyway proves nothing."""
    return all(
        _is_green(copy, tests, late=late)
        for late in (False, True)
        if (tests := [test for each in breaks for test in each.tests if bool(each.late) is late])
    )


def _is_green(copy: Copy, tests: Sequence[str], *, late: bool) -> bool:
    outcome = copy.run(tests, first_only=False, late=late)
    red = [case for case in outcome.cases if case.verdict in ("failed", "error")]
    idle = [test for test in dict.fromkeys(tests) if not _has_passed(outcome, test)]
    if outcome.code == 0 and not idle:
        print(f"{len(dict.fromkeys(tests))} tests are green unbroken, {outcome.seconds:.1f} s")
        return True
    print(outcome.output)
    print("Without any break these tests should pass, and don't (a server that is missing?):")
    print("\n".join(dict.fromkeys([*(case.name for case in red), *idle])))
    return False


def _has_passed(outcome: Outcome, test: str) -> bool:
    cases = [case for case in outcome.cases if case.is_of(test)]
    return bool(cases) and all(case.verdict == "passed" for case in cases)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unported as error:
        sys.exit(str(error))

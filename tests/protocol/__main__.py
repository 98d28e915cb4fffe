"""``python -m tests.protocol``: check the models, and that each mistake is found."""

from __future__ import annotations

import argparse
import sys
import time

from .mistakes import MISTAKES, MODELS
from .models import walk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the larger bounds, too: minutes")
    parser.add_argument(
        "--story", metavar="WORDS", help="tell how mistakes with these words repeat"
    )
    given = parser.parse_args()
    if given.story:
        return tell(given.story)
    bad = 0
    for model in MODELS:
        if given.long or not model.is_long:
            began = time.monotonic()
            found = walk(model.text(), model.bounds)
            seconds = time.monotonic() - began
            bad += bool(found.violated)
            print(
                f"{found.states:>12,} states, {seconds:5.1f} s  {model.name}: "
                f"{found.violated or 'all hold'}",
                flush=True,
            )
    for mistake in MISTAKES:
        found = walk(mistake.text(), mistake.model.bounds, is_quick=True)
        bad += not found.violated
        print(
            f"{'found' if found.violated else 'MISSED':>6}  {mistake.name} ({mistake.rule})",
            flush=True,
        )
    return 1 if bad else 0


def tell(words: str) -> int:
    for mistake in MISTAKES:
        if words in mistake.name:
            found = walk(mistake.text(), mistake.model.bounds, shortest=True)
            print(f"{mistake.name} ({mistake.rule}): {found.violated}", *found.story, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())

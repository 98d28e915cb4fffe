"""Everything that grants ids, on simulated time: ``python -m tests.simulation --seconds 20``.

Exits with 1 if an invariant does not hold, after shrinking the run and telling it as a story.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import islice

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django_idgen"],
    USE_TZ=True,
)
django.setup()

from .whole import Event, World, events, made_world  # noqa: E402


def failure_of(
    chosen: Sequence[Event], tell: Callable[[str], object] = lambda line: None
) -> tuple[int, BaseException] | None:
    """How many events it takes until something fails, and what; None if nothing does."""
    with made_world() as world:
        for number, event in enumerate(chosen, 1):
            try:
                world.do(event)
            except Exception as error:
                return number, error
            finally:
                tell(f"  {event}: {', '.join(world.notes)}" if world.notes else f"  {event}")
    return None


def shrunk(chosen: Sequence[Event], seconds: float) -> Sequence[Event]:
    """Fewer events that still fail; the fewest that ``seconds`` suffice to find."""
    until = time.monotonic() + seconds
    chunk = len(chosen) // 2
    while chunk and time.monotonic() < until:
        place, fewer = 0, False
        while place < len(chosen) and time.monotonic() < until:
            left = [*chosen[:place], *chosen[place + chunk :]]
            found = failure_of(left)
            if found is not None:
                chosen, fewer = left[: found[0]], True
            else:
                place += chunk
        chunk = min(chunk, len(chosen)) if fewer and chunk == 1 else chunk // 2
    return chosen


def tell(chosen: Sequence[Event]) -> None:
    print(f"\nThe shortest run that was found has {len(chosen)} events:")
    found = failure_of(chosen, print)
    assert found is not None
    traceback.print_exception(found[1])


def report(world: World, seed: int, number: int) -> None:
    total = sum(world.counts.values())
    virtual = (world.ns - world.begun_ns) / 1e9
    print(f"seed {seed}: {number:,} events, {total:,} ids, {virtual:,.0f} s of simulated time")
    for name, counts in (("ids", world.counts), ("done", world.done), ("errors", world.errors)):
        print(f"{name}:", ", ".join(f"{count:,} {what}" for what, count in counts.most_common()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--events", type=int, help="this many events, however long they take")
    parser.add_argument("--as-it-is", action="store_true", help="do not shrink a run that fails")
    given = parser.parse_args()
    until, number = time.monotonic() + given.seconds, 0
    failed: BaseException | None = None
    with made_world() as world:
        for number, event in enumerate(islice(events(given.seed), given.events), 1):
            try:
                world.do(event)
            except Exception as error:
                failed = error
                break
            if given.events is None and not number % 50 and time.monotonic() > until:
                break
        report(world, given.seed, number)
    if failed is None:
        return 0
    print(f"After {number:,} events: {failed!r}", flush=True)
    if given.as_it_is:
        return 1
    tell(shrunk([*islice(events(given.seed), number)], 120))
    return 1


if __name__ == "__main__":
    sys.exit(main())

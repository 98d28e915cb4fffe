"""Ids without a lease, as finger-mark's last resort. They may repeat: off by default.

They come from one worker id that is lent to nobody, so that they never meet an id of a lease. Two
processes that are without a lease in the same tick meet by chance: of 4096 sequences each draws
some at random.
"""

from __future__ import annotations

from random import SystemRandom

from .clock import Clock
from .errors import ConfigurationError
from .layout import BitLayout

__all__ = ["DegradedIds"]

RETRY = 10.0
"""Seconds until a lease is asked for again: else each caller would wait for one that hangs."""


class DegradedIds:
    """Ids of ``worker`` with random sequences; none twice in one process. Not thread-safe."""

    def __init__(self, layout: BitLayout, worker: object, lent: range, clock: Clock) -> None:
        whole = isinstance(worker, int) and not isinstance(worker, bool)
        if not whole or worker not in layout.workers or worker in lent:
            last = len(layout.workers) - 1
            raise ConfigurationError(
                f"degraded_worker must be a worker id of the layout (0 to {last}) that no registry "
                f"lends, and {lent.start} to {lent.stop - 1} are lent, not {worker!r}. Leave one "
                f"out of 'workers' in the options of LEASES: [0, {last}] leaves out the last."
            )
        self.worker: int = worker  # type: ignore[assignment]
        self.retry_at = float("-inf")
        """Until this moment of the stopwatch no lease is asked for."""
        self._layout = layout
        self._clock = clock
        self._random = SystemRandom()
        self._tick = -1
        self._used: set[int] = set()

    def take(self, count: int) -> list[int]:
        """``count`` ids of now; ahead of the time if a tick has given half of its sequences."""
        layout, ids = self._layout, list[int]()
        now_us = self._clock.wall_ns() // 1000 - layout.epoch_us
        now = max(0, now_us // layout.tick_us)
        while len(ids) < count:
            if now > self._tick or 2 * len(self._used) >= layout.sequences:
                self._tick, self._used = max(now, self._tick + 1), set()
            sequence = self._random.randrange(layout.sequences)
            if sequence not in self._used:
                self._used.add(sequence)
                # Checked: a clock that is far off must not make another worker's id.
                ids.append(layout.pack(self._tick, self.worker, sequence))
        return ids

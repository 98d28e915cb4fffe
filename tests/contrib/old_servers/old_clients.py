"""What the old servers' clients do with the answers, told from their behaviour."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Ask = Callable[[str, str], tuple[int, str]]
"""``ask("GET", "/tinyid/id/nextId?bizType=…")``: status and body."""


def java_remainder(number: int, delta: int) -> int:
    """Java's ``%``: of a negative number it is negative."""
    return number % delta if number >= 0 else -(-number % delta)


@dataclass
class TinySegment:
    """TinyID's segment, as its Java client walks it."""

    current: int
    loading: int
    last: int
    delta: int
    remainder: int
    aligned: bool = False

    @classmethod
    def read(cls, text: str) -> TinySegment:
        return cls(*map(int, text.split(",")))

    def align(self) -> None:
        if not self.aligned and java_remainder(self.current, self.delta) != self.remainder:
            for _ in range(self.delta + 1):
                self.current += 1
                if java_remainder(self.current, self.delta) == self.remainder:
                    self.current -= self.delta  # the id itself is still to be given out
                    break
        self.aligned = True

    def take(self) -> tuple[int | None, bool]:
        """The next id, and whether the next segment has to be loaded."""
        self.align()
        self.current += self.delta
        if self.current > self.last:
            return None, True
        return self.current, self.current >= self.loading


class TinyClient:
    """Double-buffered, as the Java one: the next segment is loaded at its mark."""

    def __init__(self, ask: Ask, tag: str, secret: str) -> None:
        self._ask = ask
        self._url = f"/tinyid/id/nextSegmentIdSimple?token={secret}&bizType={tag}"
        self._current: TinySegment | None = None
        self._next: TinySegment | None = None
        self.segments: list[TinySegment] = []

    def next_id(self) -> int:
        while True:
            if self._current is None:
                self._current, self._next = self._next or self._load(), None
            value, load = self._current.take()
            if value is None:
                self._current = None
                continue
            if load and self._next is None:
                self._next = self._load()
            return value

    def _load(self) -> TinySegment:
        status, text = self._ask("POST", self._url)
        assert (status, bool(text)) == (200, True), (status, text)
        segment = TinySegment.read(text)
        self.segments.append(segment)
        return segment


class CosIdSegments:
    """A CosId segment client: n owns the ``step`` numbers up to n, and each n is above the last."""

    def __init__(self, ask: Ask, path: str, step: int) -> None:
        self._ask = ask
        self._path = path
        self._step = step
        self._last = self._offset = 0
        status, _ = ask("POST", f"/cosid/segments/distributor/{path}?offset=0&step={step}")
        assert status == 200

    def next_id(self) -> int:
        if self._offset == self._last:
            status, text = self._ask("PATCH", f"/cosid/segments/{self._path}?step={self._step}")
            assert status == 200, text
            last = int(text)
            assert last - self._step >= self._last, "CosId's client refuses to go back"
            self._offset, self._last = last - self._step, last
        self._offset += 1
        return self._offset


ACCEPTED_MS = 500
"""A CosId client refuses a time that is further ahead of its own clock, unless configured."""


@dataclass
class CosIdMachine:
    """A CosId instance that asks for its machine id, and guards it."""

    ask: Ask
    namespace: str
    name: str
    stable: bool = False
    machine: int | None = None
    last_ms: int = 0
    errors: list[dict[str, Any]] = field(default_factory=list)

    def start(self, bits: int = 10) -> bool:
        return self._send("POST", f"machineBit={bits}&safeGuardDuration=PT5M&")

    def accepts(self, clock_ms: int) -> bool:
        """Whether a client whose clock says ``clock_ms`` takes the time that it was told."""
        return self.last_ms - clock_ms <= ACCEPTED_MS

    def guard(self) -> bool:
        return self._send("PATCH", "safeGuardDuration=PT5M&")

    def stop(self) -> bool:
        return self._send("DELETE", "")

    def _send(self, method: str, more: str) -> bool:
        stable = "true" if self.stable else "false"
        query = f"{more}instanceId={self.name}&stable={stable}"
        status, text = self.ask(method, f"/cosid/machines/{self.namespace}?{query}")
        said = json.loads(text)
        if status != 200:
            self.errors.append(said)
            return False
        self.machine, self.last_ms = said["machineId"], said["lastTimeStamp"]
        return True

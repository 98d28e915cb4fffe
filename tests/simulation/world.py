"""A world without real time: hosts whose clocks are set by hand, and a registry that fails.

Nothing here sleeps. A generator that sleeps moves the world's time on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from django_idgen.core.clock import Clock, Reading
from django_idgen.core.errors import RegistryUnavailable
from django_idgen.core.layout import BitLayout
from django_idgen.core.lease import Grant, Lease, Namespace
from django_idgen.core.registry import Registry
from django_idgen.core.snowflake import SnowflakeGenerator
from django_idgen.leases.memory import MemoryLeases, MemoryMarks

__all__ = ["EPOCH_US", "Host", "Link", "World", "layout_of"]

EPOCH_US = 1_735_689_600_000_000
START_NS = (EPOCH_US + 100 * 3_600_000_000) * 1000
"""A hundred hours after the epoch, so that clocks can be put back."""


def layout_of(*fields: tuple[str, int], tick_us: int = 1000) -> BitLayout:
    return BitLayout(fields, tick_us=tick_us, epoch_us=EPOCH_US)


@dataclass
class World:
    """True time, and what everybody shares: the registry's rows and its clock."""

    layout: BitLayout
    window_ticks: int = 20
    skew_ticks: int = 10
    workers: range | None = None
    ns: int = START_NS
    registry_offset_us: int = 0
    down: bool = False
    unused: Literal["", "first", "only"] = ""
    marks: MemoryMarks = field(default_factory=MemoryMarks)

    @property
    def namespace(self) -> Namespace:
        return Namespace(
            name="simulated",
            epoch_us=self.layout.epoch_us,
            tick_us=self.layout.tick_us,
            max_ticks=self.layout.max_ticks,
            workers=self.layout.workers if self.workers is None else self.workers,
            window_ticks=self.window_ticks,
            skew_ticks=self.skew_ticks,
            fingerprint=self.layout.fingerprint(),
            unused=self.unused,
        )

    def registry(self, host: Host) -> Registry:
        """The registry, as a process of ``host`` reaches it."""
        return MemoryLeases(
            self.namespace, marks=self.marks, clock=host.clock, read_now_us=self.registry_us
        )

    def registry_us(self) -> int:
        return self.ns // 1000 + self.registry_offset_us

    def registry_tick(self) -> int:
        return self.namespace.tick_at(self.registry_us())

    def pass_seconds(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    def pass_ticks(self, ticks: int) -> None:
        self.ns += ticks * self.layout.tick_us * 1000

    def rows(self) -> dict[int, object]:
        return self.marks.book("simulated").by_worker

    def host(self) -> Host:
        return Host(self)


class Host:
    """A machine: an elapsed clock of its own pace, and a wall clock that can be stepped."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wall_offset_ns = 0
        self.slept: list[float] = []
        self._since_ns = world.ns
        self._elapsed_ns = 12_345
        self._drift_ppm = 0
        self.clock = Clock(
            stopwatch=lambda: self.elapsed_ns() / 1e9,
            elapsed_ns=self.elapsed_ns,
            wall_ns=lambda: self.world.ns + self.wall_offset_ns,
            sleep=self.sleep,
        )

    def elapsed_ns(self) -> int:
        passed = self.world.ns - self._since_ns
        return self._elapsed_ns + passed + passed * self._drift_ppm // 1_000_000

    def drift(self, ppm: int) -> None:
        """From now on the elapsed clock gains ``ppm`` µs a second (loses, if negative)."""
        self._elapsed_ns, self._since_ns, self._drift_ppm = self.elapsed_ns(), self.world.ns, ppm

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.world.ns += round(seconds * 1e9) + 1000  # never a moment too early

    def link(self) -> Link:
        return Link(self)

    def generator(
        self,
        registry: Link | None = None,
        kind: type[SnowflakeGenerator] = SnowflakeGenerator,
        **options: object,
    ) -> SnowflakeGenerator:
        """A process of this host: no thread of its own, but the options' wish is law."""
        options = {
            "background": False,
            "clock": self.clock,
            "holder": "host",
            "sequence_start": 0,
            **options,
        }
        return kind(
            self.world.layout,
            registry or self.link(),
            **options,  # type: ignore[arg-type]
        )


class Link(Registry):
    """One process' way to the registry: can be cut, lose an answer, or be slow.

    ``fault`` holds for the next call only: ``"down"`` (not applied), ``"lost"``
    (applied, but the answer never comes), or a function that is run after the
    call was applied and before its answer arrives (a slow line).
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.fault: str | Callable[[], None] | None = None
        self.calls: list[tuple[str, object]] = []
        self.windows: dict[str, Lease] = {}
        """By token: what was answered, so what its process may stamp."""
        self.abandoned = 0

    @property
    def namespace(self) -> Namespace:
        return self.host.world.namespace

    def acquire(self, *, holder: str, not_before: int = 0, avoid: int | None = None) -> Grant:
        return self._ask(
            "acquire",
            not_before,
            lambda r: r.acquire(holder=holder, not_before=not_before, avoid=avoid),
        )

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        return self._ask("renew", last_tick, lambda r: r.renew(lease, last_tick=last_tick))

    def release(self, lease: Lease, *, last_tick: int | None) -> bool:
        return self._call("release", last_tick, lambda r: r.release(lease, last_tick=last_tick))

    def renew_seen(self, *, idle_after: float) -> int:
        return self._call("renew_seen", idle_after, lambda r: r.renew_seen(idle_after=idle_after))

    def registry(self) -> Registry:
        """What is at its other end."""
        return self.host.world.registry(self.host)

    def abandon(self) -> None:
        self.abandoned += 1

    def close(self) -> None:
        """Nothing to free."""

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _ask(self, name: str, value: object, job: Callable[[Registry], Grant]) -> Grant:
        sent = self.host.elapsed_ns()
        grant = self._call(name, value, job)
        reading = Reading(grant.reading.registry_us, sent, self.host.elapsed_ns())
        known = self.windows.get(grant.lease.token, grant.lease)
        self.windows[grant.lease.token] = replace(
            grant.lease, until=max(known.until, grant.lease.until)
        )
        return Grant(grant.lease, reading)

    def _call(self, name: str, value: object, job):
        fault, self.fault = self.fault, None
        self.calls.append((name, value))
        world = self.host.world
        if world.down or fault == "down":
            raise RegistryUnavailable(f"{name}: the line is cut.")
        answer = job(self.registry())
        if fault == "lost":
            raise RegistryUnavailable(f"{name}: the answer was lost.")
        if callable(fault):
            fault()
        return answer

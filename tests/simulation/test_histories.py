"""Random histories of a fleet: whatever happens, no id comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from django_idgen.core import book, keeper
from django_idgen.core.buffered import BufferedGenerator
from django_idgen.core.errors import ClockError, LeaseError
from django_idgen.core.layout import BitLayout
from django_idgen.core.lease import Lease
from django_idgen.core.one_time import OneTimeGenerator
from django_idgen.core.registry import Registry
from django_idgen.core.snowflake import SnowflakeGenerator
from tests.simulation.world import Host, Link, World, layout_of

SMALL = {
    "time on top": layout_of(("time", 34), ("worker", 2), ("sequence", 2)),
    "worker lowest": layout_of(("time", 34), ("sequence", 1), ("worker", 2)),
    "worker on top": layout_of(("worker", 2), ("time", 34), ("sequence", 2)),
    "no sequence": layout_of(("time", 34), ("worker", 1), ("sequence", 0)),
    "batches": layout_of(("time", 34), ("batch", 2), ("worker", 2), ("sequence", 1)),
    "one worker": layout_of(("time", 34), ("worker", 0), ("sequence", 2)),
}
PROCESSES = 3
slots = st.integers(0, PROCESSES - 1)
HOUR = 3600.0
moments = st.sampled_from([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.2])
spans = st.one_of(moments, st.sampled_from([1.0, 5.0, HOUR, 2 * HOUR]))
steps = st.one_of(spans, spans.map(lambda s: -s))


class Process:
    """A generator, and the ids that came out of it."""

    def __init__(self, number: int, host: Host, **options: object) -> None:
        self.number = number
        self.link: Link = host.link()
        self.host = host
        self.generator: SnowflakeGenerator = host.generator(self.registry(), **options)
        self.last = 0
        self.open_blocks: list[object] = []

    def registry(self) -> Registry:
        """What its generator asks."""
        return self.link

    def windows(self) -> Mapping[str, Lease]:
        """By token: what it may stamp."""
        return self.link.windows

    def kill(self) -> None:
        self.generator.keeper.lease = None  # nothing warns after a SIGKILL


class Histories(RuleBasedStateMachine):
    """Processes on hosts of their own, one registry, and everything that goes wrong."""

    process: type[Process] = Process

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        # Histories must be repeatable, and hypothesis sees to it that this one is.
        for module in (book, keeper):
            self.stack.enter_context(mock.patch.object(module, "_random", random))

    @initialize(
        name=st.sampled_from(sorted(SMALL)),
        window=st.sampled_from([1, 2, 20, 20, 200]),
        ahead=st.sampled_from([0.0, 0.005, 0.05]),
        spread=st.sampled_from([0, 0, 1, "spread", "next"]),
    )
    def begin(self, name: str, window: int, ahead: float, spread: int | str) -> None:
        self.world = self.world_of(self.layout_called(name), window)
        self.options = {"sequence_start": spread, **self.kind_of(ahead)}
        self.hosts = self.hosts_of(self.world)
        self.processes: list[Process | None] = [None] * PROCESSES
        self.started = 0
        self.issued: set[int] = set()
        self.stamped: dict[tuple[int, int], int] = {}
        for slot in range(PROCESSES):
            self.start(slot)
            self.issue(slot, 1, batch=False)

    def layout_called(self, name: str) -> BitLayout:
        return SMALL[name]

    def world_of(self, layout: BitLayout, window: int) -> World:
        return World(layout, window_ticks=window)

    def hosts_of(self, world: World) -> list[Host]:
        return [world.host() for _ in range(PROCESSES)]

    def kind_of(self, ahead: float) -> dict[str, object]:
        return {"max_ahead": ahead}

    # --- what processes do ------------------------------------------------------

    @rule(slot=slots)
    def start(self, slot: int) -> None:
        """A process starts, if the slot's last one is gone."""
        if self.processes[slot] is None:
            self.started += 1
            self.processes[slot] = self.process(self.started, self.hosts[slot], **self.options)

    @rule(slot=slots, count=st.integers(1, 12), batch=st.booleans())
    def issue(self, slot: int, count: int, batch: bool) -> None:
        self.take(self.processes[slot], count, batch)

    @rule(count=st.integers(1, 8))
    def all_issue(self, count: int) -> None:
        for process in self.processes:
            self.take(process, count, batch=False)

    @rule(slot=slots)
    def a_thread_holds_the_block(self, slot: int) -> None:
        """It read the iterator, and was stopped before it took an id."""
        process = self.processes[slot]
        if process is not None:
            process.open_blocks.append(self.block_of(process.generator))

    def block_of(self, generator: SnowflakeGenerator) -> Iterator[int]:
        return generator._block

    @rule(slot=slots)
    def that_thread_goes_on(self, slot: int) -> None:
        process = self.processes[slot]
        if process is not None:
            for block in process.open_blocks:
                for value in block:
                    self.note(process, value)
                    break

    def all_renew(self) -> None:
        for process in self.processes:
            if process is not None:
                process.generator.keeper.renew_in_background()

    @rule(
        slot=slots,
        field=st.sampled_from(["worker", "token", "start", "generation"]),
        value=st.sampled_from([-1, 0, 1, 2**41]),
    )
    def somebody_releases_an_altered_lease(self, slot: int, field: str, value: int) -> None:
        """Whose holder goes on."""
        process = self.processes[slot]
        lease = None if process is None else process.generator.keeper.lease
        if lease is not None and getattr(lease, field) != value and not self.world.down:
            altered = replace(lease, **{field: str(value) if field == "token" else value})
            assert not self.hosts[slot].link().release(altered, last_tick=0)

    @rule(slot=slots)
    def renewal_thread_turns(self, slot: int) -> None:
        process = self.processes[slot]
        if process is not None:
            process.generator.keeper.renew_in_background()

    @rule(slot=slots)
    def close(self, slot: int) -> None:
        """A clean end; its threads may still take what they held."""
        process = self.processes[slot]
        if process is not None:
            process.generator.close()
            self.that_thread_goes_on(slot)
            self.processes[slot] = None

    @rule(slot=slots)
    def kill(self, slot: int) -> None:
        process = self.processes[slot]
        if process is not None:
            process.kill()
            self.processes[slot] = None

    @rule(slot=slots, seconds=moments, count=st.integers(1, 12), cleanly=st.booleans())
    def restart(self, slot: int, seconds: float, count: int, cleanly: bool) -> None:
        """It issues, ends one way or the other, and its successor issues at once."""
        self.issue(slot, count, batch=True)
        self.close(slot) if cleanly else self.kill(slot)
        self.world.pass_seconds(seconds)
        self.start(slot)
        self.issue(slot, count, batch=True)

    # --- what happens to them -----------------------------------------------------

    @rule(seconds=moments)
    def a_moment_passes(self, seconds: float) -> None:
        self.world.pass_seconds(seconds)

    @rule(seconds=spans)
    def time_passes(self, seconds: float) -> None:
        """For a process that was stopped, this is a SIGSTOP."""
        self.world.pass_seconds(seconds)

    @rule(slot=slots, seconds=steps)
    def wall_clock_steps(self, slot: int, seconds: float) -> None:
        self.hosts[slot].wall_offset_ns += round(seconds * 1e9)

    @rule(slot=slots, ppm=st.sampled_from([-500_000, -200, 0, 200, 1_000_000]))
    def elapsed_clock_drifts(self, slot: int, ppm: int) -> None:
        self.hosts[slot].drift(ppm)

    @rule(seconds=steps)
    def registry_clock_steps(self, seconds: float) -> None:
        self.world.registry_offset_us += round(seconds * 1e6)

    @rule(seconds=st.sampled_from([0.02, 0.2, 1.0, 5.0, HOUR]))
    def registry_clock_goes_back_and_all_notice(self, seconds: float) -> None:
        self.all_issue(2)
        self.world.registry_offset_us -= round(seconds * 1e6)
        self.all_renew()
        self.all_issue(9)

    @rule(seconds=spans)
    def registry_is_down_for_a_while(self, seconds: float) -> None:
        self.world.down = True
        self.all_issue(5)
        self.world.pass_seconds(seconds)
        self.all_issue(5)
        self.world.down = False

    @rule(slot=slots, fault=st.sampled_from(["down", "lost"]))
    def one_call_fails(self, slot: int, fault: str) -> None:
        process = self.processes[slot]
        if process is not None:
            process.link.fault = fault

    @rule(slot=slots, seconds=spans, other=slots)
    def one_answer_is_late(self, slot: int, seconds: float, other: int) -> None:
        """Meanwhile time passes, and another process goes on."""
        process = self.processes[slot]

        def meanwhile() -> None:
            self.world.pass_seconds(seconds)
            if other != slot and not self.is_in_a_call(other):
                self.take(self.processes[other], 3, batch=False)

        if process is not None:
            process.link.fault = meanwhile

    def is_in_a_call(self, slot: int) -> bool:
        """Of its own, in this very thread: it would stand in line behind itself."""
        process = self.processes[slot]
        return process is not None and (
            process.generator._lock.locked() or process.generator.keeper._turn._running is not None
        )

    @rule()
    def all_rows_are_deleted(self) -> None:
        self.world.rows().clear()

    @precondition(lambda self: self.world.rows())
    @rule(data=st.data())
    def a_row_is_deleted(self, data: st.DataObject) -> None:
        self.world.rows().pop(data.draw(st.sampled_from(sorted(self.world.rows()))))

    @rule(ticks=st.sampled_from([1, 2, 20, 200]), slot=slots)
    def the_window_is_configured_anew(self, ticks: int, slot: int) -> None:
        """Of the whole fleet; then somebody restarts."""
        self.world.window_ticks = ticks
        self.all_renew()
        self.restart(slot, 0.005, 5, cleanly=False)
        self.all_issue(2)

    # --- what must hold ---------------------------------------------------------------

    def take(self, process: Process | None, count: int, batch: bool) -> None:
        if process is None:
            return
        try:
            if batch:
                ids = process.generator.next_ids(count)
            else:
                ids = [process.generator.next_id() for _ in range(count)]
        except (LeaseError, ClockError):
            return  # I6: nothing else may come out
        for value in ids:
            self.note(process, value)
            self.must_rise(process, value)

    def must_rise(self, process: Process, value: int) -> None:
        """I2, where the worker id is not above the time."""
        if self.world.layout.time_is_top:
            assert value > process.last, f"I2: {value} came after {process.last}"
            process.last = value

    def note(self, process: Process, value: int) -> None:
        layout = self.world.layout
        assert 1 <= value < 1 << layout.bits, f"I7: {value}"
        assert value not in self.issued, f"I1: {value} was issued twice"
        self.issued.add(value)
        parts = layout.unpack(value)
        place = (parts.worker, parts.tick)
        other = self.stamped.setdefault(place, process.number)
        assert other == process.number, f"I1: {place} of {process.number} and {other}"
        assert any(
            lease.worker == parts.worker and lease.start <= parts.tick < lease.until
            for lease in process.windows().values()
        ), f"I3: {place} is outside of what process {process.number} was granted"

    def teardown(self) -> None:
        for process in getattr(self, "processes", []):
            if process is not None:
                process.kill()
        self.stack.close()


class TestHistories(Histories.TestCase):
    """I1 disjoint, I2 ordered, I3 bounded, I6 honest and I7 positive, in every history."""

    settings = settings(
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


class BufferedHistories(Histories):
    """The same, with ids that were prepared ahead."""

    def layout_called(self, name: str) -> BitLayout:
        return SMALL["time on top" if name == "batches" else name]  # it takes none

    def kind_of(self, ahead: float) -> dict[str, object]:
        boost = {0.0: 0, 0.005: 2, 0.05: 5}[ahead]
        return {"kind": BufferedGenerator, "boost_power": boost, "sequence_start": 0}

    def block_of(self, generator: SnowflakeGenerator) -> Iterator[int]:
        return generator._ids

    @rule(slot=slots)
    def filling_thread_turns(self, slot: int) -> None:
        process = self.processes[slot]
        if process is not None and not self.is_in_a_call(slot):
            process.generator.fill_in_background()


class TestBufferedHistories(BufferedHistories.TestCase):
    """The invariants hold for a buffer, too."""

    settings = TestHistories.settings


class OneTimeHistories(Histories):
    """The same, with ticks that do not follow the clock."""

    def kind_of(self, ahead: float) -> dict[str, object]:
        return {"kind": OneTimeGenerator, "max_ahead": ahead}


class TestOneTimeHistories(OneTimeHistories.TestCase):
    """The invariants hold without a clock, too."""

    settings = TestHistories.settings


class DisposableHistories(Histories):
    """The same, with worker ids that are lent once, or again when all are used up."""

    def layout_called(self, name: str) -> BitLayout:
        once = layout_of(("time", 30), ("worker", 7), ("sequence", 2))
        return once if name.startswith("worker") else SMALL[name]

    def world_of(self, layout: BitLayout, window: int) -> World:
        self.lent: dict[int, str] = {}
        if len(layout.workers) <= 4:
            return World(layout, window_ticks=window, unused="first")
        return World(layout, window_ticks=window, unused="only", workers=range(6))

    def take(self, process: Process | None, count: int, batch: bool) -> None:
        super().take(process, count, batch)
        if process is not None and self.world.unused == "only":
            for token, lease in process.windows().items():
                known = self.lent.setdefault(lease.worker, token)
                assert known == token, f"worker id {lease.worker} was lent twice"


class TestDisposableHistories(DisposableHistories.TestCase):
    """The invariants hold for them, too; lent once is lent once, whatever rows are deleted."""

    settings = TestHistories.settings

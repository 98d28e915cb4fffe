"""Random histories of leases in files of their host: whatever ends a process, no id comes twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_idgen.core.lease import Grant, Lease
from django_idgen.core.loader import RepeatingThread
from django_idgen.core.registry import Registry
from django_idgen.leases import checkpointed
from django_idgen.leases.checkpointed import CheckpointedLeases
from tests.servers import fast_directory
from tests.simulation import test_histories as plain
from tests.simulation.test_histories import moments, slots, spans
from tests.simulation.world import Host, World

EVERY = 0.003
"""Seconds from one mark to the next: half of the windows are longer than the marks reach."""


class Killed(BaseException):
    """The process ends in the midst of what it does."""


class Idle(RepeatingThread):
    """Callers ask the registry themselves, so that a history can be repeated."""

    def start(self, *_: object, **__: object) -> None:
        """No thread."""


class Leases(CheckpointedLeases):
    """They know what they have lent."""

    windows: dict[str, Lease]

    def acquire(self, **options: Any) -> Grant:
        grant = super().acquire(**options)
        self.windows[grant.lease.token] = grant.lease
        return grant

    def renew(self, lease: Lease, *, last_tick: int) -> Grant:
        grant = super().renew(lease, last_tick=last_tick)
        self.windows[grant.lease.token] = grant.lease
        return grant


class Process(plain.Process):
    def registry(self) -> Registry:
        directory = self.host.directory  # type: ignore[attr-defined]
        self.leases = Leases(
            self.host.world.namespace,
            registry=self.link,
            directory=directory,
            every=EVERY,
            clock=self.host.clock,
        )
        self.leases.windows = {}
        return self.leases

    def windows(self) -> Mapping[str, Lease]:
        return self.leases.windows

    def kill(self) -> None:
        super().kill()
        self.leases.close()


class Histories(plain.Histories):
    """The same, on two hosts, one of which has two processes; their disks are real."""

    process = Process

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(mkdtemp(dir=fast_directory()))
        self.writes_left: int | None = None
        self.fault: type[BaseException] = Killed
        self.stack.callback(shutil.rmtree, self.root)
        self.stack.enter_context(mock.patch.object(checkpointed, "RepeatingThread", Idle))
        for name in ("replace", "pwrite", "fsync"):
            deadly = self.deadly(getattr(os, name))
            self.stack.enter_context(mock.patch.object(os, name, deadly))

    def deadly(self, done: Callable[..., Any]) -> Callable[..., Any]:
        """What may fail: the process is killed before it, or the disk is full."""

        def run(*args: Any) -> Any:
            if self.writes_left is not None:
                if not self.writes_left:
                    raise self.fault
                self.writes_left -= 1
            return done(*args)

        return run

    def hosts_of(self, world: World) -> list[Host]:
        one, two = world.host(), world.host()
        for number, host in enumerate([one, two]):
            host.directory = self.root / str(number)  # type: ignore[attr-defined]
            host.directory.mkdir()  # type: ignore[attr-defined]
        return [one, two, one]

    @rule(slot=slots, writes=st.integers(0, 7), count=st.integers(1, 8), how=st.integers(0, 2))
    def killed_at_a_write(self, slot: int, writes: int, count: int, how: int) -> None:
        """While it renews, or ends, or its successor starts; then somebody goes on."""
        self.writes_left = writes
        with suppress(Killed):
            if how == 2:
                self.close(slot)
                self.start(slot)
            self.renewal_thread_turns(slot)
            self.issue(slot, count, batch=False)
        self.writes_left = None
        self.kill(slot)
        self.start(slot)
        self.all_issue(count)

    @rule(slot=slots, writes=st.integers(0, 3), seconds=moments, count=st.integers(1, 8))
    def the_disk_is_full_for_a_while(
        self, slot: int, writes: int, seconds: float, count: int
    ) -> None:
        self.writes_left, self.fault = writes, OSError
        for _ in range(2):
            self.world.pass_seconds(seconds)
            self.renewal_thread_turns(slot)
            for _ in range(2):
                self.issue(slot, count, batch=False)
        self.writes_left, self.fault = None, Killed
        self.restart(slot, 0.001, count, cleanly=False)

    @rule(slot=slots, seconds=spans, between=moments, cleanly=st.booleans())
    def restarted_while_the_registry_is_down(
        self, slot: int, seconds: float, between: float, cleanly: bool
    ) -> None:
        self.issue(slot, 3, batch=False)
        self.world.down = True
        self.world.pass_seconds(seconds)
        for _ in range(2):
            self.restart(slot, between, 3, cleanly)
        self.world.down = False
        self.all_renew()
        self.all_issue(3)

    @rule(slot=slots)
    def started_where_the_registry_is_down_by_now(self, slot: int) -> None:
        """The last process gave its lease back, and one that had none may have it."""
        for each in range(plain.PROCESSES):
            self.start(each)
        self.issue(slot, 3, batch=False)
        self.close(slot)
        self.all_issue(8)
        self.world.down = True
        self.start(slot)
        for _ in range(3):
            self.all_issue(8)
            self.world.pass_seconds(0.005)
        self.world.down = False

    @rule(slot=slots, other=st.booleans(), inode=st.booleans(), running=st.booleans())
    def older_files_are_put_back(self, slot: int, other: bool, inode: bool, running: bool) -> None:
        """Or onto the other host; under its processes, or while they are stopped."""
        source = self.hosts[slot].directory  # type: ignore[attr-defined]
        target = self.root / str(1 - int(source.name)) if other else source
        kept = shutil.copytree(source, self.root / "kept")
        self.all_issue(5)
        self.world.pass_seconds(0.01)
        self.all_renew()
        self.all_issue(5)
        if not running:
            for each in range(plain.PROCESSES):
                self.kill(each)
        for path in kept.iterdir():
            if inode and (target / path.name).exists():
                (target / path.name).write_bytes(path.read_bytes())
            else:
                (target / path.name).unlink(missing_ok=True)
                shutil.copy2(path, target)
        shutil.rmtree(kept)
        for each in range(plain.PROCESSES):
            self.start(each)
        self.all_issue(5)

    @rule(slot=slots, pattern=st.sampled_from(["*.lock", "*.lease", "*"]))
    def files_are_deleted(self, slot: int, pattern: str) -> None:
        for path in self.hosts[slot].directory.glob(pattern):  # type: ignore[attr-defined]
            path.unlink()
        self.restart(slot, 0.001, 3, cleanly=False)
        self.all_issue(3)


class TestCheckpointHistories(Histories.TestCase):
    """I1 disjoint, I2 ordered and I3 bounded, though leases go on without their registry."""

    settings = plain.TestHistories.settings

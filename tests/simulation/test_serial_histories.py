"""Random histories of serial ids: whatever ends a process, no id comes twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from django_idgen.core.files import NumberFile
from django_idgen.core.loader import inline_loader
from django_idgen.core.pace import Growth
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.core.tag_generator import COUNTER_BITS, SerialGenerator
from django_idgen.sources.file import FileSource
from tests.servers import fast_directory

HOSTS = 2
PROCESSES = 4
"""The even ones run on the first host, the odd ones on the second."""
slots = st.integers(0, PROCESSES - 1)
kills = st.sampled_from(["", "", "before", "after"])
HISTORIES = settings(
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Killed(BaseException):
    """The process ends in the midst of what it does."""


class Histories(RuleBasedStateMachine):
    """Two hosts with a worker and files of their own, and processes that share these."""

    source: type[FileSource] = FileSource

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(mkdtemp(dir=fast_directory()))
        for host in range(HOSTS):
            (self.root / str(host)).mkdir()
        self.running: dict[int, SerialGenerator] = {}
        self.last: dict[int, int] = {}
        self.issued: set[int] = set()
        self.backups: dict[Path, bytes] = {}
        self.kill_at = ""
        self.write = write = NumberFile.write

        def may_be_killed(file: NumberFile, *numbers: int) -> None:
            kill_at, self.kill_at = self.kill_at, ""
            if kill_at == "before":
                raise Killed
            write(file, *numbers)
            if kill_at == "after":
                raise Killed

        NumberFile.write = may_be_killed  # type: ignore[method-assign]

    def teardown(self) -> None:
        NumberFile.write = self.write  # type: ignore[method-assign]
        shutil.rmtree(self.root)

    @rule(slot=slots, count=st.integers(1, 25), kill_at=kills)
    def take(self, slot: int, count: int, kill_at: str) -> None:
        """A process takes ids; it may be killed where it writes a mark."""
        if slot not in self.running:
            source = self.source(directory=self.root / str(slot % HOSTS), default_step=7)
            made = SegmentAllocator(source, inline_loader(), growth=Growth(longest_step=20))
            self.running[slot] = SerialGenerator(made, tag="t", worker=slot % HOSTS)
            self.last[slot] = 0
        self.kill_at = kill_at
        try:
            for _ in range(count):
                self.note(slot, self.running[slot].next_id())
        except Killed:
            self.kill(slot)
        self.kill_at = ""

    def note(self, slot: int, value: int) -> None:
        assert value >> COUNTER_BITS == slot % HOSTS, f"I3: {value} is another worker's"
        assert value > self.last[slot], f"I2: {value} came after {self.last[slot]}"
        assert value not in self.issued, f"I1: {value} was issued twice"
        self.last[slot] = value
        self.issued.add(value)

    @rule(slot=slots)
    def kill(self, slot: int) -> None:
        self.running.pop(slot, None)

    @rule(slot=slots)
    def close(self, slot: int) -> None:
        if slot in self.running:
            self.running.pop(slot).close()

    @rule(host=st.integers(0, HOSTS - 1))
    def a_new_host_gets_a_copy_of_the_files(self, host: int) -> None:
        """Its worker is another one: what the copied marks say is of no matter."""
        for path in (self.root / str(host)).iterdir():
            copy = self.root / str(1 - host) / path.name
            if not copy.exists():
                shutil.copy(path, copy)

    @rule(host=st.integers(0, HOSTS - 1))
    def a_backup_is_made(self, host: int) -> None:
        for path in (self.root / str(host)).iterdir():
            self.backups[path] = path.read_bytes()

    @rule(host=st.integers(0, HOSTS - 1), put_back=st.booleans())
    def a_file_is_lost(self, host: int, put_back: bool) -> None:
        """On each host it is the same one of the two; an older copy may take its place."""
        for path in (self.root / str(host)).glob(["*.ids", "*.copy"][host]):
            path.unlink()
            if put_back and path in self.backups:
                path.write_bytes(self.backups[path])


class TestSerialHistories(Histories.TestCase):
    """I1 disjoint, I2 ordered and I3 bounded, in every history."""

    settings = HISTORIES


class Behind(FileSource):
    """Writes the mark that was there: what it grants is promised to the next one, too."""

    def fetch(self, tag, **options):
        segment = super().fetch(tag, **options)
        with self._locked(tag) as files:
            for file in files:
                file.write(segment.start, segment.step)
        return segment


def test_a_mark_that_is_not_written_ahead_is_found() -> None:
    """The histories see it, so that they would see a fault of ours."""

    class Faulty(Histories):
        source = Behind

    any_failure = settings(HISTORIES, print_blob=False, phases=[Phase.generate])
    with pytest.raises(AssertionError, match="I1"):
        run_state_machine_as_test(Faulty, settings=any_failure)

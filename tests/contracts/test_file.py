"""The source that keeps its tags in files keeps the contract, and what is said of damage."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from django_idgen.core.errors import ConfigurationError, SegmentUnavailable
from django_idgen.core.files import NumberFile, file_name
from django_idgen.core.segment import STEP, Demand, Segment
from django_idgen.core.source import Source
from django_idgen.sources import file as file_source
from django_idgen.sources.file import LOSS_SKIP, FileSource
from django_idgen.testing.contracts import Shop, SourceContract, check_disjoint
from tests import warm
from tests.servers import fast_directory

ROOT = Path(__file__).parents[2]


class FileShop(Shop):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = Path(directory)
        self.asked: set[str] = set()

    def make(self, default_step: int) -> Source:
        asked = self.asked

        class Noting(FileSource):
            def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
                segment = super().fetch(tag, floor=floor, demand=demand)
                asked.add(tag)
                return segment

        return Noting(directory=self.directory, default_step=default_step)

    def first_id(self, floor: int, longest: int) -> int:
        return floor + LOSS_SKIP

    def path(self, tag: str) -> Path:
        return self.directory / f"{file_name(tag)}.ids"

    def set_step(self, tag: str, step: int) -> None:
        FileSource(directory=self.directory, default_step=1).set_step(tag, step)

    def forget(self) -> None:
        for path in self.directory.iterdir():
            path.unlink()

    def tags(self) -> list[str]:
        found = sorted(tag for tag in self.asked if self.path(tag).exists())
        assert len(found) == len(list(self.directory.glob("*.ids")))
        return found


class TestFileSource(SourceContract):
    examples = 10

    @contextmanager
    def new_shop(self) -> Iterator[Shop]:
        with TemporaryDirectory(dir=fast_directory()) as directory:
            yield FileShop(directory)


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    return FileSource(directory=tmp_path, default_step=10)


TAKE = """
import sys
from django_idgen.sources.file import FileSource
source = FileSource(directory=sys.argv[1], default_step=3)
for _ in range(200):
    print(*source.fetch("t").ids(), flush=True)
"""


def test_processes_share_a_file_and_one_that_is_killed_leaves_a_gap(tmp_path: Path) -> None:
    """I1: whatever was written on the way out was promised before, and never comes again."""
    command = ["-c", TAKE, str(tmp_path)]
    running = [warm.Process(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    victim = running.pop()
    assert victim.stdout is not None
    seen = [victim.stdout.readline() for _ in range(20)]
    victim.kill()
    seen += [victim.stdout.read(), *(each.communicate()[0] for each in running)]
    victim.wait()
    victim.stdout.close()
    whole = "".join(line for text in seen for line in text.splitlines(True) if line[-1] == "\n")
    ids = [int(word) for word in whole.split()]
    assert len(ids) > 1200
    assert len(set(ids)) == len(ids)
    assert FileSource(directory=tmp_path, default_step=3).fetch("t").start > max(ids)


@pytest.mark.parametrize("content", ["12", "x" * 42, f"{7:020d} {0:020d}\n", f"{7:020d}\n"])
def test_a_damaged_file_is_never_a_fresh_start(
    source: FileSource, tmp_path: Path, content: str
) -> None:
    """Cut short, of something else, without a step: refused, with what to write into it."""
    source.fetch("t")
    (tmp_path / "t.ids").write_text(content)
    with pytest.raises(SegmentUnavailable, match=r"t\.ids.*is damaged.*above every id"):
        source.fetch("t")
    assert (tmp_path / "t.ids").read_text() == content


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With its path, and what to do."""
    source = FileSource(directory=tmp_path / "away", default_step=10)
    with pytest.raises(ConfigurationError, match=r"away.*does not exist.*Make"):
        source.fetch("t")


def test_a_full_disk_grants_nothing(source: FileSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written ahead is not given out; the next fetch goes on."""
    source.fetch("t")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SegmentUnavailable, match="No space left"):
            source.fetch("t")
    assert source.fetch("t").start >= 11


def test_a_file_that_stays_locked_is_named(
    source: FileSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while; a process may hang while it has it."""
    monkeypatch.setattr(file_source, "PATIENCE", 0.05)
    other = NumberFile(tmp_path / "t.ids", 2)
    assert other.lock()
    with pytest.raises(SegmentUnavailable, match=r"t\.ids.*was locked by another process"):
        source.fetch("t")
    other.unlock()
    assert source.fetch("t").start == 1


def test_any_tag_has_a_file_of_its_own(source: FileSource, tmp_path: Path) -> None:
    """Also those whose characters no file name can have."""
    for tag in ("a/b", "a_b", "..", "é" * 100, "A"):
        assert source.fetch(tag).start == 1
    assert len(list(tmp_path.glob("*.ids"))) == 5


@pytest.mark.parametrize("end", [".ids", ".copy"])
@pytest.mark.parametrize("put_back", [False, True], ids=["deleted", "put back"])
def test_one_file_of_a_tag_may_be_lost_under_running_processes(
    tmp_path: Path, end: str, put_back: bool
) -> None:
    """I1: the other one tells, also a process that starts then; nothing is skipped."""
    one, other = (FileSource(directory=tmp_path, default_step=10) for _ in range(2))
    path = tmp_path / f"t{end}"
    one.fetch("t")
    before = path.read_text()
    other.fetch("t")
    path.unlink()
    if put_back:
        path.write_text(before)
    newcomer = FileSource(directory=tmp_path, default_step=10)
    assert newcomer.fetch("t").start == 21
    assert [one.fetch("t", floor=11).start, other.fetch("t", floor=21).start] == [31, 41]


def test_both_files_of_a_tag_are_lost_under_running_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I1: none gets what another holds, though its own ids are all that it knows of; it says so."""
    sources = [FileSource(directory=tmp_path, default_step=10) for _ in range(3)]
    held = [source.fetch("t") for source in sources]
    for path in tmp_path.iterdir():
        path.unlink()
    for source, segment in zip(sources, list(held), strict=True):
        held.append(source.fetch("t", floor=segment.stop))
    check_disjoint(held)
    assert held[3].start == held[0].stop + LOSS_SKIP
    assert len(caplog.messages) == 1
    assert "deleted or replaced. The tag continues at" in caplog.text

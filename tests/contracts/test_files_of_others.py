"""Files that an older version, or somebody else, has written or holds locked."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from django_idgen.core.errors import IdgenError
from django_idgen.core.files import NumberFile
from django_idgen.leases.checkpointed import CheckpointedLeases
from django_idgen.leases.memory import MemoryLeases
from django_idgen.leases.static import StaticLeases
from django_idgen.sources import file
from django_idgen.sources.file import FileSource
from django_idgen.testing.contracts import NAMESPACE


@dataclass
class Kind:
    """Something that keeps marks in ``directory``."""

    make: Callable[[Path], Any]
    take: Callable[[Any], Any]
    locked: str
    """The file that its process locks."""


def _lease(registry: Any) -> Any:
    return registry.acquire(holder="a").lease


KINDS = {
    "tags": Kind(
        lambda path: FileSource(directory=path, default_step=10),
        lambda source: source.fetch("t"),
        "t.ids",
    ),
    "static": Kind(
        lambda path: StaticLeases(NAMESPACE, directory=path, worker=1),
        _lease,
        f"{NAMESPACE.name}-1.lock",
    ),
    "checkpoints": Kind(
        lambda path: CheckpointedLeases(
            NAMESPACE, directory=path, registry=MemoryLeases(NAMESPACE)
        ),
        _lease,
        f"{NAMESPACE.name}-0.lock",
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@contextmanager
def held_by_an_older_process(path: Path) -> Iterator[None]:
    """As every version locks it: flock() on the file itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def test_an_old_and_a_new_process_exclude_each_other(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 117: while one has a file, the other gets nothing of it, whichever came first."""
    monkeypatch.setattr(file, "PATIENCE", 0.05)
    with held_by_an_older_process(tmp_path / kind.locked):
        if kind is KINDS["checkpoints"]:
            kind.take(kind.make(tmp_path))
            assert (tmp_path / f"{NAMESPACE.name}-1.lock").exists()
        else:
            with pytest.raises(IdgenError, match="lock"):
                kind.take(kind.make(tmp_path))
    owner = kind.make(tmp_path)
    kept = kind.take(owner)
    if kind is KINDS["tags"]:  # it has the file for the time of a fetch only
        held = NumberFile(tmp_path / kind.locked, 2)
        assert held.lock()
    with (
        pytest.raises(BlockingIOError),
        held_by_an_older_process(tmp_path / kind.locked),
    ):
        pass
    assert kept is not None


@pytest.mark.parametrize("content", [b"7\n", b"%020d" % 7, b"\x00" * 42, b"{}"])
def test_what_cannot_be_read_is_never_taken_as_new(
    kind: Kind, content: bytes, tmp_path: Path
) -> None:
    """Hazard 117: a file of another form is refused, and named, until somebody has looked."""
    made = kind.make(tmp_path)
    first = kind.take(made)
    if kind is not KINDS["tags"]:
        made.release(first, last_tick=first.start)
    path = tmp_path / kind.locked
    path.write_bytes(content)
    with pytest.raises(IdgenError, match="damaged"):
        kind.take(kind.make(tmp_path))
    assert path.read_bytes() == content
    if kind is KINDS["tags"]:
        (tmp_path / "t.copy").write_bytes(content)
        assert not made.is_new("t")


def test_a_file_without_a_right_to_read_is_no_new_one(tmp_path: Path) -> None:
    """``is_new`` says False where that is unknown."""
    source = FileSource(directory=tmp_path, default_step=10)
    assert source.is_new("t")
    (tmp_path / "t.ids").mkdir()  # root may read everything else
    assert not source.is_new("t")

"""Files of marks: they follow no link, are their owner's alone, and no write is half done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from django_idgen.core.errors import ConfigurationError, SegmentUnavailable
from django_idgen.core.files import NumberFile, file_errors, replace_file


def written(path: Path) -> None:
    file = NumberFile(path, 2)
    assert file.lock()
    file.write(7, 8)
    file.close()


def replaced(path: Path) -> None:
    replace_file(path, {"mark": 7})


@pytest.mark.parametrize("write", [written, replaced])
def test_only_the_owner_may_read_them(write: Callable[[Path], None], tmp_path: Path) -> None:
    """Whatever the process lets others do with its other files."""
    before = os.umask(0)
    try:
        write(tmp_path / "a.mark")
    finally:
        os.umask(before)
    assert (tmp_path / "a.mark").stat().st_mode & 0o777 == 0o600


def test_a_link_is_refused_in_words(tmp_path: Path) -> None:
    """Hazard 117: it could lead two names to one file, or into a file of somebody else."""
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "a.ids").symlink_to("theirs")
    (tmp_path / "b.ids").symlink_to("missing")
    for name in ("a.ids", "b.ids"):
        with (
            pytest.raises(ConfigurationError, match=r"tags in .*is a symbolic link"),
            file_errors("the tags", tmp_path, SegmentUnavailable),
        ):
            NumberFile(tmp_path / name).lock()
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("left", ["link", "file"])
def test_what_a_killed_process_or_somebody_else_left_is_not_written_into(
    tmp_path: Path, left: str
) -> None:
    """Hazard 117: the new content goes into a file of its own, and replaces the old one whole."""
    (tmp_path / "theirs").write_text("theirs")
    if left == "link":
        (tmp_path / "a.mark-new").symlink_to("theirs")
    else:
        (tmp_path / "a.mark-new").write_text("half of a mark, and long enough to show")
    replaced(tmp_path / "a.mark")
    assert json.loads((tmp_path / "a.mark").read_text()) == {"mark": 7}
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mark", "theirs"]


def test_a_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hazard 117: a mark that is not on the disk whole does not count."""
    file = NumberFile(tmp_path / "a.ids", 2)
    assert file.lock()
    file.write(7, 8)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, line, at: write(fd, line[:10], at))
    with pytest.raises(OSError, match="10 of 42 bytes were written"):
        file.write(9, 8)
    file.close()

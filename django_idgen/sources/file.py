"""Segments from files of one host, without a database or a network.

Each tag has a file in ``directory`` with two numbers: the end of what was granted, written
ahead, and the tag's step. A killed process leaves a gap of at most one segment, and no
repeat. Change a step with :meth:`FileSource.set_step`: an editor would write back an old mark.

A second file of each tag, ``.copy``, has the same numbers. The higher mark of the two counts, so
that one of them may be lost, or be put back from a backup.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..core.clock import SYSTEM_CLOCK, Clock
from ..core.errors import SegmentExhausted, SegmentUnavailable
from ..core.files import NumberFile, check_platform, file_errors, file_name
from ..core.loader import Loader
from ..core.segment import LONGEST_STEP, MAX_ID, STEP, Demand, Segment, check_step, check_tag
from ..core.source import Source

logger = logging.getLogger("django_idgen")

LOSS_SKIP = 10 * LONGEST_STEP
"""Ids that are skipped where both files of a tag were lost under running processes."""
PATIENCE = 5.0
"""Seconds that a fetch waits for another process of the host."""
PAUSE = 0.005


class FileSource(Source):
    """Segments of tags that are files in ``directory``. Thread-safe; for processes of one host.

    The directory must exist, on a local disk, and survive a restart. Don't delete both files of
    a tag: a process that starts then would start at 1 again. A running process that finds both
    lost, or set back, skips :data:`LOSS_SKIP` ids past its own, which other processes of the host
    may have. Raises :class:`ConfigurationError`.
    """

    wired = ("default_step",)

    def __init__(
        self, *, directory: str | os.PathLike[str], default_step: int, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        check_platform("Tags in files")
        self.default_step = check_step(default_step)
        self._directory = Path(directory)
        self._clock = clock
        self._loader = Loader("idgen-files")

    @property
    def loader(self) -> Loader:
        """A thread: putting a mark on the disk takes milliseconds."""
        return self._loader

    def fetch(self, tag: str, *, floor: int = 0, demand: Demand = STEP) -> Segment:
        with self._locked(tag) as files:
            mark, step = self._numbers_in(files)
            start = max(mark, 1)
            granted = demand.had(floor)
            if start < granted:
                start = max(floor, min(floor + LOSS_SKIP, MAX_ID))
                logger.warning(
                    "The files of tag %r in %s say that %s is the next id, but this process was "
                    "granted ids up to %s. They were deleted or replaced. The tag continues at "
                    "%s.",
                    tag, str(self._directory), max(mark, 1), granted - 1, start,
                )  # fmt: skip
            start = max(start, floor)
            if start > MAX_ID:
                raise SegmentExhausted(
                    f"Segment tag {tag!r} has reached 2**63-1: there are no higher ids. Use "
                    "another tag, with a table of its own."
                )
            stop = min(start + demand.length(step), MAX_ID + 1)
            _write(files, stop, step)
        return Segment(tag, start, stop, step)

    def set_step(self, tag: str, step: int) -> None:
        """Set the step of ``tag`` from the next fetch on. Raises as :meth:`fetch` does."""
        with self._locked(tag) as files:
            mark, _ = self._numbers_in(files)
            _write(files, max(mark, 1), check_step(step))

    def is_new(self, tag: str) -> bool:
        """Whether nothing of ``tag`` was granted."""
        return all(file.peek() in (0, 1) for file in self._files(tag))

    def _files(self, tag: str) -> list[NumberFile]:
        path = self._directory / file_name(check_tag(tag))
        return [NumberFile(path.with_name(path.name + end), 2) for end in (".ids", ".copy")]

    def _numbers_in(self, files: list[NumberFile]) -> tuple[int, int]:
        return max(map(self._read, files))

    def _read(self, file: NumberFile) -> tuple[int, int]:
        try:
            mark, step = file.read()
            return mark, check_step(step) if mark else self.default_step
        except ValueError as error:
            raise SegmentUnavailable(
                f"The file {str(file.path)!r} is damaged ({error.args[0]!r}): it should hold the "
                f"next free id and the step, each in 20 digits, with a space between them. Write "
                f"them into it; the id has to be above every id of its tag."
            ) from error

    @contextmanager
    def _locked(self, tag: str) -> Iterator[list[NumberFile]]:
        """The files of ``tag``, both locked: a lock on one that was deleted excludes no one."""
        files = self._files(tag)
        with file_errors("the tags", self._directory, SegmentUnavailable), ExitStack() as stack:
            deadline = self._clock.stopwatch() + PATIENCE
            for file in files:
                while not file.lock():
                    if self._clock.stopwatch() >= deadline:
                        raise SegmentUnavailable(
                            f"The file {str(file.path)!r} was locked by another process for "
                            f"{PATIENCE:g} s. Check whether that process hangs."
                        )
                    self._clock.sleep(PAUSE)
                stack.callback(file.unlock)
            yield files


def _write(files: list[NumberFile], mark: int, step: int) -> None:
    for file in files:
        file.write(mark, step)

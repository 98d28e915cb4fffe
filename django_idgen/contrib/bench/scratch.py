"""Tags that are made for one run, so that a project's own tags lose no ids."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ...db.rows import rows_of
from ...models import LeafAlloc, SegmentHistory
from ...ops.tags.edits import clear_pool, edit_rows, make_tag
from ...process.maps import current_settings, segments
from ...process.tags import find_tag, source_behind_pool
from .measure import SEGMENT_TIMEOUT
from .targets import SEGMENT, open_target


@contextmanager
def scratch_tags(names: Iterable[str]) -> Iterator[dict[str, str]]:
    """What to open for each of ``names``: for a tag a new one with its step, removed at the end.

    Raises what :func:`open_target` and :func:`make_tag` raise.
    """
    chosen = {name: name for name in names}
    with ExitStack() as at_end:
        for name in chosen:
            open_target(name)
            if name.startswith(SEGMENT) and source_behind_pool().keeps_rows:
                tag = name.removeprefix(SEGMENT)
                known = find_tag(tag)
                step = known.first.step if known else current_settings().segments.default_step
                made = f"{tag[:100]}.bench-{uuid.uuid4().hex[:12]}"
                at_end.callback(_remove, made)
                make_tag(made, step=step, description="idgen_bench removes it.")
                chosen[name] = SEGMENT + made
        yield chosen


def _remove(tag: str) -> None:
    """Remove a tag of :func:`scratch_tags`.

    A tag that is removed would start at 1 again. The name of this one is random: no other
    process has its ids, and it is never made again.
    """
    generator: Any = segments.pop(tag, None)
    load = generator and generator.leave()
    if load:
        load.answered.wait(SEGMENT_TIMEOUT)  # its fetch would make the tag again
    clear_pool(tag)
    source = source_behind_pool()
    for alias in source.route(tag):
        edit_rows(alias, rows_of(LeafAlloc, alias).filter(pk=tag).delete)
        if source.history:
            edit_rows(alias, rows_of(SegmentHistory, alias).filter(tag=tag).delete)

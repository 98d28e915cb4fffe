"""A step changed by somebody who saw the former one: only if it still is that."""

from __future__ import annotations

from functools import partial

from django.db.models.functions import Now

from ...core.errors import IdgenError
from ...core.segment import check_step
from ...models import LeafAlloc
from .edits import change_row
from .row_edits import edit_rows
from .rows import is_fetched_from, known_tag

__all__ = ["StepOvertaken", "replace_step"]


class StepOvertaken(IdgenError):
    """Somebody else changed a step in between; it was left so."""

    def __init__(self, tag: str, *, seen: int, stored: int | None) -> None:
        self.tag = tag
        self.seen = seen
        self.stored = stored
        """The step as it is by now; None if the tag is not there any more."""
        stands = "is gone" if stored is None else f"has a step of {stored} by now, not of {seen}"
        super().__init__(f"Tag {tag!r} {stands}: it was not changed.")


def replace_step(tag: str, database: str, *, seen: int, to: int) -> None:
    """Change the step of ``tag`` from ``seen``, which ``database`` had, in all its databases.

    Where its ids don't come from ``database``, as of another site's rows, in that row alone
    and in the caller's transaction. Raises :class:`StepOvertaken` and what
    :func:`~.edits.change_tag` does.
    """
    check_step(to)
    swap = partial(_swap, tag, database, seen, to)
    if not is_fetched_from(tag, database):
        swap()
        return
    others = [alias for alias in known_tag(tag).rows if alias != database]
    edit_rows(database, swap)
    for alias in others:
        edit_rows(alias, partial(change_row, alias, tag, step=to))


def _swap(tag: str, alias: str, seen: int, to: int) -> None:
    rows = LeafAlloc.objects.using(alias).filter(pk=tag)
    if rows.filter(step=seen).update(step=to, update_time=Now()):
        return
    stored = rows.values_list("step", flat=True).first()
    if stored != to:
        raise StepOvertaken(tag, seen=seen, stored=stored)

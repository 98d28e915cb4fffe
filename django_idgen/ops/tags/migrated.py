"""What ``migrate`` does about tags: each goes on above the rows of its tables.

A model that is renamed, or a field that is given another tag, takes its ids from a tag that
knows nothing of those that were given out. The plan of ``migrate`` tells which tag knew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.apps.registry import Apps
from django.core.exceptions import FieldDoesNotExist
from django.core.management import CommandError
from django.db import DatabaseError
from django.db.migrations import AlterField, Migration, RenameModel, SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation

from ...core.errors import IdgenError
from ...fields import SegmentSource
from ...process import handlers
from ...process.tags import TagsElsewhere, find_tag, highest_in, next_free_id
from .edits import raise_tag

__all__ = ["after_migrate", "before_migrate"]

logger = logging.getLogger("django_idgen")

Plan = Iterable[tuple[Migration, bool]]
Former = dict[str, set[str]]


def before_migrate(*, plan: Plan = (), apps: Apps | None = None, **_kwargs: Any) -> None:
    """Receiver of ``pre_migrate``: what a migration inserts under a new name has new ids, too."""
    with _in_words():
        _follow_former(_former_labels(plan))
        _follow_former(_former_tags(plan, apps, backwards=False))


def after_migrate(*, plan: Plan = (), apps: Apps | None = None, **_kwargs: Any) -> None:
    """Receiver of ``post_migrate``: each tag goes on above the rows of its tables.

    A renamed model's goes on where the one of its old name stands by now: rows that had
    the highest ids may be deleted.
    """
    if plan:
        with _in_words():
            _follow_former(_former_labels(plan))
            _follow_former(_former_tags(plan, apps, backwards=True))
            _follow_tables()


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except TagsElsewhere:
        return  # the service that keeps them does not know the models
    except (IdgenError, DatabaseError) as error:
        raise CommandError(
            f"Tags that are to go on above the rows of their tables could not be raised: {error} "
            f"When that is mended, run 'manage.py migrate' again, and 'manage.py idgen_doctor "
            f"--only tags --fix', before anybody inserts a row."
        ) from error


def _follow_former(former: Former) -> None:
    for tag, before in former.items():
        stands = max(map(next_free_id, before))
        needed = tag in handlers.segments.fields or find_tag(tag) is not None
        if needed and stands > next_free_id(tag):
            _raise(tag, stands, f"where {' and '.join(sorted(before))} stood")


def _follow_tables() -> None:
    for tag, fields in list(handlers.segments.fields.items()):
        top = max(map(highest_in, fields), default=0)
        if top and next_free_id(tag) <= top:
            _raise(tag, top + 1, "above the rows of its table")


def _former_labels(plan: Plan) -> Former:
    """By label of a renamed model, which is a tag as well: the labels that it had before."""
    found: Former = {}
    for migration, operation, backwards in _operations(plan):
        if isinstance(operation, RenameModel):
            names = operation.old_name, operation.new_name
            old, new = (f"{migration.app_label}.{name}".lower() for name in names)
            if backwards:
                old, new = new, old
            found[new] = found.pop(old, set()) | {old}
    return found


def _former_tags(plan: Plan, apps: Apps | None, *, backwards: bool) -> Former:
    """By tag that a field is given: the one that it had.

    An operation states one of the two; the other one is in ``apps``, as they are before
    the plan or, backwards, after it.
    """
    found: Former = {}
    labels = _former_labels(plan)
    for migration, operation, is_backwards in _operations(plan):
        field: Any = getattr(operation, "field", None)
        altered = isinstance(operation, AlterField) and isinstance(field, SegmentSource)
        if apps is None or not altered or is_backwards != backwards:
            continue
        label = f"{migration.app_label}.{operation.model_name}".lower()  # type: ignore[attr-defined]
        later = {new for new, before in labels.items() if label in before}
        for each in {label, *labels.get(label, ()), *later}:
            with suppress(LookupError, FieldDoesNotExist):
                other = apps.get_model(each)._meta.get_field(operation.name)  # type: ignore[attr-defined]
                if isinstance(other, SegmentSource):
                    pair = other.resolved_tag, field.tag or label
                    old, new = reversed(pair) if backwards else pair
                    found.setdefault(new, set()).add(old)
    return found


def _operations(plan: Plan) -> Iterator[tuple[Migration, Operation, bool]]:
    for migration, backwards in plan:
        operations = list(_flat(migration.operations))
        for operation in reversed(operations) if backwards else operations:
            yield migration, operation, backwards


def _flat(operations: Iterable[Operation]) -> Iterator[Operation]:
    for operation in operations:
        yield operation
        if isinstance(operation, SeparateDatabaseAndState):
            yield from _flat(operation.state_operations)


def _raise(tag: str, to: int, why: str) -> None:
    raise_tag(tag, to)
    logger.info("Tag %r goes on at %d, %s.", tag, to, why)

"""Tags after ``migrate``: each continues above the rows of its tables.

A model that is renamed, or a field that is given another tag, takes its ids from a tag that
knows nothing of the ids given out before. The plan of ``migrate`` names the former tag.
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
from ...process import maps
from ...process.tags import Tag, TagsElsewhere, find_tag, next_free_id
from .edits import raise_tag

logger = logging.getLogger("django_idgen")

Plan = Iterable[tuple[Migration, bool]]
Former = dict[str, set[str]]


def before_migrate(*, plan: Plan = (), apps: Apps | None = None, **_kwargs: Any) -> None:
    """Receiver of ``pre_migrate``: rows that a migration inserts under a new name get new ids.

    Raises :class:`CommandError`, also for a plan that would undo other apps' migrations.
    """
    _keep_other_apps(plan)
    with _as_command_error():
        _follow_former(_former_labels(plan))
        _follow_former(_former_tags(plan, apps, backwards=False))


def after_migrate(*, plan: Plan = (), apps: Apps | None = None, **_kwargs: Any) -> None:
    """Receiver of ``post_migrate``: each tag continues above the rows of its tables.

    The tag of a renamed model continues where that of its old name is by now: the rows with the
    highest ids may be deleted. A tag that is new has its step and pause, too.
    """
    if plan:
        with _as_command_error():
            _follow_former(_former_labels(plan))
            _follow_former(_former_tags(plan, apps, backwards=True))
            _follow_tables()


def _keep_other_apps(plan: Plan) -> None:
    """Refuse to undo migrations of other apps only because they depend on those of this one.

    Fields and idgen_adopt make such migrations. Undoing them drops tables with their rows.
    """
    undone = {migration.app_label for migration, backwards in plan if backwards}
    if "django_idgen" in undone and (others := sorted(undone - {"django_idgen"})):
        raise CommandError(
            f"Nothing was done. This would also undo migrations of {', '.join(others)}, which "
            f"depend on those of django_idgen, and drop tables of these apps with all rows. To "
            f"keep the rows, follow 'Remove django_idgen' in the documentation. To drop them, "
            f"migrate these apps back first ('manage.py migrate {others[0]} zero')."
        )


@contextmanager
def _as_command_error() -> Iterator[None]:
    try:
        yield
    except TagsElsewhere:
        return  # the service that keeps them does not know the models
    except (IdgenError, DatabaseError) as error:
        raise CommandError(
            f"Tags could not be raised above the rows of their tables: {error} When that is "
            f"fixed, run 'manage.py migrate' again, and 'manage.py idgen_doctor --only tags "
            f"--fix', before a row is inserted."
        ) from error


def _follow_former(former: Former) -> None:
    for tag, before in former.items():
        known = [found for each in before if (found := find_tag(each)) is not None]
        is_new = find_tag(tag) is None
        if not known or (is_new and tag not in maps.segments.fields):
            continue
        stands, why = max(map(next_free_id, before)), f"as {' and '.join(sorted(before))} did"
        if is_new:
            last = max(known, key=lambda each: each.max_id)
            _raise(tag, stands, why, like=last)
        elif stands > next_free_id(tag):
            _raise(tag, stands, why)


def _follow_tables() -> None:
    from ...process.watch import highest_in  # which has to import the generators

    for tag, fields in list(maps.segments.fields.items()):
        top = max(map(highest_in, fields), default=0)
        if top and next_free_id(tag) <= top:
            _raise(tag, top + 1, "above the rows of its table")


def _raise(tag: str, to: int, why: str, *, like: Tag | None = None) -> None:
    raise_tag(tag, to, like=like)
    logger.info("Tag %r continues at %d, %s.", tag, to, why)
    if like is not None and like.paused:
        logger.warning("Tag %r is paused, as %s is.", tag, like.name)


def _former_labels(plan: Plan) -> Former:
    """The former labels of each renamed model, by its label; labels are default tags, too."""
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
    """The former tag of each field that is given another one, by the new tag.

    An operation states one of the two. The other one is in ``apps``, the state before the plan
    or, backwards, after it.
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

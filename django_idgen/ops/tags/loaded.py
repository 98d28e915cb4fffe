"""Tags that go on past the ids of a fixture.

``loaddata``, and everything else that saves a row ``raw``, stores keys that their tag did not
give out. (For a ``BigAutoField``, Django would reset the sequence.) From that moment this process
gives out no id up to such a key, even if the rows are rolled back: in a ``TestCase`` nothing is
ever committed. When the rows are committed, the tag as stored and its pool follow; other
processes then only have what they held before.

An error there is logged. It must not end ``loaddata``, whose rows are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model
from django.db.models.signals import class_prepared, post_save

from ...core.errors import IdgenError
from ...core.segment import HIGHEST
from ...fields import SegmentSource
from ...process import maps

logger = logging.getLogger("django_idgen")


def watch() -> None:
    """Notice rows that are loaded, of models that have a segment id."""
    class_prepared.connect(_watch_model, dispatch_uid="django_idgen")
    for model in apps.get_models():
        _watch_model(model)


def _watch_model(sender: type[Model], **_kwargs: Any) -> None:
    if sender.__module__ == "__fake__":
        return  # a migration makes dozens of these
    # A proxy has no fields of its own; the rows of a parent table are saved as the parent's.
    of_table = sender._meta.concrete_model or sender
    fields = [
        each
        for each in of_table._meta.local_fields
        if isinstance(each, SegmentSource) and each.copied_from is None
    ]
    if fields:
        if sender._meta.apps is apps and sender is of_table:
            for field in fields:
                known = maps.segments.fields.setdefault(field.resolved_tag, [])
                if field not in known:  # apps are ready again after a change of INSTALLED_APPS
                    known.append(field)
        receiver = partial(_on_saved, fields)
        post_save.connect(receiver, sender=sender, weak=False, dispatch_uid="django_idgen")


def _on_saved(
    fields: Sequence[SegmentSource], *, instance: Model, raw: bool, using: str, **_kwargs: Any
) -> None:
    if not raw:
        return
    for field in fields:
        with suppress(ValidationError):  # an expression, whose value only the database knows
            value = field.to_python(getattr(instance, field.attname))
            if value is not None and value > 0:
                _note(using, field.resolved_tag, value)


def _note(using: str, tag: str, top: int) -> None:
    if top <= HIGHEST:
        # Wrong settings are reported by the checks, and by the next id.
        with suppress(IdgenError, ImportError):
            maps.segments.go_past(tag, top)
    connection: Any = connections[using]
    known: ReferenceType[_LoadedRows] | None = getattr(connection, "idgen_loaded", None)
    loaded = None if known is None else known()
    if loaded is not None and loaded.is_pending(connection):
        loaded.note(tag, top)
        return
    loaded = _LoadedRows(connection)
    loaded.note(tag, top)
    # Only the transaction keeps it alive: a rollback drops it.
    connection.idgen_loaded = ref(loaded)
    try:
        transaction.on_commit(loaded, using=using)
    except transaction.TransactionManagementError:  # autocommit is off: no commit will be seen
        loaded()


class _LoadedRows:
    """The highest id of each tag in the rows that a transaction has loaded."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._tops: dict[tuple[str, bool], int] = {}
        self._hooks = id(connection.run_on_commit)
        self._called = False

    def is_pending(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether it will still be called; a traceback may have kept it alive since it was."""
        # Each commit and each rollback (of a savepoint, too) replaces the list.
        return not self._called and self._hooks == id(connection.run_on_commit)

    def note(self, tag: str, top: int) -> None:
        key = tag, top > HIGHEST  # an id that is too high must not hide another
        self._tops[key] = max(top, self._tops.get(key, 0))

    def __call__(self) -> None:
        """The rows are committed."""
        self._called = True
        while self._tops:
            (tag, too_high), top = self._tops.popitem()
            if too_high:
                logger.warning(
                    "A row was loaded that has id %d of tag %r. The tag is not raised past it, "
                    "since hardly any ids lie above. Give the row another id.",
                    top,
                    tag,
                )
            else:
                _raise(tag, top + 1)


def _raise(tag: str, to: int) -> None:
    # Imported here, since few processes load rows.
    from .edits import clear_pool, raise_tag

    try:
        raise_tag(tag, to)
        problem: object = "its pool can't be asked." if clear_pool(tag) is False else None
    except Exception as error:  # noqa: BLE001 - the rows are stored, whatever happens here
        problem = error
    if problem is not None:
        logger.warning(
            "Rows were loaded that have ids of tag %r below %d, but other processes may give "
            "these out again: %s Raise the tag to %d when that is fixed; 'manage.py idgen_doctor "
            "--only tags --fix' does it.",
            tag,
            to,
            problem,
            to,
        )

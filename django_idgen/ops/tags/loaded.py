"""Tags that go on past the ids of a fixture.

``loaddata`` (and all else that saves a row ``raw``) stores keys that their tag did not give
out, where the database would set the sequence of a ``BigAutoField``. So this process gives
out nothing up to such an id from that moment on, be it rolled back: in a ``TestCase``
nothing is ever committed. The tag as stored, and its pool, follow once when the rows are
committed; other processes then only have what they held before.

What goes wrong there is logged. It must not end ``loaddata``, whose rows are there.
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
from ...process import handlers

__all__ = ["watch"]

logger = logging.getLogger("django_idgen")


def watch() -> None:
    """Notice the rows that are loaded, of models that have a segment id."""
    class_prepared.connect(_watch, dispatch_uid="django_idgen")
    for model in apps.get_models():
        _watch(model)


def _watch(sender: type[Model], **_kwargs: Any) -> None:
    if sender.__module__ == "__fake__":
        return  # of a migration, which makes them by the dozen
    # A proxy has no fields of its own; the rows of a parent table are saved as the parent's.
    of_table = sender._meta.concrete_model or sender
    fields = [each for each in of_table._meta.local_fields if isinstance(each, SegmentSource)]
    if fields:
        if sender._meta.apps is apps and sender is of_table:
            for field in fields:
                handlers.segments.fields.setdefault(field.resolved_tag, []).append(field)
        receiver = partial(_saved, fields)
        post_save.connect(receiver, sender=sender, weak=False, dispatch_uid="django_idgen")


def _saved(
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
        # What is wrong with the settings is for the checks, and for the next id, to say.
        with suppress(IdgenError, ImportError):
            handlers.segments.go_past(tag, top)
    connection: Any = connections[using]
    known: ReferenceType[_Loaded] | None = getattr(connection, "idgen_loaded", None)
    loaded = None if known is None else known()
    if loaded is not None and loaded.is_pending(connection):
        loaded.note(tag, top)
        return
    loaded = _Loaded(connection)
    loaded.note(tag, top)
    # Only the transaction holds on to it: with a rollback it is gone.
    connection.idgen_loaded = ref(loaded)
    try:
        transaction.on_commit(loaded, using=using)
    except transaction.TransactionManagementError:  # autocommit is off, and the commit not told
        loaded()


class _Loaded:
    """The highest id of each tag in the rows that a transaction has loaded."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._tops: dict[tuple[str, bool], int] = {}
        self._hooks = id(connection.run_on_commit)
        self._over = False

    def is_pending(self, connection: BaseDatabaseWrapper) -> bool:
        """Whether it is sure to be called yet: a traceback may have kept it since it was."""
        # The list is another one after each commit and each rollback, of a savepoint, too.
        return not self._over and self._hooks == id(connection.run_on_commit)

    def note(self, tag: str, top: int) -> None:
        key = tag, top > HIGHEST  # one that is too high hides no other
        self._tops[key] = max(top, self._tops.get(key, 0))

    def __call__(self) -> None:
        """The rows are committed."""
        self._over = True
        while self._tops:
            (tag, too_high), top = self._tops.popitem()
            if too_high:
                logger.warning(
                    "A row was loaded that has id %d of tag %r. The tag stays where it is, since "
                    "next to no ids lie above. Give the row another id.",
                    top,
                    tag,
                )
            else:
                _raise(tag, top + 1)


def _raise(tag: str, to: int) -> None:
    # Not at the start: few processes load rows.
    from .edits import raise_tag
    from .supply import clear_pool

    try:
        raise_tag(tag, to)
        trouble: object = "its pool can't be asked." if clear_pool(tag) is False else None
    except Exception as error:  # noqa: BLE001 - the rows are there, whatever happens here
        trouble = error
    if trouble is not None:
        logger.warning(
            "Rows were loaded that have ids of tag %r below %d, but other processes may give "
            "these out again: %s Then raise the tag to %d; 'manage.py idgen_doctor --only tags "
            "--fix' does so.",
            tag,
            to,
            trouble,
            to,
        )

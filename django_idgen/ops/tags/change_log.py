"""Who changed a tag, and how: entries of the admin's log, which its history pages show.

Only if the admin is installed, and for users in the project's user model. Changes by a program
with an access token are in the log of the process only. Both logs are in English.
"""

from __future__ import annotations

import logging
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import DatabaseError, router, transaction
from django.utils.translation import override

from ...core.errors import printable
from ...models import LeafAlloc

logger = logging.getLogger("django_idgen")

Change = tuple[object, object]
"""What a value was before, and what it is now."""

ACTIONS = {
    "added": "Added",
    "changed": "Changed",
    "skipped": "Skipped ahead",
    "paused": "Paused",
    "resumed": "Resumed",
    "preloaded": "Preloaded",
    "cleared": "Cleared",
}
"""The actions on a tag, and their words."""
LONGEST = 200
"""Longer values are cut."""


def record(user: Any, tag: str, action: str, **changes: Change) -> bool:
    """Log that ``user`` did ``action`` to ``tag``; True if the admin's log has it.

    ``changes``: the old and the new value of each field; equal ones are left out. The process'
    log has it, too. If the admin's log fails, the action stands, and a warning is logged.
    Raises :class:`KeyError` for an unknown action.
    """
    made = [
        f"{_name(field)}: {_value(before)} → {_value(after)}"
        for field, (before, after) in changes.items()
        if before != after
    ]
    message = ACTIONS[action] + (": " + "; ".join(made) if made else "")
    who = str(user)
    logger.info("%r changed tag %r: %s", who, tag, message, extra={"idgen_event": "tag_changed"})
    if not _is_logged(user):
        return False
    try:
        _write(user, tag, action, message)
    except DatabaseError as error:
        logger.warning("The admin's log can't be written: %s", error)
        return False
    return True


def _name(field: str) -> str:
    named = {each.name: each for each in LeafAlloc._meta.concrete_fields}
    with override(None):
        return str(named[field].verbose_name) if field in named else field


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = "" if value is None else str(value)
    # Leaf's own tools write descriptions, too.
    return printable(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…") or "—"


def _is_logged(user: Any) -> bool:
    installed = apps.is_installed("django.contrib.admin")
    return installed and isinstance(user, get_user_model()) and user.pk is not None


def _write(user: Any, tag: str, action: str, message: str) -> None:
    # Imported here, since the admin may not be installed.
    from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    # A savepoint, so that a failure does not end the caller's transaction.
    with transaction.atomic(using=router.db_for_write(LogEntry)):
        LogEntry.objects.create(
            user_id=user.pk,
            content_type_id=ContentType.objects.get_for_model(LeafAlloc).pk,
            object_id=tag,
            object_repr=tag[:200],
            action_flag=ADDITION if action == "added" else CHANGE,
            change_message=message,
        )

"""Who changed a tag, and how: entries of the admin's log, which its history pages show.

Only if the admin is installed, and for users in the project's user model. Changes by a program
with an access token are in the log of the process only.

An entry has Django's own form, which every reader of that log knows, with the change beside it.
:func:`describe` writes it in the reader's language.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import DatabaseError, router, transaction
from django.utils.translation import gettext, gettext_noop, override

from ...models import LeafAlloc

logger = logging.getLogger("django_idgen")

Change = tuple[object, object]
"""What a value was before, and what it is now."""

ACTIONS = {
    "added": gettext_noop("Added"),
    "changed": gettext_noop("Changed"),
    "skipped": gettext_noop("Skipped ahead"),
    "paused": gettext_noop("Paused"),
    "resumed": gettext_noop("Resumed"),
    "preloaded": gettext_noop("Preloaded"),
    "cleared": gettext_noop("Cleared"),
}
"""The actions on a tag, and their labels."""
LONGEST = 200
"""Longer values are cut."""
OURS = "idgen"
"""Our key in an entry, beside Django's own."""


def record(user: Any, tag: str, action: str, **changes: Change) -> bool:
    """Log that ``user`` did ``action`` to ``tag``; True if the admin's log has it.

    ``changes``: the old and the new value of each field; equal ones are left out. The process'
    log has it in English. If the admin's log fails, the action stands, and a warning is logged.
    Raises :class:`KeyError` for an unknown action.
    """
    made = {
        field: (_kept(before), _kept(after))
        for field, (before, after) in changes.items()
        if before != after
    }
    with override(None):  # a log is in one language
        words = _message(action, made)
        message = json.dumps([_entry(action, made)], ensure_ascii=False)
    logger.info("%s changed tag %r: %s", user, tag, words, extra={"idgen_event": "tag_changed"})
    if not _is_logged(user):
        return False
    try:
        _write(user, tag, action, message)
    except DatabaseError as error:
        logger.warning("The admin's log can't be written: %s", error)
        return False
    return True


def describe(message: str) -> str | None:
    """The text of a row's ``message`` in the active language; None if we did not write it."""
    try:
        (entry,) = json.loads(message)
        done = entry[OURS]
        return _message(done["action"], done["changes"])
    except (ValueError, TypeError, KeyError):
        return None


def _entry(action: str, changes: Mapping[str, Change]) -> dict[str, Any]:
    """An entry as Django reads it, which knows of an action only the fields that it changed."""
    done = {"action": action, "changes": changes}
    if action == "added":
        return {"added": {}, OURS: done}
    return {
        "changed": {"fields": [_name(field) for field in changes] or [ACTIONS[action]]},
        OURS: done,
    }


def _message(action: str, changes: Mapping[str, Change]) -> str:
    words = [
        gettext("%(name)s: %(before)s → %(after)s")
        % {"name": _name(field), "before": _value(before), "after": _value(after)}
        for field, (before, after) in changes.items()
    ]
    verb = gettext(ACTIONS[action])
    if not words:
        return verb
    return gettext("%(action)s: %(changes)s") % {
        "action": verb,
        "changes": gettext("; ").join(words),
    }


def _name(field: str) -> str:
    named = {each.name: each for each in LeafAlloc._meta.concrete_fields}
    return str(named[field].verbose_name) if field in named else gettext(field)


def _kept(value: object) -> bool | str:
    """A value as it is stored: a flag, or a text, empty for None."""
    if isinstance(value, bool):
        return value
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _value(kept: object) -> str:
    if isinstance(kept, bool):
        return gettext("yes") if kept else gettext("no")
    return str(kept) or "—"


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

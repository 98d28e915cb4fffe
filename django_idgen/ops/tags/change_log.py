"""Who changed what of a tag: entries of the admin's own log, which its history pages show.

Only where the admin is installed, and for users that are rows of the project's user model:
what a program with an access token does is in the log of the process alone.

An entry is kept in Django's own form, which any reader of that log knows, with what was done
beside it. :func:`describe` says it in the reader's language.
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

__all__ = ["ACTIONS", "Change", "describe", "record"]

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
"""What can be done to a tag, and its words."""
LONGEST = 200
"""Characters of a value that are kept."""
OURS = "idgen"
"""The key of what was done, beside Django's own."""


def record(user: Any, tag: str, action: str, **changes: Change) -> bool:
    """Write that ``user`` did ``action`` to ``tag``: whether the admin's log has it.

    ``changes``: by the field, its old and its new value; those that are alike are left out.
    Our log has it in English. What was done is not undone if this fails: then a warning
    tells of it. Raises :class:`KeyError` for an unknown action.
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
    """What a row's ``message`` says, in the active language; None for one that is not ours."""
    try:
        (entry,) = json.loads(message)
        done = entry[OURS]
        return _message(done["action"], done["changes"])
    except (ValueError, TypeError, KeyError):
        return None


def _entry(action: str, changes: Mapping[str, Change]) -> dict[str, Any]:
    """For Django: what it knows to say of an action is which fields it has changed."""
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
    """As it is written down: a flag, or a text, which is empty for nothing."""
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
    # The admin's tables are there only where it is installed.
    from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    # A savepoint, so that the caller's transaction goes on if it fails.
    with transaction.atomic(using=router.db_for_write(LogEntry)):
        LogEntry.objects.create(
            user_id=user.pk,
            content_type_id=ContentType.objects.get_for_model(LeafAlloc).pk,
            object_id=tag,
            object_repr=tag[:200],
            action_flag=ADDITION if action == "added" else CHANGE,
            change_message=message,
        )

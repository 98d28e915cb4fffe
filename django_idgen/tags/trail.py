"""Who changed what of a tag: rows of the admin's own log, which its history pages show.

Only where the admin is installed, and for users that are rows of the project's user
model: a program that comes with an access token leaves its trail in our log alone.
"""

from __future__ import annotations

import logging
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import DatabaseError, router, transaction
from django.utils.translation import gettext, gettext_noop, override

from ..models import LeafAlloc

__all__ = ["ACTIONS", "Change", "record"]

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


def record(user: Any, tag: str, action: str, **changes: Change) -> bool:
    """Write that ``user`` did ``action`` to ``tag``: whether the admin's log has it.

    ``changes``: by the field, its old and its new value; those that are alike are left out.
    The words are in the language that is active, those of our log in English. What was done
    is not undone if this fails: then a warning tells of it. Raises :class:`KeyError` for an
    unknown action.
    """
    with override(None):  # a log is in one language, whoever acts
        words = _message(action, changes)
    logger.info("%s changed tag %r: %s", user, tag, words, extra={"idgen_event": "tag_changed"})
    if not _is_logged(user):
        return False
    try:
        _write(user, tag, action, _message(action, changes))
    except DatabaseError as error:
        logger.warning("The admin's log can't be written: %s", error)
        return False
    return True


def _message(action: str, changes: dict[str, Change]) -> str:
    words = [
        gettext("%(name)s: %(before)s → %(after)s")
        % {"name": _name(field), "before": _value(before), "after": _value(after)}
        for field, (before, after) in changes.items()
        if before != after
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


def _value(value: object) -> str:
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if value is None or value == "":
        return "—"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


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

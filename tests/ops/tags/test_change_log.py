"""What was done to a tag, in the admin's own log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection, transaction
from django.test import modify_settings
from django.utils import translation

from django_idgen import signals
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags.change_log import ACTIONS, record
from tests.rest.tags.people import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def user() -> User:
    return User.objects.create_user("carla")


def words(tag: str = "t") -> list[str]:
    entries = LogEntry.objects.filter(object_id=tag).order_by("pk")
    return [entry.get_change_message() for entry in entries]


def test_a_change_has_its_old_and_its_new_value(user: User) -> None:
    """By the names that people see; what stayed as it was is left out."""
    assert record(user, "t", "changed", step=(1000, 2000), description=("a", "a"), delta=(1, 2))
    assert words() == ["Changed: step: 1000 → 2000; delta: 1 → 2"]
    (entry,) = LogEntry.objects.all()
    assert entry.get_edited_object.__self__ is entry
    assert (entry.object_repr, entry.is_change()) == ("t", True)
    assert entry.content_type is not None
    assert entry.content_type.model_class() is LeafAlloc


def test_each_action_has_words(user: User) -> None:
    """And one that there is not is an error of the caller."""
    for action in ACTIONS:
        assert record(user, "t", action)
    assert len(set(words())) == len(ACTIONS)
    with pytest.raises(KeyError):
        record(user, "t", "eaten")


def test_values_are_shown_as_people_write_them(user: User) -> None:
    """Nothing as a dash, a flag as a word, a long text cut."""
    record(user, "t", "changed", paused=(False, True), description=("", "x" * 5000))
    (said,) = words()
    assert "paused: no → yes; description: — → xxx" in said
    assert len(said) < 300


def test_no_name_or_text_is_shown_as_something_else(
    user: User, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazard 116: of a user, and of a description that Leaf's own tools wrote."""
    monkeypatch.setattr(signals, "_quiet", {})  # another test may have just had such a warning
    caplog.set_level(logging.INFO, "django_idgen")
    odd = "a\nb\x1b[31m\u202ec"
    User.objects.filter(pk=user.pk).update(username=odd)
    user.refresh_from_db()
    record(user, "t", "changed", description=(odd, "plain"))
    escaped = "a\\nb\\x1b[31m\\u202ec"
    assert caplog.messages == [
        f"'{escaped}' changed tag 't': Changed: description: {escaped} → plain"
    ]
    signals.emit("lease_quota_near", generator="g", client=odd, held=1, most=2)
    assert "client=a b\\x1b[31m\\u202ec held" in caplog.messages[-1]


def test_what_is_no_user_leaves_no_row() -> None:
    """A program with a token, a visitor, nobody: the log of the app has it alone.

    Without the admin there is nothing to write to; the change goes on all the same.
    """
    for who in (None, AnonymousUser(), Person(), User(username="unsaved")):
        assert not record(who, "t", "paused")
    with modify_settings(INSTALLED_APPS={"remove": ["django.contrib.admin"]}):
        assert not record(User.objects.create_user("carla"), "t", "paused")
    assert words() == []


def test_a_log_that_can_t_be_written_is_told(user: User, caplog: pytest.LogCaptureFixture) -> None:
    """What was done stays done, and the caller's transaction goes on."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_admin_log RENAME TO gone")
        assert not record(user, "t", "paused")
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO django_admin_log")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert words() == []


def test_the_log_is_in_english(user: User, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the language of who made the change."""
    with translation.override("zh-hans"), caplog.at_level("INFO", "django_idgen"):
        record(user, "t", "changed", paused=(False, True), description=("x", None))
    assert words() == ["Changed: paused: no → yes; description: x → —"]
    assert words()[0] in caplog.text

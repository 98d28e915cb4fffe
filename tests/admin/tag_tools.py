"""What the tests of the tags' admin pages share: where rows are shown, users, what a page says."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client

from django_idgen.models import LeafAlloc

TAGS = "/admin/django_idgen/leafalloc/"


class ToServer:
    """Sends our tables to a server, as a project does whose ids come from there."""

    alias = "default"

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return self.alias if model._meta.app_label == "django_idgen" else None

    db_for_write = db_for_read


def on(alias: str, **options: Any) -> Any:
    """A parameter: the test uses the database ``alias``, and that of users and sessions."""
    databases = sorted({"default", alias})
    return pytest.param(alias, marks=pytest.mark.django_db(databases=databases, **options))


def shown_at(alias: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The admin shows the rows of ``alias``."""
    monkeypatch.setattr(ToServer, "alias", alias)
    settings.DATABASE_ROUTERS = [f"{__name__}.ToServer"]


def page(client: Client, path: str = "", **query: Any) -> str:
    """The text of a page of the tags' admin, as a reader has it."""
    answer = client.get(TAGS + path, query)
    assert answer.status_code == 200, answer.status_code
    return unescape(answer.content.decode())


def post(client: Client, path: str, **data: Any) -> tuple[int, str]:
    """The status, and the text of the page; of one that leads elsewhere, the messages."""
    answer = client.post(TAGS + path, data)
    if answer.status_code == 302:
        return 302, told(answer)
    return answer.status_code, unescape(answer.content.decode())


def act(client: Client, action: str, *tags: str, **data: Any) -> tuple[int, str]:
    """As :func:`post`, of an action on ``tags``; with ``confirm="yes"`` it is done."""
    return post(client, "", action=action, _selected_action=tags, **data)


def told(answer: Any) -> str:
    return "\n".join(str(message) for message in get_messages(answer.wsgi_request))


def history(tag: str) -> list[str]:
    """What the tag's history says, the oldest first."""
    entries = LogEntry.objects.filter(object_id=tag).order_by("pk")
    return [entry.get_change_message() for entry in entries]


def stored(tag: str) -> LeafAlloc:
    return LeafAlloc.objects.get(pk=tag)

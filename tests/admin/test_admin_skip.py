"""A skip that was confirmed in the admin: as one by the API, for all databases and the pool."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.core.management import call_command
from django.db import connections
from django.test import Client

from django_idgen import segments
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags import edits as tag_edits
from tests import servers
from tests.ops.test_tag_edits import _failing_at, rows, source_of
from tests.sources.pool.test_project import project

from .tag_tools import TAGS, shown_at

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


def raised(client: Client, to: int) -> list[str]:
    """What the page says once somebody has confirmed that "t" is to go on at ``to``."""
    page = client.post(f"{TAGS}skip/", {"tag": "t", "to": to, "confirm": "yes"})
    assert page.status_code == 302
    return [str(message) for message in get_messages(page.wsgi_request)]


def test_what_this_process_holds_is_not_used_any_more(one: str, admin_client: Client) -> None:
    """The very next id lies above; a step changed before counts, too."""
    before = segments["t"].next_ids(3)
    tag_edits.change_tag("t", step=50)  # so that its row is there, on SQLite too
    words = raised(admin_client, 9001)
    assert words == ["The next id of “t” is 9001."]
    assert segments["t"].next_id() == 9001 > max(before)
    row = LeafAlloc.objects.get(pk="t")
    assert (row.max_id, row.step) == (9051, 50)


def test_a_database_that_is_away_is_told(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """No page that crashes; once it is back the same raise completes it."""
    shown_at(shards[0], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=5)
        with monkeypatch.context() as failing:
            failing.setattr(tag_edits, "edit_rows", _failing_at(shards[0]))
            (words,) = raised(admin_client, 800)
        assert "is away" in words
        raised(admin_client, 801)
        assert [row.max_id for row in rows("t", shards[:2])] == [801, 801]


def test_the_pool_is_emptied(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """It has ids from below, which are among those that are lost; else it is said that it stays."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        tag = tag_edits.make_tag("t", step=20)
        tag_edits.fill_pool(tag.first)
        pooled = pool.stocks(["t"])["t"].ids
        out = StringIO()
        call_command("idgen_skip", "t", to=5000, dry_run=True, stdout=out)
        assert f"ids are skipped, and the pool loses its {pooled})" in out.getvalue()
        asked = {"tag": "t", "how": "to", "number": 5000, "review": "yes"}
        page = admin_client.post(f"{TAGS}skip/", asked).content.decode()
        assert f"In the pool: {pooled} ids" in page.split('data-label="Lost ids"')[1]
        assert len(raised(admin_client, 5000)) == 1
        assert pool.stocks(["t"])["t"].ids == 0
        assert segments["t"].next_id() == 5000
        monkeypatch.setattr(tag_edits, "clear_pool", lambda tag: False)
        words = " ".join(raised(admin_client, 6000))
        assert "can't be emptied" in words
        pool.clear(["t"])


def test_rows_that_no_ids_come_from_are_raised_alone(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Such as those of another site, which one admin shows, too."""
    servers.require("postgres")
    shown_at("postgres", monkeypatch, settings)
    with source_of(database="default"):
        LeafAlloc.objects.create(biz_tag="t", step=5)
        raised(admin_client, 300)
        assert LeafAlloc.objects.get(pk="t").max_id == 300
        assert not LeafAlloc.objects.using("default").filter(pk="t").exists()
        LeafAlloc.objects.all().delete()
        connections["postgres"].close()

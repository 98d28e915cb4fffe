"""A skip that was confirmed in the admin: as one by the API, for all databases and the pool."""

from __future__ import annotations

from collections.abc import Iterator
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
from tests.admin.test_admin import TAGS, ToServer
from tests.contrib.sharding.conftest import _shards, shards
from tests.ops.test_tag_edits import _failing_at, rows, source_of
from tests.sources.pool.test_project import project

__all__ = ["_shards", "shards"]

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def shown_at(alias: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The admin shows the rows of ``alias``."""
    monkeypatch.setattr(ToServer, "alias", alias)
    settings.DATABASE_ROUTERS = ["tests.admin.test_admin.ToServer"]


def raised(client: Client, to: int) -> list[str]:
    """What the page says once somebody has confirmed that "t" is to go on at ``to``."""
    page = client.post(f"{TAGS}skip/", {"tag": "t", "to": to, "confirm": "yes"})
    assert page.status_code == 302
    return [str(message) for message in get_messages(page.wsgi_request)]


@pytest.fixture(params=["default", *servers.URLS])
def one(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Iterator[str]:
    """The alias of a database that ids come from, and that the admin shows."""
    alias = str(request.param)
    if alias != "default":
        servers.require(alias)
    shown_at(alias, monkeypatch, settings)
    with source_of(database=alias):
        LeafAlloc.objects.all().delete()
        yield alias
        segments.close()
        LeafAlloc.objects.all().delete()  # no flush does


def test_what_this_process_holds_is_not_used_any_more(one: str, admin_client: Client) -> None:
    """The very next id lies above; a step changed before counts, too."""
    before = segments["t"].next_ids(3)
    tag_edits.change_tag("t", step=50)  # so that its row is there, on SQLite too
    words = raised(admin_client, 9001)
    assert words == ["The next id of “t” is 9001."]
    assert segments["t"].next_id() == 9001 > max(before)
    row = LeafAlloc.objects.get(pk="t")
    assert (row.max_id, row.step) == (9051, 50)


def test_it_is_raised_in_all_databases(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Of those that share the tag, whichever the admin shows; the others' would come else."""
    shown_at(shards[1], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=5)
        segments["t"].next_id()
        raised(admin_client, 5000)
        assert [row.max_id for row in rows("t", shards[:2])] == [5000, 5000]
        assert min(segments["t"].next_ids(30)) >= 5000
        segments.close()


def test_one_that_stands_higher_elsewhere_is_not_set_back(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """It is told where the tag stands, and nothing is changed."""
    shown_at(shards[0], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=5)
        LeafAlloc.objects.using(shards[1]).update(max_id=900)
        (words,) = raised(admin_client, 500)
        assert "is 900. A tag never goes back" in words
        assert [(row.max_id, row.step) for row in rows("t", shards[:2])] == [(1, 5), (900, 5)]


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
    """It has ids from below; if it can't be emptied, that is said."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        tag = tag_edits.make_tag("t", step=20)
        tag_edits.fill_pool(tag.first)
        assert len(raised(admin_client, 5000)) == 1
        assert pool.stocks(["t"])["t"].ids == 0
        assert segments["t"].next_id() == 5000
        monkeypatch.setattr(tag_edits, "clear_pool", lambda tag: False)
        words = " ".join(raised(admin_client, 6000))
        assert "can't be emptied" in words
        pool.clear(["t"])


def test_what_the_pool_loses_is_said_before(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """The page and the command count the ids in the pool among those that are never given out."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        tag = tag_edits.make_tag("t", step=20)
        tag_edits.fill_pool(tag.first)
        pooled = pool.stocks(["t"])["t"].ids
        out = StringIO()
        call_command("idgen_skip", "t", to=5000, dry_run=True, stdout=out)
        assert f"ids are skipped, and the pool loses its {pooled})" in out.getvalue()
        page = admin_client.post(
            f"{TAGS}skip/", {"tag": "t", "how": "to", "number": 5000, "review": "yes"}
        )
        cells = page.content.decode().split('data-label="Lost ids"')[1].split("</td>")[0]
        assert f"In the pool: {pooled} ids" in cells
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

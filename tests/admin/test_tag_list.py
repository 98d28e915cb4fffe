"""The list of tags: how they stand, and steps edited in it without writing anything else."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from django.db import connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags import edits as tag_edits
from tests.ops.test_tag_edits import source_of
from tests.places import make_tables
from tests.redis_servers import cache_alias
from tests.servers import free_port
from tests.sources.pool.test_project import idgen_on, project

from .tag_tools import TAGS, history, list_form, page, post, shown_at, stored, user_who_may

pytestmark = pytest.mark.django_db(databases=["default", "postgres"])
# With the rows of a server, which connections of our own are to see.
committed = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


def made(count: int = 1, **more: Any) -> None:
    now = datetime.datetime.now(datetime.UTC)
    values = {"step": 100, "rate": 0.25, "fetched_ids": 1000, "fetched_at": now, "holder": "web-1"}
    LeafAlloc.objects.bulk_create(
        LeafAlloc(biz_tag=f"t{number:03}", max_id=1001, **{**values, **more})
        for number in range(count)
    )


# --- what it shows --------------------------------------------------------------------


def test_the_list_says_how_a_tag_stands(one: str, admin_client: Client) -> None:
    """Its rate, how long its last segment and all its ids last, who had ids last, in words."""
    made(rate=0.5)
    LeafAlloc.objects.create(biz_tag="still", paused=True)
    text = page(admin_client)
    for words in (">in use<", ">paused<", "1,800 / h", "in 33 min", "just now"):
        assert words in text


def test_a_longer_list_asks_no_more(one: str, admin_client: Client) -> None:
    """A page of 30 tags takes as many queries as one of 5."""
    asked = []
    for count in (5, 30):
        LeafAlloc.objects.all().delete()
        made(count)
        with CaptureQueriesContext(connections[one]) as queries:
            assert page(admin_client).count('name="_selected_action"') == count
        asked.append(len(queries))
    assert asked[0] == asked[1]


def test_a_page_ends_after_a_hundred(no_tags: None, admin_client: Client) -> None:
    """However many tags there are; the rest is on further pages, and found by a search."""
    made(230)
    assert page(admin_client).count('name="_selected_action"') == 100
    assert page(admin_client, p=3).count('name="_selected_action"') == 30
    assert page(admin_client, q="t22").count('name="_selected_action"') == 10
    LeafAlloc.objects.filter(pk="t007").update(description="what we ask for")
    assert page(admin_client, q="ask for").count('name="_selected_action"') == 1


def test_every_column_that_says_so_sorts(one: str, admin_client: Client) -> None:
    """By any of them, both ways."""
    made(3)
    LeafAlloc.objects.create(biz_tag="fast", rate=1e6, max_id=2**62)
    for column in (*range(1, 9), "-1"):
        assert "fast" in page(admin_client, o=column)
    by_rate = page(admin_client, o="-5")
    assert by_rate.index(">fast<") < by_rate.index(">t000<")


def test_tags_are_filtered_by_their_state(one: str, admin_client: Client) -> None:
    """Paused ones; those in use, idle, and never used."""
    made()
    LeafAlloc.objects.create(biz_tag="new")
    LeafAlloc.objects.create(biz_tag="still", paused=True)
    old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    LeafAlloc.objects.create(biz_tag="old", max_id=50, fetched_at=old)
    expected = {
        "state=paused": {"still"},
        "state=used": {"t000"},
        "state=idle": {"old"},
        "state=unused": {"new"},
    }
    for query, tags in expected.items():
        text = page(admin_client, f"?{query}")
        assert {tag for tag in ("t000", "still", "old", "new") if f">{tag}<" in text} == tags


def test_a_project_without_time_zones_has_the_pages_too(
    one: str, admin_client: Client, settings: Any
) -> None:
    """With ``USE_TZ = False`` tags are shown, filtered, and have their pages and charts."""
    settings.USE_TZ, settings.TIME_ZONE = False, "Asia/Kolkata"
    segments["t"].next_id()
    LeafAlloc.objects.create(biz_tag="new", max_id=1)
    for settings.TIME_ZONE in ("Asia/Kolkata", "America/New_York"):
        assert ">in use<" in page(admin_client)
        for state, tags in (("used", {"t"}), ("idle", set()), ("unused", {"new"})):
            text = page(admin_client, state=state)
            assert {tag for tag in ("t", "new") if f">{tag}<" in text} == tags
        for span in ("hour", "day", "month"):
            assert "10 ids for " in page(admin_client, "t/change/", span=span)


@committed
def test_the_list_shows_what_lies_in_the_pool(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """How many ids."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        assert tag_edits.preload_here("t") is not None
        LeafAlloc.objects.update(rate=1.0)
        tag_edits.fill_pool(stored("t"))
        ids = pool.stocks(["t"])["t"].ids
        assert f"{ids:,} ids<" in page(admin_client)
        pool.clear(["t"])
        assert "empty" in page(admin_client)


@committed
def test_a_dead_redis_leaves_the_list_as_it_is(
    postgres: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """But for the pool, of which nothing can be told."""
    shown_at(postgres, monkeypatch, settings)
    make_tables(postgres)
    made(20)
    with (
        cache_alias("gone", f"redis://127.0.0.1:{free_port()}/0") as alias,
        override_settings(IDGEN=idgen_on(alias, postgres)),
    ):
        assert page(admin_client).count("900 / h") == 20


# --- steps edited in it -------------------------------------------------------------------


def test_a_step_is_changed_in_the_list(one: str, admin_client: Client) -> None:
    """That alone: what others fetched, measured or wrote after the page was opened stays."""
    made(3)
    form = list_form(page(admin_client), t001=500)
    LeafAlloc.objects.update(max_id=9001, rate=7.5, description="new", paused=True)
    assert post(admin_client, "", **form) == (
        302,
        "The step of 1 tag was changed. It applies from the next fetch on.",
    )
    for row in LeafAlloc.objects.all():
        assert (row.max_id, row.rate, row.description, row.paused) == (9001, 7.5, "new", True)
        assert row.step == (500 if row.pk == "t001" else 100)
    assert history("t001") == ["Changed: step: 100 → 500"]
    assert not history("t000")


def test_a_wrong_step_is_refused_with_the_name_of_its_tag(
    no_tags: None, admin_client: Client
) -> None:
    """And nothing of the page is saved."""
    made(3)
    shown = page(admin_client)
    for step in ("0", "-5", str(10**19), "many", ""):
        status, text = post(admin_client, "", **list_form(shown, t001=step, t002=7))
        assert status == 200
        assert "t001: " in text
        assert {row.step for row in LeafAlloc.objects.all()} == {100}, step


def test_a_step_that_somebody_else_changed_is_not_overwritten(
    one: str, admin_client: Client
) -> None:
    """It is said which tag's, what it was, and what it is; also if the page is sent again."""
    made(2)
    form = list_form(page(admin_client), t001=500)
    LeafAlloc.objects.filter(pk="t001").update(step=200)
    for _ in range(2):
        status, text = post(admin_client, "", **form)
        assert status == 200
        assert "t001: Somebody else has changed this step from 100 to 200" in text
        assert stored("t001").step == 200


def test_steps_that_nobody_edited_are_not_written_back(no_tags: None, admin_client: Client) -> None:
    """A list opened before others changed steps, saved with one other step edited."""
    made(3)
    form = list_form(page(admin_client), t001=500)
    LeafAlloc.objects.filter(pk="t002").update(step=200)
    assert post(admin_client, "", **form)[0] == 302
    assert [stored(tag).step for tag in ("t000", "t001", "t002")] == [100, 500, 200]


def test_a_list_that_does_not_say_what_it_showed_writes_nothing(
    no_tags: None, admin_client: Client
) -> None:
    """A theme that leaves hidden fields out would write old steps back otherwise."""
    made(2)
    form = list_form(page(admin_client))
    form = {name: value for name, value in form.items() if not name.startswith("initial-")}
    LeafAlloc.objects.filter(pk="t001").update(step=200)
    status, text = post(admin_client, "", **form)
    assert status == 200
    assert "does not say which step the page showed" in text
    assert stored("t001").step == 200


def test_a_step_changed_at_the_last_moment_is_not_overwritten(one: str) -> None:
    """The very UPDATE looks at it."""
    made()
    with pytest.raises(tag_edits.StepOvertaken, match="now has a step of 100, not of 90"):
        tag_edits.replace_step("t000", one, seen=90, to=50)
    assert stored("t000").step == 100
    tag_edits.replace_step("t000", one, seen=100, to=50)
    assert stored("t000").step == 50


@committed
def test_a_step_is_changed_in_all_databases_of_the_tag(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Whichever of them the list shows."""
    shown_at(shards[1], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=5)
        assert post(admin_client, "", **list_form(page(admin_client), t=70))[0] == 302
        assert [LeafAlloc.objects.using(alias).get().step for alias in shards[:2]] == [70, 70]


def test_a_list_with_unknown_tags_changes_nothing(no_tags: None, admin_client: Client) -> None:
    """Such as one that went with its database."""
    made(2)
    form = list_form(page(admin_client), t001=500)
    LeafAlloc.objects.filter(pk="t001").delete()
    status, _ = post(admin_client, "", **form)
    assert status in {200, 400}
    assert not LeafAlloc.objects.filter(pk="t001").exists()


# --- who may -------------------------------------------------------------------------------


def test_who_may_only_look_is_offered_nothing_else(no_tags: None, client: Client) -> None:
    """No fields, no actions; and what is sent nevertheless is refused."""
    made(2)
    viewer = user_who_may(client, "view_leafalloc")
    text = page(viewer)
    assert "t001" in text
    assert "<select" not in text
    assert 'name="form-0-step"' not in text
    form = {
        "form-TOTAL_FORMS": 1,
        "form-INITIAL_FORMS": 1,
        "form-0-biz_tag": "t000",
        "form-0-step": 5,
        "initial-form-0-step": 100,
        "_save": "Save",
    }
    assert viewer.post(TAGS, form).status_code == 403
    viewer.post(TAGS, {"action": "pause", "_selected_action": ["t000"], "index": 0})
    assert (stored("t000").step, stored("t000").paused) == (100, False)

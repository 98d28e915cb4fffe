"""Preload, change the step, skip ahead, pause, resume: what they do, and what they say before."""

from __future__ import annotations

from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.contrib import messages
from django.contrib.messages import get_messages
from django.core.management import call_command
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_idgen import segments
from django_idgen.core.errors import TagPaused
from django_idgen.core.segment import MAX_ID
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.tags import edits
from django_idgen.sources.memory import MemorySource
from tests import servers
from tests.ops.test_tag_edits import _failing_at, rows, source_of
from tests.sources.pool.test_project import project

from .people import staff
from .tag_tools import TAGS, act, history, page, shown_at, stored

pytestmark = pytest.mark.django_db(databases=["default", "postgres"])
committed = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


def tags(*names: str) -> list[str]:
    for name in names:
        LeafAlloc.objects.create(biz_tag=name, max_id=5001, step=1000)
    return list(names)


# --- skip ahead -------------------------------------------------------------------------


def test_a_skip_says_what_it_loses_and_then_does_it(one: str, admin_client: Client) -> None:
    """First how far; then which ids are lost, with nothing changed; then it is done."""
    edits.make_tag("t", step=10, max_id=5001)
    status, text = act(admin_client, "skip_ahead", "t")
    assert status == 200
    assert ">Preview</button>" in text
    _, text = act(admin_client, "skip_ahead", "t", how="by", number=4000, preview="yes")
    assert "5001 – 9000 (4000)" in text
    assert 'name="to" value="9001"' in text
    assert stored("t").max_id == 5001
    done = act(admin_client, "skip_ahead", "t", to=9001, confirm="yes")
    assert done == (302, "The next id of tag 't' is 9001.")
    assert segments["t"].next_id() == 9001
    assert history("t") == ["Skipped ahead: next free id: 5001 → 9001"]


def test_what_this_process_holds_is_not_used_any_more(one: str, admin_client: Client) -> None:
    """The very next id lies above."""
    before = segments["t"].next_ids(3)
    act(admin_client, "skip_ahead", "t", to=9001, confirm="yes")
    assert segments["t"].next_id() == 9001 > max(before)


def test_a_skip_that_can_not_be_is_refused(no_tags: None, admin_client: Client) -> None:
    """Down, past the end, and what is no number: nothing to confirm, nothing changed."""
    tags("t")
    for how, number, words in (
        ("to", 5001, "A tag never goes back, so it can't skip to 5001"),
        ("to", 7, "A tag never goes back"),
        ("by", MAX_ID, f"to {MAX_ID}"),
        ("to", 10**19, "errorlist"),
        ("by", 0, "errorlist"),
        ("by", "many", "errorlist"),
        ("by", "", "errorlist"),
        ("up", 5, "errorlist"),
    ):
        _, text = act(admin_client, "skip_ahead", "t", how=how, number=number, preview="yes")
        assert words in text
        assert 'name="confirm"' not in text
    for to in ("", "x", "-1", "9" * 5000, 2**63):
        status, text = act(admin_client, "skip_ahead", "t", to=to, confirm="yes")
        assert status == 302
        assert text.startswith("t: ")
        assert "['" not in text
    assert stored("t").max_id == 5001
    assert not history("t")


def test_a_loss_of_all_ids_is_counted(no_tags: None, admin_client: Client) -> None:
    """A range can be longer than a list."""
    LeafAlloc.objects.create(biz_tag="t")
    _, text = act(admin_client, "skip_ahead", "t", how="to", number=MAX_ID, preview="yes")
    assert f"1 – {MAX_ID - 1} ({MAX_ID - 1})" in text


def test_several_tags_skip_and_those_that_can_not_stay(no_tags: None, admin_client: Client) -> None:
    """Each says for itself what it loses; one that stands higher is named, and left out."""
    tags("a", "b")
    LeafAlloc.objects.create(biz_tag="high", max_id=10**12)
    chosen = ["a", "b", "high"]
    _, text = act(admin_client, "skip_ahead", *chosen, how="to", number=6001, preview="yes")
    assert text.count("5001 – 6000 (1000)") == 2
    assert f"The next id of tag 'high' is {10**12}. A tag never goes back" in text
    assert 'name="_selected_action" value="high"' not in text
    done = act(admin_client, "skip_ahead", "a", "b", to=[6001, 6001], confirm="yes")
    assert done == (302, "The next id of tag 'a' is 6001.\nThe next id of tag 'b' is 6001.")
    assert [stored(tag).max_id for tag in chosen] == [6001, 6001, 10**12]


def test_a_skip_that_was_overtaken_loses_nothing_more(no_tags: None, admin_client: Client) -> None:
    """Where a tag goes on is what the page said, wherever it stands by then."""
    tags("t")
    LeafAlloc.objects.update(max_id=8001)
    _, text = act(admin_client, "skip_ahead", "t", to=7001, confirm="yes")
    assert "is 8001. A tag never goes back" in text
    assert stored("t").max_id == 8001
    assert not history("t")


@committed
def test_of_several_databases_each_says_what_it_loses(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Its own part of the ids, from where it stands itself. One that does not answer is named."""
    shown_at(shards[0], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        edits.make_tag("t", step=5)
        LeafAlloc.objects.using(shards[1]).update(max_id=901)
        _, text = act(admin_client, "skip_ahead", "t", how="to", number=1001, preview="yes")
        for alias, remainder in zip(shards[:2], (0, 1), strict=True):
            row = LeafAlloc.objects.using(alias).get()
            lost = [each for each in range(row.max_id, 1001) if each % 2 == remainder]
            assert f"{alias}: {lost[0]} – {lost[-1]} ({len(lost)})" in text
        with monkeypatch.context() as failing:
            failing.setattr(edits, "edit_rows", _failing_at(shards[0]))
            _, words = act(admin_client, "skip_ahead", "t", to=1001, confirm="yes")
        assert "is away" in words
        act(admin_client, "skip_ahead", "t", to=1002, confirm="yes")
        assert [row.max_id for row in rows("t", shards[:2])] == [1002, 1002]


@committed
def test_a_skip_empties_the_pool(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """The preview says how many ids that loses; if Redis does not do it, the page says so."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        edits.fill_pool(edits.make_tag("t", step=20).first)
        pooled = pool.stocks(["t"])["t"].ids
        out = StringIO()
        call_command("idgen_skip", "t", to=5000, dry_run=True, stdout=out)
        assert f"and the pool loses its {pooled})" in out.getvalue()
        _, text = act(admin_client, "skip_ahead", "t", how="to", number=5000, preview="yes")
        assert f"in the pool: {pooled}" in text
        _, text = act(admin_client, "skip_ahead", "t", to=5000, confirm="yes")
        assert text == "The next id of tag 't' is 5000; its pool is empty."
        assert pool.stocks(["t"])["t"].ids == 0
        assert segments["t"].next_id() == 5000
        monkeypatch.setattr(edits, "clear_pool", lambda tag, **_: False)
        sent = {"action": "skip_ahead", "_selected_action": "t", "to": 6000, "confirm": "yes"}
        *_, told = get_messages(admin_client.post(TAGS, sent).wsgi_request)
        assert (told.level, "could NOT be emptied" in told.message) == (messages.WARNING, True)
        pool.clear(["t"])


def test_rows_that_no_ids_come_from_are_shown_and_not_changed(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Such as those of another project: it alone knows the floor of the tag."""
    servers.require("postgres")
    shown_at("postgres", monkeypatch, settings)
    with source_of(database="default"):
        LeafAlloc.objects.create(biz_tag="t", step=5, max_id=7)
        assert "takes no ids from the row of tag 't'" in page(admin_client, "t/change/")
        for action in ("skip_ahead", "pause", "resume", "preload_now"):
            _, text = act(admin_client, action, "t", to=300, confirm="yes")
            assert "takes no ids from the row of tag 't'" in text
        act(admin_client, "change_step", "t", step=9, seen=5, confirm="yes")
        admin_client.post(f"{TAGS}t/change/", {"step": 9, "description": "x"})
        row = stored("t")
        assert (row.max_id, row.step, row.description, row.paused) == (7, 5, "", False)
        assert not LeafAlloc.objects.using("default").filter(pk="t").exists()
        LeafAlloc.objects.all().delete()
        connections["postgres"].close()


@committed
def test_tags_are_shown_where_the_setting_has_them(admin_client: Client) -> None:
    """Without a router, in another database than the users': as services that share one have it."""
    servers.require("postgres")
    with source_of(database="postgres", history=True):
        LeafAlloc.objects.create(biz_tag="elsewhere")
        new = {"step": 10, "max_id": 5001, "description": ""}
        for name in ("t", "elsewhere"):
            answer = admin_client.post(f"{TAGS}add/", {"biz_tag": name, **new})
            assert answer.status_code == 302
        again = admin_client.post(f"{TAGS}add/", {"biz_tag": "t", **new})
        assert "with this Tag already exists" in again.content.decode()
        assert segments["t"].next_id() == 5001
        with CaptureQueriesContext(connections["postgres"]) as asked:
            admin_client.get("/admin/auth/user/")
        assert not asked.captured_queries  # the sidebar of other pages can do without it
        text = page(admin_client)
        assert ">5011<" in text
        assert "2 segment tags" in text
        act(admin_client, "change_step", "t", step=20, seen=10, confirm="yes")
        act(admin_client, "skip_ahead", "t", to=6001, confirm="yes")
        act(admin_client, "pause", "t", confirm="yes")
        row = LeafAlloc.objects.using("postgres").get(pk="t")
        assert (row.step, row.max_id, row.paused) == (20, 6001, True)
        assert "5001 – 5010" in unescape(
            admin_client.get("/admin/django_idgen/segmenthistory/").content.decode()
        )
        for alias in ("default", "postgres"):
            LeafAlloc.objects.using(alias).all().delete()
        SegmentHistory.objects.using("postgres").all().delete()
        connections["postgres"].close()


def test_the_list_says_that_a_router_has_tags_elsewhere(admin_client: Client) -> None:
    """It shows one database."""
    with source_of(database=None, router=lambda _tag: "postgres"):
        assert "These are the tags in database 'default'" in page(admin_client)


def test_a_client_of_a_service_has_no_tags_of_its_own(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list says so, and no tag is added."""
    monkeypatch.setattr(segments.allocator(), "source", MemorySource())
    assert "segments come from MemorySource" in page(admin_client)
    assert admin_client.get(f"{TAGS}add/").status_code == 403


# --- the step -----------------------------------------------------------------------------


def test_steps_are_changed_behind_an_action(one: str, admin_client: Client) -> None:
    """Of the tags chosen, unless someone else changed one after the page was opened."""
    edits.make_tag("a", step=100)
    edits.make_tag("b", step=100)
    status, text = act(admin_client, "change_step", "a", "b")
    assert status == 200
    assert text.count('name="seen" value="100"') == 2
    status, text = act(admin_client, "change_step", "a", step=0, seen=100, confirm="yes")
    assert "errorlist" in text
    edits.change_tag("b", step=200)
    seen = {"step": 500, "seen": [100, 100], "confirm": "yes"}
    _, text = act(admin_client, "change_step", "a", "b", **seen)
    assert "The step of tag 'a' is 500." in text
    assert "Tag 'b' now has a step of 200, not of 100" in text
    assert (stored("a").step, stored("b").step) == (500, 200)
    assert history("a") == ["Changed: step: 100 → 500"]
    act(admin_client, "change_step", "a", step=7, confirm="yes")  # without what was shown
    assert stored("a").step == 500


def test_a_step_changed_at_the_last_moment_is_not_overwritten(one: str) -> None:
    """The very UPDATE looks at it."""
    edits.make_tag("t", step=100)
    with pytest.raises(edits.StepOvertaken, match="now has a step of 100, not of 90"):
        edits.replace_step("t", one, seen=90, to=50)
    assert stored("t").step == 100
    edits.replace_step("t", one, seen=100, to=50)
    assert stored("t").step == 50


# --- pause, resume and preload ---------------------------------------------------------------


def test_a_pause_is_confirmed_and_counts(one: str, admin_client: Client) -> None:
    """The page says what happens to callers; then no process gets ids, until it is resumed."""
    edits.make_tag("t", step=10)
    status, text = act(admin_client, "pause", "t")
    assert status == 200
    assert "TagPaused" in text
    assert not stored("t").paused
    assert act(admin_client, "pause", "t", confirm="yes") == (302, "Tag 't' is paused.")
    with pytest.raises(TagPaused):
        segments["t"].next_id()
    assert ">paused<" in page(admin_client)
    assert ">Resume</button>" in page(admin_client, "t/change/")
    assert act(admin_client, "resume", "t") == (302, "Tag 't' gives out ids again.")
    assert segments["t"].next_id() == 1
    for _ in range(2):
        act(admin_client, "resume", "t")  # once more, which is no change
    assert history("t") == ["Paused", "Resumed"]


def test_preloading_tells_of_each_tag(one: str, admin_client: Client) -> None:
    """How many ids are ready, and why those of a paused one are not."""
    edits.make_tag("t", step=10)
    edits.make_tag("still", step=10)
    edits.pause_tag("still")
    _, text = act(admin_client, "preload_now", "t", "still")
    assert f"Tag 't' was preloaded. This process has {edits.held_here('t')} ids." in text
    assert "There is no pool." in text
    assert "Tag 'still' is paused" in text
    assert edits.held_here("t") >= 10
    assert history("t") == ["Preloaded"]
    assert not history("still")


@committed
def test_preloading_fills_the_pool(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """And says how many ids it got."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        edits.make_tag("t", step=20)
        _, text = act(admin_client, "preload_now", "t")
        assert f"The pool got {pool.stocks(['t'])['t'].ids} ids." in text
        assert pool.stocks(["t"])["t"].ids > 0
        pool.clear(["t"])


# --- who may, and how -------------------------------------------------------------------


def test_who_may_change_may_act(no_tags: None) -> None:
    """It takes no superuser; a GET, or a POST of another site's page, does nothing."""
    tags("t")
    changer = staff("view_leafalloc", "change_leafalloc")
    sent = {"action": "pause", "_selected_action": "t", "confirm": "yes"}
    assert changer.get(TAGS, sent).status_code == 400
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(changer.get("/admin/").wsgi_request.user)
    assert strict.post(TAGS, sent).status_code == 403
    assert not stored("t").paused
    assert act(changer, "pause", "t", confirm="yes")[0] == 302
    assert stored("t").paused


def test_too_many_tags_at_once_are_refused(no_tags: None, admin_client: Client) -> None:
    """With the number that can be; nothing is changed, and nothing asked."""
    rows = (LeafAlloc(biz_tag=f"t{number}", paused=True) for number in range(101))
    LeafAlloc.objects.bulk_create(rows)
    for action in ("resume", "pause", "skip_ahead"):
        status, text = act(admin_client, action, "t1", select_across=1, index=0)
        assert status == 302
        assert "Choose at most 100 tags. No tag was changed." in text
    assert LeafAlloc.objects.filter(paused=True).count() == 101


def test_tags_that_are_not_there_are_told(no_tags: None, admin_client: Client) -> None:
    """Another admin may have had other rows."""
    for action in ("pause", "resume", "skip_ahead", "change_step", "preload_now"):
        status, text = act(admin_client, action, "gone", confirm="yes")
        assert (status, set(text.splitlines())) == (302, {"There are no such tags."})

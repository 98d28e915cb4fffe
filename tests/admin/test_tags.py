"""The list of tags and the page of each: what they show, what they save, what they refuse."""

from __future__ import annotations

import datetime
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.db import connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import django_idgen.admin
from django_idgen import segments
from django_idgen.admin.tags import TagForm
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.tags import edits
from django_idgen.process.tags import TagUnknown
from tests.ops.test_tag_edits import source_of
from tests.places import make_tables
from tests.redis_servers import cache_alias
from tests.servers import free_port
from tests.sources.pool.test_project import idgen_on, project

from .people import staff
from .tag_tools import TAGS, history, page, post, shown_at, stored

pytestmark = pytest.mark.django_db(databases=["default", "postgres"])
# With the rows of a server, which connections of our own are to see.
committed = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


def made(count: int = 1, **more: Any) -> None:
    now = datetime.datetime.now(datetime.UTC)
    values = {"step": 100, "rate": 0.25, "fetched_ids": 1000, "fetched_at": now, "holder": "web-1"}
    LeafAlloc.objects.bulk_create(
        LeafAlloc(biz_tag=f"t{number:03}", max_id=1234567, **{**values, **more})
        for number in range(count)
    )


def form(tag: LeafAlloc, **changes: Any) -> dict[str, Any]:
    """What the browser sends of a page that was opened while ``tag`` stood so."""
    steps = {"step": tag.step, "initial-step": tag.step}
    return {**steps, "description": tag.description, **changes}


# --- the list ---------------------------------------------------------------------------


def test_the_list_says_how_a_tag_stands(one: str, admin_client: Client, settings: Any) -> None:
    """Its rate, when ids are fetched next, what it may give out; digits without separators."""
    settings.USE_THOUSAND_SEPARATOR = True
    made(rate=0.5, step=1500)
    LeafAlloc.objects.create(biz_tag="still", paused=True)
    LeafAlloc.objects.create(biz_tag="fast", max_id=2**62, rate=2**35, measured_used=2**62)
    text = page(admin_client)
    shown = (">in use<", ">paused<", ">1500<", ">1234567<", ">1800 / h<", ">in 33 min<")
    assert [words for words in shown if words not in text] == []
    assert re.search(r">\d s ago<", text)
    assert re.search(r">unused, ends in \d+ years<|>idle, ends in \d+ years<", text)


def test_the_list_offers_what_can_be_done(one: str, admin_client: Client) -> None:
    """Each action by its name, to those who may change tags."""
    made()
    actions = ("preload_now", "change_step", "skip_ahead", "pause", "resume")
    text = page(admin_client)
    assert [name for name in actions if f'<option value="{name}"' not in text] == []
    assert "<option" not in page(staff("view_leafalloc"))


def test_no_template_replaces_one_of_djangos_by_its_name() -> None:
    """Django takes ``actions.html`` of a model for the choice of actions, for one."""
    djangos = {path.name for path in (Path(admin.__file__).parent / "templates").rglob("*.html")}
    ours = (Path(django_idgen.admin.__file__).parents[1] / "templates").rglob("*/*.html")
    assert {path.name for path in ours} & djangos == {"change_form.html"}


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
    """The next one goes on. A search looks into names and descriptions."""
    made(230)
    LeafAlloc.objects.filter(pk="t007").update(description="what we ask for")
    found = [
        page(admin_client, **query).count('name="_selected_action"')
        for query in ({}, {"p": 3}, {"q": "t22"}, {"q": "ask for"})
    ]
    assert found == [100, 30, 10, 1]


def test_every_column_that_says_so_sorts(one: str, admin_client: Client) -> None:
    """Also the id, and the rate, which are numbers."""
    made(3)
    LeafAlloc.objects.create(biz_tag="fast", rate=1e6, max_id=2**62)
    for column in (*range(1, 8), "-1"):
        assert ">fast<" in page(admin_client, o=column)
    for column in ("-4", "-5"):
        text = page(admin_client, o=column)
        assert text.index(">fast<") < text.index(">t000<")


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_without_time_zones_tags_are_listed(
    one: str, admin_client: Client, settings: Any, zone: str
) -> None:
    """And filtered by their state, ahead of UTC and behind."""
    settings.USE_TZ, settings.TIME_ZONE = False, zone
    segments["t"].next_id()
    LeafAlloc.objects.create(biz_tag="new")
    for state, tags in (("used", ["t"]), ("idle", []), ("unused", ["new"])):
        text = page(admin_client, state=state)
        assert [tag for tag in ("t", "new") if f">{tag}<" in text] == tags
    assert ">in use<" in page(admin_client)


def test_tags_are_filtered_by_their_state(one: str, admin_client: Client) -> None:
    """Paused ones; those in use, idle, and never used."""
    made()
    LeafAlloc.objects.create(biz_tag="new")
    LeafAlloc.objects.create(biz_tag="still", paused=True)
    old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    LeafAlloc.objects.create(biz_tag="old", max_id=50, fetched_at=old)
    expected = {"paused": "still", "used": "t000", "idle": "old", "unused": "new"}
    for state, tag in expected.items():
        text = page(admin_client, state=state)
        assert [each for each in expected.values() if f">{each}<" in text] == [tag]


@committed
def test_the_list_shows_what_is_in_the_pool(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """How many ids; without a pool there is no such column."""
    shown_at(postgres, monkeypatch, settings)
    assert "column-pool" not in page(admin_client)
    with project(redis, postgres) as pool:
        assert edits.preload_here("t") is not None
        LeafAlloc.objects.update(rate=1.0)
        edits.fill_pool(stored("t"))
        ids = pool.stocks(["t"])["t"].ids
        assert f'data-label="Pool">{ids}<' in page(admin_client)
        assert f">{ids}<" in page(admin_client, "t/change/")
        pool.clear(["t"])


@committed
def test_a_dead_redis_leaves_the_list_as_it_is(
    postgres: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """But for the pool, which is unknown."""
    shown_at(postgres, monkeypatch, settings)
    make_tables(postgres)
    made(20)
    with (
        cache_alias("gone", f"redis://127.0.0.1:{free_port()}/0") as alias,
        override_settings(IDGEN=idgen_on(alias, postgres)),
    ):
        text = page(admin_client)
    assert text.count("900 / h") == text.count('data-label="Pool">–<') == 20


# --- the page of a tag ------------------------------------------------------------------


def test_the_page_draws_how_many_ids_were_fetched(one: str, admin_client: Client) -> None:
    """In the last hour, day or month, without script or style; an empty chart says so."""
    with source_of(database=one, history=True):
        make_tables(one)
        ids = segments["t"].next_ids(25)
        for span in ("hour", "day", "month"):
            text = page(admin_client, "t/change/", span=span)
            chart = text[text.index('id="chart"') : text.index("A tag can't be deleted")]
            assert f"<strong>Last {span}" in chart
            assert "style=" not in chart
            assert "<script" not in chart
            in_memory = one == "default"  # where no history is kept
            assert ("No process fetched ids in this time." in chart) is in_memory
            assert ("<svg" in chart and " ids in all; most at " in chart) is not in_memory
            assert "No history is kept" not in text
        (link,) = re.findall(r'href="([^"]*segmenthistory/\?[^"]*)"', text)
        granted = admin_client.get(link).content.decode()
        assert (f">{ids[0]} – " in granted) is not in_memory
        assert "<strong>Last day" in page(admin_client, "t/change/", span="century")
        segments.close()
        SegmentHistory.objects.all().delete()


def test_without_a_history_the_page_says_how_to_have_one(
    no_tags: None, admin_client: Client
) -> None:
    """Instead of a chart that is empty for no reason, or ends for none."""
    LeafAlloc.objects.create(biz_tag="t", max_id=21)
    for has_rows in (False, True):
        text = page(admin_client, "t/change/")
        assert '"history": True' in text
        assert ("preserveAspectRatio" in text) is has_rows
        assert "No history is kept now" in unescape(
            admin_client.get("/admin/django_idgen/segmenthistory/").content.decode()
        )
        SegmentHistory.objects.create(
            tag="t", start=1, stop=21, holder="web-1", taken_at=timezone.now()
        )


def test_one_format_of_moments_with_their_zone(no_tags: None, admin_client: Client) -> None:
    """On the page of a tag, the chart, and the list of segments; also without time zones."""
    at = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    local = at.astimezone(datetime.timezone(datetime.timedelta(hours=5.5)))
    for zoned in (True, False):
        with override_settings(USE_TZ=zoned, TIME_ZONE="Asia/Kolkata"):
            LeafAlloc.objects.all().delete()
            SegmentHistory.objects.all().delete()
            saved = at if zoned else local.replace(tzinfo=None)
            made(fetched_at=saved)
            SegmentHistory.objects.create(tag="t000", start=1, stop=9, holder="w", taken_at=saved)
            moment = f"{local:%Y-%m-%d %H:%M:%S} +0530"
            text = page(admin_client, "t000/change/", span="month")
            assert f"{moment}: 1000 ids for web-1" in text
            assert re.search(r"8 ids in all; most at \d{4}-\d\d-\d\d 00:00:00 \+0530: 8", text)
            listed = admin_client.get("/admin/django_idgen/segmenthistory/").content.decode()
            assert moment in listed


def test_any_tag_has_its_page_and_its_actions(no_tags: None, admin_client: Client) -> None:
    """Whatever its name is, and whatever that means in an address or in HTML."""
    names = ["a/b", "a b", "größe", "a_2Fb", "skip", "x" * 128, "<b>&\"'"]
    LeafAlloc.objects.bulk_create(LeafAlloc(biz_tag=name, max_id=10) for name in names)
    listed = admin_client.get(TAGS).content.decode()
    found = re.findall(r'<th class="field-biz_tag"><a href="([^"]+)">([^<]*)', listed)
    addresses = {unescape(name): unescape(address) for address, name in found}
    assert addresses.keys() == set(names)
    for name, address in addresses.items():
        text = admin_client.get(address).content.decode()
        assert "<b>&" not in text
        (sent,) = re.findall(r'name="_selected_action" value="([^"]*)"', text)
        skip = {"action": "skip_ahead", "_selected_action": unescape(sent), "to": 50}
        assert admin_client.post(TAGS, {**skip, "confirm": 1})["Location"] == address
        assert stored(name).max_id == 50


def test_broken_settings_leave_the_rows_to_be_seen(no_tags: None, admin_client: Client) -> None:
    """The page says what is wrong, and shows what is stored."""
    LeafAlloc.objects.create(biz_tag="t", max_id=77)
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"BACKEND": "no.such.Thing"}}}):
        assert "77" in page(admin_client)
        text = page(admin_client, "t/change/")
    assert "no.such" in text
    assert ">77</span>" in text


def test_who_may_only_look_changes_nothing(no_tags: None) -> None:
    """No fields and no actions are offered, and what is sent nevertheless is refused."""
    viewer = staff("view_leafalloc")
    made()
    assert "<select" not in page(viewer)
    text = page(viewer, "t000/change/")
    assert "Fetch rate" in text
    assert 'name="step"' not in text
    assert "Preload now" not in text
    assert "segmenthistory" not in text
    assert viewer.post(f"{TAGS}t000/change/", form(stored("t000"), step=5)).status_code == 403
    for action in ("preload_now", "skip_ahead", "change_step", "pause"):
        sent = {"action": action, "_selected_action": "t000", "confirm": "yes"}
        viewer.post(TAGS, {**sent, "to": 2**40, "step": 5, "seen": 100})
        assert (stored("t000").max_id, stored("t000").step) == (1234567, 100)
        assert not stored("t000").paused


# --- what it saves, and refuses -----------------------------------------------------------


def test_step_and_description_are_edited_alone(one: str, admin_client: Client) -> None:
    """What others fetched, measured or paused after the page was opened stays; so does the id."""
    edits.make_tag("t", step=100, max_id=5001)
    assert 'name="max_id"' not in page(admin_client, "t/change/")
    sent = form(stored("t"), step=50, description="Orders")
    LeafAlloc.objects.update(max_id=9001, rate=7.5, paused=True)
    for max_id in (1, 2**40, "x", ""):
        assert post(admin_client, "t/change/", **sent, max_id=max_id)[0] == 302
        sent = form(stored("t"))
    row = stored("t")
    assert (row.step, row.description) == (50, "Orders")
    assert (row.max_id, row.rate, row.paused) == (9001, 7.5, True)
    assert history("t") == ["Changed: step: 100 → 50", "Changed: description: — → Orders"]


def test_a_step_that_someone_else_changed_is_not_overwritten(
    one: str, admin_client: Client
) -> None:
    """By a page that showed the former one; a description edited there is saved alone."""
    edits.make_tag("t", step=100)
    opened = stored("t")
    edits.change_tag("t", step=200)
    status, text = post(admin_client, "t/change/", **form(opened, step=500))
    assert (status, text) == (302, "Tag 't' now has a step of 200, not of 100: it was not changed.")
    assert post(admin_client, "t/change/", **form(opened, description="new"))[0] == 302
    assert (stored("t").step, stored("t").description) == (200, "new")
    assert history("t") == ["Changed: description: — → new"]


def test_an_edit_reaches_the_next_fetch(one: str, admin_client: Client) -> None:
    """A step of 7, from an id that a skip named."""
    edits.make_tag("t", step=5)
    post(admin_client, "t/change/", **form(stored("t"), step=7))
    post(admin_client, "", action="skip_ahead", _selected_action="t", to=9001, confirm="yes")
    assert segments["t"].next_id() == 9001
    stats: Any = segments["t"].stats()
    assert stats.held[-1].step == 7


@committed
def test_a_step_is_changed_in_all_databases_of_the_tag(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Whichever of them the admin shows; the page shows each."""
    shown_at(shards[1], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        edits.make_tag("t", step=5)
        assert post(admin_client, "t/change/", **form(stored("t"), step=70))[0] == 302
        assert [LeafAlloc.objects.using(alias).get().step for alias in shards[:2]] == [70, 70]
        assert "remainder 1 when divided by 2" in page(admin_client, "t/change/")


def test_what_was_done_before_a_failure_is_in_the_history(
    one: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step stays, whatever becomes of the rest of the page; the page names the failure alone."""
    edits.make_tag("t", step=10)
    sent = form(stored("t"), step=70, description="what")

    def gone(*args: Any, **kwargs: Any) -> None:
        raise TagUnknown("t")

    monkeypatch.setattr(edits, "change_tag", gone)
    assert post(admin_client, "t/change/", **sent) == (302, "There is no tag 't'.")
    assert history("t") == ["Changed: step: 10 → 70"]


def test_a_tag_is_added(one: str, admin_client: Client) -> None:
    """It begins where the form says; the empty form has the step of the settings."""
    with override_settings(IDGEN={"SEGMENTS": {"OPTIONS": {"default_step": 77}}}):
        assert 'value="77"' in page(admin_client, "add/")
    new = {"biz_tag": "new", "max_id": 7, "step": 10, "initial-step": 77}
    assert post(admin_client, "add/", **new)[0] == 302
    assert stored("new").step == 10
    assert segments["new"].next_id() == 7
    assert history("new") == ["Added: next free id: — → 7; step: — → 10"]


def test_what_can_not_be_is_refused_with_the_reason(no_tags: None, admin_client: Client) -> None:
    """At the field; nothing is saved. A tag that is there already stays as it stands."""
    tag = LeafAlloc.objects.create(biz_tag="t", max_id=5001, step=1000)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"step": 0}, "greater than or equal to 1"),
        ({"step": -5}, "greater than or equal to"),
        ({"step": 2**63}, "less than or equal to"),
        ({"step": "many"}, "Enter a whole number"),
        ({"step": ""}, "This field is required"),
        ({"description": "x" * 257}, "at most 256"),
    )
    for changes, words in wrong:
        status, text = post(admin_client, "t/change/", **form(tag, **changes))
        assert status == 200
        assert words in text
    assert (stored("t").max_id, stored("t").step) == (5001, 1000)
    assert not history("t")
    names = ("t", " t", "", "a\x00b", "tab\tbed", "x" * 129)
    bad: list[dict[str, Any]] = [{"biz_tag": name} for name in names]
    bad += [{"max_id": first} for first in (0, -1, 2**63, "x", "")]
    for each in bad:
        new = {"biz_tag": "new", "max_id": 1, "step": 10, "initial-step": 10, **each}
        status, text = post(admin_client, "add/", **new)
        assert status == 200
        assert "errorlist" in text, each
    assert [(row.pk, row.max_id) for row in LeafAlloc.objects.all()] == [("t", 5001)]


def test_a_tag_made_at_the_same_moment_stays_as_it_is(
    one: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may make it, and use it, after the form was checked: never an UPDATE."""
    monkeypatch.setattr(TagForm, "validate_unique", lambda _form: None)
    segments["t"].next_id()
    before = stored("t").max_id
    status, text = post(admin_client, "add/", biz_tag="t", max_id=1, step=10)
    assert (status, text) == (302, "Tag 't' exists already.")
    assert stored("t").max_id == before


def test_no_tag_is_deleted(no_tags: None, admin_client: Client) -> None:
    """Neither by a page nor by an action."""
    made()
    assert post(admin_client, "t000/delete/", post="yes")[0] == 403
    sent = {"action": "delete_selected", "_selected_action": ["t000"], "post": "yes"}
    post(admin_client, "", **sent)
    assert LeafAlloc.objects.filter(pk="t000").exists()
    assert "would start at 1 and give out the same ids again" in page(admin_client, "t000/change/")


def test_the_history_says_from_what_to_what_and_who(no_tags: None, admin_client: Client) -> None:
    """On Django's own page."""
    made()
    grace = staff("view_leafalloc", "change_leafalloc", name="grace")
    post(grace, "t000/change/", **form(stored("t000"), step=20))
    post(grace, "t000/change/", **form(stored("t000")))  # nothing
    text = page(admin_client, "t000/history/")
    assert text.count("Changed: step: 100 → 20") == 1
    assert "grace" in text

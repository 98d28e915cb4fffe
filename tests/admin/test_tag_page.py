"""The page of one tag: its outlook, its chart, who had its ids; what it refuses; its history."""

from __future__ import annotations

import datetime
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client, override_settings
from django.utils import timezone, translation

from django_idgen import segments
from django_idgen.admin.tag_page import chart_of
from django_idgen.admin.text import duration_text, next_fetch_text, rate_text, short_number
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.ops.tags import edits as tag_edits
from django_idgen.ops.tags.usage import Bucket
from django_idgen.process.tags import TagUnknown
from tests.ops.test_tag_edits import source_of
from tests.places import make_tables

from .tag_tools import TAGS, history, page, post, stored, user_who_may

pytestmark = pytest.mark.django_db(databases=["default", "postgres"])
committed = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


def form(tag: LeafAlloc, **changes: Any) -> dict[str, Any]:
    """What the browser sends of a page that was opened while ``tag`` stood so."""
    steps = {"step": tag.step, "initial-step": tag.step}
    return {**steps, "description": tag.description, **changes}


# --- what it shows ------------------------------------------------------------------------


def test_a_chart_of_a_history_that_ended(no_tags: None, admin_client: Client) -> None:
    """It says that later ids are missing, as long as history is off."""
    LeafAlloc.objects.create(biz_tag="t", max_id=21)
    SegmentHistory.objects.create(
        tag="t", start=1, stop=21, holder="web-1", taken_at=timezone.now()
    )
    for is_on in (True, False):
        options = {"SEGMENTS": {"SOURCE": {"OPTIONS": {"history": is_on}}}}
        with override_settings(IDGEN=options):
            text = page(admin_client, "t/change/")
        assert 'class="idgen-chart-bar"' in text
        assert ("History is off now" in text) == (not is_on)


def test_the_page_draws_who_took_how_many(one: str, admin_client: Client) -> None:
    """A chart of the hour, day or month, without script or style, and a table of the same."""
    with source_of(database=one, history=True):
        make_tables(one)
        ids = segments["t"].next_ids(25)
        for span, title in (("hour", "minute"), ("day", "quarter"), ("month", "day")):
            text = page(admin_client, "t/change/", span=span)
            chart = text[text.index("<figure class=") :]
            chart = chart[: chart.find("</details>")]
            assert f'aria-current="page">Last {span}' in text
            assert f"Ids fetched {'on' if span == 'month' else 'in'} each {title}" in chart
            assert "style=" not in chart
            assert "<script" not in chart
            if one == "default":  # in memory, where no history is kept
                assert "No process fetched ids in this time." in chart
                continue
            assert "Total: " in chart
            assert 'class="idgen-chart-bar"' in chart
            assert "<table" in chart
        text = page(admin_client, "t/change/", span="century")
        assert 'aria-current="page">Last day' in text
        assert ("Latest ranges" in text) is (one != "default")
        assert (f'dir="ltr">{ids[0]} – ' in text) is (one != "default")
        for link in re.findall(r'href="([^"]*segmenthistory/\?[^"]*)"', text):
            assert ">t<" in admin_client.get(link).content.decode()
        segments.close()
        SegmentHistory.objects.all().delete()


def test_without_a_history_the_page_says_how_to_have_one(
    no_tags: None, admin_client: Client
) -> None:
    """Instead of a chart that is empty for no reason."""
    LeafAlloc.objects.create(biz_tag="t")
    text = page(admin_client, "t/change/")
    assert '"history": True' in text
    assert "<figure class=" not in text


def test_a_viewer_sees_all_and_can_change_nothing(no_tags: None, client: Client) -> None:
    """No buttons, no fields; a form that is sent is refused."""
    tag = LeafAlloc.objects.create(biz_tag="t")
    viewer = user_who_may(client, "view_leafalloc")
    text = page(viewer, "t/change/")
    assert "Fetch rate" in text
    assert 'name="step"' not in text
    assert "Preload now" not in text
    assert "All ranges" not in text
    assert viewer.post(f"{TAGS}t/change/", form(tag, step=5)).status_code == 403


def test_any_tag_has_its_page_and_its_actions(no_tags: None, admin_client: Client) -> None:
    """Whatever its name is, and whatever that means in an address or in HTML."""
    names = ["a/b", "a b", "größe", "a_2Fb", "skip", "x" * 128, "<b>&\"'"]
    LeafAlloc.objects.bulk_create(LeafAlloc(biz_tag=name, max_id=10) for name in names)
    listed = admin_client.get(TAGS).content.decode()
    found = re.findall(r'<th class="field-biz_tag"><a href="([^"]+)">([^<]*)', listed)
    addresses = {unescape(name): unescape(address) for address, name in found}
    assert addresses.keys() == set(names)
    for name, address in addresses.items():
        shown = admin_client.get(address)
        assert shown.status_code == 200
        assert b"<b>&" not in shown.content
        (ask,) = re.findall(r'href="([^"]*/skip/\?[^"]*)"', shown.content.decode())
        asked = admin_client.get(unescape(ask))
        assert asked.status_code == 200
        done = admin_client.post(f"{TAGS}skip/", {"tag": name, "to": 50, "confirm": 1})
        assert done["Location"] == address
        assert stored(name).max_id == 50


def test_broken_settings_leave_the_rows_to_be_seen(no_tags: None, admin_client: Client) -> None:
    """The page says what is wrong, and shows what is stored."""
    LeafAlloc.objects.create(biz_tag="t", max_id=77)
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"BACKEND": "no.such.Thing"}}}):
        assert "77" in page(admin_client)
        text = page(admin_client, "t/change/")
    assert "no.such" in text
    assert ">77</span>" in text


def test_max_id_is_raised_by_a_skip_alone(no_tags: None, admin_client: Client) -> None:
    """The form shows it in plain digits, with the way to the page that says what a skip loses."""
    LeafAlloc.objects.create(biz_tag="t", max_id=1234567)
    with override_settings(USE_THOUSAND_SEPARATOR=True):
        text = page(admin_client, "t/change/")
    assert 'name="max_id"' not in text
    assert ">1234567</span>" in text
    shown = re.search(r' href="([^"]*)">Skip ahead…</a>', text)
    assert shown is not None
    asked = admin_client.get(shown[1])
    assert "Show the lost ids" in asked.content.decode()
    assert 'name="max_id"' in page(admin_client, "add/")


# --- what it refuses ------------------------------------------------------------------------


def test_what_can_not_be_is_refused_with_the_reason(no_tags: None, admin_client: Client) -> None:
    """At the field, with its limit; nothing is saved."""
    tag = LeafAlloc.objects.create(biz_tag="t", max_id=5001, step=1000)
    for bad, words in (
        ({"step": 0}, "greater than or equal to 1"),
        ({"step": -5}, "greater than or equal to"),
        ({"step": 10**19}, "less than or equal to 1000000000"),
        ({"step": 2**63}, "less than or equal to 1000000000"),
        ({"step": "many"}, "Enter a whole number"),
        ({"step": ""}, "This field is required"),
        ({"description": "x" * 257}, "at most 256 characters"),
    ):
        status, text = post(admin_client, "t/change/", **form(tag, **bad))
        assert status == 200
        assert words in text, bad
    after = stored("t")
    assert (after.max_id, after.step, after.description) == (5001, 1000, "")
    assert not history("t")


def test_a_tag_that_can_not_be_added_is_refused(no_tags: None, admin_client: Client) -> None:
    """One that is there already stays as it stands; what can be no name or first id is told."""
    LeafAlloc.objects.create(biz_tag="orders", max_id=5001)
    names = ("orders", " orders", "", "a\x00b", "tab\tbed", "x" * 129)
    bad: list[dict[str, Any]] = [{"biz_tag": name} for name in names]
    bad += [{"max_id": first} for first in (0, -1, 2**63, "x", "")]
    for each in bad:
        new = {"biz_tag": "new", "max_id": 1, "step": 10, "initial-step": 10, **each}
        status, text = post(admin_client, "add/", **new)
        assert status == 200
        assert "errorlist" in text, each
    assert [(row.pk, row.max_id) for row in LeafAlloc.objects.all()] == [("orders", 5001)]


def test_a_step_that_somebody_else_changed_is_not_overwritten(
    no_tags: None, admin_client: Client
) -> None:
    """By a page that showed the former one; a description edited there is saved alone."""
    tag = LeafAlloc.objects.create(biz_tag="t", step=100)
    LeafAlloc.objects.update(step=200)
    status, text = post(admin_client, "t/change/", **form(tag, step=500))
    assert status == 200
    assert "has changed this step from 100 to 200" in text
    assert post(admin_client, "t/change/", **form(tag, description="new"))[0] == 302
    assert (stored("t").step, stored("t").description) == (200, "new")


# --- its history ------------------------------------------------------------------------------


def test_the_history_says_from_what_to_what(no_tags: None, admin_client: Client) -> None:
    """Added, changed, skipped: each with the old value and the new one, and who did it."""
    new = {"biz_tag": "t", "max_id": 1, "step": 10, "initial-step": 10}
    post(admin_client, "add/", **new)
    post(admin_client, "skip/", tag="t", to=500, confirm="yes")
    post(admin_client, "t/change/", **form(stored("t"), step=20, description="what"))
    post(admin_client, "t/change/", **form(stored("t")))  # nothing
    assert history("t") == [
        "Added: next free id: — → 1; step: — → 10",
        "Skipped ahead: next free id: 1 → 500",
        "Changed: step: 10 → 20",
        "Changed: description: — → what",
    ]
    text = page(admin_client, "t/history/")
    assert "Changed: step: 10 → 20" in text
    assert "admin" in text


def test_what_was_done_before_a_failure_is_in_the_history(
    one: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step stays, whatever becomes of the rest of the page."""
    tag_edits.make_tag("t", step=10)
    tag = stored("t")

    def overtaken(*args: Any, **kwargs: Any) -> None:
        raise TagUnknown("t")

    monkeypatch.setattr("django_idgen.ops.tags.edits.change_tag", overtaken)
    monkeypatch.setattr("django_idgen.ops.tags.edits.change_row", overtaken)
    status, text = post(admin_client, "t/change/", **form(tag, step=70, description="what"))
    assert (status, text) == (302, "There is no tag 't'.")
    assert history("t") == ["Changed: step: 10 → 70"]


# --- words and drawing ---------------------------------------------------------------------------


def test_rates_and_durations_are_said_as_people_say_them() -> None:
    """By the second, hour or day; with one figure and a unit, which grow with each other."""
    year, endless = 31_557_600, float("inf")
    rates = (0.0, 12.34, 51234.0, 0.2334, 3 / 86400, 1e-9, endless)
    assert [rate_text(each) for each in rates] == [
        "–",
        "12.3 / s",
        "51,234 / s",
        "840 / h",
        "3 / day",
        "less than 1 / day",
        "–",
    ]
    for seconds, words in (
        (None, "–"),
        (endless, "–"),
        (0.4, "less than 1 s"),
        (59.6, "1 min"),
        (240, "4 min"),
        (3599, "1 h"),
        (5 * 3600, "5 h"),
        (3 * 86400, "3 days"),
        (90 * 86400, "3 months"),
        (12.6 * year, "13 years"),
        (292e6 * year, "over 1,000 years"),
    ):
        assert duration_text(seconds) == words


def test_a_fetch_that_is_overdue_is_expected_any_moment() -> None:
    """Not in 0 seconds; an unknown one has a dash."""
    assert [next_fetch_text(each) for each in (None, 0.0, 240.0)] == ["–", "any moment", "in 4 min"]


def test_a_chart_has_room_for_its_highest_bar() -> None:
    """Each bar stands within the picture; lines are at round numbers, the highest above all."""
    start = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
    for most in (0, 1, 3, 7, 99, 100, 101, 12_345, 10**9, 10**18):
        counts = [0, most, most // 2, 1 if most else 0]
        chart = chart_of("hour", [Bucket(start, 60.0, count) for count in counts])
        assert len(chart["bars"]) == sum(count > 0 for count in counts)
        for bar in chart["bars"]:
            assert float(bar["y"]) >= 0
            assert float(bar["x"]) + float(bar["width"]) <= chart["width"] == 4
            assert float(bar["height"]) >= 1
            assert float(bar["y"]) + float(bar["height"]) == pytest.approx(1000)
        assert chart["lines"][0] == "0.0"
        assert 2 <= len(chart["lines"]) == len(chart["numbers"]) <= 6


def test_each_label_of_a_chart_stands_for_as_many_bars() -> None:
    """So that they lie below the bars that they name, without a place of their own."""
    start = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
    for span, number in (("hour", 60), ("day", 96), ("month", 30)):
        chart = chart_of(span, [Bucket(start, 60.0, 1)] * number)
        assert number % len(chart["moments"]) == 0
        assert len(chart["moments"]) in (3, 4)


def test_a_drawing_has_points_in_every_language() -> None:
    """A comma would end a number of the drawing; what people read follows their language."""
    start = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
    with translation.override("de"), override_settings(USE_THOUSAND_SEPARATOR=True):
        chart = chart_of("hour", [Bucket(start, 60.0, 12_345)])
        assert short_number(1_500) == "1,5 k"
    (bar,) = chart["bars"]
    assert bar["ids"] == "12.345"
    for number in (bar["x"], bar["y"], bar["width"], bar["height"], *chart["lines"]):
        assert float(number) >= 0

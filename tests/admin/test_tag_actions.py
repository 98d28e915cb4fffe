"""Preload, skip ahead, pause, resume: what they do, what they say before, and who may."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_idgen import segments
from django_idgen.admin.tag_changes import SkipPlan, Standing, standing
from django_idgen.core.errors import TagPaused
from django_idgen.core.segment import MAX_ID
from django_idgen.models import LeafAlloc
from django_idgen.ops.tags import edits as tag_edits
from tests.ops.test_tag_edits import source_of
from tests.sources.pool.test_project import project

from .tag_tools import TAGS, history, page, post, shown_at, stored, user_who_may

pytestmark = pytest.mark.django_db(databases=["default", "postgres"])
committed = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


def tags(*names: str) -> list[str]:
    for name in names:
        LeafAlloc.objects.create(biz_tag=name, max_id=5001, step=1000)
    return list(names)


# --- skip ahead -------------------------------------------------------------------------


def test_a_skip_says_what_it_loses_and_then_does_it(one: str, admin_client: Client) -> None:
    """First how far; then which ids are lost, with nothing changed; then it is done."""
    tag_edits.make_tag("t", step=10, max_id=5001)
    assert "5001" in page(admin_client, "skip/", tag="t")
    asked = {"tag": "t", "how": "by", "number": 4000, "review": "yes"}
    status, text = post(admin_client, "skip/", **asked)
    assert status == 200
    assert "5001 to 9000 (4,000 ids)" in text
    assert 'name="to" value="9001"' in text
    assert stored("t").max_id == 5001
    told = post(admin_client, "skip/", tag="t", to=9001, confirm="yes")
    assert told == (302, "The next id of “t” is 9001.")
    assert segments["t"].next_id() == 9001
    assert history("t") == ["Skipped ahead: next free id: 5001 → 9001"]


def test_a_skip_is_not_done_by_a_link(no_tags: None, admin_client: Client) -> None:
    """Whoever is lured to an address has changed nothing."""
    tags("t")
    page(admin_client, "skip/", tag="t", to=9001, confirm="yes")
    assert stored("t").max_id == 5001


def test_a_skip_that_can_not_be_is_refused_in_words(no_tags: None, admin_client: Client) -> None:
    """Down, past the end, and what is no number: nothing to confirm, nothing changed."""
    tags("t")
    for how, number, words in (
        ("to", 5001, "already 5001. The tag can't go back to 5001"),
        ("to", 7, "given out would repeat"),
        ("by", MAX_ID, f"highest id is {MAX_ID}"),
        ("to", 10**19, f"highest id is {MAX_ID}"),
        ("by", 0, "A tag never goes back"),
        ("by", -5, "A tag never goes back"),
        ("by", "many", "Enter a whole number"),
        ("by", "", "Enter how far to skip"),
        ("up", 5, "Select a valid choice"),
    ):
        asked = {"tag": "t", "how": how, "number": number, "review": "yes"}
        status, text = post(admin_client, "skip/", **asked)
        assert status == 200
        assert words in text
        assert 'name="confirm"' not in text
    assert stored("t").max_id == 5001


def test_several_tags_skip_and_those_that_can_not_stay(no_tags: None, admin_client: Client) -> None:
    """Each says for itself what it loses; one that stands higher is told, and left out."""
    tags("a", "b")
    LeafAlloc.objects.create(biz_tag="high", max_id=10**12)
    chosen = ["a", "b", "high"]
    asked = {"tag": chosen, "how": "to", "number": 6001, "review": "yes"}
    _, text = post(admin_client, "skip/", **asked)
    assert text.count("5001 to 6000 (1,000 ids)") == 2
    assert f"already {10**12}. " in text
    assert 'name="tag" value="high"' not in text
    done = post(admin_client, "skip/", tag=["a", "b"], to=[6001, 6001], confirm="yes")
    assert done == (302, "The next id of “a” is 6001.\nThe next id of “b” is 6001.")
    assert [stored(tag).max_id for tag in chosen] == [6001, 6001, 10**12]


def test_a_skip_that_was_overtaken_loses_nothing_more(no_tags: None, admin_client: Client) -> None:
    """Where a tag goes on is what the page said, wherever it stands by then."""
    tags("t")
    LeafAlloc.objects.update(max_id=8001)
    status, text = post(admin_client, "skip/", tag="t", to=7001, confirm="yes")
    assert status == 302
    assert "is 8001. A tag never goes back" in text
    assert stored("t").max_id == 8001
    assert not history("t")


def test_a_confirmation_that_makes_no_sense_changes_nothing(
    no_tags: None, admin_client: Client
) -> None:
    """However it was put together."""
    tags("t")
    for to in ("", "x", "-1", "9" * 5000, 2**63):
        assert post(admin_client, "skip/", tag="t", to=to, confirm="yes")[0] == 302
        assert stored("t").max_id == 5001


@committed
def test_of_several_databases_each_says_what_it_loses(
    shards: list[str], admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Its own part of the ids, from where it stands itself."""
    shown_at(shards[0], monkeypatch, settings)
    with source_of(databases=shards[:2]):
        tag_edits.make_tag("t", step=5)
        LeafAlloc.objects.using(shards[1]).update(max_id=901)
        asked = {"tag": "t", "how": "to", "number": 1001, "review": "yes"}
        _, text = post(admin_client, "skip/", **asked)
        assert f"{shards[0]}: " in text
        losses = dict(standing(stored("t")).lost(1001))
        for alias, remainder in zip(shards[:2], (0, 1), strict=True):
            row = LeafAlloc.objects.using(alias).get()
            lost = [each for each in range(row.max_id, 1001) if each % 2 == remainder]
            assert list(losses[alias]) == lost
        post(admin_client, "skip/", tag="t", to=1001, confirm="yes")
        rows = [LeafAlloc.objects.using(alias).get().max_id for alias in shards[:2]]
        assert rows == [1001, 1001]
        assert "remainder 1 when divided by 2" in page(admin_client, "t/change/")


def test_a_loss_of_all_ids_is_counted() -> None:
    """More than a sequence may have."""
    stand = Standing("t", {"default": LeafAlloc(biz_tag="t", max_id=1)})
    assert stand.lost(MAX_ID) == [("default", range(1, MAX_ID))]
    (text,) = SkipPlan("t", None, stand, MAX_ID).losses
    assert text == f"1 to {MAX_ID - 1} ({MAX_ID - 1:,} ids)"


# --- pause and resume -------------------------------------------------------------------


def test_a_pause_is_confirmed_and_counts(one: str, admin_client: Client) -> None:
    """The page says what happens to callers; then no process gets ids, until it is resumed."""
    tag_edits.make_tag("t", step=10)
    text = page(admin_client, "pause/", tag="t")
    assert "TagPaused" in text
    assert not stored("t").paused
    done = post(admin_client, "pause/", tag="t", confirm="yes")
    assert done == (302, "“t” is paused.")
    with pytest.raises(TagPaused):
        segments["t"].next_id()
    assert ">paused<" in page(admin_client)
    assert ">Resume<" in page(admin_client, "t/change/")
    done = post(admin_client, "resume/", tag="t", confirm="yes")
    assert done == (302, "“t” gives out ids again.")
    assert segments["t"].next_id() == 1
    assert history("t") == ["Paused", "Resumed"]


def test_the_actions_of_the_list_ask_first(no_tags: None, admin_client: Client) -> None:
    """Pause and skip lead to their page, for all tags that were chosen; resume acts."""
    chosen = tags("a1", "a2")
    for action, words in (("pause", "Pause 2 tags"), ("skip_ahead", "Show the lost ids")):
        data = {"action": action, "_selected_action": chosen, "index": 0}
        status, text = post(admin_client, "?q=a", **data)
        assert status == 200
        assert words in text
        assert text.count('name="tag"') == 2
    assert not LeafAlloc.objects.filter(paused=True).exists()
    LeafAlloc.objects.update(paused=True)
    post(admin_client, "", action="resume", _selected_action=chosen, index=0)
    assert not LeafAlloc.objects.filter(paused=True).exists()


def test_too_many_tags_at_once_are_refused(no_tags: None, admin_client: Client) -> None:
    """With the number that goes; nothing is changed."""
    LeafAlloc.objects.bulk_create(LeafAlloc(biz_tag=f"t{number}") for number in range(101))
    data = {"action": "resume", "_selected_action": ["t1"], "select_across": 1, "index": 0}
    status, text = post(admin_client, "", **data)
    assert (status, text) == (
        302,
        "Choose at most 100 tags. No tag was changed.",
    )


# --- preload ----------------------------------------------------------------------------


def test_preloading_tells_of_each_tag(one: str, admin_client: Client) -> None:
    """How many ids lie ready, and why those of a paused one don't."""
    tag_edits.make_tag("t", step=10)
    tag_edits.make_tag("still", step=10)
    tag_edits.pause_tag("still")
    data = {"action": "preload_now", "_selected_action": ["t", "still"], "index": 0}
    _, text = post(admin_client, "", **data)
    assert "“t” was preloaded. " in text
    assert "There is no pool." in text
    assert "Tag 'still' is paused" in text
    assert tag_edits.held_here("t") >= 10
    assert history("t") == ["Preloaded"]
    assert not history("still")


@committed
def test_preloading_fills_the_pool(
    postgres: str, redis: str, admin_client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """And says how many ids were put there."""
    shown_at(postgres, monkeypatch, settings)
    with project(redis, postgres) as pool:
        tag_edits.make_tag("t", step=20)
        _, text = post(admin_client, "preload/", tag="t", confirm="yes")
        assert "the pool got " in text
        assert pool.stocks(["t"])["t"].ids > 0
        pool.clear(["t"])


# --- who may, and how -------------------------------------------------------------------


def test_actions_take_the_permission_to_change(no_tags: None, client: Client) -> None:
    """Who may only look is refused on every way, and offered none."""
    tags("t")
    viewer = user_who_may(client, "view_leafalloc")
    for action in ("preload", "skip", "pause", "resume"):
        assert viewer.get(f"{TAGS}{action}/", {"tag": "t"}).status_code == 403
        data = {"tag": "t", "to": 9001, "confirm": "yes"}
        assert viewer.post(f"{TAGS}{action}/", data).status_code == 403
        assert (stored("t").max_id, stored("t").paused) == (5001, False)
    assert "Skip ahead…" not in page(viewer, "t/change/")


def test_who_may_change_may_act(no_tags: None, client: Client) -> None:
    """It takes no superuser."""
    tags("t")
    changer = user_who_may(client, "view_leafalloc", "change_leafalloc")
    assert "Skip ahead…" in page(changer, "t/change/")
    assert post(changer, "pause/", tag="t", confirm="yes")[0] == 302
    assert stored("t").paused


def test_what_acts_at_once_takes_a_post(no_tags: None, admin_client: Client) -> None:
    """A link does nothing."""
    tags("t")
    for action in ("preload", "resume"):
        answer = admin_client.get(f"{TAGS}{action}/", {"tag": "t", "confirm": "1"})
        assert answer.status_code == 405


def test_tags_that_are_not_there_are_told(one: str, admin_client: Client) -> None:
    """On the list, to which it leads; also for what no database can look for."""
    for tag in ("gone", "a\x00b", "x" * 500, ""):
        answer = admin_client.post(f"{TAGS}pause/", {"tag": tag, "confirm": 1}, follow=True)
        assert answer.redirect_chain == [(TAGS, 302)]
        assert "There are no such tags." in answer.content.decode(), tag


def test_a_post_without_the_token_is_refused(no_tags: None, admin_user: Any) -> None:
    """Nobody can be made to skip by another site's page."""
    tags("t")
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    data = {"tag": "t", "to": 9001, "confirm": "yes"}
    assert client.post(f"{TAGS}skip/", data).status_code == 403
    assert stored("t").max_id == 5001


def test_a_tag_is_not_deleted_and_its_page_says_why(no_tags: None, admin_client: Client) -> None:
    """Neither by a page nor by an action."""
    tags("t")
    assert post(admin_client, "t/delete/", post="yes")[0] == 403
    data = {"action": "delete_selected", "_selected_action": ["t"], "post": "yes"}
    post(admin_client, "", **data)
    assert "would start at 1 and give out the same ids again" in page(admin_client, "t/change/")
    assert LeafAlloc.objects.filter(pk="t").exists()

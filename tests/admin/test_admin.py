"""The admin pages: what can be edited, and that nothing there makes an id come again."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.test import Client, override_settings

from django_idgen import segments
from django_idgen.db.tables import make_missing_tables
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.process import handlers
from tests import servers

pytestmark = pytest.mark.django_db(databases="__all__")

TAGS = "/admin/django_idgen/leafalloc/"


class ToServer:
    """Sends our tables to a server, as a project does whose ids come from there."""

    alias = "default"

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return self.alias if model._meta.app_label == "django_idgen" else None

    db_for_write = db_for_read


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, settings: Any) -> str:
    """Our tables are on this server: the rows there are what a fetch reads."""
    servers.require(request.param)
    monkeypatch.setattr(ToServer, "alias", request.param)
    settings.DATABASE_ROUTERS = [f"{__name__}.ToServer"]
    return str(request.param)


@pytest.fixture
def tag(server: str) -> LeafAlloc:
    return LeafAlloc.objects.create(biz_tag="orders", max_id=5001, step=1000)


def _post(tag: LeafAlloc, **changes: Any) -> dict[str, Any]:
    """What the browser sends of a page that was opened while ``tag`` stood as given."""
    return {"step": tag.step, "description": tag.description, **changes}


def _change(tag: LeafAlloc) -> str:
    return f"{TAGS}{tag.pk}/change/"


# --- tags ---------------------------------------------------------------------


def test_step_and_description_can_be_edited(admin_client: Client, tag: LeafAlloc) -> None:
    """Both are saved, and ``max_id`` stays."""
    before = tag.update_time
    page = admin_client.post(_change(tag), _post(tag, step=50, description="Orders"))
    assert page.status_code == 302
    tag.refresh_from_db()
    assert (tag.step, tag.description, tag.max_id) == (50, "Orders", 5001)
    assert tag.update_time >= before - datetime.timedelta(seconds=1)


@pytest.mark.parametrize("other", [1, 5000, 9001, 2**63, "x", ""])
def test_the_form_of_a_tag_moves_no_max_id(
    admin_client: Client, tag: LeafAlloc, other: object
) -> None:
    """It shows it; a browser that sends another one, forged or of an older page, changes none."""
    page = admin_client.post(
        _change(tag), _post(tag, max_id=other, **{"initial-max_id": 5001, "step": 60})
    )
    assert page.status_code == 302
    tag.refresh_from_db()
    assert (tag.max_id, tag.step) == (5001, 60)


def test_a_tag_that_moved_on_meanwhile_is_not_set_back(
    admin_client: Client, tag: LeafAlloc
) -> None:
    """A page opened before others fetched saves the step and leaves ``max_id`` where it is."""
    LeafAlloc.objects.filter(pk=tag.pk).update(max_id=8001)
    page = admin_client.post(_change(tag), _post(tag, step=50))
    assert page.status_code == 302
    tag.refresh_from_db()
    assert (tag.max_id, tag.step) == (8001, 50)


@pytest.mark.parametrize("step", [0, -1, 2**63, "x", ""])
def test_impossible_steps_are_refused(admin_client: Client, tag: LeafAlloc, step: object) -> None:
    """Those outside their range are errors of the form."""
    assert admin_client.post(_change(tag), _post(tag, step=step)).status_code == 200
    tag.refresh_from_db()
    assert (tag.step, tag.max_id) == (1000, 5001)


@pytest.mark.parametrize("first", [0, -1, 2**63, "x", ""])
def test_a_new_tag_begins_at_an_id(admin_client: Client, tag: LeafAlloc, first: object) -> None:
    """Its form takes no other number."""
    new = {"biz_tag": "new", "max_id": first, "step": 10}
    assert admin_client.post(f"{TAGS}add/", new).status_code == 200
    assert not LeafAlloc.objects.filter(pk="new").exists()


def test_a_tag_can_be_added_but_not_replaced(admin_client: Client, tag: LeafAlloc) -> None:
    """A new tag is made; the name of one that exists is refused, and so is a bad name."""
    new = {"biz_tag": "new", "max_id": 1, "step": 10}
    assert admin_client.post(f"{TAGS}add/", new).status_code == 302
    assert LeafAlloc.objects.get(pk="new").step == 10
    for name in ("orders", "x" * 129, ""):
        assert admin_client.post(f"{TAGS}add/", {**new, "biz_tag": name}).status_code == 200
    tag.refresh_from_db()
    assert tag.max_id == 5001


def test_a_new_tag_is_offered_with_the_step_of_the_settings(admin_client: Client) -> None:
    """The empty form shows what a tag made on first use would get, and no date of a change."""
    with override_settings(IDGEN={"SEGMENTS": {"OPTIONS": {"default_step": 77}}}):
        page = admin_client.get(f"{TAGS}add/").content.decode()
    assert 'value="77"' in page
    assert "DatabaseDefault" not in page
    assert "Last change" not in page


def test_tags_are_listed_and_searched(admin_client: Client, tag: LeafAlloc) -> None:
    """The list shows tags and finds them by name or description."""
    LeafAlloc.objects.create(biz_tag="bills", description="what we ask for")
    assert b"orders" in admin_client.get(TAGS).content
    found = admin_client.get(TAGS, {"q": "ask for"}).content
    assert b"bills" in found
    assert b"orders" not in found


def test_nothing_can_be_deleted(admin_client: Client, tag: LeafAlloc) -> None:
    """A tag that was deleted would start at 1 again: no page and no action does it."""
    assert admin_client.post(f"{TAGS}{tag.pk}/delete/", {"post": "yes"}).status_code == 403
    data = {"action": "delete_selected", "_selected_action": [tag.pk], "post": "yes"}
    admin_client.post(TAGS, data)
    assert LeafAlloc.objects.filter(pk=tag.pk).exists()


def test_on_sqlite_an_edit_reaches_the_next_fetch(admin_client: Client) -> None:
    """The row stands in the file beside the database, and what is written into it counts."""
    tag = LeafAlloc.objects.create(biz_tag="here", max_id=1, step=5)
    admin_client.post(_change(tag), _post(tag, step=7))
    admin_client.post(f"{TAGS}skip/", {"tag": "here", "to": 9001, "confirm": "yes"})
    tag.refresh_from_db()
    assert (tag.max_id, tag.step) == (9001, 7)
    assert segments["here"].next_ids(8) == list(range(9001, 9009))
    handlers.reset()


# --- a half-migrated database -------------------------------------------------


@pytest.fixture
def no_tables(transactional_db: None) -> Iterator[None]:
    """The default database without our tables, as before ``migrate``."""
    connection = connections["default"]
    with connection.schema_editor() as editor:
        for model in (LeafAlloc, SegmentHistory):
            editor.delete_model(model)
    yield
    make_missing_tables(connection)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("page", ["leafalloc", "segmenthistory"])
def test_missing_tables_are_said_not_crashed_on(
    no_tables: None, admin_client: Client, page: str
) -> None:
    """Every page opens, says that the table isn't there and how to get it, and adds nothing."""
    root = f"/admin/django_idgen/{page}/"
    text = admin_client.get(root, {"q": "x"}).content.decode()
    assert "Run “migrate”" in text
    assert admin_client.get("/admin/").status_code == 200
    assert admin_client.get(f"{root}add/").status_code == 403
    assert admin_client.get(f"{root}x/change/").status_code == 302

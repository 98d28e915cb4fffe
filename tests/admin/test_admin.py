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
from django_idgen.process import maps

from .tag_tools import TAGS

pytestmark = pytest.mark.django_db


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


def test_the_form_of_a_tag_moves_no_max_id(admin_client: Client, tag: LeafAlloc) -> None:
    """It shows it; a browser that sends another one, forged or of an older page, changes none."""
    LeafAlloc.objects.filter(pk=tag.pk).update(max_id=8001)  # by others, meanwhile
    for step, other in enumerate([1, 5000, 9001, 2**63, "x", ""], 60):
        sent = _post(tag, max_id=other, **{"initial-max_id": 5001, "step": step})
        assert admin_client.post(_change(tag), sent).status_code == 302
        tag.refresh_from_db()
        assert (tag.max_id, tag.step) == (8001, step)


def test_a_tag_can_be_added(admin_client: Client, server: str) -> None:
    """It begins where the form says."""
    new = {"biz_tag": "new", "max_id": 7, "step": 10}
    assert admin_client.post(f"{TAGS}add/", new).status_code == 302
    made = LeafAlloc.objects.get(pk="new")
    assert (made.max_id, made.step) == (7, 10)


def test_a_new_tag_is_offered_with_the_step_of_the_settings(admin_client: Client) -> None:
    """The empty form shows what a tag made on first use would get, and no date of a change."""
    with override_settings(IDGEN={"SEGMENTS": {"OPTIONS": {"default_step": 77}}}):
        page = admin_client.get(f"{TAGS}add/").content.decode()
    assert 'value="77"' in page
    assert "DatabaseDefault" not in page
    assert "Last change" not in page


def test_on_sqlite_an_edit_reaches_the_next_fetch(admin_client: Client) -> None:
    """The row stands in the file beside the database, and what is written into it counts."""
    tag = LeafAlloc.objects.create(biz_tag="here", max_id=1, step=5)
    admin_client.post(_change(tag), _post(tag, step=7))
    admin_client.post(f"{TAGS}skip/", {"tag": "here", "to": 9001, "confirm": "yes"})
    tag.refresh_from_db()
    assert (tag.max_id, tag.step) == (9001, 7)
    assert segments["here"].next_ids(8) == list(range(9001, 9009))
    maps.reset()


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
def test_missing_tables_are_said_not_crashed_on(no_tables: None, admin_client: Client) -> None:
    """Every page opens, says that the table isn't there and how to get it, and adds nothing."""
    assert admin_client.get("/admin/").status_code == 200
    for page in ("leafalloc", "segmenthistory"):
        root = f"/admin/django_idgen/{page}/"
        assert "Run “migrate”" in admin_client.get(root, {"q": "x"}).content.decode()
        assert admin_client.get(f"{root}add/").status_code == 403
        assert admin_client.get(f"{root}x/change/").status_code == 302

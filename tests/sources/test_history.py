"""Who was given which ids."""

from __future__ import annotations

import os
import re
import socket
from datetime import timedelta

import pytest
from django.test import Client, override_settings
from django.utils import timezone

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.db.connection import home_connection
from django_idgen.db.tables import missing_tables
from django_idgen.models import LeafAlloc, SegmentHistory
from django_idgen.sources.database import DatabaseSource
from django_idgen.sources.history import prune_history, who_issued
from django_idgen.sources.server import ServerSource
from tests.places import make_tables
from tests.server_tools import execute, lossy_wire


@pytest.fixture
def alias(empty_place: str) -> str:
    """The alias of a database of each kind in turn, with our tables alone."""
    make_tables(empty_place)
    return empty_place


def test_each_fetch_leaves_a_row(alias: str) -> None:
    """With the range, the process and the time; and whoever issued an id is found by it."""
    source = DatabaseSource(default_step=10, database=alias, history=True)
    before = timezone.now() - timedelta(seconds=5)
    segments = [source.fetch(tag) for tag in ("t", "t", "u")]
    assert SegmentHistory.objects.using(alias).count() == 3
    (row,) = who_issued("t", segments[1].start, database=alias)
    assert (row.start, row.stop, row.delta) == (segments[1].start, segments[1].stop, 1)
    assert re.fullmatch(rf"{re.escape(socket.gethostname())}:{os.getpid()} \S+", row.holder)
    assert before < row.taken_at < timezone.now() + timedelta(seconds=5)
    assert who_issued("t", segments[1].stop, database=alias) == []
    assert who_issued("nobody", 1, database=alias) == []


def test_history_is_off_unless_asked_for(server_alias: str) -> None:
    """Not even its table is made."""
    DatabaseSource(default_step=10, database=server_alias).fetch("t")
    assert missing_tables(home_connection(server_alias), ["SegmentHistory"])


def test_ids_between_those_of_a_database_are_not_its_own(server_alias: str) -> None:
    """Of a range with delta 3 every third id was given out."""
    source = ServerSource(alias=server_alias, default_step=5, history=True)
    source.fetch("t")
    LeafAlloc.objects.using(server_alias).update(delta=3, remainder=2, max_id=1, largest_step=100)
    ids = [*source.fetch("t").ids()]
    assert ids == [2, 5, 8, 11, 14]
    SegmentHistory.objects.using(server_alias).filter(delta=1).delete()
    found = [number for number in range(1, 20) if who_issued("t", number, database=server_alias)]
    assert found == ids


def test_a_repeat_shows(server_alias: str) -> None:
    """A table that was restored by hand: both who had the id are named."""
    for _ in range(2):
        ServerSource(alias=server_alias, history=True).fetch("t")
        LeafAlloc.objects.using(server_alias).update(max_id=1)
    assert len(who_issued("t", 7, database=server_alias)) == 2


def test_the_row_is_written_with_the_range_or_not_at_all(server_alias: str) -> None:
    """A fetch that fails leaves none; one whose answer was lost leaves one."""
    source = ServerSource(alias=server_alias, history=True)
    source.fetch("t")
    with lossy_wire(server_alias) as wire:
        wire.losing = True
        with pytest.raises(SegmentUnavailable):
            source.fetch("t")
    assert len(who_issued("t", 1001, database=server_alias)) == 1
    execute(server_alias, "DROP TABLE django_idgen_history")
    assert source.fetch("t").start == 2001  # made on first use, as the others are
    assert len(who_issued("t", 2001, database=server_alias)) == 1


def test_old_rows_are_pruned_in_batches(alias: str) -> None:
    """Those before a moment, however many; the rest stays."""
    now = timezone.now()
    rows = [
        SegmentHistory(
            tag="t", start=n, stop=n + 1, holder="h", taken_at=now - timedelta(days=n % 2)
        )
        for n in range(1, 26)
    ]
    make_tables(alias)
    SegmentHistory.objects.using(alias).bulk_create(rows)
    assert prune_history(now - timedelta(hours=1), database=alias, batch=4) == 13
    assert SegmentHistory.objects.using(alias).count() == 12
    assert prune_history(now - timedelta(hours=1), database=alias) == 0


@pytest.mark.django_db
def test_the_admin_shows_it_and_changes_nothing(admin_client: Client) -> None:
    """Found by its tag; there is no page to add, change or delete a row."""
    make_tables("default")
    rows = SegmentHistory.objects
    for tag in ("t", "other"):
        rows.create(tag=tag, start=1, stop=11, holder="web-1:77", taken_at=timezone.now())
    page = "/admin/django_idgen/segmenthistory/"
    text = admin_client.get(page, {"q": "t"}).content.decode()
    assert text.count("web-1:77") == 1
    row = rows.get(tag="t").pk
    assert admin_client.get(f"{page}{row}/change/").status_code == 200
    assert admin_client.post(f"{page}{row}/change/", {"stop": 99}).status_code == 403
    assert admin_client.post(f"{page}{row}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{page}add/").status_code == 403
    assert rows.get(tag="t").stop == 11


@pytest.mark.django_db
@pytest.mark.parametrize("history", [False, True])
def test_the_admin_says_that_history_is_off(admin_client: Client, *, history: bool) -> None:
    """An empty list says nothing of why: once, also where a search finds nothing."""
    make_tables("default")
    options = {"SEGMENTS": {"SOURCE": {"OPTIONS": {"history": history}}}}
    with override_settings(IDGEN=options):
        for query in ({}, {"q": "nothing"}):
            page = admin_client.get("/admin/django_idgen/segmenthistory/", query, follow=True)
            said = page.content.decode()
            assert said.count("No history is kept") == (not history)
            # Not a success, as which Django shows what is only told.
            assert said.count('<li class="warning">No history is kept') == (not history)


@pytest.mark.django_db
def test_the_admin_shows_what_fetches_write(admin_client: Client) -> None:
    """The rate of a tag is shown, and neither its delta nor its server can be edited."""
    LeafAlloc.objects.create(biz_tag="t", rate=12.5, server="a server")
    page = "/admin/django_idgen/leafalloc/t/change/"
    assert "12.5" in admin_client.get(page).content.decode()
    data = {"max_id": 1, "initial-max_id": 1, "step": 5, "delta": 7, "server": "mine"}
    assert admin_client.post(page, data).status_code == 302
    row = LeafAlloc.objects.get(pk="t")
    assert (row.step, row.delta, row.server) == (5, 1, "a server")

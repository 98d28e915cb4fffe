"""A ``floor`` moves a tag only for those who may, within a bound, and leaves a trail."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import reverse

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.process import handlers
from django_idgen.sources.http import HttpSource
from tests.admin.people import staff
from tests.remote.service import SECRET, one_token, service

STEP = 10
TRAIL = "django_idgen"


def idgen(alias: str, **rest: object) -> dict[str, Any]:
    options = {"default_step": STEP, "timeout": 30}
    source = {"OPTIONS": {"database": alias, "failover_skip": 1}}
    return {"REST": {"make_tags": True, **rest}, "SEGMENTS": {"SOURCE": source, "OPTIONS": options}}


@pytest.fixture
def site(no_tags: None) -> Iterator[None]:
    with (
        one_token(),
        override_settings(ROOT_URLCONF="tests.remote.urls", IDGEN=idgen("default")),
    ):
        yield
    handlers.reset()


def take(client: Client, floor: int = 0) -> Any:
    url = reverse("django_idgen:tag-segment", args=["t"])
    return client.post(url, json.dumps({"floor": floor}), content_type="application/json")


@pytest.mark.usefixtures("site")
def test_a_user_without_the_right_to_change_tags_takes_no_segment() -> None:
    """403 with the name of the right, and no tag is made or moved; ids one by one are for all."""
    client = staff("view_leafalloc", "add_leafalloc")
    url = reverse("django_idgen:tag-segment", args=["t"])
    for answer in (take(client), take(client, 10**6), client.get(url)):
        assert answer.status_code == 403
        assert "django_idgen.change_leafalloc" in answer.json()["detail"]
    assert not LeafAlloc.objects.exists()
    assert client.get(reverse("django_idgen:tag-ids", args=["t"])).status_code == 200


@pytest.mark.usefixtures("site")
def test_a_user_with_it_leaves_a_trail() -> None:
    """In the tag's history: from where to where it was moved. A floor below leaves none."""
    client = staff("change_leafalloc")
    first = take(client).json()
    assert take(client, int(first["stop"])).json()["start"] == first["stop"]
    assert not LogEntry.objects.exists()
    assert int(take(client, 5000).json()["start"]) >= 5000
    entry = LogEntry.objects.get()
    assert (entry.object_id, str(entry.user)) == ("t", "staff")
    assert "21" in entry.change_message
    assert "5000" in entry.change_message


@pytest.mark.usefixtures("site")
def test_a_token_leaves_it_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It is no user of the project, so the admin has no row for it."""
    client = Client(headers={"Authorization": f"Bearer {SECRET}"})
    with caplog.at_level(logging.INFO, TRAIL):
        take(client)
        take(client, 5000)
    (told,) = [record for record in caplog.records if "changed tag" in record.message]
    assert told.message.startswith("tests changed tag 't': Skipped ahead")
    assert "5000" in told.message


@pytest.fixture(params=["postgres", "mariadb"])
def alias(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def restored(alias: str, max_id: int) -> None:
    """The service's database is put back to an earlier state, and the service started anew."""
    LeafAlloc.objects.using(alias).update(max_id=max_id)
    handlers.reset()


def test_a_client_is_served_after_the_database_was_restored(
    alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Above all that it has had, as long as that lies within ``max_skip`` of the row."""
    with service(idgen(alias, max_skip=1000)) as url:
        source = HttpSource(base_urls=url, token=SECRET, timeout=60)
        had = [source.fetch("t") for _ in range(30)][-1]
        restored(alias, 1)
        with caplog.at_level(logging.INFO, TRAIL):
            segment = source.fetch("t", floor=had.stop)
        assert segment.start >= had.stop
        assert any("tests changed tag 't': Skipped ahead" in each for each in caplog.messages)
        assert source.fetch("t", floor=segment.stop).start == segment.stop


def test_beyond_the_bound_the_client_names_the_operators_command(alias: str) -> None:
    """With it run as it is told, the client goes on, above all that it has had."""
    with service(idgen(alias, max_skip=100)) as url:
        source = HttpSource(base_urls=url, token=SECRET, timeout=60)
        had = [source.fetch("t") for _ in range(30)][-1]
        restored(alias, 1)
        with pytest.raises(SegmentUnavailable) as caught:
            source.fetch("t", floor=had.stop)
        assert f"'manage.py idgen_skip t --to {had.stop}'" in str(caught.value)
        assert "access token" not in str(caught.value)
        call_command("idgen_skip", "t", "--to", str(had.stop), "--yes")
        assert source.fetch("t", floor=had.stop).start >= had.stop

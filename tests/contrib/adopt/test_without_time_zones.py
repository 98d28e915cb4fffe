"""Adoption in a project with ``USE_TZ = False``, far from UTC."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_idgen.models import SegmentHistory
from tests import servers
from tests.contrib.adopt.old_servers import make
from tests.contrib.adopt.projects import Project
from tests.places import idgen_on, make_tables

NEAR = timedelta(minutes=20)
"""Longer than a loaded machine takes; shorter than the zone is off."""
MODELS = """
class Order(models.Model):
    {key}
    note = models.CharField(max_length=20)
    made = models.DateTimeField(auto_now_add=True)
    due = models.DateTimeField(default=datetime(2020, 5, 17, 12, 30))


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
    made = models.DateTimeField(auto_now_add=True)
"""
INTEGER = "id = models.BigAutoField(primary_key=True)"
UUID = "id = models.UUIDField(primary_key=True, default=uuid.uuid4)"
IMPORTS = "from datetime import datetime\n\n"
ROWS = "for n in range(3): Item.objects.create(order=Order.objects.create(note=str(n)))"
TIMES = """
for item in Item.objects.exclude(order__note='new').order_by('order__note'):
    print(item.order.note, item.order.made, item.order.due, item.made)
"""
NEW = """
from django_idgen import generators
number = Order.objects.create(note='new').pk
print(number, generators['default'].layout.unpack(number).created.isoformat())
"""


@pytest.fixture(params=["sqlite", "postgres"])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any
) -> Iterator[Project]:
    """A project that knows no time zones, on a database of its own."""
    if request.param != "sqlite":
        servers.require(request.param)
    with django_db_blocker.unblock():
        made = Project(tmp_path, request.param, zone="Asia/Kathmandu")
        try:
            yield made
        finally:
            made.remove()


def begin(project: Project, key: str) -> str:
    """The project as it was, with rows; the times in them."""
    project.begin(IMPORTS + MODELS.format(key=key), ROWS)
    return project.run(TIMES)


def new_of_now(project: Project) -> int:
    """A new order's id, which was made now."""
    number, moment = project.run(NEW).split()
    assert abs(datetime.fromisoformat(moment) - datetime.now(UTC)) < NEAR
    return int(number)


def test_to_snowflakes_and_back(project: Project) -> None:
    """The new ids are of now, the counter begins past them, and no row's times are moved."""
    times = begin(project, INTEGER)
    for _ in range(2):
        project.stage("--field", "snowflake")
    number = new_of_now(project)
    assert "nothing is left to do" in project.adopt()
    for _ in range(2):
        project.stage("--back")
    assert int(project.run("print(Order.objects.create(note='new').pk)")) > number
    assert project.run(TIMES) == times
    assert "2020-05-17 12:30:00" in times


def test_a_uuid_key_is_swapped(project: Project) -> None:
    """For a snowflake, in a table that is written anew; its times stay what they were."""
    times = begin(project, UUID)
    project.stage("--field", "snowflake")
    project.stage("--field", "snowflake")
    project.stage("--field", "snowflake")
    assert "nothing is left to do" in project.adopt("--field", "snowflake")
    new_of_now(project)
    assert project.run(TIMES) == times


def test_when_a_tag_was_taken_over(mariadb: str, postgres: str) -> None:
    """The history says so in local time, as all other times of such a project are."""
    zone = ZoneInfo("Asia/Kathmandu")
    make("leaf", mariadb, "orders", 5000, 40, (1, 0))
    make_tables(postgres)
    with override_settings(USE_TZ=False, TIME_ZONE=zone.key, IDGEN=idgen_on(postgres)):
        out = io.StringIO()
        call_command("idgen_adopt", mariadb, kind="leaf", yes=True, stdout=out)
        row = SegmentHistory.objects.using(postgres).get(tag="orders")
        assert row.taken_at.tzinfo is None
        assert abs(row.taken_at.replace(tzinfo=zone) - datetime.now(UTC)) < NEAR, out.getvalue()

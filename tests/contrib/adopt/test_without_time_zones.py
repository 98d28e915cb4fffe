"""Adoption in a project with ``USE_TZ = False``, far from UTC."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_idgen.models import SegmentHistory
from tests.contrib.adopt.conftest import MakeProject
from tests.contrib.adopt.old_servers import make
from tests.contrib.adopt.projects import DEPLOY, MIGRATE, Project, adopt
from tests.places import idgen_on, make_tables
from tests.tiers import long

NEAR = timedelta(minutes=20)
"""Longer than a loaded machine takes; shorter than the zone is off."""
MODELS = """
from datetime import datetime

class Order(models.Model):
    {key}
    note = models.CharField(max_length=20)
    made = models.DateTimeField(auto_now_add=True)
    due = models.DateTimeField(default=datetime(2020, 5, 17, 12, 30))


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
    made = models.DateTimeField(auto_now_add=True)
"""
INTEGER = MODELS.format(key="id = models.BigAutoField(primary_key=True)")
UUID = MODELS.format(key="id = models.UUIDField(primary_key=True, default=uuid.uuid4)")
ROWS = "for n in range(3): Item.objects.create(order=Order.objects.create(note=str(n)))"
TIMES = """
for item in Item.objects.exclude(order__note='new').order_by('order__note'):
    print(item.order.note, item.order.made, item.order.due, item.made)
"""
CREATE = "print(Order.objects.create(note='new').pk)"
NEW = """
from django_idgen import generators
number = Order.objects.create(note='new').pk
print(number, generators['default'].layout.unpack(number).created.isoformat())
"""


def is_new_of_now(said: str) -> bool:
    """Whether a new order's id was made now."""
    return abs(datetime.fromisoformat(said.split()[1]) - datetime.now(UTC)) < NEAR


@pytest.fixture
def project(request: pytest.FixtureRequest, make_project: MakeProject) -> Project:
    """A project that knows no time zones."""
    return make_project(request.param, zone="Asia/Kathmandu")


@pytest.mark.parametrize("project", ["postgres", *long("sqlite")], indirect=True)
def test_to_snowflakes_and_back(project: Project) -> None:
    """The new ids are of now, the counter begins past them, and no row's times are moved."""
    _, times, out = project.begin(INTEGER, ROWS, TIMES, adopt("--field", "snowflake"))
    project.edit(out)
    _, _, new, done, out = project.deploy(
        adopt("--field", "snowflake"), DEPLOY, NEW, adopt(), adopt("--back")
    )
    assert is_new_of_now(new)
    assert "nothing is left to do" in done
    project.edit(out)
    *_, following, now = project.deploy(adopt("--back"), DEPLOY, CREATE, TIMES)
    assert int(following) > int(new.split()[0])
    assert now == times
    assert "2020-05-17 12:30:00" in times


@pytest.mark.parametrize("project", ["sqlite", *long("postgres")], indirect=True)
def test_a_uuid_key_is_swapped(project: Project) -> None:
    """For a snowflake, in a table that is written anew; its times stay what they were."""
    stage = adopt("--field", "snowflake")
    _, times, *_, out = project.begin(UUID, ROWS, TIMES, stage, MIGRATE, stage, stage)
    project.edit(out)
    done, new, now = project.deploy(stage, NEW, TIMES)
    assert "nothing is left to do" in done
    assert is_new_of_now(new)
    assert now == times


def test_when_a_tag_was_taken_over(another: str, postgres: str) -> None:
    """The history says so in local time, as all other times of such a project are."""
    zone = ZoneInfo("Asia/Kathmandu")
    make("leaf", another, "orders", 5000, 40, (1, 0))
    make_tables(postgres)
    with override_settings(USE_TZ=False, TIME_ZONE=zone.key, IDGEN=idgen_on(postgres)):
        out = io.StringIO()
        call_command("idgen_adopt", another, kind="leaf", yes=True, stdout=out)
        row = SegmentHistory.objects.using(postgres).get(tag="orders")
        assert row.taken_at.tzinfo is None
        assert abs(row.taken_at.replace(tzinfo=zone) - datetime.now(UTC)) < NEAR, out.getvalue()

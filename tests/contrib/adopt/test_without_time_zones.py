"""Projects with ``USE_TZ = False``, far from UTC: no command is hours off."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_idgen.models import SegmentHistory
from tests.contrib.adopt.conftest import MakeProject
from tests.contrib.adopt.old_servers import make
from tests.contrib.adopt.projects import DEPLOY, MIGRATE, Project, adopt, manage
from tests.places import idgen_on, make_tables
from tests.tiers import long

ZONES = {"east": "Asia/Kathmandu", "west": "America/New_York"}
NEAR = timedelta(minutes=20)
"""Longer than any window, and than a loaded machine takes; shorter than all zones are off."""
MODELS = """
from django_idgen.fields import SegmentIdField, SnowflakeField


class Order(models.Model):
    id = SnowflakeField(primary_key=True)
    made = models.DateTimeField(auto_now_add=True)


class Bill(models.Model):
    id = SegmentIdField(primary_key=True)
"""
USED = """
print("made", Order.objects.create().pk, Bill.objects.create().pk)
import time
while True:
    time.sleep(1)
"""
IDGEN = {"SEGMENTS": {"SOURCE": {"OPTIONS": {"history": True}}}}
FEWER_WORKERS = {"default": {"LAYOUT": {"time": 41, "worker": 4, "sequence": 18}}}
MADE = """
from django_idgen import generators
number = Order.objects.create().pk
print(number, generators["default"].layout.unpack(number).created.isoformat())
"""
PLACES = [("sqlite", "west"), ("postgres", "east"), ("sqlite", "east")]


def on(*places: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("project", places, ids="-".join, indirect=True)


on_both = on(*PLACES[:2], *long(PLACES[2]))
on_one = on(PLACES[0], *long(*PLACES[1:]))


@pytest.fixture
def project(request: pytest.FixtureRequest, make_project: MakeProject) -> Project:
    """A project that knows no time zones, on a database of its own."""
    kind, where = request.param
    return make_project(kind, idgen=dict(IDGEN), zone=ZONES[where])


def is_near(moment: datetime, expected: datetime | None = None) -> bool:
    assert moment.tzinfo is not None, moment
    return abs(moment - (expected or datetime.now(UTC))) < NEAR


def read(words: str) -> datetime:
    """A moment in JSON: in UTC, and said to be."""
    assert re.search(r"(Z|\+00:00)$", words), words
    return datetime.fromisoformat(words)


def told(words: str) -> list[datetime]:
    """All moments that a text tells."""
    found = re.findall(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? UTC", words)
    return [datetime.fromisoformat(f"{each}+00:00") for each in found]


def made_at(said: str) -> tuple[int, datetime]:
    """A new order's id, and the moment in it."""
    number, moment = said.split()
    return int(number), datetime.fromisoformat(moment)


@pytest.mark.long
@on_both
def test_what_a_fleet_holds_is_told_in_utc(project: Project) -> None:
    """By the status, and by what an id is decoded to: who holds it, since when, seen when."""
    project.begin(MODELS)
    process = project.start(USED)
    process.wait_for("made ")
    _, order, bill = process.output().split()
    of_bill = ("idgen_decode", bill, "--tag", "shop.bill")
    well, status, of_order, grant, *shown = project.run(
        manage("idgen_doctor"),
        manage("idgen_status", "--json"),
        manage("idgen_decode", order, "--json"),
        manage(*of_bill, "--json"),
        manage("idgen_decode", order),
        manage("idgen_status"),
        manage(*of_bill),
    )
    assert "All is well" in well
    known = json.loads(status)
    (holder,) = known["generators"][0]["holders"]
    assert holder["state"] == "held"
    assert 0 < holder["window_left"] <= 180
    (tag,) = known["tags"][0]["list"]
    for words in (known["at"], holder["acquired_at"], holder["seen_at"], tag["fetched_at"]):
        assert is_near(read(words)), words
    (reading,) = json.loads(of_order)["readings"]
    assert is_near(read(reading["generators"][0]["parts"]["time"]))
    assert is_near(read(reading["generators"][0]["held_by"]["acquired_at"]))
    (taken,) = json.loads(grant)["readings"][0]["tags"][0]["grants"]
    assert is_near(read(taken["taken_at"]))
    assert len(told("".join(shown))) >= 4
    assert all(map(is_near, told("".join(shown)))), shown


@on_one
def test_a_skip_goes_no_hours_too_far_nor_too_short(project: Project) -> None:
    """Past the windows that were lent, and no further; ``--until`` is in the zone it names."""
    skip = ("idgen_skip", "--generators", "--yes")
    later = datetime.now(UTC) + timedelta(days=2)
    nowhere = later.astimezone().replace(tzinfo=None).isoformat()
    until = (later + timedelta(hours=7)).replace(tzinfo=None).isoformat() + "+07:00"
    before, out = project.begin(MODELS, MADE, manage(*skip, "--all", "--hours-ago", "1"))
    assert told(out)
    assert all(map(is_near, told(out))), out
    (said, *_) = project.run(
        MADE, manage(*skip, "--until", nowhere, code=1), manage(*skip, "--until", until)
    )
    number, moment = made_at(said)
    assert number > made_at(before)[0]
    assert is_near(moment)
    assert is_near(made_at(project.run(MADE)[0])[1], later)


@on_one
def test_a_move_begins_at_the_end_of_the_last_windows(project: Project) -> None:
    """To a layout with fewer worker ids: those of before count for nothing any more."""
    project.begin(MODELS)
    process = project.start(USED)
    process.wait_for("made ")
    project.idgen["GENERATORS"] = FEWER_WORKERS
    (out,) = project.run(manage("idgen_doctor", "--fix", "--yes"))
    assert told(out)
    assert all(map(is_near, told(out))), out
    said, status = project.run(MADE, manage("idgen_status", "--json"))
    number, moment = made_at(said)
    assert number > int(process.output().split()[1])
    assert is_near(moment)
    counts = json.loads(status)["generators"][0]["workers"]
    assert min(counts.values()) >= 0
    assert counts["free"] + counts["held"] == counts["total"] == 16


STRANGE = """
from datetime import UTC, datetime, timedelta
from django_idgen import generators, segments
segments['shop.bill'].next_id()
soon = datetime.now(UTC) + timedelta(minutes=10)
number = generators['default'].layout.min_id_at(soon) + 5
Order.objects.create(pk=number); Bill.objects.create(pk=100_000)
print(number)
"""


@pytest.mark.long
@on_both
def test_what_lies_past_the_marks_is_found_and_gone_past(project: Project) -> None:
    """A row of ten minutes from now, that nobody was lent, and one past its tag's mark."""
    _, strange, out, _ = project.begin(
        MODELS,
        MADE,
        STRANGE,
        manage("idgen_doctor", code=2),
        manage("idgen_doctor", "--fix", "--yes"),
    )
    assert "past everything" in out
    assert len(told(out)) >= 2
    assert all(map(is_near, told(out))), out
    said, bill = project.run(MADE, "print(Bill.objects.create().pk)")
    number, moment = made_at(said)
    assert number > int(strange)
    assert is_near(moment)
    assert int(bill) > 100_000


# --- adoption -------------------------------------------------------------------------


ADOPTED = """
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
INTEGER = ADOPTED.format(key="id = models.BigAutoField(primary_key=True)")
UUID = ADOPTED.format(key="id = models.UUIDField(primary_key=True, default=uuid.uuid4)")
ROWS = "for n in range(3): Item.objects.create(order=Order.objects.create(note=str(n)))"
TIMES = """
for item in Item.objects.exclude(order__note='new').order_by('order__note'):
    print(item.order.note, item.order.made, item.order.due, item.made)
"""
CREATE = "print(Order.objects.create(note='new').pk)"
NEW = MADE.replace("create()", "create(note='new')")


@on(PLACES[1], *long(PLACES[2]))
def test_to_snowflakes_and_back(project: Project) -> None:
    """The new ids are of now, the counter begins past them, and no row's times are moved."""
    _, times, out = project.begin(INTEGER, ROWS, TIMES, adopt("--field", "snowflake"))
    project.edit(out)
    _, _, new, done, out = project.deploy(
        adopt("--field", "snowflake"), DEPLOY, NEW, adopt(), adopt("--back")
    )
    assert is_near(made_at(new)[1])
    assert "nothing is left to do" in done
    project.edit(out)
    *_, following, now = project.deploy(adopt("--back"), DEPLOY, CREATE, TIMES)
    assert int(following) > int(new.split()[0])
    assert now == times
    assert "2020-05-17 12:30:00" in times


@on(PLACES[2], *long(PLACES[1]))
def test_a_uuid_key_is_swapped(project: Project) -> None:
    """For a snowflake, in a table that is written anew; its times stay what they were."""
    stage = adopt("--field", "snowflake")
    _, times, *_, out = project.begin(UUID, ROWS, TIMES, stage, MIGRATE, stage, stage)
    project.edit(out)
    done, new, now = project.deploy(stage, NEW, TIMES)
    assert "nothing is left to do" in done
    assert is_near(made_at(new)[1])
    assert now == times


def test_when_a_tag_was_taken_over(another: str, postgres: str) -> None:
    """The history says so in local time, as all other times of such a project are."""
    zone = ZoneInfo(ZONES["east"])
    make("leaf", another, "orders", 5000, 40, (1, 0))
    make_tables(postgres)
    with override_settings(USE_TZ=False, TIME_ZONE=zone.key, IDGEN=idgen_on(postgres)):
        out = io.StringIO()
        call_command("idgen_adopt", another, kind="leaf", yes=True, stdout=out)
        row = SegmentHistory.objects.using(postgres).get(tag="orders")
        assert row.taken_at.tzinfo is None
        assert is_near(row.taken_at.replace(tzinfo=zone)), out.getvalue()

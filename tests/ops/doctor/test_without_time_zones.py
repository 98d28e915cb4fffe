"""The commands in a project with ``USE_TZ = False``, far from UTC: no time is hours off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.contrib.adopt.projects import Project

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


@pytest.fixture(params=[("postgres", "east"), ("sqlite", "east"), ("sqlite", "west")])
def project(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any
) -> Iterator[Project]:
    """A project that knows no time zones, on a database of its own."""
    kind, where = request.param
    if kind != "sqlite":
        servers.require(kind)
    with django_db_blocker.unblock():
        made = Project(tmp_path, kind, idgen=dict(IDGEN), zone=ZONES[where])
        try:
            made.begin(MODELS)
            yield made
        finally:
            made.remove()


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


def made_at(project: Project) -> tuple[int, datetime]:
    """A new order's id, and the moment in it."""
    number, moment = project.run(
        "from django_idgen import generators\n"
        "number = Order.objects.create().pk\n"
        "print(number, generators['default'].layout.unpack(number).created.isoformat())"
    ).split()
    return int(number), datetime.fromisoformat(moment)


def test_what_a_fleet_holds_is_told_in_utc(project: Project) -> None:
    """By the status, and by what an id is decoded to: who holds it, since when, seen when."""
    process = project.background(USED)
    process.wait_for("made ")
    _, order, bill = process.output().split()
    assert "All is well" in project.manage("idgen_doctor")
    status = json.loads(project.manage("idgen_status", "--json"))
    (holder,) = status["generators"][0]["holders"]
    assert holder["state"] == "held"
    assert 0 < holder["window_left"] <= 180
    (tag,) = status["tags"][0]["list"]
    for words in (status["at"], holder["acquired_at"], holder["seen_at"], tag["fetched_at"]):
        assert is_near(read(words)), words
    (reading,) = json.loads(project.manage("idgen_decode", order, "--json"))["readings"]
    assert is_near(read(reading["generators"][0]["parts"]["time"]))
    assert is_near(read(reading["generators"][0]["held_by"]["acquired_at"]))
    out = project.manage("idgen_decode", bill, "--tag", "shop.bill", "--json")
    (grant,) = json.loads(out)["readings"][0]["tags"][0]["grants"]
    assert is_near(read(grant["taken_at"]))
    shown = project.manage("idgen_decode", order) + project.manage("idgen_status")
    shown += project.manage("idgen_decode", bill, "--tag", "shop.bill")
    assert len(told(shown)) >= 4
    assert all(map(is_near, told(shown))), shown
    process.kill()


def test_a_skip_goes_no_hours_too_far_nor_too_short(project: Project) -> None:
    """Past the windows that were lent, and no further; ``--until`` is in the zone it names."""
    before, _ = made_at(project)
    out = project.manage("idgen_skip", "--all", "--generators", "--yes", "--hours-ago", "1")
    assert told(out)
    assert all(map(is_near, told(out))), out
    number, moment = made_at(project)
    assert number > before
    assert is_near(moment)
    later = datetime.now(UTC) + timedelta(days=2)
    until = later.astimezone().replace(tzinfo=None).isoformat()
    project.manage("idgen_skip", "--generators", "--yes", "--until", until, code=1)
    until = (later + timedelta(hours=7)).replace(tzinfo=None).isoformat() + "+07:00"
    project.manage("idgen_skip", "--generators", "--yes", "--until", until)
    assert is_near(made_at(project)[1], later)


def test_a_move_begins_at_the_end_of_the_last_windows(project: Project) -> None:
    """To a layout with fewer worker ids: those of before count for nothing any more."""
    process = project.background(USED)
    process.wait_for("made ")
    project.idgen["GENERATORS"] = FEWER_WORKERS
    out = project.manage("idgen_doctor", "--fix", "--yes")
    assert told(out)
    assert all(map(is_near, told(out))), out
    before = int(process.output().split()[1])
    number, moment = made_at(project)
    assert number > before
    assert is_near(moment)
    status = json.loads(project.manage("idgen_status", "--json"))
    counts = status["generators"][0]["workers"]
    assert min(counts.values()) >= 0
    assert counts["free"] + counts["held"] == counts["total"] == 16
    process.kill()


def test_what_lies_past_the_marks_is_found_and_gone_past(project: Project) -> None:
    """A row of ten minutes from now, that nobody was lent, and one past its tag's mark."""
    made_at(project)
    strange = project.run(
        "from datetime import UTC, datetime, timedelta\n"
        "from django_idgen import generators, segments\n"
        "segments['shop.bill'].next_id()\n"
        "soon = datetime.now(UTC) + timedelta(minutes=10)\n"
        "number = generators['default'].layout.min_id_at(soon) + 5\n"
        "Order.objects.create(pk=number); Bill.objects.create(pk=100_000)\n"
        "print(number)"
    )
    out = project.manage("idgen_doctor", code=2)
    assert "past everything" in out
    assert len(told(out)) >= 2
    assert all(map(is_near, told(out))), out
    project.manage("idgen_doctor", "--fix", "--yes")
    number, moment = made_at(project)
    assert number > int(strange)
    assert is_near(moment)
    assert int(project.run("print(Bill.objects.create().pk)")) > 100_000

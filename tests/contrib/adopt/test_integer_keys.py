"""A table with an auto field goes over to our fields, and back, while it is in use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from time import sleep

import pytest

from tests.contrib.adopt.projects import Inserter, Project, killed

SHOP = """
class Label(models.Model):
    text = models.CharField(max_length=20)


class Order(models.Model):
    id = models.{field}(primary_key=True)
    note = models.CharField(max_length=20)
    parent = models.ForeignKey("self", models.CASCADE, null=True)
    labels = models.ManyToManyField(Label)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
"""
BIG = SHOP.format(field="BigAutoField")
FILL = "for n in range(5): Order.objects.create(note=str(n))"
CREATE = "print(Order.objects.create(note='new').pk)"
IDS = "print(*Order.objects.order_by('pk').values_list('pk', flat=True))"
MARK = (
    "from django_idgen.models import LeafAlloc\n"
    "print(LeafAlloc.objects.get(pk='shop.order').max_id)"
)
on_servers = pytest.mark.parametrize("project", ["postgres", "mariadb"], indirect=True)
on_one = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def ids_of(inserter: Inserter) -> list[int]:
    found, refused = inserter.stop()
    assert refused == []
    return [int(word) for word in found]


@on_servers
def test_old_and_new_processes_insert_side_by_side(project: Project) -> None:
    """Through all stages, there and back, nobody is refused and no id comes twice."""
    project.begin(BIG, FILL)
    old = Inserter(project)
    project.stage()
    new = Inserter(project)
    new.process.wait_for("id ")
    sleep(0.2)
    autos, ours = ids_of(old), ids_of(new)
    assert max(autos) < min(ours)
    assert min(ours) > 100_000
    last = Inserter(project)
    project.stage()  # no process takes ids from the counter any more
    project.stage("--back")
    back = Inserter(project)
    back.process.wait_for("id ")
    sleep(0.2)
    ours, autos = ours + ids_of(last), autos + ids_of(back)
    assert not set(ours) & set(autos)
    project.write("--back")
    following, mark, *there = map(int, project.migrate(f"{CREATE}\n{MARK}\n{IDS}").split())
    assert following > max(*ours, *autos)
    assert following >= mark  # ids below it may be held by a process that was left behind
    assert {*ours, *autos, following, 1, 5} <= set(there)
    assert "from the database again" in project.adopt("--back")


@on_servers
def test_the_counter_stops_at_the_fence(project: Project) -> None:
    """An old process that uses up its margin gets an error, never an id of ours."""
    project.begin(BIG, FILL)
    old = Inserter(project)
    project.write("--margin", "400")
    project.migrate(CREATE)
    old.process.wait_for("refused")
    ours = [int(word) for word in project.run(f"{CREATE}\n{IDS}").split()]
    autos, refused = old.stop()
    assert all("maximum value" in words or "run out" in words for words in refused)
    assert max(map(int, autos)) < ours[0] == max(ours)
    assert "and ends at" in project.adopt("--status")


@on_servers
def test_snowflakes_leave_the_counter_alone(project: Project) -> None:
    """Old processes go on with small ids after snowflakes were stored (hazard 48)."""
    project.begin(BIG, FILL)
    old = Inserter(project)
    project.write("--field", "snowflake")
    ours = [int(word) for word in project.migrate(f"{CREATE}\n{CREATE}").split()]
    before = old.count()
    old.process.wait_for(f"id {old.last() + 5}")
    autos = ids_of(old)
    assert len(autos) > before
    assert max(autos) < 10**9 < 10**15 < min(ours)
    project.stage()
    project.stage("--back")
    assert int(project.run(CREATE)) > max(ours)


@on_servers
def test_back_from_snowflakes_that_are_far_ahead(project: Project) -> None:
    """After a skip, processes stamp ids of months later: the counter begins past those, too."""
    project.begin(BIG, FILL)
    project.write("--field", "snowflake", "--at-once")
    project.migrate()
    later = datetime.now(UTC) + timedelta(days=90)
    project.manage("idgen_skip", "--generators", "--yes", "--until", later.isoformat())
    last = Inserter(project)
    last.process.wait_for("id ")
    project.write("--back", "--at-once")
    following = int(project.migrate(CREATE))
    last.wait_for_more()
    assert following > max(ids_of(last))


@on_one
def test_where_the_counter_cant_be_held(project: Project) -> None:
    """On SQLite the switch is at once: an old process gets an error, and nothing is repeated."""
    project.begin(BIG, FILL)
    old = Inserter(project)
    project.stage("--field", "segment")
    new = Inserter(project)
    old.process.wait_for("refused")
    new.process.wait_for("id ")
    found, refused = old.stop()
    assert all("NOT NULL" in words or "locked" in words for words in refused), refused
    ours = ids_of(new)
    assert min(ours) > max(map(int, found))
    project.stage()
    project.write("--back")
    following, *there = (int(word) for word in project.migrate(f"{CREATE}\n{IDS}").split())
    assert following > max(ours)
    assert {1, 2, 3, 4, 5, following, *ours, *map(int, found)} <= set(there)


def test_a_key_of_32_bits(project: Project) -> None:
    """It is widened first, in the model, too, with all that refers to it; then snowflakes fit."""
    project.begin(
        SHOP.format(field="AutoField"),
        "o = Order.objects.create(note='a')\n"
        "p = Order.objects.create(note='b', parent=o)\n"
        "Item.objects.create(order=p); p.labels.add(Label.objects.create(text='x'))",
    )
    out = project.stage("--field", "snowflake")
    assert "widened to 64 bits" in out
    assert "3 columns" in out
    out = project.write("--field", "snowflake")
    assert "+    id = SnowflakeField(primary_key=True)" in out
    words = project.migrate(
        "o = Order.objects.create(note='n', parent_id=2)\n"
        "Item.objects.create(order=o); o.labels.add(Label.objects.get())\n"
        "print(o.pk > 2**50, Order.objects.get(item__order__note='b').labels.count(),\n"
        "  Order.objects.filter(parent__note='b', labels__text='x', item__isnull=False).count())"
    )
    assert words.split() == ["True", "1", "1"]
    project.stage()
    assert "nothing is left to do" in project.adopt()
    assert "gives this column no ids" in project.adopt("--status")


def test_at_once(project: Project) -> None:
    """For a site that is stopped: the column gives no ids any more, ours go on right above."""
    project.begin(SHOP.format(field="AutoField"), FILL)
    old = Inserter(project)
    project.write("--at-once", "--tag", "orders")
    ours = int(project.migrate(CREATE))
    old.process.wait_for("refused")
    found, _ = old.stop()
    assert max(5, *map(int, found)) < ours <= max(5, *map(int, found)) + 1001
    assert "nothing is left" in project.adopt("--at-once")
    project.write("--at-once", "--back")
    assert int(project.migrate(CREATE)) > ours
    assert "from the database again" in project.adopt("--back")


def test_a_new_database(project: Project) -> None:
    """Where the migrations meet no rows, as in a test run, ids begin at 1, as with any tag."""
    project.begin(BIG)
    project.write()
    project.migrate()
    project.write()
    again = (
        "call_command('migrate', 'shop', 'zero', verbosity=0)\ncall_command('migrate', verbosity=0)"
    )
    assert project.migrate(f"{CREATE}\n{again}\n{CREATE}").split()[0] == "1"


@on_one
def test_a_key_that_the_model_does_not_declare(project: Project) -> None:
    """The edit removes no line that is not there, and the declared key stands in its place."""
    project.begin(BIG.replace("    id = models.BigAutoField(primary_key=True)\n", ""), FILL)
    assert "\n-    id" not in project.write()
    project.migrate()
    assert "\n-    id" in project.write("--back")


@on_one
def test_the_way_back_waits_for_the_edit_of_a_key_by_default_auto_field(project: Project) -> None:
    """The code still takes our ids until the key is declared, so the counter is not freed."""
    path = project.directory / "settings.py"
    path.write_text(
        path.read_text().replace(
            '"django.db.models.BigAutoField"', '"django_idgen.fields.SegmentAutoField"'
        )
    )
    project.begin(BIG.replace("    id = models.BigAutoField(primary_key=True)\n", ""), FILL)
    project.adopt("--back")
    project.run("call_command('migrate', verbosity=0)")
    assert "the model has a SegmentAutoField" in project.adopt("--back", code=1)


STEPS = r"(CREATE|ALTER|DROP|INSERT INTO|UPDATE)\b(?!.*(django_migrations|content_type))"


@pytest.mark.parametrize("way", ["there", "back"])
def test_killed_after_any_statement(project: Project, way: str) -> None:
    """SIGKILL in a migration: run again it comes to its end, and no id is repeated."""
    project.begin(BIG, FILL)
    project.write("--margin", "1000")
    if way == "back":
        project.migrate(CREATE)
        project.stage()
        project.write("--back", "--margin", "1000")
    # Where DDL can be taken back, a few places stand for all of them.
    places = range(1, 40) if project.kind == "mariadb" else (1, 2, 4)
    died = list(takewhile(lambda n: killed(project, "migrate", after=STEPS, count=n), places))
    assert died
    assert len(died) < 39
    words = project.migrate(f"{IDS}\n{CREATE}\n{CREATE}").split()
    numbers = [int(word) for word in words]
    assert numbers[:5] == [1, 2, 3, 4, 5]
    assert sorted(set(numbers)) == numbers

"""A table whose key is a UUID gets one of our fields for a key, and its UUID back."""

from __future__ import annotations

from itertools import takewhile

import pytest

from tests.contrib.adopt.projects import DEPLOY, MIGRATE, QUIET, Inserter, Project, adopt, manage
from tests.tiers import long

MODELS = """
class Label(models.Model):
    text = models.CharField(max_length=20)


class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    note = models.CharField(max_length=20)
    parent = models.ForeignKey("self", models.CASCADE, null=True)
    labels = models.ManyToManyField(Label)
    token = models.UUIDField(default=uuid.uuid4)


class Item(models.Model):
    product = models.ForeignKey(Label, models.CASCADE)
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    was = models.ForeignKey(Order, models.SET_NULL, null=True, related_name="+")
    line = models.IntegerField()

    class Meta:
        unique_together = [("product", "order")]
        indexes = [models.Index(fields=["order", "line"], name="item_line")]
        constraints = [
            models.UniqueConstraint(fields=["order", "line"], name="item_uniq"),
            models.CheckConstraint(condition=models.Q(line__gt=0), name="item_pos"),
        ]


class Receipt(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.OneToOneField(Order, models.CASCADE)
"""
ROWS = """
labels = [Label.objects.create(text=str(n)) for n in range(3)]
last = None
for n in range(8):
    last = Order.objects.create(note=str(n), parent=last if n % 3 else None)
    for k, label in enumerate(labels):
        Item.objects.create(order=last, product=label, line=k + 1, was=last.parent)
    last.labels.set(labels[:n % 3])
    if n % 2:
        Receipt.objects.create(order=last)
"""
VIEW = """
for o in sorted(Order.objects.exclude(note="old"), key=lambda o: int(o.note)):
    print(o.note, o.parent and o.parent.note, sorted(l.text for l in o.labels.all()),
        sorted((i.line, i.product.text, i.was and i.was.note) for i in o.items.all()),
        hasattr(o, "receipt"))
"""
KEYS = """
from django.db import connection
for table in ("shop_order", "shop_order_labels", "shop_item", "shop_receipt"):
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table).values()
        names = {c.name for c in connection.introspection.get_table_description(cursor, table)}
    print(table, sorted(names))
    for one in sorted((sorted(c["columns"]), c["primary_key"], c["unique"], c["check"],
            c["foreign_key"] or "") for c in found if c["columns"] and (c["unique"] or
            c["primary_key"] or c["foreign_key"] or c["check"])):
        print("  ", *one)
"""
NEW = """
o = Order.objects.create(note='100', parent=Order.objects.get(note='3'))
Item.objects.create(order=o, product=Label.objects.first(), line=1)
assert Order.objects.get(uuid=o.uuid).pk == o.pk
"""


def test_there_and_back(project: Project) -> None:
    """Rows, references of each kind, indexes and constraints come through; so does what is new.

    Rows are inserted while the columns are filled, by a process that knows nothing of it.
    """
    _, before, keys, *_ = project.begin(MODELS, ROWS, VIEW, KEYS, adopt("--tag", "orders"), MIGRATE)
    busy = Inserter(project)
    status, filled = project.run(adopt("--status"), adopt("--batch", "7"))
    assert "are left to fill" in status
    assert "rows were filled" in filled
    busy.stop()
    out = "".join(project.run(adopt(), adopt()))  # where rows are left, the first one fills them
    assert "+    id = SegmentIdField(primary_key=True, tag='orders')" in out
    assert "+    uuid = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)" in out
    project.edit(out)

    after, _, done, now, *_, out = project.deploy(
        VIEW, NEW, adopt(), VIEW, adopt("--back"), MIGRATE, adopt("--back"), adopt("--back")
    )
    assert after == before
    assert "nothing is left" in done
    assert "+    id = models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True)" in out
    project.edit(out)
    filled, _, view, back, _, done = project.run(
        adopt("--back"),
        DEPLOY,
        VIEW,
        KEYS,
        "assert Order.objects.create(note='101').number",
        adopt("--back"),
    )
    assert "Everything is filled." in filled
    assert view == now
    assert back.replace("'number', ", "").replace("   ['number'] False True False \n", "") == keys
    assert "nothing is left" in done


SMALL = """
class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    note = models.CharField(max_length=20)
    parent = models.ForeignKey("self", models.CASCADE, null=True)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    line = models.IntegerField()

    class Meta:
        unique_together = [("order", "line")]
"""
SMALL_ROWS = """
last = None
for n in range(20):
    last = Order.objects.create(note=str(n), parent=last if n % 3 else None)
    Item.objects.create(order=last, line=n)
"""
SMALL_VIEW = """
print(*sorted(f"{o.note} {o.parent and o.parent.note} {o.items.get().line}"
    for o in Order.objects.all()), sep="\\n")
"""
STEPS = r"(ALTER|CREATE|DROP)\b(?!.*django_migrations)"


@pytest.mark.parametrize("project", ["postgres", *long("sqlite", "mariadb")], indirect=True)
def test_killed_after_any_statement(project: Project) -> None:
    """SIGKILL in the filling, and in either migration: run again, all rows have come through."""
    project.begin(SMALL, SMALL_ROWS, adopt())
    # Where DDL can be taken back, one place stands for all of them.
    assert project.killed("migrate", after=STEPS, count=2)
    _, before = project.run(DEPLOY, SMALL_VIEW)
    fill = ("idgen_adopt", "shop.Order", "--yes", "--batch", "5")
    for count in (1, 6):
        assert project.killed(*fill, after=r"UPDATE .?shop_", count=count)
    project.edit(project.run(manage(*fill), adopt())[1])
    # Each time it gets one statement further than the last time, where what it did is for good.
    places = range(1, 40) if project.kind == "mariadb" else (1,)
    died = list(takewhile(lambda n: project.killed("migrate", after=STEPS, count=1), places))
    assert died
    assert len(died) < 39
    item = "Item.objects.create(order=Order.objects.create(note='20'), line=1)"
    assert project.deploy(SMALL_VIEW, item)[0] == before


@pytest.mark.parametrize("project", ["mariadb"], indirect=True)
def test_rows_of_an_old_process_in_a_switch_that_was_broken_off(project: Project) -> None:
    """What was inserted between two runs is filled by the second: no reference is lost."""
    project.begin(MODELS, ROWS, adopt(), MIGRATE, adopt())
    old = project.start(
        "parent = Order.objects.get(note='1')\n"
        "import sys, time, os\n"
        "print('ready')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "o = Order.objects.create(note='77', parent=parent)\n"
        "print('done')\n"
    )
    old.wait_for("ready")
    project.edit(project.run(adopt())[0])
    assert project.killed("migrate", after=r"ALTER TABLE .?shop_item. DROP", count=1)
    (project.directory / "go").touch()
    old.wait_for("done")
    (parent,) = project.deploy("print(Order.objects.get(note='77').parent.note)")
    assert parent.strip() == "1"


@pytest.mark.parametrize("project", ["postgres", *long("mariadb")], indirect=True)
def test_unfilled_rows_and_orphans(project: Project) -> None:
    """A switch with too much to fill, or with references that lead nowhere, changes nothing."""
    models = MODELS.replace("null=True)\n    labels", "null=True, db_constraint=False)\n    labels")
    project.edit(project.begin(models, adopt(), MIGRATE, adopt())[-1])
    refused = manage("migrate", *QUIET, code=1)
    unfilled, orphans, pk = project.run(
        INSERT + f"insert(6, None)\n{refused}",
        f"insert(1, str(uuid.uuid4()))\n{refused}",
        f"insert(0, None)\n{MIGRATE}\nprint(Order.objects.create(note='1').pk > 0)",
    )
    assert "6 rows of shop_order" in unfilled
    assert "have no new key yet" in unfilled
    assert "1 of shop_order.parent_id" in orphans
    assert "do not exist" in orphans
    assert pk.strip() == "True"


INSERT = """
import uuid
from django.db import connection
from django_idgen.contrib.adopt import swap_operations
assert swap_operations.MAX_AT_SWITCH == 10_000
swap_operations.MAX_AT_SWITCH = 5
def insert(count, parent):
    rows = [(str(uuid.uuid4()), 'n', str(uuid.uuid4()), parent) for _ in range(count)]
    with connection.cursor() as cursor:
        cursor.execute('DELETE FROM shop_order')
        cursor.executemany('INSERT INTO shop_order (id, note, token, parent_id) '
                           'VALUES (%s, %s, %s, %s)', rows)
"""

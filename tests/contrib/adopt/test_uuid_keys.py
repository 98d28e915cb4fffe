"""A table whose key is a UUID gets one of our fields for a key, and its UUID back."""

from __future__ import annotations

from itertools import takewhile

import pytest

from tests.contrib.adopt.projects import Inserter, Project, killed

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
for n in range(20):
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
on_servers = pytest.mark.parametrize("project", ["postgres", "mariadb"], indirect=True)
on_mariadb = pytest.mark.parametrize("project", ["mariadb"], indirect=True)
on_one = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def test_there_and_back(project: Project) -> None:
    """Rows, references of each kind, indexes and constraints come through; so does what is new.

    Rows are inserted while the columns are filled, by a process that knows nothing of it.
    """
    project.begin(MODELS, ROWS)
    before, keys = project.run(VIEW), project.run(KEYS)
    project.stage("--tag", "orders")
    busy = Inserter(project)
    assert "are left to fill" in project.adopt("--status")
    out = project.adopt("--batch", "7")
    assert "rows were filled" in out
    busy.stop()
    out = project.write()
    out = out if "\nEdit class " in out else project.write()
    assert "+    id = SegmentIdField(primary_key=True, tag='orders')" in out
    assert "+    uuid = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)" in out
    after = project.migrate(VIEW)
    assert after == before
    words = project.run(
        "o = Order.objects.create(note='100', parent=Order.objects.get(note='3'))\n"
        "Item.objects.create(order=o, product=Label.objects.first(), line=1)\n"
        "print(o.pk, Order.objects.get(uuid=o.uuid).pk, Order.objects.filter(pk__lt=1).count())\n"
        "print(Order.objects.filter(note='old').count())"
    ).split()
    assert words[0] == words[1]
    assert "nothing is left" in project.adopt()

    now = project.run(VIEW)
    project.stage("--back")
    project.adopt("--back")
    out = project.write("--back")
    assert "+    id = models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True)" in out
    assert "Everything is filled." in project.adopt("--back")
    assert project.migrate(VIEW) == now
    back = project.run(KEYS)
    assert back.replace("'number', ", "").replace("   ['number'] False True False \n", "") == keys
    project.run("o = Order.objects.create(note='101'); print(o.pk, o.number)")
    assert "nothing is left" in project.adopt("--back")


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


def test_killed_after_any_statement(project: Project) -> None:
    """SIGKILL in the filling, and in either migration: run again, all rows have come through."""
    project.begin(SMALL, SMALL_ROWS)
    project.write()
    # Where DDL can be taken back, one place stands for all of them.
    assert killed(project, "migrate", after=STEPS, count=2)
    before = project.migrate(SMALL_VIEW)
    fill = ("idgen_adopt", "shop.Order", "--yes", "--batch", "5")
    for count in (1, 6):
        assert killed(project, *fill, after=r"UPDATE .?shop_", count=count)
    project.manage(*fill)
    project.write()
    # Each time it gets one statement further than the last time, where what it did is for good.
    places = range(1, 40) if project.kind == "mariadb" else (1,)
    died = list(takewhile(lambda n: killed(project, "migrate", after=STEPS, count=1), places))
    assert died
    assert len(died) < 39
    assert project.migrate(SMALL_VIEW) == before
    project.run("Item.objects.create(order=Order.objects.create(note='20'), line=1)")


@on_mariadb
def test_rows_of_an_old_process_in_a_switch_that_was_broken_off(project: Project) -> None:
    """What was inserted between two runs is filled by the second: no reference is lost."""
    project.begin(MODELS, ROWS)
    project.stage()
    project.adopt()
    old = project.background(
        "parent = Order.objects.get(note='1')\n"
        "import sys, time, os\n"
        "print('ready')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "o = Order.objects.create(note='77', parent=parent)\n"
        "print('done')\n"
    )
    old.wait_for("ready")
    project.write()
    assert killed(project, "migrate", after=r"ALTER TABLE .?shop_item. DROP", count=1)
    (project.directory / "go").touch()
    old.wait_for("done")
    out = project.migrate("print(Order.objects.get(note='77').parent.note)")
    assert out.strip() == "1"


@on_one
def test_what_is_refused(project: Project) -> None:
    """What can't be done is said in words, each time with what to do; nothing is written."""
    project.begin(
        MODELS
        + """

class Gift(Order):
    wrap = models.IntegerField()
"""
    )
    assert "shop.Gift.order_ptr inherits from it" in project.adopt(code=1)
    project.models(
        MODELS.replace(
            "note = models.CharField(max_length=20)\n",
            "note = models.CharField("
            "max_length=20)\n\n    class Meta:\n        indexes = [models.Index(fields=['id'], "
            "name='by_id')]\n",
            1,
        )
    )
    project.run(
        "call_command('makemigrations', 'shop', verbosity=0, interactive=False)\n"
        "call_command('migrate', verbosity=0)"
    )
    assert "constraints name its key (by_id)" in project.adopt(code=1)
    assert project.migrations()[-1].startswith("0002")


@on_one
def test_generic_keys_are_listed(project: Project) -> None:
    """Rows that point at the table by a GenericForeignKey would be left behind: it says which."""
    project.begin(
        "from django.contrib.contenttypes.fields import GenericForeignKey\n"
        "from django.contrib.contenttypes.models import ContentType\n"
        + MODELS
        + """

class Note(models.Model):
    kind = models.ForeignKey(ContentType, models.CASCADE)
    key = models.CharField(max_length=40)
    target = GenericForeignKey("kind", "key")
""",
        "Note.objects.create(target=Order.objects.create(note='1'))",
    )
    out = project.adopt(code=1)
    assert "1 rows of shop.Note.target point at it by a GenericForeignKey" in out


@on_servers
def test_unfilled_rows_and_orphans(project: Project) -> None:
    """A switch with too much to fill, or with references that lead nowhere, changes nothing."""
    project.begin(
        MODELS.replace("null=True)\n    labels", "null=True, db_constraint=False)\n    labels")
    )
    project.stage()
    project.write()
    code = (
        "from django.db import connection\n"
        "cursor = connection.cursor()\n"
        "import uuid as u\n"
        "new = lambda: u.uuid4().hex if connection.vendor == 'sqlite' else str(u.uuid4())\n"
        "sql = 'INSERT INTO shop_order (id, note, token, parent_id) VALUES (%s, %s, %s, %s)'\n"
        "cursor.executemany(sql, [(new(), 'n', new(), {parent}) for _ in range({count})])\n"
        "from django.core.management import CommandError\n"
        "try: call_command('migrate', verbosity=0)\n"
        "except CommandError as error: print(error)\n"
    )
    out = project.run(code.format(count=10_001, parent="None"))
    assert "10001 rows of shop_order" in out
    assert "have no new key yet" in out
    out = project.run(
        "from django.db import connection\n"
        "connection.cursor().execute('DELETE FROM shop_order')\n"
        + code.format(count=1, parent="new()")
    )
    assert "1 of shop_order.parent_id" in out
    assert "do not exist" in out
    out = project.run(
        "from django.db import connection\n"
        "connection.cursor().execute('DELETE FROM shop_order')\n"
        "call_command('migrate', verbosity=0)\n"
        "print(Order.objects.create(note='1').pk > 0)"
    )
    assert out.split() == ["True"]

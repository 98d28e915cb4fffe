"""A column of ids is added to a table that has rows, by real runs of ``migrate``."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pytest
from django.db import connections

from django_idgen.fields.operations import ColumnFilling, Rows, query
from tests.contrib.adopt.conftest import MakeProject
from tests.contrib.adopt.projects import (
    DEPLOY,
    INSERTER,
    MAKE,
    MIGRATE,
    QUIET,
    Inserter,
    Project,
    manage,
    written,
)
from tests.tiers import long

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGE = Path(__file__).parents[3] / "docs" / "fields.md"
SHOP = """
from django_idgen.fields import SegmentIdField, SnowflakeField


class Order(models.Model):
    note = models.CharField(max_length=20)
"""
EMPTY = "    public_id = {field}(null=True)\n"
FULL = "    public_id = {field}(unique=True)\n"
FILL = """
from django.db import migrations
from django_idgen.fields.operations import FillIds


class Migration(migrations.Migration):
    atomic = {atomic}
    dependencies = [("shop", "{after}")]
    operations = [FillIds("order", "public_id", batch_size=5)]
"""
ROWS = "Order.objects.bulk_create(Order(note=str(n)) for n in range(23))"
IDS = "print(*Order.objects.order_by('pk').values_list('public_id', flat=True))"
CREATE = "Order.objects.create(note='new')"
UPDATE = r"UPDATE .?shop_order"
EMPTIED = f"{ROWS}\nOrder.objects.update(public_id=None)"
BACK = manage("migrate", "shop", "0002", *QUIET)
CASES = [
    ("sqlite", "SnowflakeField"),
    ("postgres", "SegmentIdField"),
    *long(
        ("sqlite", "SegmentIdField"),
        ("postgres", "SnowflakeField"),
        ("mariadb", "SegmentIdField"),
        ("mariadb", "SnowflakeField"),
    ),
]
of_each_kind = pytest.mark.parametrize("case", CASES, ids="-".join)
on_one = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def ids_in(said: str) -> list[int | None]:
    return [None if word == "None" else int(word) for word in said.split()]


def begin_emptied(project: Project, *, atomic: bool = False) -> None:
    """A project with rows that have no id, and a migration that fills them."""
    project.begin(SHOP + EMPTY.format(field="SegmentIdField"), EMPTIED)
    write_fill(project, atomic=atomic)


def write_fill(project: Project, *, atomic: bool = False) -> None:
    text = FILL.format(atomic=atomic, after=project.migrations()[-1])
    project.write_migration("0100_fill", text)


def make_full(project: Project, field: str, *before: str, after: tuple[str, ...] = ()) -> list[int]:
    """The last step, deployed after ``before``: every row has an id. Returns all of them.

    These are the same ``after`` more pieces of code.
    """
    project.models(SHOP + FULL.format(field=field))
    out = project.run(*before, MAKE, DEPLOY, CREATE, IDS, *after, IDS)
    found = [int(word) for word in out[-1].split()]
    assert len(set(found)) == len(found)
    assert out[-1] == out[-2 - len(after)]
    return found


@of_each_kind
def test_from_a_table_with_rows_to_a_unique_column(
    make_project: MakeProject, case: tuple[str, str]
) -> None:
    """All three steps in one ``migrate``, in which our own tables are not there before."""
    kind, field = case
    project = make_project(kind)
    project.begin(SHOP, ROWS, manage("migrate", "django_idgen", "zero", *QUIET))
    project.models(SHOP + EMPTY.format(field=field))
    project.run(MAKE)
    write_fill(project, atomic=field == "SegmentIdField")
    # The way back, and forth again: it leaves the ids where they are.
    found = make_full(project, field, after=(BACK, DEPLOY))
    assert len(found) == 24
    assert found == sorted(found)


@pytest.mark.parametrize("project", ["sqlite", *long("postgres", "mariadb")], indirect=True)
def test_killed_half_way_the_next_run_fills_the_rest(project: Project) -> None:
    """SIGKILL after the second batch: its rows keep their ids, which no other row gets."""
    begin_emptied(project)
    assert project.killed("migrate", after=UPDATE, count=2)
    half = ids_in(project.run(IDS)[0])
    assert half[10:] == [None] * 13
    assert None not in half[:10]
    assert project.killed("migrate", after=UPDATE, count=1)
    found = ids_in(project.deploy(IDS)[0])
    assert found[:10] == half[:10]
    assert len({*found} - {None}) == 23
    make_full(project, "SegmentIdField")


@pytest.mark.parametrize(
    "alias",
    [
        pytest.param(alias, marks=pytest.mark.django_db(databases=["default", alias]))
        for alias in ("default", "postgres")
    ],
)
def test_rows_that_come_as_fast_as_they_are_filled(alias: str) -> None:
    """Hazard 119: it fills as many as there were, and returns how many are empty."""
    connection, numbers, insert = connections[alias], count(1), "INSERT INTO busy (id) VALUES (%s)"

    def take(rows: Rows) -> list[int]:
        taken = [next(numbers) for _ in rows]
        assert taken[-1] < 200, "it never ends"
        for number in taken:
            query(connection, insert, [number])
        return taken

    query(connection, "CREATE TABLE busy (id bigint PRIMARY KEY, public_id bigint)")
    take([[]] * 12)
    filling = ColumnFilling(connection, "busy", key=["id"], new="public_id", take=take, batch=5)
    assert filling.run() == (12, 12)


BUSY = """
import re
from django.db import connection

def insert(execute, sql, *args):
    if re.match("UPDATE .*CASE", sql):
        for _ in range(5):
            execute("INSERT INTO shop_order (note) VALUES ('old code')", (), *args[1:])
    return execute(sql, *args)

connection.execute_wrappers.append(insert)
"""
"""Old code inserts as many rows as are filled, in the place of each batch."""


@on_one
def test_how_many_rows_stay_empty_is_told(project: Project) -> None:
    """The migration ends, and a warning says what to do about those (hazard 119)."""
    begin_emptied(project)
    *_, told, ids = project.run(BUSY, MIGRATE, IDS)
    left = ids_in(ids).count(None)
    assert left >= 23
    assert f"{left} rows of shop_order came while the others were filled" in told
    assert "run this migration again" in told


@pytest.mark.parametrize("project", ["postgres", *long("sqlite")], indirect=True)
def test_killed_in_one_transaction_nothing_is_filled(project: Project) -> None:
    """Where the migration is atomic, so is the filling; the next run fills all."""
    begin_emptied(project, atomic=True)
    assert project.killed("migrate", after=UPDATE, count=2)
    assert ids_in(project.run(IDS)[0]) == [None] * 23
    make_full(project, "SegmentIdField")


@of_each_kind
def test_rows_that_are_inserted_meanwhile(make_project: MakeProject, case: tuple[str, str]) -> None:
    """New code's rows keep the ids that they were saved with; those of old code are filled, too."""
    kind, field = case
    project = make_project(kind)
    project.begin(SHOP, ROWS)
    old = Inserter(project)
    project.begin(SHOP + EMPTY.format(field=field))
    new = Inserter(project, INSERTER.replace(".pk}", ".public_id}"))
    write_fill(project, atomic=field == "SegmentIdField")
    for inserter in (old, new):
        inserter.wait_for_more()
    project.run(MIGRATE)
    for inserter in (old, new):
        inserter.wait_for_more()
    given = [inserter.stop() for inserter in (new, old)]
    # What docs/fields.md has people do about the last rows of old code.
    found = make_full(project, field, BACK)
    (ours, refused), (_, refused_to_old) = given
    assert refused == refused_to_old == []
    assert {*map(int, ours)} <= set(found)


@pytest.mark.parametrize("project", ["sqlite", *long("postgres", "mariadb")], indirect=True)
def test_the_recipe_of_the_page(project: Project) -> None:
    """What docs/fields.md says, step by step: each old row has an id of its own in the end."""
    section = PAGE.read_text().partition("### Add an id column")[2].partition("\n## ")[0]
    model, fill = BLOCK.findall(section)
    imports = "from django_idgen.fields import SnowflakeField\n\n\n"
    (line,) = re.findall(r".*public_id.*\n", model)
    (closed,) = re.findall(r"Close the column: `(.*?)`", section)
    rows = "Parcel.objects.bulk_create(Parcel(address=str(n)) for n in range(2500))"
    project.begin(imports + model.replace(line, ""), rows)
    empty = manage("makemigrations", "shop", "--empty", "--name", "fill_public_id")
    project.begin(imports + model, empty)
    (name,) = project.migrations()[-1:]
    project.write_migration(name, fill)
    project.models(imports + model.replace(line, f"    {closed}\n"))
    ids = "print(*Parcel.objects.order_by('pk').values_list('public_id', flat=True))"
    out = project.run(MAKE, DEPLOY, f"Parcel.objects.create(address='new')\n{ids}")[-1]
    found = [int(word) for word in out.split()]
    assert len(set(found)) == 2501
    assert found == sorted(found)


@on_one
def test_sqlmigrate_says_that_it_is_no_sql(project: Project) -> None:
    """As for any operation that runs code; ``--plan`` says what it does."""
    *_, sql, plan, ids = project.begin(
        SHOP + EMPTY.format(field="SegmentIdField"),
        EMPTIED,
        written("0100_fill", FILL.format(atomic=False, after="0001_initial")),
        manage("sqlmigrate", "shop", "0100"),
        manage("migrate", "--plan"),
        IDS,
    )
    assert "-- Fill order.public_id of the rows that have no id" in sql
    assert "CANNOT BE WRITTEN AS SQL" in sql
    assert "UPDATE" not in sql
    assert "Fill order.public_id" in plan
    assert ids_in(ids) == [None] * 23


@on_one
def test_a_wrong_name_ends_migrate_in_words(project: Project) -> None:
    """Without a traceback, and with the names of both."""
    fill = FILL.format(atomic=False, after="0001_initial").replace("public_id", "publik_id")
    *_, out = project.begin(
        SHOP + EMPTY.format(field="SegmentIdField"),
        EMPTIED,
        written("0100_fill", fill),
        manage("migrate", code=1),
    )
    assert "CommandError" in out
    assert "Order has no field named 'publik_id'" in out

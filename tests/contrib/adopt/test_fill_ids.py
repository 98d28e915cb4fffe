"""A column of ids is added to a table that has rows, by real runs of ``migrate``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contrib.adopt.projects import INSERTER, Inserter, Project, killed

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
both_ways = pytest.mark.parametrize(
    ("field", "atomic"), [("SnowflakeField", False), ("SegmentIdField", True)]
)


def ids_of(project: Project) -> list[int | None]:
    return [None if word == "None" else int(word) for word in project.run(IDS).split()]


def add_column(project: Project, field: str) -> None:
    """The first step, deployed: new rows get an id, old ones have none."""
    project.models(SHOP + EMPTY.format(field=field))
    project.run("call_command('makemigrations', 'shop', verbosity=0)")
    project.run("call_command('migrate', verbosity=0)")


def write_fill(project: Project, *, atomic: bool = False) -> None:
    (last,) = project.migrations()[-1:]
    text = FILL.format(atomic=atomic, after=last)
    (project.directory / "shop/migrations" / "0100_fill.py").write_text(text)


def make_full(project: Project, field: str) -> None:
    """The last step, deployed: every row has an id, and no two the same."""
    project.models(SHOP + FULL.format(field=field))
    project.run("call_command('makemigrations', 'shop', interactive=False, verbosity=0)")
    project.migrate(CREATE)


@both_ways
def test_from_a_table_with_rows_to_a_unique_column(
    project: Project, field: str, atomic: bool
) -> None:
    """All three steps in one ``migrate``, in which our own tables are not there before."""
    project.begin(SHOP)
    project.run(f"{ROWS}\ncall_command('migrate', 'django_idgen', 'zero', verbosity=0)")
    project.models(SHOP + EMPTY.format(field=field))
    project.run("call_command('makemigrations', 'shop', verbosity=0)")
    write_fill(project, atomic=atomic)
    project.models(SHOP + FULL.format(field=field))
    project.run("call_command('makemigrations', 'shop', interactive=False, verbosity=0)")
    project.run("call_command('migrate', 'shop', verbosity=0)")
    project.migrate(CREATE)
    found = ids_of(project)
    assert None not in found
    assert len(set(found)) == 24
    assert found == sorted(found)
    # The way back, and forth again: it leaves the ids where they are.
    project.run("call_command('migrate', 'shop', '0002', verbosity=0)")
    project.migrate()
    assert ids_of(project) == found


def test_killed_half_way_the_next_run_fills_the_rest(project: Project) -> None:
    """SIGKILL after the second batch: its rows keep their ids, which no other row gets."""
    project.begin(SHOP, ROWS)
    add_column(project, "SegmentIdField")
    write_fill(project)
    assert killed(project, "migrate", after=UPDATE, count=2)
    half = ids_of(project)
    assert half[10:] == [None] * 13
    assert None not in half[:10]
    assert killed(project, "migrate", after=UPDATE, count=1)
    project.migrate()
    found = ids_of(project)
    assert found[:10] == half[:10]
    assert len({*found} - {None}) == 23
    make_full(project, "SegmentIdField")


@pytest.mark.parametrize("project", ["sqlite", "postgres"], indirect=True)
def test_killed_in_one_transaction_nothing_is_filled(project: Project) -> None:
    """Where the migration is atomic, so is the filling; the next run fills all."""
    project.begin(SHOP, ROWS)
    add_column(project, "SegmentIdField")
    write_fill(project, atomic=True)
    assert killed(project, "migrate", after=UPDATE, count=2)
    assert ids_of(project) == [None] * 23
    make_full(project, "SegmentIdField")


@both_ways
def test_rows_that_are_inserted_meanwhile(project: Project, field: str, atomic: bool) -> None:
    """New code's rows keep the ids that they were saved with; those of old code are filled, too."""
    project.begin(SHOP, ROWS)
    old = Inserter(project)
    add_column(project, field)
    new = Inserter(project, INSERTER.replace(".pk}", ".public_id}"))
    write_fill(project, atomic=atomic)
    for inserter in (old, new):
        inserter.wait_for_more()
    project.run("call_command('migrate', verbosity=0)")
    for inserter in (old, new):
        inserter.wait_for_more()
    given = [inserter.stop() for inserter in (new, old)]
    # What docs/fields.md has people do about the last rows of old code.
    project.run("call_command('migrate', 'shop', '0002', verbosity=0)")
    make_full(project, field)
    (ours, refused), (_, refused_to_old) = given
    assert refused == refused_to_old == []
    found = ids_of(project)
    assert None not in found
    assert len(set(found)) == len(found)
    assert {*map(int, ours)} <= set(found)


def test_the_recipe_of_the_page(project: Project) -> None:
    """What docs/fields.md says, step by step: each old row has an id of its own in the end."""
    section = PAGE.read_text().partition("### Add an id column")[2].partition("\n## ")[0]
    model, fill = BLOCK.findall(section)
    imports = "from django_idgen.fields import SnowflakeField\n\n\n"
    (line,) = re.findall(r".*public_id.*\n", model)
    (closed,) = re.findall(r"Close the column: `(.*?)`", section)
    project.begin(
        imports + model.replace(line, ""),
        "Parcel.objects.bulk_create(Parcel(address=str(n)) for n in range(2500))",
    )
    project.models(imports + model)
    project.run("call_command('makemigrations', verbosity=0)\ncall_command('migrate', verbosity=0)")
    project.manage("makemigrations", "shop", "--empty", "--name", "fill_public_id")
    (name,) = project.migrations()[-1:]
    (project.directory / f"shop/migrations/{name}.py").write_text(fill)
    project.models(imports + model.replace(line, f"    {closed}\n"))
    project.run("call_command('makemigrations', interactive=False, verbosity=0)")
    out = project.migrate(
        "Parcel.objects.create(address='new')\n"
        "print(*Parcel.objects.order_by('pk').values_list('public_id', flat=True))"
    )
    found = [int(word) for word in out.split()]
    assert len(set(found)) == 2501
    assert found == sorted(found)


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_sqlmigrate_says_that_it_is_no_sql(project: Project) -> None:
    """As for any operation that runs code; ``--plan`` says what it does."""
    project.begin(SHOP, ROWS)
    add_column(project, "SnowflakeField")
    write_fill(project)
    sql = project.manage("sqlmigrate", "shop", "0100")
    assert "-- Fill order.public_id of the rows that have no id" in sql
    assert "CANNOT BE WRITTEN AS SQL" in sql
    assert "UPDATE" not in sql
    assert "Fill order.public_id" in project.manage("migrate", "--plan")
    assert ids_of(project) == [None] * 23


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_a_wrong_name_ends_migrate_in_words(project: Project) -> None:
    """Without a traceback, and with the names of both."""
    project.begin(SHOP, ROWS)
    add_column(project, "SnowflakeField")
    write_fill(project)
    path = project.directory / "shop/migrations/0100_fill.py"
    path.write_text(path.read_text().replace('"public_id"', '"publik_id"'))
    out = project.manage("migrate", code=1)
    assert "CommandError" in out
    assert "Order has no field named 'publik_id'" in out

"""The migration operation, in a small project of its own."""

from __future__ import annotations

import pytest

from tests.contrib.adopt.conftest import make_project, project
from tests.contrib.adopt.projects import DEPLOY, QUIET, Project, manage, written
from tests.tiers import long

__all__ = ["make_project", "project"]

SHOP = """
from django_idgen.fields import SegmentIdField, SnowflakeField


class Order(models.Model):
    id = SegmentIdField(primary_key=True)
    stamp = SnowflakeField(null=True)
    note = models.CharField(max_length=20)
"""
NATIVE = """
from django.db import migrations
from django_idgen.contrib.native import NativeIds


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [NativeIds({arguments})]
"""
PSQL = """
from django.db import connection
from django.db.utils import Error
with connection.cursor() as cursor:
    try:
        cursor.execute("INSERT INTO shop_order (note) VALUES ('psql')")
    except Error as error:
        print("refused")
print(*Order.objects.order_by("pk").values_list("pk", flat=True))
"""
CREATE = "print(Order.objects.create(note='django').pk)"
BACK = manage("migrate", "shop", "0001", *QUIET)
on_servers = pytest.mark.parametrize("project", ["postgres", *long("mariadb")], indirect=True)


def native(arguments: str) -> str:
    """A piece of code: the migration is written, with ``arguments`` of the operation."""
    return written("0002_native", NATIVE.format(arguments=arguments))


@on_servers
def test_forwards_backwards_and_forwards_again(project: Project) -> None:
    """makemigrations sees no drift; the way back drops the default, and no id comes twice."""
    listed = manage("idgen_native")
    _, plan, _, one, rows, told, sql, _, refused, none, _, again = project.begin(
        SHOP,
        native('"order", "id", length=500'),
        manage("migrate", "--plan"),
        DEPLOY,
        CREATE,
        PSQL,
        listed,
        manage("sqlmigrate", "shop", "0002"),
        BACK,
        PSQL,
        listed,
        DEPLOY,
        PSQL,
    )
    assert "Let the database give ids to order.id" in plan
    assert one.split() == ["501"]
    assert rows.split() == ["1", "501"]
    assert "1 to 500, 49" in told
    assert "CANNOT BE WRITTEN AS SQL" in sql
    assert refused.split() == ["refused", "1", "501"]
    assert "There are no sequences" in none
    following = int(again.split()[-1])
    assert following > 501
    assert int(project.run(CREATE)[0]) > following + 400


@on_servers
def test_in_the_migration_that_makes_the_table(project: Project) -> None:
    """Where our own tables may not be there yet; and a test database is made likewise."""
    zero = (manage("migrate", app, "zero", *QUIET) for app in ("shop", "django_idgen"))
    *_, rows = project.begin(SHOP, *zero, native('"order", "id"'), DEPLOY, PSQL)
    assert rows.split() == ["1"]


@on_servers
def test_killed_in_its_middle_it_is_run_again(project: Project) -> None:
    """The segment of the first run is a gap; its sequence is in nobody's way."""
    project.begin(SHOP, native('"order", "id", length=500'))
    assert project.killed("migrate", after="CREATE.*SEQUENCE")
    assert project.deploy(PSQL)[0].split() == ["501"]


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_sqlite_is_refused_or_passed_over(project: Project) -> None:
    """It has no sequences: a project whose tests run there says ``optional=True``."""
    _, said, _, _, one, _ = project.begin(
        SHOP,
        native('"order", "id"'),
        manage("migrate", code=1),
        native('"order", "id", optional=True'),
        DEPLOY,
        CREATE,
        BACK,
    )
    assert "CommandError: Database 'default' is SQLite" in said
    assert "optional=True" in said
    assert one.split() == ["1"]


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_what_it_can_not_be_used_for(project: Project) -> None:
    """A snowflake, a plain column and an impossible length: ``migrate`` says what is wrong."""
    wrong = {
        '"order", "stamp"': "shop.Order.stamp is a SnowflakeField. Name a SegmentIdField",
        '"order", "note"': "shop.Order.note is a CharField",
        '"order", "id", length=5': "must be a whole number of 100 to 1000000000, not 5",
    }
    pieces = (f"{native(arguments)}\n{manage('migrate', code=1)}" for arguments in wrong)
    for said, out in zip(wrong.values(), project.begin(SHOP, *pieces), strict=True):
        assert said in out

"""The migration operation, in a small project of its own."""

from __future__ import annotations

import pytest

from tests.contrib.adopt.conftest import project
from tests.contrib.adopt.projects import Project, killed

__all__ = ["project"]

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
on_servers = pytest.mark.parametrize("project", ["postgres", "mariadb"], indirect=True)
on_sqlite = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def write(project: Project, arguments: str) -> None:
    text = NATIVE.format(arguments=arguments)
    (project.directory / "shop/migrations" / "0002_native.py").write_text(text)


@on_servers
def test_forwards_backwards_and_forwards_again(project: Project) -> None:
    """makemigrations sees no drift; the way back drops the default, and no id comes twice."""
    project.begin(SHOP)
    write(project, '"order", "id", length=500')
    assert "Let the database give ids to order.id" in project.manage("migrate", "--plan")
    assert project.migrate(CREATE).split() == ["501"]
    assert project.run(PSQL).split() == ["1", "501"]
    assert "1 to 500, 49" in project.manage("idgen_native")
    assert "CANNOT BE WRITTEN AS SQL" in project.manage("sqlmigrate", "shop", "0002")
    project.run("call_command('migrate', 'shop', '0001', verbosity=0)")
    assert project.run(PSQL).split() == ["refused", "1", "501"]
    assert "There are no sequences" in project.manage("idgen_native")
    following = int(project.migrate(PSQL).split()[-1])
    assert following > 501
    assert int(project.run(CREATE)) > following + 400


@on_servers
def test_in_the_migration_that_makes_the_table(project: Project) -> None:
    """Where our own tables may not be there yet; and a test database is made likewise."""
    project.begin(SHOP)
    project.run("call_command('migrate', 'shop', 'zero', verbosity=0)")
    project.run("call_command('migrate', 'django_idgen', 'zero', verbosity=0)")
    write(project, '"order", "id"')
    assert project.migrate(PSQL).split() == ["1"]


@on_servers
def test_killed_in_its_middle_it_is_run_again(project: Project) -> None:
    """The segment of the first run is a gap; its sequence is in nobody's way."""
    project.begin(SHOP)
    write(project, '"order", "id", length=500')
    assert killed(project, "migrate", after="CREATE.*SEQUENCE")
    assert project.migrate(PSQL).split() == ["501"]


@on_sqlite
def test_sqlite_is_refused_or_passed_over(project: Project) -> None:
    """It has no sequences: a project whose tests run there says ``optional=True``."""
    project.begin(SHOP)
    write(project, '"order", "id"')
    said = project.manage("migrate", code=1)
    assert "CommandError: Database 'default' is SQLite" in said
    assert "optional=True" in said
    write(project, '"order", "id", optional=True')
    assert project.migrate(CREATE).split() == ["1"]
    project.run("call_command('migrate', 'shop', '0001', verbosity=0)")


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_what_it_can_not_be_used_for(project: Project) -> None:
    """A snowflake, a plain column and an impossible length: ``migrate`` says what is wrong."""
    project.begin(SHOP)
    for arguments, said in (
        ('"order", "stamp"', "shop.Order.stamp is a SnowflakeField. Name a SegmentIdField"),
        ('"order", "note"', "shop.Order.note is a CharField"),
        ('"order", "id", length=5', "must be a whole number of 100 to 1000000000, not 5"),
    ):
        write(project, arguments)
        assert said in project.manage("migrate", code=1)

"""What the command refuses, and what it only shows: clear words, status 1, nothing changed."""

from __future__ import annotations

import pytest

from tests.contrib.adopt.projects import Project

MODELS = """
class Order(models.Model):
    note = models.CharField(max_length=20)


class Shown(Order):
    class Meta:
        proxy = True


class Outside(models.Model):
    class Meta:
        managed = False


class Detail(models.Model):
    order = models.OneToOneField(Order, models.CASCADE, primary_key=True)


class Named(models.Model):
    name = models.CharField(max_length=20, primary_key=True)
"""
on_one = pytest.mark.parametrize("project", ["sqlite"], indirect=True)
WORDS = {
    ("nowhere.Order",): "There is no model 'nowhere.Order': name it as APP.MODEL",
    ("shop.Nothing",): "App 'shop' doesn't have a 'Nothing' model",
    ("Order",): "There is no model 'Order': name it as APP.MODEL.",
    ("shop.Order", "shop.Named"): "Name one APP.MODEL",
    ("shop.Shown",): "is a proxy. Adopt shop.Order",
    ("shop.Outside",): "not managed by migrations",
    ("shop.Detail",): "is its reference to shop.Order. Adopt shop.Order",
    ("shop.Named",): "is a CharField. AutoField, BigAutoField",
    ("shop.Order", "--database", "nowhere"): "no database 'nowhere' in DATABASES",
    ("shop.Order", "--database", "away"): "Database 'away' does not answer",
    ("shop.Order", "--tag", " x"): "white space",
    ("shop.Order", "--generator", "none"): "There is no generator 'none'",
    ("shop.Order", "--tag", "a", "--field", "snowflake"): "--tag for --field segment",
    ("shop.Order", "--tag", "a", "--generator", "default"): "not both",
    ("shop.Order", "--batch", "0"): "--batch must be 1 to 5000",
    ("shop.Order", "--margin", "-1"): "--margin must be 1 to",
    ("shop.Order", "--back"): "its ids come from the database already",
    ("django_idgen.LeafAlloc",): "not managed by migrations",
}


@on_one
def test_bad_input(project: Project) -> None:
    """Each is refused in words that name the value and the way out, without a traceback."""
    project.begin(MODELS)
    calls = "\n".join(
        f"try: call_command('idgen_adopt', *{words!r}, yes=True)\n"
        f"except CommandError as error: print({number}, error)"
        for number, words in enumerate(WORDS)
    )
    away = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": "1"}
    project.extra = {"away": {**away, "NAME": "x", "USER": "x"}}
    out = project.run(f"from django.core.management import CommandError\n{calls}")
    said = dict(line.split(" ", 1) for line in out.splitlines() if line[:1].isdigit())
    for number, (words, expected) in enumerate(WORDS.items()):
        assert expected in said.get(str(number), ""), (words, out)
    assert project.migrations() == ["0001_initial"]


@on_one
def test_the_state_of_migrations(project: Project) -> None:
    """It refuses an app without migrations, a model without one, several leaves, unapplied ones."""
    project.begin(MODELS)
    project.models(MODELS + "\n\nclass New(models.Model):\n    pass\n")
    out = project.manage("idgen_adopt", "shop.New", code=1)
    assert "No migration makes shop.New yet" in out
    project.manage("makemigrations", "shop", "-v0")
    assert "has unapplied migrations: shop.0002_new. Run 'manage.py migrate'" in project.adopt(
        code=1
    )
    project.run("call_command('migrate', verbosity=0)")
    twin = project.directory / "shop/migrations/0002_other.py"
    twin.write_text(
        "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n"
        "    dependencies = [('shop', '0001_initial')]\n"
    )
    assert "makemigrations --merge" in project.adopt(code=1)
    for path in (project.directory / "shop/migrations").iterdir():
        path.unlink()
    (project.directory / "shop/migrations").rmdir()
    assert "App 'shop' has no migrations package" in project.adopt(code=1)


@on_one
def test_a_package_of_somebody_else(project: Project) -> None:
    """No migration is written to where the next installation forgets it."""
    project.begin(MODELS)
    out = project.manage("idgen_adopt", "contenttypes.ContentType", "--yes", code=1)
    assert "App 'contenttypes' is part of an installed package" in out
    assert "MIGRATION_MODULES" in out


@on_one
def test_without_yes_nothing_is_written(project: Project) -> None:
    """A dry run, and a run without --yes where nobody can be asked, only say what they would do."""
    project.begin(MODELS, "Order.objects.create()")
    for option in ("--dry-run", "-v1"):
        out = project.manage("idgen_adopt", "shop.Order", option)
        assert "shop.Order: 1 row in 'default'" in out
        assert "It would write" in out
        assert "Nothing was done" in out
    assert project.migrations() == ["0001_initial"]


@on_one
def test_a_half_way_table(project: Project) -> None:
    """An edit that was not made, a change of mind half-way: it says what is to be done."""
    project.begin(MODELS)
    project.adopt()
    project.run("call_command('migrate', verbosity=0)")
    out = project.adopt(code=1)
    assert "The migrations say that the key of shop.Order is a SegmentIdField" in out
    assert "Make the edit" in out


@on_one
def test_a_table_whose_ids_are_as_large_as_snowflakes(project: Project) -> None:
    """It is refused before a migration is written, not in the deployment."""
    project.begin(
        "class Order(models.Model):\n    id = models.BigAutoField(primary_key=True)\n",
        "Order.objects.create(pk=2**60)",
    )
    assert "they would repeat ids" in project.adopt("--field", "snowflake", code=1)
    assert project.migrations() == ["0001_initial"]


@pytest.mark.parametrize("project", ["postgres", "mariadb"], indirect=True)
def test_the_way_back_of_a_table_with_a_native_sequence(project: Project) -> None:
    """The sequence has to go first; then the way back is open."""
    project.begin("class Order(models.Model):\n    id = models.BigAutoField(primary_key=True)\n")
    project.stage("--at-once")
    project.manage("idgen_native", "shop.order")
    assert "idgen_native shop.order --remove" in project.adopt("--back", code=1)
    project.manage("idgen_native", "shop.order", "--remove")
    project.stage("--back", "--at-once")


@on_one
def test_a_project_without_django_idgen_again(project: Project) -> None:
    """``migrate django_idgen zero`` drops no table of another app. The how-to's way keeps all."""
    project.begin(
        "class Order(models.Model):\n    id = models.BigAutoField(primary_key=True)\n",
        "Order.objects.create()",
    )
    project.stage("--at-once")
    project.run("Order.objects.create()")
    project.stage("--back", "--at-once")
    keys = project.run("print(*Order.objects.values_list('pk', flat=True))")
    refused = project.manage("migrate", "django_idgen", "zero", code=1)
    assert "would also undo migrations of shop" in refused
    assert project.run("print(*Order.objects.values_list('pk', flat=True))") == keys

    project.manage("migrate", "--fake", "shop", "zero")
    for path in (project.directory / "shop" / "migrations").glob("0*.py"):
        path.unlink()
    project.manage("makemigrations", "shop")
    assert (
        "django_idgen"
        not in (project.directory / "shop" / "migrations" / "0001_initial.py").read_text()
    )
    project.manage("migrate", "--fake", "shop")
    project.manage("migrate", "django_idgen", "zero")
    project.migrate("Order.objects.create()")
    assert project.run("print(Order.objects.count())").split() == ["3"]


@pytest.mark.parametrize("project", ["sqlite", "postgres"], indirect=True)
def test_two_apps_without_django_idgen_again(project: Project) -> None:
    """The how-to's lines, run for both apps, keep the rows of an app that refers to the other."""
    project.begin("class Order(models.Model):\n    id = models.BigAutoField(primary_key=True)\n")
    ledger = "class Entry(models.Model):\n    note = models.CharField(max_length=9, default='')\n"
    project.add_app("ledger", ledger)
    project.manage("makemigrations", "ledger", "-v0")
    project.add_to_app(
        "ledger", "    order = models.ForeignKey('shop.Order', models.CASCADE, null=True)\n"
    )
    project.manage("makemigrations", "ledger", "-v0")
    project.migrate()
    project.stage("--at-once")
    entry = "from ledger.models import Entry\n"
    project.run(f"{entry}Entry.objects.create(order=Order.objects.create())")
    project.stage("--back", "--at-once")

    for app in ("shop", "ledger"):
        project.manage("migrate", "--fake", app, "zero")
    for app in ("shop", "ledger"):
        for path in (project.directory / app / "migrations").glob("0*.py"):
            path.unlink()
    project.manage("makemigrations", "shop", "ledger")
    for app in ("shop", "ledger"):
        project.manage("migrate", "--fake", app)
    project.manage("migrate", "django_idgen", "zero")
    project.migrate(f"{entry}Entry.objects.create(order=Order.objects.create())")
    out = project.run(
        f"{entry}print([each.order_id == each.order.pk for each in Entry.objects.all()])"
    )
    assert out.strip() == "[True, True]"


@on_one
def test_a_uuid_table_half_way(project: Project) -> None:
    """--back before the switch says how to give it up; giving it up leaves no column behind.

    --at-once is refused: such a table has no such way.
    """
    project.begin(
        "class Order(models.Model):\n"
        "    id = models.UUIDField(primary_key=True, default=uuid.uuid4)\n"
    )
    assert "Leave --at-once out" in project.adopt("--at-once", code=1)
    project.stage()
    assert "half-way to another type" in project.adopt("--back", code=1)
    out = project.run(
        "call_command('migrate', 'shop', '0001', verbosity=0)\n"
        "from django.db import connection\n"
        "cursor = connection.cursor()\n"
        "cursor.execute('SELECT * FROM shop_order')\n"
        "print([column[0] for column in cursor.description])"
    )
    assert out.strip() == "['id']"

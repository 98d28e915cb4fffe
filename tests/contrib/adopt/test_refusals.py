"""What the command refuses, and what it only shows: clear words, status 1, nothing changed."""

from __future__ import annotations

import pytest

from tests.contrib.adopt.projects import (
    DEPLOY,
    MAKE,
    MIGRATE,
    QUIET,
    Project,
    adopt,
    manage,
    written,
)
from tests.tiers import long

MODELS = """
class Order(models.Model):
    note = models.CharField(max_length=20)
"""
OTHERS = """
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType


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


class Large(models.Model):
    note = models.CharField(max_length=20)


class Parcel(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)


class Gift(Parcel):
    wrap = models.IntegerField()


class Indexed(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    class Meta:
        indexes = [models.Index(fields=["id"], name="by_id")]


class Target(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)


class Note(models.Model):
    kind = models.ForeignKey(ContentType, models.CASCADE)
    key = models.CharField(max_length=40)
    target = GenericForeignKey("kind", "key")
"""
ROWS = """
Order.objects.create()
Large.objects.create(pk=2**60)
Note.objects.create(target=Target.objects.create())
"""
KEY = "class Order(models.Model):\n    id = models.BigAutoField(primary_key=True)\n"
UUID = """
class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
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
    # A migration there would be forgotten by the next installation.
    ("contenttypes.ContentType",): "is part of an installed package",
    ("shop.Large", "--field", "snowflake"): "they would repeat ids",
    ("shop.Parcel",): "shop.Gift.parcel_ptr inherits from it",
    ("shop.Gift",): "is its reference to shop.Parcel. Adopt shop.Parcel",
    ("shop.Indexed",): "constraints name its key (by_id)",
    ("shop.Target",): "1 rows of shop.Note.target point at it by a GenericForeignKey",
    ("shop.Target", "--at-once"): "Leave --at-once out",
    ("shop.Parcel", "--back"): "is a UUID already: there is no way back",
}


@on_one
def test_what_is_refused(project: Project) -> None:
    """Each is refused in words that name the value and the way out, and nothing is written.

    A dry run, and a run without --yes where nobody can be asked, only say what they would do.
    """
    away = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": "1"}
    project.extra = {"away": {**away, "NAME": "x", "USER": "x"}}
    refused = (manage("idgen_adopt", *words, "--yes", code=1) for words in WORDS)
    shown = (manage("idgen_adopt", "shop.Order", option) for option in ("--dry-run", "-v1"))
    _, *said = project.begin(MODELS + OTHERS, ROWS, *refused, *shown)
    for (words, expected), out in zip(WORDS.items(), said, strict=False):
        assert expected in out, words
        assert "CommandError" in out
    for out in said[-2:]:
        assert "shop.Order: 1 row in 'default'" in out
        assert "It would write" in out
        assert "Nothing was done" in out
    assert project.migrations() == ["0001_initial"]


@on_one
def test_the_state_of_migrations(project: Project) -> None:
    """It refuses an app without migrations, a model without one, several leaves, unapplied ones."""
    project.begin(MODELS)
    project.models(MODELS + "\n\nclass New(models.Model):\n    pass\n")
    other = (
        "from django.db import migrations\n\n\nclass Migration(migrations.Migration):\n"
        "    dependencies = [('shop', '0001_initial')]\n"
    )
    unmade, _, unapplied, _, _, leaves = project.run(
        manage("idgen_adopt", "shop.New", code=1),
        MAKE,
        adopt(code=1),
        MIGRATE,
        written("0002_other", other),
        adopt(code=1),
    )
    assert "No migration makes shop.New yet" in unmade
    assert "migrations: shop.0002_new. Run 'manage.py migrate --database default'" in unapplied
    assert "makemigrations --merge" in leaves
    for path in (project.directory / "shop/migrations").iterdir():
        path.unlink()
    (project.directory / "shop/migrations").rmdir()
    assert "App 'shop' has no migrations package" in project.run(adopt(code=1))[0]


@on_one
def test_a_half_way_table(project: Project) -> None:
    """An edit that was not made, a change of mind half-way: it says what is to be done."""
    out = project.begin(MODELS, adopt(), MIGRATE, adopt(code=1))[-1]
    assert "The migrations say that the key of shop.Order is a SegmentIdField" in out
    assert "Make the edit" in out


@on_one
def test_a_uuid_table_half_way(project: Project) -> None:
    """--back before the switch says how to give it up; giving it up leaves no column behind."""
    columns = (
        "from django.db import connection\n"
        "with connection.cursor() as cursor:\n"
        "    cursor.execute('SELECT * FROM shop_order')\n"
        "    print([column[0] for column in cursor.description])"
    )
    undo = manage("migrate", "shop", "0001", *QUIET)
    *_, before, said, _, after = project.begin(
        UUID, adopt(), MIGRATE, columns, adopt("--back", code=1), undo, columns
    )
    assert "half-way to another type" in said
    assert before.startswith("['id', ")
    assert after == "['id']\n"


@pytest.mark.parametrize("project", ["postgres", "mariadb"], indirect=True)
def test_the_way_back_of_a_table_with_a_native_sequence(project: Project) -> None:
    """The sequence has to go first; then the way back is open."""
    project.edit(project.begin(KEY, adopt("--at-once"))[0])
    _, refused, _, out = project.deploy(
        manage("idgen_native", "shop.order"),
        adopt("--back", code=1),
        manage("idgen_native", "shop.order", "--remove"),
        adopt("--back", "--at-once"),
    )
    assert "idgen_native shop.order --remove" in refused
    project.edit(out)
    project.deploy()


FORGET = """
from pathlib import Path
for path in [*Path().glob("*/migrations/0*.py")]:
    path.unlink()
"""


@pytest.mark.parametrize("project", ["sqlite", *long("postgres")], indirect=True)
def test_apps_without_django_idgen_again(project: Project) -> None:
    """``migrate django_idgen zero`` drops no table of another app. The how-to's way keeps all.

    Its lines, run for both apps, keep the rows of an app that refers to the other.
    """
    ledger = "class Entry(models.Model):\n    note = models.CharField(max_length=9, default='')\n"
    project.add_app("ledger", ledger)
    project.begin(KEY)
    project.add_to_app(
        "ledger", "    order = models.ForeignKey('shop.Order', models.CASCADE, null=True)\n"
    )
    project.edit(project.run(MAKE, MIGRATE, adopt("--at-once"))[-1])
    entry = "Entry.objects.create(order=Order.objects.create())"
    entries = "print(*Entry.objects.values_list('pk', 'order', 'order__pk'))"
    zero = ("migrate", "django_idgen", "zero", *QUIET)
    project.edit(project.deploy(entry, adopt("--back", "--at-once"))[-1])
    _, before, refused, after, *_ = project.deploy(
        entry,
        entries,
        manage(*zero, code=1),
        entries,
        *(manage("migrate", "--fake", app, "zero", *QUIET) for app in ("shop", "ledger")),
        FORGET,
        manage("makemigrations", "shop", "ledger", *QUIET),
    )
    assert "would also undo migrations of shop" in refused
    assert after == before
    assert "django_idgen" not in (project.directory / "shop/migrations/0001_initial.py").read_text()
    *_, now, _ = project.run(
        *(manage("migrate", "--fake", app, *QUIET) for app in ("shop", "ledger")),
        manage(*zero),
        DEPLOY,
        entries,
        entry,
    )
    assert now == before

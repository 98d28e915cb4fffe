"""A tag never begins below the rows of its table: a real project, renamed step by step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests import servers, warm
from tests.conftest import _execute
from tests.tiers import long

ROOT = Path(__file__).parents[2]
SETTINGS = """
import json, os
from tests.servers import use_pymysql_for_mysqlclient
use_pymysql_for_mysqlclient()
SECRET_KEY = "x"
DATABASES = {"default": json.loads(os.environ["TRADE_DATABASE"])}
INSTALLED_APPS = ["django_idgen", "trade"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
HEAD = "from django.db import models\nfrom django_idgen.fields import SegmentIdField\n"
STEP = """
import json, sys
import django
from django.core.management import call_command
django.setup()
from trade import models
for command in json.loads(sys.argv[1]):
    call_command(*command)
name, count, kept = json.loads(sys.argv[2])
made = [getattr(models, name).objects.create().pk for _ in range(count)]
getattr(models, name).objects.filter(pk__in=made[kept:]).delete()
print("made:", json.dumps(made))
"""
WRITE_DOWN = ["makemigrations", "trade", "-v0"]
NO_DRIFT = ["makemigrations", "--check", "--dry-run", "-v0"]
MIGRATE = ["migrate", "-v0"]


@pytest.fixture(params=["sqlite", "postgres", *long("mariadb")])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any
) -> Iterator[Any]:
    """The settings of an empty database of the test's own."""
    kind = request.param
    if kind == "sqlite":
        yield {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "trade.sqlite3")}
        return
    servers.require(kind)
    name = f"idgen_trade_{os.getpid()}"
    with django_db_blocker.unblock():
        _execute(kind, f"CREATE DATABASE {name}")
        yield {**servers.database(kind), "NAME": name}
        connections[kind].close()
        _execute(kind, f"DROP DATABASE {name}")


class Project:
    """A project whose one app is written anew before each step."""

    def __init__(self, directory: Path, database: dict[str, Any]) -> None:
        self.directory = directory
        self.database = database
        (directory / "trade" / "migrations").mkdir(parents=True)
        (directory / "trade" / "__init__.py").touch()
        (directory / "trade" / "migrations" / "__init__.py").touch()
        (directory / "trade_settings.py").write_text(SETTINGS)
        self.given: list[int] = []
        self.output = ""

    def step(self, models: str, *commands: list[str], insert: str, kept: int = 3) -> None:
        """One process, in which ``models`` are the app's: the commands, then new rows.

        New rows have ids above all that were given, also to rows that are deleted since.
        """
        (self.directory / "trade" / "models.py").write_text(HEAD + models)
        done = warm.run(
            ["-c", STEP, json.dumps(commands), json.dumps([insert, 3, kept])],
            cwd=self.directory,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "trade_settings",
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.directory)]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TRADE_DATABASE": json.dumps(self.database),
            },
            said="y\n",  # yes, it was renamed
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self.output = done.stdout
        made = json.loads(done.stdout.rpartition("made: ")[2])
        assert made[0] > max(self.given, default=0), (made, self.given)
        self.given += made


def model(name: str, *options: str, field: str = "") -> str:
    meta = "".join(f"        {option}\n" for option in options)
    body = f"    id = SegmentIdField(primary_key=True{field})\n"
    return f"class {name}(models.Model):\n{body}" + (f"    class Meta:\n{meta}" if meta else "")


@pytest.fixture
def project(tmp_path: Path, database: dict[str, Any]) -> Project:
    return Project(tmp_path, database)


def shell(code: str) -> list[str]:
    return ["shell", "-c", f"from django_idgen.models import LeafAlloc\n{code}"]


KEPT = 'db_table = "trade_order"'


def test_ids_go_on_when_a_model_is_renamed(project: Project) -> None:
    """Its new tag goes on where the old one stands: there and back, and with no row left.

    ``migrate`` sees to it, by the old tag: rows tell nothing of those that were deleted.
    """
    both = [WRITE_DOWN, NO_DRIFT, MIGRATE]
    project.step(model("Order"), *both, insert="Order", kept=0)
    project.step(model("Purchase"), *both, insert="Purchase", kept=0)
    project.step(model("Purchase", field=', tag="bought"'), *both, insert="Purchase", kept=0)
    back = [*MIGRATE, "trade", "0001"]
    project.step(model("Order"), back, insert="Order", kept=0)


def test_a_renamed_model_keeps_step_description_and_pause(project: Project) -> None:
    """A paused tag gives out no id under its new name until it is resumed.

    Back under the old name, which is still there, the tag is as it was.
    """
    project.step(model("Order"), WRITE_DOWN, MIGRATE, insert="Order")
    change = "LeafAlloc.objects.filter(pk='trade.order').update(step=7, description='x', paused=%s)"
    ask = "print('row:', LeafAlloc.objects.values_list('step', 'description', 'paused').get(pk=%r))"
    refused = """
from django_idgen import segments
from django_idgen.core.errors import TagPaused
try:
    print("given:", segments["trade.purchase"].next_id())
except TagPaused as error:
    print("refused:", error)
"""
    resume = "LeafAlloc.objects.filter(pk='trade.purchase').update(paused=False)"
    project.step(
        model("Purchase"),
        *(shell(change % True), WRITE_DOWN, MIGRATE),
        *(shell(ask % "trade.purchase"), shell(refused), shell(resume)),
        insert="Purchase",
    )
    assert "row: (7, 'x', True)" in project.output
    assert "refused:" in project.output
    back = [*MIGRATE, "trade", "0001"]
    project.step(
        model("Order"), shell(change % False), back, shell(ask % "trade.order"), insert="Order"
    )
    assert "row: (7, 'x', False)" in project.output


def test_a_new_tag_begins_above_the_rows_of_its_table(project: Project) -> None:
    """Also before ``migrate``, which has nothing to tell where the table is kept.

    One that is another field's, too, goes on above them once ``migrate`` has run.
    """
    project.step(model("Order"), WRITE_DOWN, MIGRATE, insert="Order")
    project.step(model("Purchase", KEPT), insert="Purchase")
    project.step(model("Purchase", KEPT, field=', tag="given"'), insert="Purchase")
    beside = model("Stub")
    project.step(model("Purchase", KEPT) + beside, WRITE_DOWN, MIGRATE, insert="Purchase")
    shared = model("Purchase", KEPT, field=', tag="trade.stub"')
    project.step(shared + beside, WRITE_DOWN, NO_DRIFT, MIGRATE, insert="Purchase")

"""Our fields as ``DEFAULT_AUTO_FIELD`` and ``default_auto_field``, in projects of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests import servers, warm
from tests.aliases import alias

__all__ = ["alias"]

ROOT = Path(__file__).parents[2]
AUTO_FIELDS = ["django_idgen.fields.SnowflakeAutoField", "django_idgen.fields.SegmentAutoField"]
PLAIN = "django.db.models.AutoField"

# "atelier" sorts before "django_idgen": its migrations run first.
FILES = {
    "manage.py": """
        import os
        from django.core.management import execute_from_command_line
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        execute_from_command_line()
    """,
    "settings.py": """
        import json, os
        from tests.mysql_driver import use_pymysql_for_mysqlclient
        from tests.patience import wait_patiently
        use_pymysql_for_mysqlclient()
        wait_patiently()
        SECRET_KEY = "tests"
        USE_TZ = True
        DATABASES = {"default": json.loads(os.environ["DATABASE"])}
        DEFAULT_AUTO_FIELD = os.environ["GLOBAL"]
        INSTALLED_APPS = [
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "atelier.apps.Atelier",
            "django_idgen",
        ]
    """,
    "atelier/__init__.py": "",
    "atelier/apps.py": """
        import os
        from django.apps import AppConfig
        class Atelier(AppConfig):
            name = "atelier"
            if os.environ["APP"]:
                default_auto_field = os.environ["APP"]
    """,
    "atelier/models.py": """
        from django.db import models
        class Brush(models.Model):
            name = models.CharField(max_length=40)
        class Picture(models.Model):
            name = models.CharField(max_length=40)
            brushes = models.ManyToManyField(Brush)
            after = models.ForeignKey("self", models.CASCADE, null=True)
    """,
    "atelier/migrations/__init__.py": "",
}

DATA_MIGRATION = """
    from django.db import migrations
    def fill(apps, schema_editor):
        picture = apps.get_model("atelier", "Picture").objects.create(name="first")
        picture.brushes.create(name="brush")
    class Migration(migrations.Migration):
        dependencies = [("atelier", "0001_initial")]
        operations = [migrations.RunPython(fill)]
"""

USE_IT = """
    from django.apps import apps
    from django.contrib.auth.models import Group, Permission, User
    from django.db import connection
    from django.db.migrations.recorder import MigrationRecorder
    Brush, Picture = apps.get_model("atelier", "Brush"), apps.get_model("atelier", "Picture")
    user = User.objects.create_user("u")
    user.groups.add(Group.objects.create(name="g"))
    user.user_permissions.add(Permission.objects.first())
    picture = Picture.objects.create(name="p")
    child = Picture.objects.create(name="c", after=picture)
    picture.brushes.add(*[Brush.objects.create(name=str(n)) for n in range(3)])
    kept = Picture.objects.get(after=picture)
    assert kept == child and kept.after == picture, "foreign key"
    assert picture.brushes.count() == 3 and user.groups.count() == 1, "through"
    keys = list(Picture.objects.values_list("pk", flat=True))
    assert len(set(keys)) == len(keys) and min(keys) >= 1, keys
    print(type(Picture._meta.pk).__name__, max(keys))
"""


class Project:
    """A directory with a Django project, and a database that nobody used before."""

    def __init__(self, directory: Path, database: dict[str, Any]) -> None:
        self.directory = directory
        self.database = database
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))

    def manage(self, *arguments: str, default: str, app: str = "") -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.directory}",
            "DATABASE": json.dumps(self.database),
            "GLOBAL": default,
            "APP": app,
        }
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        done = warm.run(["manage.py", *arguments], cwd=self.directory, env=environment)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return printed

    def use(self, **settings: str) -> tuple[str, int]:
        """Make rows of all kinds; the class of the key, and the highest one."""
        self.write("use_it.py", USE_IT)
        out = self.manage("shell", "-v0", "-c", "import use_it", **settings)
        kind, highest = out.split()[-2:]
        return kind, int(highest)


@contextmanager
def _empty_database(alias: str, directory: Path) -> Iterator[dict[str, Any]]:
    if alias == "default":
        sqlite = "django.db.backends.sqlite3"
        yield {"ENGINE": sqlite, "NAME": str(directory / "project.sqlite3")}
        return
    settings = servers.database(alias)
    name = f"idgen_auto_{os.getpid()}"
    with _administrator(alias, settings) as execute:
        execute(f"CREATE DATABASE {name}")
        try:
            yield {**settings, "NAME": name}
        finally:
            execute(f"DROP DATABASE {name}")


@contextmanager
def _administrator(alias: str, settings: dict[str, Any]) -> Iterator[Any]:
    address = {"host": settings["HOST"], "port": int(settings["PORT"]), "user": settings["USER"]}
    if alias == "postgres":
        import psycopg

        address |= {"password": settings["PASSWORD"], "dbname": "postgres"}
        with psycopg.connect(**address, autocommit=True) as connection:
            yield connection.execute
    else:
        import pymysql

        with pymysql.connect(**address, password=settings["PASSWORD"]) as connection:
            yield connection.cursor().execute


@pytest.fixture
def project(alias: str, tmp_path: Path) -> Iterator[Project]:
    with _empty_database(alias, tmp_path) as database:
        yield Project(tmp_path, database)


@pytest.mark.parametrize("field", AUTO_FIELDS)
def test_a_global_default_migrates_an_empty_database(project: Project, field: str) -> None:
    """``migrate`` works where rows need ids before our tables; relations do after (hazard 63)."""
    project.manage("makemigrations", "atelier", default=field)
    project.write("atelier/migrations/0002_fill.py", DATA_MIGRATION)
    project.manage("migrate", default=field)
    kind, _ = project.use(default=field)
    assert kind == field.rpartition(".")[2]
    assert "No changes" in project.manage("makemigrations", "--check", default=field)
    assert "W001" in project.manage("check", default=field)


@pytest.mark.parametrize("field", AUTO_FIELDS)
def test_an_apps_default_works_beside_int32_tables(project: Project, field: str) -> None:
    """With 32 bits as the project's default, an app of 64-bit ids has working relations."""
    settings = {"default": PLAIN, "app": field}
    project.manage("makemigrations", "atelier", **settings)
    project.write("atelier/migrations/0002_fill.py", DATA_MIGRATION)
    project.manage("migrate", **settings)
    kind, _ = project.use(**settings)
    assert kind == field.rpartition(".")[2]
    assert "No changes" in project.manage("makemigrations", "--check", **settings)
    assert "W001" not in project.manage("check", **settings)


def test_an_int32_project_moves_over(project: Project) -> None:
    """From 32-bit keys to a global default of ours: rows stay, and every table takes new ones."""
    project.manage("makemigrations", "atelier", default=PLAIN)
    project.write("atelier/migrations/0002_fill.py", DATA_MIGRATION)
    project.manage("migrate", default=PLAIN)
    project.manage("makemigrations", "atelier", default=AUTO_FIELDS[0])
    project.manage("migrate", default=AUTO_FIELDS[0])
    kind, highest = project.use(default=AUTO_FIELDS[0])
    assert (kind, highest > 2**31) == ("SnowflakeAutoField", True)
    assert "No changes" in project.manage("makemigrations", "--check", default=AUTO_FIELDS[0])

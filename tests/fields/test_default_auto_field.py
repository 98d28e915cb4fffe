"""Our fields as ``DEFAULT_AUTO_FIELD`` and ``default_auto_field``, in projects of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from textwrap import dedent

import pytest
from django.db import connections

from tests import tiers, warm

ROOT = Path(__file__).parents[2]
SNOWFLAKE = "django_idgen.fields.SnowflakeAutoField"
SEGMENT = "django_idgen.fields.SegmentAutoField"
PLAIN = "django.db.models.AutoField"
DATABASE = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD", "NAME")
"""The settings that say where a database is."""

# "atelier" sorts before "django_idgen": its migrations run first.
FILES = {
    "manage.py": """
        import importlib, json, os, sys
        from django.core.management import execute_from_command_line
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        for command in json.loads(sys.argv[1]):
            importlib.invalidate_caches()  # a migration may have been written
            execute_from_command_line(["manage.py", *command])
    """,
    "settings.py": """
        import json, os
        from tests.servers import use_pymysql_for_mysqlclient
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

USE_IT = ["shell", "-v0", "-c", "import use_it"]
FILES["use_it.py"] = """
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
    print("USED", type(Picture._meta.pk).__name__, max(keys))
"""


class Project:
    """A directory with a Django project, and a database that nobody used before."""

    def __init__(self, directory: Path, alias: str) -> None:
        self.directory = directory
        settings = connections.settings[alias]
        self.database = json.dumps({key: settings[key] for key in DATABASE})
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))

    def manage(self, *commands: list[str], default: str, app: str = "") -> str:
        """What ``commands`` print, one after the other in one process."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.directory}",
            "DATABASE": self.database,
            "GLOBAL": default,
            "APP": app,
        }
        done = warm.run(["manage.py", json.dumps(commands)], cwd=self.directory, env=environment)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return printed

    def begin(self, *commands: list[str], default: str, app: str = "") -> str:
        """Write its migrations, one of which makes rows, and run ``commands``."""
        self.manage(["makemigrations", "atelier"], default=default, app=app)
        self.write("atelier/migrations/0002_fill.py", DATA_MIGRATION)
        return self.manage(*commands, default=default, app=app)


@pytest.fixture
def project(empty_place: str, tmp_path: Path) -> Project:
    return Project(tmp_path, empty_place)


MIGRATE = ["migrate", "-v0"]
NO_DRIFT = ["makemigrations", "--check"]


@pytest.mark.parametrize("field", [SNOWFLAKE, SEGMENT])
def test_a_global_default_migrates_an_empty_database(project: Project, field: str) -> None:
    """``migrate`` works where rows need ids before our tables; relations do after (hazard 63)."""
    said = project.begin(MIGRATE, USE_IT, NO_DRIFT, ["check"], default=field)
    assert f"USED {field.rpartition('.')[2]} " in said
    assert "No changes" in said
    assert "W001" in said


@pytest.mark.parametrize("field", [SNOWFLAKE, *tiers.long(SEGMENT)])
def test_an_apps_default_works_beside_int32_tables(project: Project, field: str) -> None:
    """With 32 bits as the project's default, an app of 64-bit ids has working relations."""
    said = project.begin(MIGRATE, USE_IT, NO_DRIFT, ["check"], default=PLAIN, app=field)
    assert f"USED {field.rpartition('.')[2]} " in said
    assert "No changes" in said
    assert "W001" not in said


def test_an_int32_project_moves_over(project: Project) -> None:
    """From 32-bit keys to a global default of ours: rows stay, and every table takes new ones."""
    project.begin(MIGRATE, default=PLAIN)
    said = project.manage(
        ["makemigrations", "atelier"], MIGRATE, USE_IT, NO_DRIFT, default=SNOWFLAKE
    )
    _, kind, highest = said[said.index("USED") :].split()[:3]
    assert (kind, int(highest) > 2**31) == ("SnowflakeAutoField", True)
    assert "No changes" in said

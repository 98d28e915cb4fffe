"""A small project in a directory of its own, whose tables are adopted as a user would."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from django.db import connections

from tests import servers

ROOT = Path(__file__).parents[2]
KINDS = ("sqlite", "postgres", "mariadb")
_serial = count(1)

SETTINGS = """
import json, os
DATABASES = json.loads(os.environ["ADOPT_DATABASES"])
if any(entry["ENGINE"].endswith("mysql") for entry in DATABASES.values()):
    try:
        import MySQLdb
    except ImportError:
        import pymysql
        pymysql.version_info = (2, 2, 1, "final", 0)
        pymysql.install_as_MySQLdb()
        pymysql.connections.SSL_ENABLED = False
SECRET_KEY = "adopt"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = json.loads(os.environ.get("ADOPT_APPS", '["shop"]')) + [
    "django.contrib.contenttypes", "django_idgen"]
IDGEN = {"SEGMENTS": {"OPTIONS": {"default_step": 20}}}
"""
HEAD = "import uuid\n\nfrom django.db import models\n\n\n"


@dataclass
class Project:
    """An app ``shop`` in ``directory``, on a database of kind ``kind`` that is its own."""

    directory: Path
    kind: str
    name: str = ""

    def __post_init__(self) -> None:
        self.name = f"adopt_{os.getpid()}_{next(_serial)}"
        (self.directory / "settings.py").write_text(SETTINGS)
        (self.directory / "manage.py").write_text(
            "import sys\nfrom django.core.management import execute_from_command_line\n"
            "execute_from_command_line(sys.argv)\n"
        )
        for package in ("shop", "shop/migrations"):
            (self.directory / package).mkdir()
            (self.directory / package / "__init__.py").touch()
        if self.kind != "sqlite":
            self._server(f"CREATE DATABASE {self.name}")

    def remove(self) -> None:
        if self.kind != "sqlite":
            force = " WITH (FORCE)" if self.kind == "postgres" else ""
            self._server(f"DROP DATABASE IF EXISTS {self.name}{force}")

    def database(self) -> dict[str, Any]:
        if self.kind == "sqlite":
            path = self.directory / "db.sqlite3"
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
        return {**servers.database(self.kind), "NAME": self.name}

    # --- the user's hands ----------------------------------------------------------------

    def models(self, text: str) -> None:
        """Write ``models.py``, below the usual imports."""
        (self.directory / "shop" / "models.py").write_text(HEAD + textwrap.dedent(text))

    def edit(self, output: str) -> None:
        """Make the edit that the command printed as a diff."""
        diff = output[output.index("--- ") :].partition("\nNext:")[0].rstrip() + "\n"
        done = subprocess.run(
            ["patch", "-p0", "--no-backup-if-mismatch"],
            cwd=self.directory,
            input=diff,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr + diff

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """``python`` ``command``, in the project."""
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.directory,
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith("COV")},
                "DJANGO_SETTINGS_MODULE": "settings",
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.directory)]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "ADOPT_DATABASES": json.dumps({"default": self.database()}),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def manage(self, *command: str, code: int = 0, **environment: str) -> str:
        """What ``manage.py`` ``command`` printed; it must end with ``code``."""
        process = self.start("manage.py", *command, **environment)
        out = process.communicate(timeout=120)[0]
        assert process.returncode == code, out
        assert "Traceback" not in out, out
        return out

    def run(self, code: str) -> str:
        """What ``code`` printed, in a process of the project's present models."""
        out, status = self.try_run(code)
        assert status == 0, out
        return out

    def try_run(self, code: str) -> tuple[str, int]:
        process = self.background(code)
        out = process.communicate(timeout=120)[0]
        return out, process.returncode

    def background(self, code: str) -> subprocess.Popen[str]:
        """``code`` in a process that keeps the models that there are now."""
        start = "import django; django.setup()\nfrom shop.models import *\n"
        return self.start("-u", "-c", start + textwrap.dedent(code))

    def adopt(self, *options: str, code: int = 0) -> str:
        return self.manage("idgen_adopt", "shop.Order", *options, "--yes", code=code)

    def migrations(self) -> list[str]:
        return sorted(p.stem for p in (self.directory / "shop/migrations").glob("0*.py"))

    def begin(self, models: str) -> None:
        """The project as it was before anybody thought of us: migrated, and in use."""
        self.models(models)
        self.manage("makemigrations", "shop", "-v0")
        self.manage("migrate", "-v0")

    def stage(self, *options: str) -> str:
        """One stage of the user's: run the command, make the edit, migrate; what it printed."""
        out = self.adopt(*options)
        if "\n+++ " in out:
            self.edit(out)
        self.manage("makemigrations", "--check", "--dry-run")
        self.manage("migrate", "-v0")
        return out

    def _server(self, statement: str) -> None:
        with connections[self.kind]._nodb_cursor() as cursor:
            cursor.execute(statement)


INSERTER = """
import time
from django.db import connection
from django.db.utils import Error
print("ready")
while True:
    try:
        print(f"id {Order.objects.create(note='old').pk}")
    except Error as error:
        print("refused", " ".join(str(error).split()))
        connection.close()
    time.sleep(0.002)
"""


class Inserter:
    """A process that inserts orders with the models that it was started with."""

    def __init__(self, project: Project, code: str = INSERTER) -> None:
        self.process = project.background(code)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def stop(self) -> tuple[list[str], list[str]]:
        """End it; the ids that it was given, and the errors."""
        self.process.send_signal(signal.SIGKILL)
        out = self.process.communicate(timeout=60)[0]
        return re.findall(r"^id (\S+)$", out, re.M), re.findall(r"^refused (.*)$", out, re.M)

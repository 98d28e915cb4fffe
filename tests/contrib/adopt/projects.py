"""A small project in a directory of its own, whose tables are adopted as a user would."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from time import sleep
from typing import Any

from django.db import connections

from tests import servers
from tests.contrib.adopt import child

KINDS = ("sqlite", "postgres", "mariadb")
_serial = count(1)
# Each of a user's many commands is a process of its own; what all of them import is there.
CHILDREN = get_context("forkserver")
CHILDREN.set_forkserver_preload(["tests.contrib.adopt.child", *child.PRELOAD])

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
ZONE = os.environ.get("ADOPT_ZONE")
USE_TZ = not ZONE
TIME_ZONE = ZONE or "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = json.loads(os.environ["ADOPT_APPS"]) + [
    "django.contrib.contenttypes", "django_idgen"]
IDGEN = json.loads(os.environ["ADOPT_IDGEN"])
"""
HEAD = "import uuid\n\nfrom django.db import models\n\n\n"


class Process:
    """A child that runs a job in a project; what it prints goes to a file there."""

    def __init__(
        self, directory: Path, environment: dict[str, str], job: str, words: list[str]
    ) -> None:
        self._output = directory / f"output.{next(_serial)}"
        self._output.touch()
        arguments = (str(directory), environment, str(self._output), job, words)
        self._process = CHILDREN.Process(target=child.main, args=arguments, daemon=True)
        self._process.start()

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text()

    def wait(self) -> str:
        """What it printed, when it has ended."""
        self._process.join(120)
        assert self._process.exitcode is not None, self._output.read_text()
        return self._output.read_text()

    def wait_for(self, word: str) -> None:
        """Until it has printed ``word``."""
        for _ in range(6000):
            if word in self._output.read_text():
                return
            assert self._process.is_alive(), self._output.read_text()
            sleep(0.01)
        raise AssertionError(f"It never said {word!r}: {self._output.read_text()}")

    def kill(self) -> None:
        self._process.kill()


@dataclass
class Project:
    """An app ``shop`` in ``directory``, on a database of kind ``kind`` that is its own."""

    directory: Path
    kind: str
    name: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """More of DATABASES."""
    idgen: dict[str, Any] = field(
        default_factory=lambda: {"SEGMENTS": {"OPTIONS": {"default_step": 20}}}
    )
    apps: tuple[str, ...] = ("shop",)
    zone: str = ""
    """The TIME_ZONE of a project with ``USE_TZ = False``."""

    def __post_init__(self) -> None:
        self.name = f"adopt_{os.getpid()}_{next(_serial)}"
        (self.directory / "settings.py").write_text(SETTINGS)
        self._make_app("shop")
        if self.kind != "sqlite":
            self._server(f"CREATE DATABASE {self.name}")

    def _make_app(self, name: str) -> None:
        for package in (name, f"{name}/migrations"):
            (self.directory / package).mkdir()
            (self.directory / package / "__init__.py").touch()

    def add_app(self, name: str, models: str) -> None:
        """One more app, with ``models``."""
        self._make_app(name)
        (self.directory / name / "models.py").write_text(HEAD + textwrap.dedent(models))
        self.apps += (name,)

    def add_to_app(self, name: str, lines: str) -> None:
        """More lines below the models of app ``name``."""
        path = self.directory / name / "models.py"
        path.write_text(path.read_text() + lines)

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
        """Make the edit that the command printed; it removes only lines that are there."""
        shown = output[output.index("Edit class ") :].partition("\n\n")[0].partition("\nNext:")[0]
        changes, _, imports = shown.partition("\nwith these imports:\n")
        model = re.match(r"Edit class (\w+) of shop.models:", changes)
        assert model is not None, output
        path = self.directory / "shop" / "models.py"
        before, name, rest = path.read_text().partition(f"class {model[1]}(")
        fields, gap, after = rest.partition("\n\n\n")
        for removed in re.findall(r"^-    (\w+) = \.\.\.$", changes, re.M):
            fields, found = re.subn(rf"^    {removed} = .*\n?", "", fields, flags=re.M)
            assert found, f"The model has no line for {removed!r}: {shown}"
        key, *last = (f"    {line}" for line in re.findall(r"^\+    (.*)$", changes, re.M))
        first_line, *others = fields.rstrip().split("\n")
        body = "\n".join([first_line, key, *others, *last])
        new = [line.strip() for line in imports.splitlines() if line.strip() not in before]
        path.write_text("\n".join([*new, before]) + f"{name}{body}" + (gap or "\n") + after)

    def start(self, job: str, text: str, *words: str, **environment: str) -> Process:
        """A process in the project: see :mod:`.child`."""
        return Process(
            self.directory,
            {
                "DJANGO_SETTINGS_MODULE": "settings",
                "ADOPT_DATABASES": json.dumps({"default": self.database(), **self.extra}),
                "ADOPT_IDGEN": json.dumps(self.idgen),
                "ADOPT_APPS": json.dumps(self.apps),
                "ADOPT_ZONE": self.zone,
                **environment,
            },
            job,
            [text, *words],
        )

    def manage(self, *command: str, code: int = 0, **environment: str) -> str:
        """What ``manage.py`` ``command`` printed; it must end with ``code``."""
        process = self.start("manage", *command, **environment)
        out = process.wait()
        assert process.exitcode == code, out
        assert "Traceback" not in out, out
        return out

    def run(self, code: str) -> str:
        """What ``code`` printed, in a process of the project's present models."""
        process = self.background(code)
        out = process.wait()
        assert process.exitcode == 0, out
        return out

    def background(self, code: str) -> Process:
        """``code`` in a process that keeps the models that there are now."""
        return self.start("run", textwrap.dedent(code))

    def adopt(self, *options: str, code: int = 0) -> str:
        return self.manage("idgen_adopt", "shop.Order", *options, "--yes", code=code)

    def migrations(self) -> list[str]:
        return sorted(p.stem for p in (self.directory / "shop/migrations").glob("0*.py"))

    def begin(self, models: str, rows: str = "") -> None:
        """The project as it was before anybody thought of us: migrated, with ``rows``."""
        self.models(models)
        self.run(
            "call_command('makemigrations', 'shop', verbosity=0)\n"
            f"call_command('migrate', verbosity=0)\n{textwrap.dedent(rows)}"
        )

    def migrate(self, code: str = "") -> str:
        """Deploy: no model is without its migration, and all are applied; then ``code``."""
        return self.run(
            "call_command('makemigrations', check_changes=True, dry_run=True, verbosity=0)\n"
            f"call_command('migrate', verbosity=0)\n{textwrap.dedent(code)}"
        )

    def write(self, *options: str) -> str:
        """Run the command, and make the edit that it asks for; what it printed."""
        out = self.adopt(*options)
        if "\nEdit class " in out:
            self.edit(out)
        return out

    def stage(self, *options: str) -> str:
        """One stage of the user's: write it, and deploy it; what the command printed."""
        out = self.write(*options)
        self.migrate()
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
        self.process.wait_for("ready")

    def count(self) -> int:
        """How many ids it was given so far."""
        return len(self._ids(self.process.output()))

    def wait_for_more(self) -> None:
        """Until it was given another id."""
        before = self.count()
        for _ in range(6000):
            if self.count() > before:
                return
            assert self.process.exitcode is None, self.process.output()
            sleep(0.01)
        raise AssertionError(f"No more ids: {self.process.output()[-1000:]}")

    def last(self) -> int:
        """The last id that it was given."""
        return int(self._ids(self.process.output())[-1])

    @staticmethod
    def _ids(output: str) -> list[str]:
        return re.findall(r"^id (\S+)$", output, re.M)

    def stop(self) -> tuple[list[str], list[str]]:
        """End it; the ids that it was given, and the errors."""
        self.process.kill()
        out = self.process.wait()
        return self._ids(out), re.findall(r"^refused (.*)$", out, re.M)


def killed(project: Project, *command: str, after: str, count: int = 1) -> bool:
    """Run ``manage.py`` ``command``; SIGKILL it right after statement ``count`` like ``after``.

    False if it came to its end before.
    """
    process = project.start("manage", *command, KILL_AFTER=after, KILL_COUNT=str(count))
    out = process.wait()
    assert process.exitcode in (0, -signal.SIGKILL), out
    return process.exitcode != 0

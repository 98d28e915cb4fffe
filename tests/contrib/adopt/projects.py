"""A small project in a directory of its own, whose tables are adopted as a user would."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

from django.db import connections

from tests import servers, warm
from tests.contrib.adopt.child import END
from tests.server_tools import ROOT

KINDS = ("sqlite", "postgres", "mariadb")
_serial = count(1)

SETTINGS = """
import json, os
from tests.servers import use_pymysql_for_mysqlclient
DATABASES = json.loads(os.environ["ADOPT_DATABASES"])
use_pymysql_for_mysqlclient()
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


def manage(*words: str, code: int = 0) -> str:
    """A piece of code: ``manage.py`` ``words``, which must end with ``code``."""
    return f"manage(*{words!r}, code={code})"


def adopt(*options: str, code: int = 0) -> str:
    """A piece of code: ``idgen_adopt`` for the orders."""
    return manage("idgen_adopt", "shop.Order", "--yes", *options, code=code)


def written(migration: str, text: str) -> str:
    """A piece of code: the user writes a migration of the shop by hand, or anew."""
    return (
        f"open('shop/migrations/{migration}.py', 'w').write({text!r})\n"
        f"import sys; sys.modules.pop('shop.migrations.{migration}', None)"
    )


QUIET = ("-v0", "--skip-checks")
MAKE = manage("makemigrations", "--no-input", *QUIET)
MIGRATE = manage("migrate", *QUIET)
DEPLOY = f"{manage('makemigrations', '--check', '--dry-run', *QUIET)}\n{MIGRATE}"
"""No model is without its migration, and all are applied."""


class Process:
    """A process of a project; what it prints goes to a file there."""

    def __init__(
        self, directory: Path, environment: dict[str, str], pieces: tuple[str, ...]
    ) -> None:
        self._path = directory / f"output.{next(_serial)}"
        with self._path.open("wb") as output:
            self._process = warm.Process(
                ["-m", "tests.contrib.adopt.child", *map(textwrap.dedent, pieces)],
                cwd=directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def output(self) -> str:
        """What it has printed so far."""
        return self._path.read_text()

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.output()) from None

    def wait_until(self, holds: Callable[[str], bool]) -> None:
        """Until ``holds`` of what it has printed so far."""
        for _ in range(6000):
            if holds(out := self.output()):
                return
            assert self.exitcode is None, out
            sleep(0.01)
        raise AssertionError(out[-2000:])

    def wait_for(self, word: str) -> None:
        """Until it has printed ``word``."""
        self.wait_until(lambda out: word in out)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Project:
    """An app ``shop`` in ``directory``, on a database of kind ``kind`` that is its own."""

    directory: Path
    kind: str
    extra: dict[str, Any] = field(default_factory=dict)
    """More of DATABASES."""
    idgen: dict[str, Any] = field(
        default_factory=lambda: {"SEGMENTS": {"OPTIONS": {"default_step": 20}}}
    )
    apps: tuple[str, ...] = ("shop",)
    zone: str = ""
    """The TIME_ZONE of a project with ``USE_TZ = False``."""
    at_switch: int = 0
    """How many empty rows a switch fills."""

    def __post_init__(self) -> None:
        self.name = f"adopt_{os.getpid()}_{next(_serial)}"
        self._processes: list[Process] = []
        (self.directory / "settings.py").write_text(SETTINGS)
        for app in self.apps:
            self._make_app(app)
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
        """End its processes, and drop its database."""
        for process in self._processes:
            process.kill()
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

    def start(self, *pieces: str, **environment: str) -> Process:
        """A process of the project's present models: see :mod:`.child`."""
        given = {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": str(ROOT),
            "ADOPT_DATABASES": json.dumps({"default": self.database(), **self.extra}),
            "ADOPT_IDGEN": json.dumps(self.idgen),
            "ADOPT_APPS": json.dumps(self.apps),
            "ADOPT_ZONE": self.zone,
            "ADOPT_AT_SWITCH": str(self.at_switch),
        }
        self._processes.append(
            Process(self.directory, {**os.environ, **given, **environment}, pieces)
        )
        return self._processes[-1]

    def run(self, *pieces: str) -> list[str]:
        """What each of the ``pieces`` of code printed, in one process."""
        process = self.start(*pieces)
        assert process.wait() == 0, process.output()
        out = process.output()
        assert "Traceback" not in out, out
        return out.split(f"{END}\n")[:-1]

    def begin(self, models: str, *pieces: str) -> list[str]:
        """The project before it knew of us: with ``models``, migrated, and ``pieces`` run."""
        self.models(models)
        return self.run(MAKE, MIGRATE, *pieces)[2:]

    def deploy(self, *pieces: str) -> list[str]:
        """Migrate, with nothing left to be made, and run ``pieces``."""
        return self.run(DEPLOY, *pieces)[1:]

    def killed(self, *command: str, after: str, count: int = 1) -> bool:
        """``manage.py`` ``command``; SIGKILL right after statement ``count`` like ``after``.

        False if it came to its end before.
        """
        process = self.start(manage(*command), KILL_AFTER=after, KILL_COUNT=str(count))
        status = process.wait()
        assert status in (0, -signal.SIGKILL), process.output()
        return status != 0

    def migrations(self) -> list[str]:
        return sorted(p.stem for p in (self.directory / "shop/migrations").glob("0*.py"))

    def write_migration(self, name: str, text: str) -> None:
        (self.directory / "shop/migrations" / f"{name}.py").write_text(text)

    def _server(self, statement: str) -> None:
        with connections[self.kind]._nodb_cursor() as cursor:
            cursor.execute(statement)


INSERTER = """
import time
from django.db import connection
from django.db.utils import Error
while True:
    try:
        print(f"id {Order.objects.create(note='old').pk}")
    except Error as error:
        print("refused", " ".join(str(error).split()))
        connection.close()
    time.sleep(0.02)
"""


class Inserter:
    """A process that inserts orders with the models that it was started with."""

    def __init__(self, project: Project, code: str = INSERTER) -> None:
        self.process = project.start(code)
        self.process.wait_for("id ")

    def ids(self) -> list[str]:
        """The ids that it was given so far."""
        return _ids_in(self.process.output())

    def wait_for_more(self) -> None:
        """Until it was given another id."""
        before = len(self.ids())
        self.process.wait_until(lambda out: len(_ids_in(out)) > before)

    def stop(self) -> tuple[list[str], list[str]]:
        """End it; the ids that it was given, and the errors."""
        self.process.kill()
        return self.ids(), re.findall(r"^refused (.*)$", self.process.output(), re.M)


def _ids_in(output: str) -> list[str]:
    return re.findall(r"^id (\S+)$", output, re.M)

"""The console blocks of the docs, run in a project of their own on PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from string import Template
from time import sleep
from typing import Any

from django.db import connections

from tests import servers, warm
from tests.ports import free_port

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
# This environment is what they make.
NOT_RUN = re.compile(
    r"python3 -m venv|\S*pip install|\S*tox( run-parallel.*| -e \w+)?$"
    r"|python -m tests\.benchmarks"  # takes minutes
)
KEPT = re.compile(r"(\w+)=\$\((.*)\)$")
PYTHONS = {"python", "python3", ".venv/bin/python"}
EXIT_CODES = {"idgen_doctor": {0, 1}}
"""The doctor may have warnings. All else ends with 0."""
ALIASES = ("default", "second", "third", "fourth", "ids", "old_leaf")

SETTINGS = """
import json, os
DATABASES = json.loads(os.environ["DOCS_DATABASES"])
IDGEN = json.loads(os.environ["DOCS_IDGEN"])
SECRET_KEY = "docs"
ALLOWED_HOSTS = ["*"]
DEBUG = USE_TZ = True
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django_idgen", "rest_framework", "shop"]
"""
URLS = """
from django.urls import include, path
urlpatterns = [path("idgen/", include("django_idgen.rest.urls"))]
"""
MODELS = """
from django.db import models
from django_idgen.fields import SegmentIdField, SnowflakeField
class Order(models.Model):
    note = models.CharField(max_length=9)
class Parcel(models.Model):
    id = SnowflakeField(primary_key=True, text_form="base62", prefix="ord_")
class Ticket(models.Model):
    id = SegmentIdField(primary_key=True)
    note = models.CharField(max_length=40, blank=True)
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""
BEGIN = """
import os
from datetime import timedelta
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.db.models import F
from django_idgen import next_id, segments
from django_idgen.models import LeafAlloc
from shop.models import Order
call_command("makemigrations", "shop", verbosity=0)
for alias in settings.DATABASES:
    if alias != "old_leaf":
        call_command("migrate", database=alias, verbosity=0)
Order.objects.create(note="old")
segments["ticket"].next_id()
for alias in settings.DATABASES:
    if alias != "old_leaf":  # as if the shop had been closed for a while
        fetched = F("fetched_at") - timedelta(minutes=2)
        LeafAlloc.objects.using(alias).update(fetched_at=fetched)
if "old_leaf" in settings.DATABASES:
    from tests.leaf import TABLE
    with connections["old_leaf"].cursor() as cursor:
        cursor.execute(TABLE["postgresql"])
        cursor.execute("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('orders', 1, 10)")
else:
    LeafAlloc.objects.create(biz_tag="orders", step=10)
print(next_id())
call_command("idgen_token", "create", "docs", tags=["*"])
"""


def lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of the console blocks, and what the page says that it prints."""
    for block in BLOCK.findall(text):
        commands: list[tuple[str, list[str]]] = []
        for line in block.splitlines():
            if line.startswith("{"):
                commands[-1][1].append(line)
            elif command := re.sub(r"(^|\s+)# .*", "", line.removeprefix("$ ")):
                commands += [(each, []) for each in command.split(" && ")]
        yield from commands


class Console:
    """A terminal in ``directory``, for the console blocks of the page ``text``."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        self.lines = list(lines(text))
        self.name = f"docs_{os.getpid()}_{id(self)}"
        self.port = free_port()
        self.server: subprocess.Popen[bytes] | None = None
        self.aliases = [
            alias
            for alias in ALIASES
            if alias == "default" or any(f" {alias}" in command for command, _ in self.lines)
        ]
        databases = {alias: self._database(alias) for alias in self.aliases}
        # As the page on segments has it, before it grows.
        shared = {
            "BACKEND": "django_idgen.contrib.sharding.ShardedSource",
            "OPTIONS": {"databases": ["default", "second"]},
        }
        source = shared if len(databases) > 2 else {}
        self.environment = {
            **{key: value for key, value in os.environ.items() if "DJANGO" not in key},
            "DOCS_DATABASES": json.dumps(databases),
            "DOCS_IDGEN": json.dumps({"SEGMENTS": {"SOURCE": source}}),
            "SHOP_DATABASE_URL": f"sqlite://{directory}/shop.sqlite3",
            "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def begin(self) -> None:
        """Make the project, its databases, and what the page takes for granted."""
        files = {"settings": SETTINGS, "urls": URLS, "manage": MANAGE, "shop/models": MODELS}
        files["shop/migrations/__init__"] = ""
        (self.directory / "shop" / "migrations").mkdir(parents=True)
        for name, content in files.items():
            (self.directory / f"{name}.py").write_text(content)
        (self.directory / ".venv").symlink_to(sys.prefix)
        (self.directory / "example_project").symlink_to(ROOT / "example_project")
        for alias in (*self.aliases, "shop"):
            self._on_server(f"CREATE DATABASE {self.name}_{alias}")
        made = self._bash(f"python -W error -c {shlex.quote(BEGIN)}", "").split()
        self.environment["ID"], self.environment["TOKEN"] = made

    def run(self, command: str) -> str:
        """What a line of the page printed; what it asks is answered with yes."""
        if NOT_RUN.match(command):
            return ""
        if command.endswith("runserver") or (command.startswith("curl") and self.server is None):
            self._serve(command if command.endswith("runserver") else "python manage.py runserver")
            if command.endswith("runserver"):
                return ""
        if kept := KEPT.match(command):  # a shell variable, for the lines below
            self.environment[kept[1]] = self._bash(kept[2], "").strip()
            return ""
        if "--watch" in command:
            return self._watch(command)
        return self._bash(self._here(command), "yes\n")

    def _here(self, command: str) -> str:
        """The line with our addresses, and with an end."""
        for address in ("http://127.0.0.1:8000", "https://ids.example.com"):
            command = command.replace(address, f"http://127.0.0.1:{self.port}")
        command = re.sub(r"postgres://\S+", self._url("shop"), command)
        command = re.sub(r" ID$", " $ID", command)
        if command.endswith("quickstart"):
            return f"{command} --orders 100"
        if "idgen_bench" in command:
            return f"{command} --count 2000"
        return command.replace("curl ", "curl -sS --fail-with-body ")

    def _bash(self, command: str, said: str) -> str:
        words = shlex.split(Template(command).safe_substitute(self.environment))
        if words[0] in PYTHONS and not set(command).intersection("|<>;&`"):
            done = warm.run(words[1:], cwd=self.directory, env=self.environment, said=said)
        else:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.directory,
                env=self.environment,
                input=said,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        codes = next((EXIT_CODES[word] for word in EXIT_CODES if word in command), {0})
        assert done.returncode in codes, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
        return done.stdout

    def _watch(self, command: str) -> str:
        """What it printed until somebody pressed Ctrl-C."""
        environment = {**self.environment, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command.split(),
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            # A shell's background jobs ignore it, and so does what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        return first + rest

    def _serve(self, command: str) -> None:
        words = [*command.split(), "--noreload", str(self.port)]
        with (self.directory / "server.log").open("wb") as log:
            self.server = subprocess.Popen(
                words, cwd=self.directory, env=self.environment, stdout=log, stderr=log
            )
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            assert self.server.poll() is None, (self.directory / "server.log").read_text()
            sleep(0.1)
        raise AssertionError(f"{command} serves nothing.")

    def end(self) -> None:
        """Stop the server, and drop the databases."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        for alias in (*self.aliases, "shop"):
            self._on_server(f"DROP DATABASE IF EXISTS {self.name}_{alias} WITH (FORCE)")

    def _database(self, alias: str) -> dict[str, Any]:
        return {**servers.database("postgres"), "NAME": f"{self.name}_{alias}", "TEST": {}}

    def _url(self, alias: str) -> str:
        return servers.URLS["postgres"].rpartition("/")[0] + f"/{self.name}_{alias}"

    @staticmethod
    def _on_server(statement: str) -> None:
        with connections["postgres"]._nodb_cursor() as cursor:
            cursor.execute(statement)

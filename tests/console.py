"""The docs as a reader uses them: the console blocks of a page, or a page that is followed.

The console blocks are run in a project of their own on PostgreSQL. A page that is followed makes
a project: each file is written, each command is run. A Python block with a title is a file. The
paragraph above it says what happens to it: "Add" appends to the file, "Replace" and "Create" write
it. A console block has commands after ``$``, and what they print. A pycon block below
``manage.py shell`` is typed into that shell.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from string import Template
from time import monotonic, sleep
from typing import Any, Self

from django.db import connections

from tests import servers, tiers, warm
from tests.servers import free_port

ROOT = Path(__file__).parent.parent
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
# This environment is what they make.
NOT_RUN = re.compile(
    r"python3 -m venv|\S*pip install|\S*tox( run-parallel.*| -e \w+)?$"
    r"|source |docker |redis-server|createdb "
    r"|python -m tests\.benchmarks"  # takes minutes
    + ("" if tiers.LONG else r"|python manage\.py idgen_bench")  # starts many processes
)
KEPT = re.compile(r"(\w+)=\$\((.*)\)$")
"""A shell variable, which the commands below it use."""
PYTHONS = {"python", "python3", ".venv/bin/python"}
ALIASES = ("default", "second", "third", "fourth", "ids", "old_leaf")
SERVERS = {"runserver": "", "celery -A": "celery@"}
"""Commands that go on running, by a part of them, and what they log when they are ready."""
PATIENCE = 120

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
SOLD = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
from orders.selling import sell
sell()
"""
"""What the quick start has done in the example project."""
IN_ONE = """
import json, os, sys
import manage, django
from django.core.management import execute_from_command_line
django.setup()
for words, codes in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        sys.stdin.seek(0)
        sys.argv = words
        execute_from_command_line(words)
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in codes:
        sys.exit(f"{words} ended with {status}")
"""
"""Commands of ``manage.py``, each in a child of a process that has set up the project."""


SHELL = r"""
import doctest, re, sys
class Checker(doctest.OutputChecker):
    def check_output(self, want, got, flags):
        return super().check_output(*(
            re.sub(r"(\b[a-z]+_)[0-9A-Za-z]{11}\b", r"\1TEXT", re.sub(r"\d{17,19}", "ID", text))
            for text in (want, got)), flags)
examples = doctest.DocTestParser().get_doctest(sys.stdin.read(), {}, "page", None, 0)
runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
runner.run(examples, out=sys.stderr.write)
sys.exit(runner.failures)
"""


def lines(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of the console blocks, and what the page says that it prints."""
    for block in CONSOLE.findall(text):
        commands: list[tuple[str, list[str]]] = []
        for line in block.splitlines():
            if line.startswith("{"):
                commands[-1][1].append(line)
            elif command := re.sub(r"(^|\s+)# .*", "", line.removeprefix("$ ")):
                commands += [(each, []) for each in command.split(" && ")]
        yield from commands


class Terminal:
    """A shell in ``directory``, whose Python is this one. Its block ends what it started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.addresses = {"127.0.0.1:8000": f"127.0.0.1:{self.port}"}
        """Those of the pages, and what stands for them here."""
        self.servers: list[subprocess.Popen[bytes]] = []
        self.web: subprocess.Popen[bytes] | None = None
        self.environment = {
            **{key: value for key, value in os.environ.items() if "DJANGO" not in key},
            "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "C_FORCE_ROOT": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        left = [server for server in self.servers if server.poll() is None]
        for server in left:
            server.send_signal(signal.SIGTERM)
        for server in left:
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)

    def here(self, text: str) -> str:
        """Return the text with the addresses of this test."""
        for address, mine in self.addresses.items():
            text = text.replace(address, mine)
        return text

    def run(self, command: str, said: str = "") -> subprocess.CompletedProcess[str]:
        """Run a line of a page; ``said`` is typed."""
        words = shlex.split(Template(command).safe_substitute(self.environment))
        if words[0] in PYTHONS and not set(command).intersection("|<>;&`"):
            return self.python(*words[1:], said=said, codes=codes(command))
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=self.environment,
            input=said,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def python(
        self, *words: str, said: str = "", codes: Collection[int] = (0,)
    ) -> subprocess.CompletedProcess[str]:
        """Run Python, which may end with one of ``codes``."""
        done = warm.run([*words], cwd=self.directory, env=self.environment, said=said)
        assert done.returncode in codes, f"{words}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{words}\n{done.stderr}"
        return done

    def keep(self, command: str) -> bool:
        """Whether it sets a shell variable, which is kept for the commands below."""
        kept = KEPT.match(command)
        if kept:
            self.environment[kept[1]] = self.run(kept[2]).stdout.strip()
        return kept is not None

    def start(self, command: str, ready: str = "") -> None:
        """Start what goes on running, and wait until it serves, or logs that it is ready."""
        if "runserver" in command:
            if self.web is not None:
                self.web.send_signal(signal.SIGINT)
                self.web.wait(PATIENCE)
            command = f"{command} --noreload 127.0.0.1:{self.port}"
        log = self.directory / f"{len(self.servers)}.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                command.split(),
                cwd=self.directory,
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=out,
                start_new_session=True,
                # A shell's background jobs ignore it, and so does what they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.servers.append(server)
        if "runserver" in command:
            self.web = server
        deadline = monotonic() + PATIENCE
        while monotonic() < deadline:
            assert server.poll() is None, log.read_text("utf-8")
            if ready:
                if re.search(rf"{ready}\S+ ready", log.read_text("utf-8")):
                    return
            else:
                with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            sleep(0.1)
        raise AssertionError(log.read_text("utf-8"))


def codes(command: str) -> list[int]:
    """With which it may end: the doctor may have warnings."""
    return [0, 1] if "idgen_doctor" in command else [0]


class Console(Terminal):
    """A project in ``directory``, for the console blocks of the page ``text``."""

    def __init__(self, directory: Path, text: str) -> None:
        super().__init__(directory)
        self.addresses["https://ids.example.com"] = f"http://127.0.0.1:{self.port}"
        self.lines = list(lines(text))
        self.name = f"docs_{os.getpid()}_{id(self)}"
        self.aliases = [
            alias
            for alias in ALIASES
            if alias == "default" or any(f" {alias}" in command for command, _ in self.lines)
        ]
        databases = {alias: self._database(alias) for alias in self.aliases}
        # As the page on sources has it, before it grows.
        shared = {
            "BACKEND": "django_idgen.contrib.sharding.ShardedSource",
            "OPTIONS": {"databases": ["default", "second"]},
        }
        source = shared if len(databases) > 2 else {}
        self.environment |= {
            "DOCS_DATABASES": json.dumps(databases),
            "DOCS_IDGEN": json.dumps({"SEGMENTS": {"SOURCE": source}}),
            "SHOP_DATABASE_URL": f"sqlite://{directory}/shop.sqlite3",
        }

    def __enter__(self) -> Self:
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
        made = self.python("-W", "error", "-c", BEGIN).stdout.split()
        self.environment["ID"], self.environment["TOKEN"] = made
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for alias in (*self.aliases, "shop"):
            self._on_server(f"DROP DATABASE IF EXISTS {self.name}_{alias} WITH (FORCE)")

    def follow(self) -> None:
        """Run each line of the page; what it asks is answered with yes."""
        together: list[tuple[list[str], list[int]]] = []
        for command, printed in self.lines:
            if NOT_RUN.match(command):
                continue
            here = self._here(command)
            if here.startswith("python manage.py ") and not here.endswith("runserver"):
                words = shlex.split(Template(here).safe_substitute(self.environment))
                together.append((words[1:], codes(here)))
                continue
            self._run_together(together)
            if not self.keep(here):
                said = self._run_alone(here)
                assert not printed or said.splitlines() == printed, command
        self._run_together(together)

    def _run_together(self, commands: list[tuple[list[str], list[int]]]) -> None:
        if commands:
            self.python("-c", IN_ONE, json.dumps(commands), said="yes\n")
        commands.clear()

    def _run_alone(self, command: str) -> str:
        """What a line printed."""
        if command.endswith("runserver"):
            self.start(command)
            return ""
        if command.startswith("curl") and self.web is None:
            self.start("python manage.py runserver")
        return self.run(command, "yes\n").stdout

    def _here(self, command: str) -> str:
        """The line with our addresses, and with an end."""
        command = re.sub(r"postgres://\S+", self._url("shop"), self.here(command))
        command = re.sub(r" ID$", " $ID", command)
        if command.endswith("quickstart"):  # which another test runs
            return command.replace("quickstart", f"shell -v0 -c {shlex.quote(SOLD)}")
        if "idgen_bench" in command:
            return f"{command} --count 2000"
        command = command.removesuffix(" --watch")  # which another test looks at
        return command.replace("curl ", "curl -sS --fail-with-body ")

    def _database(self, alias: str) -> dict[str, Any]:
        return {**servers.database("postgres"), "NAME": f"{self.name}_{alias}", "TEST": {}}

    def _url(self, alias: str) -> str:
        return servers.URLS["postgres"].rpartition("/")[0] + f"/{self.name}_{alias}"

    @staticmethod
    def _on_server(statement: str) -> None:
        with connections["postgres"]._nodb_cursor() as cursor:
            cursor.execute(statement)


class Walkthrough(Terminal):
    """A reader in ``directory``, who has a Redis at ``redis_port``, and no project yet."""

    def __init__(self, directory: Path, redis_port: int) -> None:
        directory.mkdir()
        super().__init__(directory)
        self.addresses["127.0.0.1:6379"] = f"127.0.0.1:{redis_port}"
        self.opened = ""
        self.followed = 0

    def follow(self, text: str) -> None:
        """Do all that a page says."""
        for block in BLOCK.finditer(text):
            if block["file"] is not None:
                lead = text[: block.start()].rstrip().rsplit("\n\n", 1)[-1]
                self.write(self.directory / block["file"], lead, self.here(block["body"]))
            elif block["language"] == "console":
                self.type(block["body"])
            elif block["language"] == "pycon":
                self.shell(block["body"])

    def write(self, path: Path, lead: str, body: str) -> None:
        """Do with a file what the paragraph above it says."""
        if re.search(r"\badd\b", lead, re.IGNORECASE):
            body = f"{path.read_text('utf-8')}\n{body}"
        else:
            word = "replace" if path.exists() else "create"
            assert word in lead.lower(), f"{path.name}: {word}? {lead}"
        path.write_text(body, "utf-8")
        self.followed += 1

    def type(self, body: str) -> None:
        """Run the commands of a console block, and compare what they print."""
        for entry in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, printed = entry.partition("\n")
            command = self.here(re.sub(r"\s+# .*", "", command))
            if NOT_RUN.match(command):
                continue
            self.followed += 1
            if command.startswith("cd "):
                self.directory /= command.removeprefix("cd ")
            elif (ready := next((r for c, r in SERVERS.items() if c in command), None)) is not None:
                self.start(command, ready)
            elif command.endswith(" shell"):
                self.opened = command
            elif not self.keep(command):
                done = self.run(command)
                self.compare(command, printed, done.stdout + done.stderr)

    def shell(self, examples: str) -> None:
        """Type the examples into the Python shell that was opened, and compare its answers."""
        self.python(*self.opened.split()[1:], "-v0", "-c", SHELL, said=examples)
        self.opened = ""

    def compare(self, command: str, wanted: str, got: str) -> None:
        """Compare what a command printed. "…" stands for anything, alone for any lines."""
        if not wanted.strip():
            return
        pattern = re.escape(wanted.strip())
        pattern = re.sub(r"\d{17,19}", r"\\d{17,19}", pattern)
        pattern = re.sub(r"ord_[0-9A-Za-z]{11}", "ord_[0-9A-Za-z]{11}", pattern)
        pattern = re.sub(r"(^|\\\n)…(\\\n|$)", r"\1(?s:.*)\2", pattern).replace("…", ".*")
        assert re.fullmatch(pattern, got.strip()), f"$ {command}\n{wanted}\n--- but\n{got}"

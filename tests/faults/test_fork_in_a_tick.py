"""A child that is forked in the middle of a tick of which its parent has ids left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from django_idgen.core.layout import parse_layout

LIMIT = 60  # seconds
LAYOUT = {"time": 28, "worker": 10, "sequence": 12, "tick": 30}
PROGRAM = """
import json, os, sys
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=["django_idgen"],
    USE_TZ=True,
    IDGEN={"GENERATORS": {"default": {"LAYOUT": json.loads(sys.argv[2])}}},
)
django.setup()
from django_idgen import generators

ids = generators["default"]
mine = [ids.next_id() for _ in range(5)]
reader, writer = os.pipe()
child = os.fork()
if not child:
    os.write(writer, json.dumps([ids.next_id() for _ in range(5)]).encode())
    os._exit(0)
mine += [ids.next_id() for _ in range(5)]
theirs = json.loads(os.read(reader, 10_000))
os.waitpid(child, 0)
print(json.dumps([mine, theirs]))
"""


def test_a_child_takes_nothing_of_its_parents_tick(tmp_path: Path) -> None:
    """I5: Python's fork hook drops what a tick of 30 s has left, before anyone can take of it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "db.sqlite3"), json.dumps(LAYOUT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    mine, theirs = json.loads(done.stdout)
    assert not {*mine} & {*theirs}
    layout = parse_layout(LAYOUT)
    workers = [{layout.unpack(value).worker for value in ids} for ids in (mine, theirs)]
    assert [len(found) for found in workers] == [1, 1]
    assert workers[0] != workers[1]

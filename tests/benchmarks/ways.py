"""How many functions (no lambdas) and modules of django_idgen an id passes, by a profile.

Each count is of a fresh process whose imports are done. The database is PostgreSQL.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .bars import Row, at_most
from .project import own_database, settings_of_a_process

ROOT = Path(__file__).parents[2]
CODE = """
import json, sys, threading, time
import django
from django.conf import settings

settings.configure(**json.loads(sys.argv[1]))
django.setup()
from django_idgen import generators, segments
from django_idgen.process import maps

maps.import_backends()
seen = set()


def note(frame, event, _argument):
    code = frame.f_code
    if event == "call" and "/django_idgen/" in code.co_filename and code.co_name[0] != "<":
        seen.add((code.co_filename, code.co_firstlineno))


def counted(call, threads=True):
    seen.clear()
    if threads:
        threading.setprofile(note)
    sys.setprofile(note)
    call()
    sys.setprofile(None)
    threading.setprofile(None)
    return len(seen), len({file for file, _ in seen})


def new_tick():
    time.sleep(0.002)
    take()


def new_part():
    take()
    take()


{body}
print(json.dumps(found))
"""
SNOWFLAKE = """
found = [counted(lambda: generators["default"].next_id())]
take = generators["default"].next_id
new_tick()
found.append(counted(new_tick, threads=False))
"""
SEGMENT = """
segments["known"].next_ids(1)
segments.close()
maps.reset()
time.sleep(0.3)  # no thread that is not counted is left
found = [counted(lambda: segments["known"].next_id())]
take = segments["known"].next_id
for _ in range(99):  # the first tenth
    take()
time.sleep(0.3)  # the next segment is loaded
found.append(counted(new_part, threads=False))
"""


def rows() -> Iterator[Row]:
    with own_database():
        for what, body, bars in (
            ("snowflake", SNOWFLAKE, (145, 19, 32)),
            ("segment", SEGMENT, (139, 17, 10)),
        ):
            (functions, modules), (again, _) = _found(body)
            yield at_most(f"functions of a process' first {what}", bars[0], functions, unit="")
            yield at_most(f"modules of a process' first {what}", bars[1], modules, unit="")
            where = {"snowflake": "a new tick", "segment": "a new part"}[what]
            yield at_most(f"functions of a {what} on {where}", bars[2], again, unit="")


def _found(body: str) -> list[list[int]]:
    settings = json.dumps(settings_of_a_process())
    words = [sys.executable, "-c", CODE.replace("{body}", body), settings]
    done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    found: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return found

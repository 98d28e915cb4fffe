"""The first id of a process on PostgreSQL, against one bare connection and one UPDATE.

All three are fresh processes of one project, which has migrated and used the tag and the worker id
before. Their imports are done; connecting is part of the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .bars import Row, at_most, paired
from .project import own_database, settings_of_a_process

ROOT = Path(__file__).parents[2]
ROUNDS = 31
CODE = """
import json, sys, time
import django
from django.conf import settings

settings.configure(**json.loads(sys.argv[1]))
django.setup()
import psycopg
from django_idgen import generators, segments
from django_idgen.process import maps

maps.import_backends()
database = settings.DATABASES["default"]


def bare():
    with psycopg.connect(
        dbname=database["NAME"], user=database["USER"], password=database["PASSWORD"] or None,
        host=database["HOST"], port=database["PORT"], autocommit=True,
    ) as connection:
        connection.execute(
            "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'bare' RETURNING max_id"
        ).fetchone()


def snowflake():
    generators["default"].next_id()


def segment():
    segments["known"].next_id()


began = time.perf_counter_ns()
{what}()
print(time.perf_counter_ns() - began)
"""


def rows() -> Iterator[Row]:
    with own_database():
        from django_idgen import generators, segments

        generators["default"].next_id()
        for tag in ("bare", "known"):
            segments[tag].next_id()
        words = json.dumps(settings_of_a_process())
        jobs = [partial(_taken, what, words) for what in ("bare", "snowflake", "segment")]
        medians, ratios = paired(jobs, ROUNDS)
    for what, median, ratio in zip(("snowflake", "segment"), medians[1:], ratios[1:], strict=True):
        note = f"{median / 1e6:.1f} against {medians[0] / 1e6:.1f} ms"
        yield at_most(
            f"first {what} of a process, of a connection and an UPDATE", 3, ratio, note=note
        )


def _taken(what: str, words: str) -> float:
    """Nanoseconds of the call ``what`` in a fresh process."""
    code = CODE.replace("{what}", what)
    done = subprocess.run(
        [sys.executable, "-c", code, words], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return float(done.stdout.splitlines()[-1])

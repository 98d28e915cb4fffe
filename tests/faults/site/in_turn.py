"""Processes that take ids in turn: what one has read may be in a cache when the next one asks.

``python -m tests.faults.site.in_turn CHILDREN TURNS``: each turn is recorded in the journal.
"""

from __future__ import annotations

import os
import sys
import traceback
from io import StringIO
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402 - needs the settings
from django.core.management import call_command  # noqa: E402
from django.db import connection, connections  # noqa: E402

from django_idgen import generators, segments  # noqa: E402
from django_idgen.ops.native import extend_native  # noqa: E402
from tests.app.models import Invoice  # noqa: E402

from .taking import TAG, record  # noqa: E402

STEP = 10
NATIVE = os.environ.get("SITE_NATIVE") == "1"
INSERT = "INSERT INTO app_invoice (note) VALUES ('psql') RETURNING id"


def take() -> dict[str, Any]:
    """A segment, and ids of a new lease from each registry; with ids of a sequence if asked to."""
    taken: dict[str, Any] = {"tag": segments[TAG].next_ids(STEP)}
    for alias in settings.IDGEN["GENERATORS"]:
        taken[f"ids of {alias}"] = generators[alias].next_ids(2)
    generators.close()
    if NATIVE:
        with connection.cursor() as cursor:
            taken["rows"] = []
            for _ in range(STEP // 2):
                cursor.execute(INSERT)
                taken["rows"].append(cursor.fetchone()[0])
        extend_native()
    return taken


def serve(turns: Connection) -> None:
    while turns.recv():
        try:
            turns.send(take())
        except Exception:
            turns.send({"error": traceback.format_exc()})
    os._exit(0)


def main(children: int, turns: int) -> None:
    if NATIVE:
        with connection.schema_editor() as editor:
            editor.create_model(Invoice)
        call_command("idgen_native", "app.invoice", stdout=StringIO())
    connections.close_all()
    ends = []
    for _ in range(children):
        ours, theirs = Pipe()
        if not os.fork():
            serve(theirs)
        ends.append(ours)
    for _ in range(turns):
        for end in ends:
            end.send(True)
            record(end.recv())
    for end in ends:
        end.send(False)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

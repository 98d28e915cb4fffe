"""One caller's use of a database, command by command, in a thread or a process of its own.

Run as a program, it reads commands from standard input and answers on standard
output, as JSON, a line each.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests import warm

Reply = dict[str, Any]


class Undo(Exception):
    """Raised to have a transaction rolled back."""


class Session:
    """Runs commands in the calling thread. The reply has what was made."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.nest: list[Any] = []

    def do(self, command: str, count: int = 1) -> Reply:
        from django.db import OperationalError

        reply: Reply = {"invoices": [], "folders": [], "locked": False}
        try:
            getattr(self, command)(reply, count)
        except OperationalError as error:
            if "database is locked" not in str(error):
                raise
            reply["locked"] = True
            self.abandon()
        return reply

    def abandon(self) -> None:
        while self.nest:
            entry = self.nest.pop()
            if not isinstance(entry, str):
                entry.__exit__(Undo, Undo(), None)

    # --- transactions ---------------------------------------------------------

    def begin(self, reply: Reply, count: int) -> None:
        from django.db import transaction

        entry = transaction.atomic(using=self.alias)
        entry.__enter__()
        self.nest.append(entry)

    def commit(self, reply: Reply, count: int) -> None:
        self._innermost().__exit__(None, None, None)

    def roll_back(self, reply: Reply, count: int) -> None:
        self._innermost().__exit__(Undo, Undo(), None)

    def _innermost(self) -> Any:
        while isinstance(self.nest[-1], str):
            self.nest.pop()
        return self.nest.pop()

    def savepoint(self, reply: Reply, count: int) -> None:
        from django.db import transaction

        # Django 6.1 has renamed it.
        create = getattr(transaction, "savepoint_create", None) or transaction.savepoint
        self.nest.append("django " + str(create(using=self.alias)))

    def raw_savepoint(self, reply: Reply, count: int) -> None:
        name = f"mine{len(self.nest)}"
        self._execute(f"SAVEPOINT {name}")
        self.nest.append(f"raw {name}")

    def roll_back_to(self, reply: Reply, count: int) -> None:
        from django.db import transaction

        kind, _, name = self.nest.pop().partition(" ")
        if kind == "raw":
            self._execute(f"ROLLBACK TO SAVEPOINT {name}")
        else:
            transaction.savepoint_rollback(name, using=self.alias)

    def _execute(self, statement: str) -> None:
        from django.db import connections

        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement)

    # --- rows and ids -----------------------------------------------------------

    def read(self, reply: Reply, count: int) -> None:
        from tests.app.models import Invoice

        Invoice.objects.using(self.alias).count()

    def save(self, reply: Reply, count: int) -> None:
        from tests.app.models import Folder, Invoice

        for _ in range(count):
            reply["invoices"].append(Invoice.objects.using(self.alias).create().pk)
        reply["folders"].append(Folder.objects.using(self.alias).create().pk)

    def save_many(self, reply: Reply, count: int) -> None:
        from tests.app.models import Folder, Invoice

        for model, made in ((Invoice, reply["invoices"]), (Folder, reply["folders"])):
            rows = model._default_manager.using(self.alias).bulk_create(
                model() for _ in range(count)
            )
            made += [row.pk for row in rows]

    def take(self, reply: Reply, count: int) -> None:
        """Ids without rows."""
        from django_idgen import generators, segments

        reply["invoices"] += segments["app.invoice"].next_ids(count)
        reply["folders"] += generators["default"].next_ids(count)

    def close(self, reply: Reply, count: int) -> None:
        from django.db import connections

        self.abandon()
        connections.close_all()


class ThreadSession:
    """A :class:`Session` in a thread."""

    def __init__(self, alias: str) -> None:
        self._session = Session(alias)
        self._commands: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def do(self, command: str, count: int = 1) -> Reply:
        self._commands.put((command, count))
        reply = self._replies.get(timeout=60)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def end(self) -> None:
        self.do("close")

    def _work(self) -> None:
        command = ""
        while command != "close":
            command, count = self._commands.get()
            try:
                self._replies.put(self._session.do(command, count))
            except BaseException as error:
                self._replies.put(error)


class ProcessSession:
    """A :class:`Session` in a process."""

    def __init__(self, alias: str) -> None:
        from django.conf import settings
        from django.db import connections

        segments = settings.IDGEN.get("SEGMENTS", {})
        # The first fetch of a process may take its time on a busy machine.
        options = {"timeout": 20, **segments.get("OPTIONS", {})}
        configured = {
            "database": {**connections.settings[alias], "TEST": {}},
            "alias": alias,
            "idgen": {**settings.IDGEN, "SEGMENTS": {**segments, "OPTIONS": options}},
        }
        self._process = warm.Process(
            ["-m", __name__],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "SESSION": json.dumps(configured)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def do(self, command: str, count: int = 1) -> Reply:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, count]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the session's process has ended"
        reply: Reply = json.loads(line)
        return reply

    def end(self) -> None:
        self.do("close")
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


def _main() -> None:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    from django.conf import settings

    configured = json.loads(os.environ["SESSION"])
    settings.DATABASES = {"default": {}, configured["alias"]: configured["database"]}
    settings.IDGEN = configured["idgen"]
    django.setup()
    from tests.places import wait_endlessly

    wait_endlessly()
    session = Session(configured["alias"])
    for line in sys.stdin:
        command, count = json.loads(line)
        print(json.dumps(session.do(command, count)), flush=True)


if __name__ == "__main__":
    _main()

"""What runs in the processes of a project: a command, or code; dying where it is told to."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress
from typing import Any

PRELOAD = [
    "django.core.management.commands.makemigrations",
    "django.core.management.commands.migrate",
    "django.db.backends.mysql.schema",
    "django.db.backends.postgresql.psycopg_any",
    "django.db.backends.sqlite3.schema",
    "django_idgen.core.segment_generator",
    "psycopg",
    "pymysql",
]
HEAD = "import django; django.setup()\n" + (
    "from django.core.management import call_command\nfrom shop.models import *\n"
)


def main(
    directory: str, environment: dict[str, str], output: str, job: str, words: list[str]
) -> None:
    """``manage.py`` ``words``, or the code ``words[0]``; its prints go to the file ``output``."""
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(environment)
    os.chdir(directory)
    sys.path.insert(0, directory)
    sys.dont_write_bytecode = True
    if "KILL_AFTER" in environment:
        _die_after(re.compile(environment["KILL_AFTER"], re.S), int(environment["KILL_COUNT"]))
    if job == "manage":
        from django.core.management import execute_from_command_line

        sys.argv = ["manage.py", *words]
        execute_from_command_line(sys.argv)
    else:
        with suppress(KeyboardInterrupt):
            exec(compile(HEAD + words[0], "<shop>", "exec"), {"__name__": "shop_code"})


def _die_after(statement: re.Pattern[str], count: int) -> None:
    from django.db.backends.utils import CursorWrapper

    left = [count]
    execute = CursorWrapper.execute

    def watched(self: Any, sql: Any, params: Any = None) -> Any:
        done = execute(self, sql, params)
        if statement.match(str(sql)):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return done

    CursorWrapper.execute = watched  # type: ignore[method-assign]

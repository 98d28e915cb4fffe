"""A process of a project: it runs pieces of code, and dies where it is told to.

``python -m tests.contrib.adopt.child CODE…``; after what each piece has printed comes ``END``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import sys
from typing import Any

END = "\x1e"


def manage(*words: str, code: int = 0) -> None:
    """As ``manage.py`` ``words``, which must end with the exit status ``code``."""
    from django.core.management import execute_from_command_line

    importlib.invalidate_caches()  # a migration may have been written just now
    status = 0
    try:
        execute_from_command_line(["manage.py", *words])
    except SystemExit as end:
        status = int(end.code or 0)
    assert status == code, (words, status)


def main(pieces: list[str]) -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # A model that is edited twice within a second would be the first edit's still.
    sys.dont_write_bytecode = True
    import django

    from tests.patience import wait_patiently

    wait_patiently()
    django.setup()
    names: dict[str, Any] = {"__name__": "shop_code", "manage": manage}
    from django_idgen.contrib.adopt import filling

    assert filling.MAX_AT_SWITCH == 10_000  # as the documentation says
    filling.MAX_AT_SWITCH = int(os.environ["ADOPT_AT_SWITCH"])
    for app in json.loads(os.environ["ADOPT_APPS"]):
        exec(f"from {app}.models import *", names)
    if "KILL_AFTER" in os.environ:
        _die_after(re.compile(os.environ["KILL_AFTER"], re.S), int(os.environ["KILL_COUNT"]))
    for piece in pieces:
        exec(compile(piece, "<shop>", "exec"), names)
        print(END)


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


if __name__ == "__main__":
    main(sys.argv[1:])

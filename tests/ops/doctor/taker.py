"""A process that takes ids until it is told to stop: ``python -m tests.ops.doctor.taker STOP``.

Its settings are in the environment. It writes each batch down at once, a line ``kind id id …``; and
why it got none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import django
from django.conf import settings

from tests.servers import use_pymysql_for_mysqlclient

BATCH = 3
PAUSE = 0.001
"""Of nearly every tick some ids are taken: what is lent twice shows."""


def main(stop: Path, tags: list[str]) -> None:
    use_pymysql_for_mysqlclient()
    settings.configure(
        SECRET_KEY="tests",
        USE_TZ=True,
        INSTALLED_APPS=["django_idgen"],
        **json.loads(os.environ["FLEET_SETTINGS"]),
    )
    django.setup()
    from django_idgen import generators, segments
    from django_idgen.core.errors import IdgenError

    while not stop.exists():
        for kind in tags or ["snowflake"]:
            try:
                source = segments[kind] if tags else generators["default"]
                print(kind, *source.next_ids(BATCH), flush=True)
            except IdgenError as error:
                print("refused", type(error).__name__, str(error)[:120], flush=True)
                time.sleep(0.2)
        time.sleep(PAUSE)
    generators.close()
    segments.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

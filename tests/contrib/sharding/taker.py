"""A process that takes ids until it is told to stop: ``python -m tests.contrib.sharding.taker``.

Its arguments are a JSON object of databases by alias, the list that it is set to, and
a file whose appearance is the end. It prints a line for each segment and each refusal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import django
from django.conf import settings

TAGS = ("orders", "bills")


def main(databases: dict[str, Any], names: list[str], stop: Path) -> None:
    settings.DATABASES.update(databases)
    django.setup()
    from django_idgen.contrib.sharding import ShardedSource
    from django_idgen.core.errors import IdgenError

    source = ShardedSource(default_step=5, databases=names)
    floors = dict.fromkeys(TAGS, 0)
    turn = 0
    while not stop.exists():
        turn += 1
        # Old tags, and new ones all the time.
        tag = f"new-{turn // 40}" if turn % 4 == 0 else TAGS[turn % 2]
        try:
            segment = source.fetch(tag, floor=floors.get(tag, 0))
        except IdgenError as error:
            print("refused", type(error).__name__, flush=True)
            continue
        floors[tag] = segment.stop
        print(tag, segment.start, segment.stop, segment.delta, flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]))

"""Takes ids of both kinds from services: ``python -m tests.remote.taker FILE COUNT``.

It has no Django. Batches of what it took stand in FILE, one JSON list a line; it goes on
after errors, which it writes down too, until it took COUNT batches of each kind since there
is a file FILE.enough.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from django_idgen.client import Client
from django_idgen.core.errors import IdgenError

PATIENCE = 60.0
BATCH = 50


def main(path: str, count: int) -> None:
    urls = os.environ["TAKER_URLS"].split()
    until = time.monotonic() + PATIENCE
    enough = Path(f"{path}.enough")
    options = {"installation": os.environ["TAKER_INSTALLATION"], "timeout": 2, "wait": 1}
    token = partial(os.getenv, "TAKER_TOKEN")
    with Client(urls, token=token, **options) as client, open(path, "a") as out:
        takes = {
            "ids": client.next_ids,
            "tag": client.segments["orders"].next_ids,
        }
        left = dict.fromkeys(takes, count)
        while any(left.values()) and time.monotonic() < until:
            for kind, take in takes.items():
                if left[kind]:
                    try:
                        said: dict[str, object] = {kind: take(BATCH)}
                        left[kind] -= enough.exists()
                    except IdgenError as error:
                        said = {"error": f"{type(error).__name__}: {error}"}
                    out.write(json.dumps(said) + "\n")
                    out.flush()
            time.sleep(0.005)
        assert not any(name.split(".")[0] == "django" for name in sys.modules)
        assert not any(left.values()), left


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

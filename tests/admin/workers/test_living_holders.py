"""Worker ids that are freed by hand while their holders live, on real registries."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import Running, Site, database_settings
from tests.redis_servers import RedisFarm, redis_farm
from tests.tiers import long

WINDOW = 6.0
"""Long enough for a newcomer that is ready to come before the holder needs another lease."""
LOAD = """
import os, threading, time
from pathlib import Path
from django_idgen import generators
from django_idgen.core.errors import IdgenError
from tests.faults.site.taking import record

def take():
    generator = generators["default"]
    while not Path("leave").exists():
        try:
            ids = generator.next_ids(5)
        except IdgenError as error:
            record({"pid": os.getpid(), "error": str(error)})
        else:
            workers = sorted({generator.layout.unpack(each).worker for each in ids})
            record({"pid": os.getpid(), "ids": ids, "workers": workers})
        time.sleep(0.05)

Path(f"ready-{os.getpid()}").touch()
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
threads = [threading.Thread(target=take) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
RELEASE = """
import json
from pathlib import Path
from django_idgen.ops.workers import release_worker
first = release_worker("default", {0})
Path("{1}").touch()
print(json.dumps([first, release_worker("default", {0})]))
"""


@pytest.fixture(params=long("postgres", "sqlite", "mariadb", "redis"))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """Programs on each registry, whose windows are over in a few seconds."""
    options: dict[str, Any] = {"window": WINDOW, "workers": [0, 8]}
    if request.param == "sqlite":
        path = tmp_path / "site.sqlite3"
        path.touch()
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
        yield _with_leases(Site(tmp_path, database, "sqlite"), options)
        return
    alias = "postgres" if request.param == "redis" else request.param
    alias = request.getfixturevalue(alias)
    made = Site(tmp_path, database_settings(alias), alias)
    if request.param != "redis":
        yield _with_leases(made, options)
        return
    with redis_farm() as farm:
        yield _on_redis(made, farm, options)


def _with_leases(site: Site, options: dict[str, Any], **more: Any) -> Site:
    leases = {"OPTIONS": options, **more}
    site.set_idgen({"GENERATORS": {"default": {"LEASES": leases}}})
    return site


def _on_redis(site: Site, farm: RedisFarm, options: dict[str, Any]) -> Site:
    entry = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": farm.server().url,
        "OPTIONS": {},
    }
    site.environment["SITE_CACHES"] = json.dumps({"default": entry})
    backend = "django_idgen.leases.redis.RedisLeases"
    return _with_leases(site, options, BACKEND=backend)


def test_a_worker_id_freed_under_its_holder_repeats_nothing(site: Site) -> None:
    """I1: holder and newcomer stamp with one worker id, each its own ticks; the holder goes on."""
    (site.directory / "at once").touch()
    with load(site, "at once") as holder, load(site, "freed") as newcomer:
        holder.wait_until(lambda: workers_of(site, holder))
        newcomer.wait_until((site.directory / f"ready-{newcomer.process.pid}").exists)
        (freed,) = workers_of(site, holder)
        # The newcomer has the holder's label, and so its worker id by preference.
        assert released(site, freed, "freed")[0] is True
        newcomer.wait_until(lambda: freed in workers_of(site, newcomer))
        holder.wait_until(lambda: workers_of(site, holder) - {freed})
        # And the other way round, while both are at it.
        assert released(site, freed, "freed twice") == [True, False]
        for running in (holder, newcomer):
            latest = noted(site)[-1]["ids"][-1]
            running.wait_until(partial(has_passed, site, running, latest))
        (site.directory / "leave").touch()
        assert holder.finish() == newcomer.finish() == 0
    entries = noted(site)
    assert [entry for entry in entries if "error" in entry] == []
    taken = [each for entry in entries for each in entry["ids"]]
    assert len(set(taken)) == len(taken)
    users = {entry["pid"] for entry in entries if freed in entry["workers"]}
    assert users == {holder.process.pid, newcomer.process.pid}


def has_passed(site: Site, running: Running, latest: int) -> bool:
    """Whether a program has taken ids a window past ``latest`` (the standard layout's)."""
    passed = latest + (int(WINDOW * 1000) << 22)
    return any(
        entry["ids"][-1] > passed
        for entry in noted(site)
        if entry["pid"] == running.process.pid and "ids" in entry
    )


def load(site: Site, begin: str) -> Running:
    """A program that takes ids in several threads, from when there is a file ``begin``."""
    return site.python(LOAD.replace("sys.argv[1]", repr(begin)))


def noted(site: Site) -> list[dict[str, Any]]:
    """What the programs wrote down; a line that is just being written is not read yet."""
    time.sleep(0.1)  # they, too, need the processor
    path = site.directory / "journal"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def workers_of(site: Site, running: Running) -> set[int]:
    """The worker ids that a program has stamped with."""
    entries = [entry for entry in noted(site) if entry["pid"] == running.process.pid]
    return {worker for entry in entries for worker in entry.get("workers", ())}


def released(site: Site, worker: int, done: str) -> list[bool]:
    """What an operator is told who releases ``worker`` twice; the file ``done`` in between."""
    with site.python(RELEASE.format(worker, done)) as operator:
        assert operator.finish() == 0, operator.output
        found: list[bool] = json.loads(operator.output)
    return found

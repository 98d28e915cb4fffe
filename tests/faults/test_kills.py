"""Processes killed with SIGKILL, and the database's side of connections, at random under load."""

from __future__ import annotations

import random
import time
from array import array
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import override_settings

from django_idgen.core.errors import NoFreeWorker
from django_idgen.core.layout import BitLayout, parse_layout
from django_idgen.process.factory import build_registry
from django_idgen.settings.config import read_settings
from tests.server_tools import execute_apart
from tests.tiers import LONG

from .processes import Site, database_settings, eventually


def written(directory: Path, kind: str) -> list[array[int]]:
    """The ids of one kind, child by child. What a kill cut short in mid-write was not used."""
    found = []
    for path in sorted(directory.glob(f"{kind}-*")):
        data = path.read_bytes()
        found.append(array("q", data[: len(data) // 8 * 8]))
    return found


def assert_no_repeats(diaries: list[array[int]]) -> int:
    """I1 and I2: no id came twice, and each child's rose; returns how many there were."""
    for diary in diaries:
        assert all(one < following for one, following in pairwise(diary))
    ids = sorted(chain.from_iterable(diaries))
    assert ids, "nothing was taken"
    assert all(one < following for one, following in pairwise(ids)), "an id came twice"
    return len(ids)


CHILDREN = 4
KILLS = 200 if LONG else 20
WORKERS = 48 if LONG else 8
"""Fewer than are killed while busy, so that what the dead had must be lent again."""
WINDOW = 1.0
APART = 0.15
"""Seconds between two kills, at most."""
CUTS = 50 if LONG else 15
LAYOUT: BitLayout = parse_layout("standard", epoch=None)
SESSIONS = {
    "postgres": "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mariadb": "SELECT id FROM information_schema.processlist "
    "WHERE db = database() AND id <> connection_id()",
}
CUT = {"postgres": "SELECT pg_terminate_backend({})", "mariadb": "KILL {}"}
NURSERY = f"""
from functools import partial
from tests.faults.site.nursery import Nursery, kill_at_random, take
nursery = Nursery("diaries", {CHILDREN}, partial(take, tag="orders", pause=0.002))
"""


@pytest.fixture
def busy_site(server_alias: str, tmp_path: Path) -> Site:
    """A site on each server, whose segments are short and whose windows are over in a second."""
    site = Site(tmp_path, database_settings(server_alias), server_alias)
    site.set_idgen(
        {
            "GENERATORS": {
                "default": {"LEASES": {"OPTIONS": {"window": WINDOW, "workers": [0, WORKERS]}}}
            },
            "SEGMENTS": {"OPTIONS": {"default_step": 50, "longest_step": 1, "timeout": 30}},
        }
    )
    return site


def test_killed_processes_leave_gaps_at_worst(busy_site: Site) -> None:
    """I1: whatever a process was doing when it was killed, no id of either kind comes twice.

    Its worker id expires with its window, and is lent again.
    """
    site = busy_site
    work = f"kill_at_random(nursery, {KILLS}, {APART})\n"
    with site.python(NURSERY + work) as nursery:
        assert nursery.finish() == 0, nursery.output
    stamped, taken = (
        written(site.directory / "diaries", kind) for kind in ("snowflake", "segment")
    )
    counts = assert_no_repeats(stamped), assert_no_repeats(taken)
    lent = [sorted({LAYOUT.unpack(value).worker for value in diary}) for diary in stamped]
    owners = sum(map(len, lent))
    print(
        f"{KILLS} processes killed: {counts[0]} snowflakes, {counts[1]} ids of segments, "
        f"{owners} leases of {WORKERS} worker ids"
    )
    assert owners > len(set().union(*lent))
    assert_all_expire(site.alias)


def assert_all_expire(alias: str) -> None:
    """Each worker id can be had by somebody else, once the windows of the dead are over."""
    options = {"database": alias, "window": 1000, "workers": [0, WORKERS]}
    leases = {"GENERATORS": {"default": {"LEASES": {"OPTIONS": options}}}}
    with override_settings(IDGEN=leases):
        registry: Any = build_registry(read_settings().generators["default"])
    lent: set[int] = set()

    def all_are_lent() -> bool:
        try:
            lent.add(registry.acquire(holder="heir").lease.worker)
        except NoFreeWorker:
            time.sleep(0.1)
        return len(lent) == WORKERS

    eventually(all_are_lent)


@pytest.mark.long
def test_cut_connections_leave_gaps_at_worst(busy_site: Site) -> None:
    """I1: the server ends one session after the other in mid-work; all go on, and none repeats.

    Nobody who asks for an id of a segment fails. With windows as short as these a
    snowflake may be refused, when it is the renewal at the very end of one that was cut.
    """
    site = busy_site
    work = "nursery.wait_for('leave')\nnursery.kill_all()\n"
    diaries = site.directory / "diaries"
    with site.python(NURSERY + work) as nursery:
        nursery.wait_until(lambda: sum(map(bool, written(diaries, "snowflake"))) == CHILDREN)
        cut = sum(cut_one(site.alias) for _ in range(CUTS))
        before = sizes(diaries)
        nursery.wait_until(
            lambda: all(now > then for now, then in zip(sizes(diaries), before, strict=True))
        )
        (site.directory / "leave").touch()
        assert nursery.finish() == 0, nursery.output
    counts = [assert_no_repeats(written(diaries, kind)) for kind in ("snowflake", "segment")]
    refused = sum(map(len, written(diaries, "refused")))
    print(
        f"{cut} sessions cut: {counts[0]} snowflakes, {counts[1]} ids of segments, "
        f"{refused} calls without a lease"
    )


def cut_one(alias: str) -> int:
    """End a session of the site, at a random moment, once there is one."""
    time.sleep(random.uniform(0, APART))
    found: list[Any] = []

    def one_was_cut() -> bool:
        found[:] = execute_apart(alias, SESSIONS[alias])
        if found:
            with suppress(DatabaseError):  # it has just ended by itself
                execute_apart(alias, CUT[alias].format(random.choice(found)[0]))
        return bool(found)

    eventually(one_was_cut)
    return 1


def sizes(directory: Path) -> list[int]:
    """How much each child wrote down, of either kind."""
    return [len(diary) for kind in ("snowflake", "segment") for diary in written(directory, kind)]

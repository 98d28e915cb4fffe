"""Many processes on one tag, and many tags in one process."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.test import override_settings

from django_idgen import segments
from django_idgen.sources.server import ServerSource
from tests.places import empty_sqlite
from tests.server_tools import execute
from tests.servers import fast_directory
from tests.tiers import LONG, long

from .processes import PATIENCE, Site, eventually

PROCESSES = 16
BATCH = 500
IDS = 20_000_000 if LONG else 1_000_000
STEP = 1000
TAG = "orders"
Ranges = list[tuple[int, int]]

# --- many processes on one tag ------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("longest_step", [1_000_000, *long(1)])
def test_many_processes_share_a_tag(counting_site: Site, longest_step: int) -> None:
    """I1: each id of 16 busy processes lies in a segment that it alone was granted.

    The database saw one UPDATE a segment, and no more segments than steps in the ids,
    but for the two that each process holds in the end.
    """
    site = counting_site
    site.set_idgen({"SEGMENTS": {"OPTIONS": {"longest_step": longest_step, "timeout": 60}}})
    batches = IDS // PROCESSES // BATCH
    accounts = run(site, batches)
    taken = disjoint([pair for account in accounts for pair in account["taken"]])
    granted = disjoint([pair for account in accounts for pair in account["granted"]])
    loads = sum(account["loads"] for account in accounts)
    print(
        f"{PROCESSES} processes took {size(taken)} ids in {loads} fetches of a row whose step is "
        f"{STEP}; {sum(account['waits'] for account in accounts)} waits, the longest "
        f"{max(account['longest_wait'] for account in accounts):.3f} s"
    )
    assert size(taken) == PROCESSES * batches * BATCH
    for account in accounts:
        assert_within(disjoint(account["taken"]), disjoint(account["granted"]))
    assert sum(account["failures"] for account in accounts) == 0
    assert loads == len(granted) == updates(site.alias)
    # Nothing was moved past that nobody was granted.
    assert joined(granted) == [(STEP + 1, max_id(site.alias))]
    assert loads <= size(taken) / STEP + PROCESSES * 2


def run(site: Site, batches: int) -> list[dict[str, Any]]:
    """The accounts of the processes, all let go at once."""
    argv = ("-m", "tests.faults.site.counting", str(PROCESSES), str(batches))
    with site.start(sys.executable, "-W", "ignore", *argv) as running:
        running.wait_until((site.directory / "ready").exists)
        (site.directory / "go").touch()
        assert running.finish() == 0, running.output
    return [json.loads(path.read_text()) for path in site.directory.glob("account-*.json")]


def disjoint(pairs: list[list[int]]) -> Ranges:
    """The [start, stop) ``pairs``, rising; none may reach into another."""
    ranges = sorted((start, stop) for start, stop in pairs)
    assert all(start < stop for start, stop in ranges)
    assert all(one[1] <= following[0] for one, following in pairwise(ranges))
    return ranges


def joined(ranges: Ranges) -> Ranges:
    """Those that follow each other as one."""
    found: Ranges = []
    for start, stop in ranges:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def assert_within(inner: Ranges, outer: Ranges) -> None:
    """I3: whatever lies in ``inner`` lies in ``outer``, too."""
    outside = iter(joined(outer))
    around = next(outside)
    for start, stop in inner:
        while around[1] <= start:
            around = next(outside)
        assert around[0] <= start < stop <= around[1]


def size(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


@pytest.fixture
def counting_site(postgres_site: Site) -> Iterator[Site]:
    """A site whose tag is there, and whose server counts the updates that move it up.

    By a sequence, which also keeps those that are rolled back afterwards.
    """
    alias = postgres_site.alias
    ServerSource(alias=alias, default_step=STEP).fetch(TAG)
    execute(alias, "CREATE SEQUENCE updates")
    execute(
        alias,
        "CREATE FUNCTION note_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM nextval('updates'); RETURN NULL; END $$",
    )
    execute(
        alias,
        "CREATE TRIGGER note_update AFTER UPDATE OF max_id ON leaf_alloc "
        "FOR EACH ROW EXECUTE FUNCTION note_update()",
    )
    yield postgres_site
    execute(alias, "DROP FUNCTION note_update CASCADE")
    execute(alias, "DROP SEQUENCE updates")


def updates(alias: str) -> int:
    return int(execute(alias, "SELECT last_value FROM updates")[0][0])


def max_id(alias: str) -> int:
    return int(execute(alias, f"SELECT max_id FROM leaf_alloc WHERE biz_tag = '{TAG}'")[0][0])


# --- many tags in one process -------------------------------------------------

TAGS = {
    "sqlite": 10_000 if LONG else 300,
    "postgres": 2000 if LONG else 100,  # of new rows, each in three transactions
}
TRACED = 1000 if LONG else 100
"""Tags whose memory is measured, which takes several times as long."""
MOST_BYTES = 2048
"""Memory that a tag in use may take, without its own text."""
FEW_BYTES = 400
"""Memory for what has to be known of a tag that was dropped: where it goes on."""


@pytest.fixture
def sqlite_tags(django_db_blocker: Any) -> Iterator[str]:
    """The alias of a SQLite file that segments come from."""
    with (
        django_db_blocker.unblock(),
        TemporaryDirectory(dir=fast_directory()) as directory,
        empty_sqlite(Path(directory, "tags.sqlite3")) as alias,
        segments_of(alias),
    ):
        yield alias


@pytest.fixture(params=["sqlite", *long("postgres")])
def tags_alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """The alias of an empty database, where segments come from."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_tags")
    else:
        with segments_of(request.getfixturevalue(request.param)) as alias:
            yield alias


@contextmanager
def segments_of(alias: str) -> Iterator[str]:
    source = {"OPTIONS": {"database": alias}}
    idgen = {"SEGMENTS": {"SOURCE": source, "OPTIONS": {"timeout": 30}}}
    with override_settings(IDGEN=idgen):
        yield alias


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Tells how many bytes there are more than at the beginning."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield lambda: (gc.collect(), tracemalloc.get_traced_memory()[0] - before)[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_many_tags_in_one_process(tags_alias: str, request: pytest.FixtureRequest) -> None:
    """Each of them gives ids from 1 on; those that nobody uses are let go, and found again."""
    tags = names(TAGS[request.node.callspec.params["tags_alias"]])
    assert take_of_each(tags) == [1] * len(tags)
    drop_all()
    assert take_of_each(tags[-50:]) == [1001] * 50


@pytest.mark.long
def test_tags_take_little_memory(traced: Callable[[], int], sqlite_tags: str) -> None:
    """And hardly any once nobody uses them: where each goes on has to be known."""
    take_of_each(["first"])
    rounds = []
    # A thread that an earlier test left behind may take memory in one round; tags do in each.
    for number in range(3):
        tags = [f"{number}-{tag}" for tag in names(TRACED)]
        before = traced()
        take_of_each(tags)
        held = (traced() - before) / len(tags)
        drop_all()
        rounds.append((held, (traced() - before) / len(tags)))
    print(f"{TRACED} tags, bytes each in use and once dropped: {rounds}")
    assert min(held for held, _ in rounds) < MOST_BYTES
    assert min(left for _, left in rounds) < FEW_BYTES


def names(count: int) -> list[str]:
    return [f"tag-{number}" for number in range(count)]


def take_of_each(tags: list[str]) -> list[int]:
    """An id of each tag, with all loads begun at once.

    They stand in one queue: each is waited for from the end of the one before it.
    """
    segments.allocator().preload(tags)
    assert all(segments[tag].preload(PATIENCE) for tag in tags)
    return [segments[tag].next_id() for tag in tags]


def drop_all() -> None:
    """As after two quarters of an hour without a call."""
    allocator = segments.allocator()
    allocator.idle_after = 1e-6

    def are_gone() -> bool:
        allocator.sweep()
        return not segments and not allocator.segments

    eventually(are_gone)
    allocator.idle_after = 900.0

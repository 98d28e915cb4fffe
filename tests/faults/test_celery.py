"""Ids under a Celery worker that forks its processes."""

from __future__ import annotations

import json

import pytest

from .processes import (
    Running,
    Site,
    Taken,
    assert_no_repeats,
    assert_workers_differ,
    eventually,
    program,
)

CHILDREN = 2
TASKS = 16
# The file broker loses a message that a worker reads before it is written whole.
SEND = f"""
import json
from celery.exceptions import TimeoutError
from tests.faults.site.worker import ids

def answer(result):
    while True:
        try:
            return result.get(timeout=3, interval=0.05)
        except TimeoutError:
            result = ids.delay(5)

print(json.dumps([answer(result) for result in [ids.delay(5) for _ in range({TASKS})]]))
"""


def celery(site: Site, *options: str) -> Running:
    """A worker with two children; ids were taken in their parent."""
    for folder in ("queue", "control", "processed", "results"):
        (site.directory / folder).mkdir()
    site.environment.update(SITE_SPOOL=str(site.directory), SITE_EARLY="5")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "info")
    pool = ("--pool", "prefork", "--concurrency", str(CHILDREN))
    return site.start(
        program("celery"), "-A", "tests.faults.site.worker", "worker", *pool, *quiet, *options
    )


def run_tasks(site: Site, worker: Running) -> list[Taken]:
    """What the worker's children took in :data:`TASKS` tasks."""
    worker.wait_until(lambda: "ready." in worker.output)
    site.environment["SITE_EARLY"] = "0"  # the sender is no part of it
    with site.python(SEND, setup=False) as sender:
        assert sender.finish() == 0, sender.output + worker.output
        return list(json.loads(sender.output.splitlines()[-1]))


def test_children_share_nothing_with_their_parent(site: Site) -> None:
    """Ids taken at import come in no task; a warm shutdown frees all worker ids (hazard 14)."""
    with celery(site) as worker:
        taken = run_tasks(site, worker) + site.recorded()
        assert_no_repeats(taken)
        assert_workers_differ(taken)
        assert site.held() == {entry["worker"] for entry in taken}
        worker.stop()
        assert site.held() == set(), worker.output
    eventually(lambda: site.sessions() == 0)


def test_a_child_that_is_replaced_gives_its_id_back(sqlite_site: Site) -> None:
    """With --max-tasks-per-child worker ids don't pile up, and no id comes again."""
    site = sqlite_site
    with celery(site, "--max-tasks-per-child", "4") as worker:
        taken = run_tasks(site, worker)
        assert len({entry["pid"] for entry in taken}) > CHILDREN
        assert_no_repeats(taken + site.recorded())
        eventually(lambda: len(site.held()) <= CHILDREN + 1, say=lambda: worker.output)
        worker.stop()
        assert site.held() == set(), worker.output


@pytest.mark.parametrize("pool", ["threads"])
def test_a_worker_without_children(sqlite_site: Site, pool: str) -> None:
    """Where the tasks run in the worker's own process, its worker id is given back as well."""
    with celery(sqlite_site, "--pool", pool) as worker:
        assert_no_repeats(run_tasks(sqlite_site, worker) + sqlite_site.recorded())
        assert len(sqlite_site.held()) == 1
        worker.stop()
        assert sqlite_site.held() == set(), worker.output

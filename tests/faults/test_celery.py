"""Ids under a Celery worker that forks its processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .brokers import QUIET, queue_on
from .processes import (
    ON_POSTGRES,
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
SEND = f"""
import json
from tests.faults.site.worker import ids
results = [ids.delay(5) for _ in range({TASKS})]
print(json.dumps([result.get(timeout=50) for result in results]))
"""


@contextmanager
def celery(site: Site, *options: str) -> Iterator[Running]:
    """A worker with two children, on Redis; ids were taken in their parent."""
    pool = ("--pool", "prefork", "--concurrency", str(CHILDREN))
    words = ("-A", "tests.faults.site.worker", "worker", *pool, *QUIET, "-l", "info", *options)
    with queue_on(site, "redis"):
        site.environment["SITE_EARLY"] = "5"
        with site.start(program("celery"), *words) as worker:
            yield worker


def run_tasks(site: Site, worker: Running) -> list[Taken]:
    """What the worker's children took in :data:`TASKS` tasks."""
    worker.wait_until(lambda: "ready." in worker.output)
    site.environment["SITE_EARLY"] = "0"  # the sender is no part of it
    with site.python(SEND, setup=False) as sender:
        assert sender.finish() == 0, sender.output + worker.output
        return list(json.loads(sender.output.splitlines()[-1]))


@ON_POSTGRES
def test_children_share_nothing_with_their_parent(site: Site) -> None:
    """Ids taken at import come in no task; a warm shutdown frees all worker ids.

    Hazards 14 and 66: Celery's children run neither ``atexit`` nor multiprocessing's finalizers.
    """
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

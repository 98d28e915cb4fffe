"""Metrics of many processes: gunicorn's workers, each scrape answered by whichever is free."""

from __future__ import annotations

import http.client
import signal
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from tests.faults.processes import Site, Taken, Web, eventually, serving
from tests.faults.test_web_servers import gunicorn

from .samples import Scraped, scrape

WORKERS = 4


@pytest.fixture
def site(metrics_site: Site, files: Path) -> Site:
    """The site with metrics, whose processes share a directory of files."""
    return metrics_site


@contextmanager
def workers(site: Site, *options: str) -> Iterator[Web]:
    with serving(site, *gunicorn("--preload", "--workers", str(WORKERS), *options)) as web:
        yield web


def ids_in(taken: list[Taken], kind: str) -> int:
    return sum(len(entry[kind]) for entry in taken)


def counted(found: Scraped) -> tuple[float, float]:
    """Ids of the generator and of the tag."""
    return found.sum("ids_issued_total"), found.sum("segment_ids_issued_total", tag="orders")


def test_the_workers_counts_add_up_to_the_ids_taken(site: Site) -> None:
    """Whoever answers tells those of all; what the master took before the fork counts once."""
    site.environment["SITE_EARLY"] = "20"
    with workers(site) as web:
        taken = web.take_from_all(WORKERS) + site.recorded()
        wanted = (ids_in(taken, "ids"), ids_in(taken, "tag"))
        web.running.wait_until(lambda: counted(scrape(web.port)) == wanted)
        found = scrape(web.port)
        assert counted(found) == wanted
        # The library's own view, as django-prometheus has it, has the same counts.
        assert counted(scrape(web.port, "/files")) == wanted

        held = dict_of(found, "lease_held")
        assert len(held) == WORKERS + 1
        assert set(held.values()) == {1.0}
        assert dict_of(found, "worker_id").keys() == held.keys()
        assert len(set(dict_of(found, "worker_id").values())) == WORKERS + 1
        assert all(0 < left <= 180 for left in dict_of(found, "lease_seconds_left").values())
        assert all(abs(off) < 5 for off in dict_of(found, "clock_offset_seconds").values())
        assert found.one("worker_ids", state="held") == WORKERS + 1
        assert found.one("up", part="database:default") == 1
        assert found.one("segment_buffer_ids", tag="orders") > 0

        more = [web.take(7) for _ in range(10)]
        web.running.stop()
    # Each told its last figures when it ended.
    taken += more
    assert counted(read_files(site)) == (ids_in(taken, "ids"), ids_in(taken, "tag"))


def dict_of(found: Scraped, name: str) -> dict[str, float]:
    """The values of a gauge by process."""
    return {labels["pid"]: value for labels, value in found.samples(name)}


def read_files(site: Site) -> Scraped:
    """What the files say when all processes are gone."""
    from prometheus_client import generate_latest

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=site.environment["PROMETHEUS_MULTIPROC_DIR"])
    return Scraped(generate_latest(registry).decode())


def test_a_worker_that_was_killed_leaves_its_counts_and_not_its_gauges(site: Site) -> None:
    """Counters never go down; a lease that nobody holds any more is not told of."""
    with workers(site) as web:
        taken = web.take_from_all(WORKERS)
        wanted = (ids_in(taken, "ids"), ids_in(taken, "tag"))
        web.running.wait_until(lambda: counted(scrape(web.port)) == wanted)
        before = set(dict_of(scrape(web.port), "lease_held"))
        with suppress(urllib.error.URLError, http.client.HTTPException, ConnectionError):
            scrape(web.port, "/die")

        def one_is_gone() -> bool:
            return bool(before - set(dict_of(scrape(web.port), "lease_held")))

        web.running.wait_until(one_is_gone)
        assert counted(scrape(web.port)) >= wanted


def test_a_worker_without_a_lease_is_not_told_to_have_none_left(site: Site) -> None:
    """Figures of the parent's lease are not a child's, not even as 0 seconds."""
    site.environment["SITE_EARLY"] = "5"
    with workers(site) as web:
        web.take(1)
        eventually(lambda: len(dict_of(scrape(web.port), "lease_seconds_left")) == 2)
        web.running.send(signal.SIGHUP)
        found = scrape(web.port)
        assert all(left > 0 for left in dict_of(found, "lease_seconds_left").values())

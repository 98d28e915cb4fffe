"""Ids under uWSGI, which forks its workers without Python's fork hooks."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import pytest

from tests.tiers import long

from .processes import (
    PATIENCE,
    Site,
    Web,
    assert_no_repeats,
    assert_workers_differ,
    program,
    serving,
)

WORKERS = 3
FORK_OPTIONS = {
    "none": (),
    "uwsgi-hooks": ("--py-call-uwsgi-fork-hooks",),
}
if sys.version_info < (3, 13):
    # From 3.13 on uWSGI (2.0.30) itself crashes with these, whatever the application.
    FORK_OPTIONS["osafterfork"] = ("--py-call-osafterfork",)
    FORK_OPTIONS["both"] = ("--py-call-osafterfork", "--py-call-uwsgi-fork-hooks")


def uwsgi(*options: str) -> tuple[str, ...]:
    serve = ("--http-socket", "127.0.0.1:{port}", "--module", "tests.faults.site.wsgi")
    ends = ("--need-app", "--die-on-term", "--stats", "127.0.0.1:{side}")
    return (program("uwsgi"), *serve, *ends, "--processes", str(WORKERS), *options)


def workers_of(web: Web) -> list[dict[str, Any]]:
    """What uWSGI's statistics say of each worker."""
    with socket.create_connection(("127.0.0.1", web.side), timeout=PATIENCE) as client:
        stats = json.loads(b"".join(iter(lambda: client.recv(65536), b"")))
    return list(stats["workers"])


def stop(web: Web) -> None:
    """End the server once no worker is busy: one that is runs nothing at its end."""
    idle = {"idle", "cheap"}
    web.running.wait_until(lambda: all(one["status"] in idle for one in workers_of(web)))
    web.running.stop()


def check_serving(site: Site, *options: str) -> None:
    """Take ids in the master, then in all workers, then end; nothing repeats or stays taken."""
    with serving(site, *uwsgi(*options)) as web:
        taken = web.take_from_all(WORKERS)
        assert_no_repeats(taken + site.recorded())
        # One that ran at the fork could leave the worker without the GIL.
        assert site.recorded()[0]["threads"] == []
        assert_workers_differ(taken)
        assert site.held() == {entry["worker"] for entry in taken}
        stop(web)
        assert site.held() == set()


@pytest.mark.parametrize("options", FORK_OPTIONS.values(), ids=FORK_OPTIONS.keys())
def test_workers_share_nothing_with_their_master(sqlite_site: Site, options: list[str]) -> None:
    """Hazard 56: whichever of uWSGI's fork hooks are on, none goes on with the master's ids."""
    sqlite_site.environment["SITE_EARLY"] = "20"
    check_serving(sqlite_site, "--master", *options)


@pytest.mark.long
def test_on_every_database(site: Site) -> None:
    """Hazard 56 with threads, and with grants that come through a background thread."""
    site.environment["SITE_EARLY"] = "20"
    check_serving(site, "--master", "--enable-threads", "--threads", "4")
    assert site.sessions() == 0


def test_without_a_master(sqlite_site: Site) -> None:
    """Workers that are forked by the first of them don't share its grants."""
    sqlite_site.environment["SITE_EARLY"] = "20"
    with serving(sqlite_site, *uwsgi()) as web:
        taken = web.take_from_all(WORKERS)
        assert_no_repeats(taken + sqlite_site.recorded())
        assert_workers_differ(taken)
        stop(web)


@pytest.mark.long
def test_lazy_apps(sqlite_site: Site) -> None:
    """Workers that load the application themselves have worker ids of their own."""
    sqlite_site.environment["SITE_EARLY"] = "20"
    with serving(sqlite_site, *uwsgi("--master", "--lazy-apps")) as web:
        taken = web.take_from_all(WORKERS) + sqlite_site.recorded()
        assert_no_repeats(taken)
        assert_workers_differ(taken)
        stop(web)
        assert sqlite_site.held() == set()


@pytest.mark.parametrize("hook", ["before", *long("after", "decorator")])
def test_a_fork_hook_of_the_projects_own(sqlite_site: Site, hook: str) -> None:
    """uWSGI has one place for a hook: the project's runs, and still nothing repeats."""
    site = sqlite_site
    site.environment.update(SITE_EARLY="20", SITE_HOOK=hook)
    check_serving(site, "--master")
    hooked = {entry["hook"] for entry in site.journal() if "hook" in entry}
    assert len(hooked) >= WORKERS


def test_a_long_tick_and_the_first_request(sqlite_site: Site) -> None:
    """A worker that is asked within the very tick that the master took ids in repeats none."""
    site = sqlite_site
    site.environment["SITE_EARLY"] = "20"
    layout = {"time": 31, "worker": 10, "sequence": 22, "tick": 1.0}
    site.environment["SITE_IDGEN"] = json.dumps({"GENERATORS": {"default": {"LAYOUT": layout}}})
    check_serving(site, "--master")


@pytest.mark.long
def test_a_worker_that_is_replaced(sqlite_site: Site) -> None:
    """A respawned worker is forked from the same master, and takes new grants as well."""
    site = sqlite_site
    site.environment["SITE_EARLY"] = "20"
    respawning = ("--max-requests", "10", "--min-worker-lifetime", "0")
    with serving(site, *uwsgi("--master", *respawning)) as web:
        taken = web.take_from_all(2 * WORKERS)

        def each_in_mid_life() -> bool:
            # uWSGI cuts a leaving worker short, and misses a signal in the midst of a fork.
            if all(0 < one["delta_requests"] < 10 for one in workers_of(web)):
                return True
            taken.extend(web.take_from_all(1, at_once=2))
            return False

        web.running.wait_until(each_in_mid_life)
        assert_no_repeats(taken + site.recorded())
        stop(web)
        assert site.held() == set()

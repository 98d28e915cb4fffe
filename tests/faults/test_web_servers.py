"""Ids under gunicorn and uWSGI: forked workers, restarts, and what is left behind."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import sys
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import long

from .processes import (
    ON_POSTGRES,
    PATIENCE,
    Site,
    Taken,
    Web,
    assert_no_repeats,
    assert_workers_differ,
    eventually,
    program,
    serving,
)

ROOT = Path(__file__).parents[2]
WSGI = "tests.faults.site.wsgi:application"
WORKERS = 4


def gunicorn(*options: str) -> tuple[str, ...]:
    bind = ("--bind", "127.0.0.1:{port}", "--log-level", "info", "--no-control-socket")
    # Its own 30 s count for a worker that loads the application, too, and for the last requests.
    patient = ("--timeout", f"{PATIENCE:.0f}", "--graceful-timeout", f"{PATIENCE:.0f}")
    return (program("gunicorn"), WSGI, *bind, *patient, *options)


PRELOAD = ("--preload", "--workers", str(WORKERS))


@ON_POSTGRES
def test_preloaded_workers_share_nothing_with_their_master(site: Site) -> None:
    """Ids from before the fork come in no worker; master and workers have their own (hazard 14)."""
    site.environment["SITE_EARLY"] = "20"
    with serving(site, *gunicorn(*PRELOAD)) as web:
        taken = web.take_from_all(WORKERS) + site.recorded()
        assert_no_repeats(taken)
        assert_workers_differ(taken)
        assert site.held() == {entry["worker"] for entry in taken}
        assert len(site.held()) == WORKERS + 1

        web.running.stop()
        assert site.held() == set()
    assert site.sessions() == 0


def test_a_worker_that_is_replaced_gives_its_id_back(sqlite_site: Site) -> None:
    """A reload (SIGHUP) and --max-requests leave no worker id held but those in use."""
    site = sqlite_site
    site.environment["SITE_EARLY"] = "5"
    with serving(site, *gunicorn(*PRELOAD, "--max-requests", "20")) as web:
        before = web.take_from_all(WORKERS)
        web.running.send(signal.SIGHUP)
        old, after = {entry["pid"] for entry in before}, []

        def a_new_one_answers() -> bool:
            after.extend(web.take_from_all(1))
            return bool({entry["pid"] for entry in after} - old)

        web.running.wait_until(a_new_one_answers)
        eventually(lambda: len(site.held()) <= WORKERS + 1)
        assert_no_repeats(site.recorded() + before + after)
        web.running.stop()
        assert site.held() == set()


@pytest.mark.long
def test_without_preload_each_worker_loads_its_own(sqlite_site: Site) -> None:
    """Workers that import the application themselves have worker ids of their own."""
    sqlite_site.environment["SITE_EARLY"] = "5"
    with serving(sqlite_site, *gunicorn("--workers", "2")) as web:
        taken = web.take_from_all(2) + sqlite_site.recorded()
        assert_no_repeats(taken)
        assert_workers_differ(taken)
        web.running.stop()
        assert sqlite_site.held() == set()


def write_hooked(site: Site, server: str, application: str = "") -> Path:
    """A module ``hooked``: ``application``, and the page's function, called as it says."""
    page = (ROOT / "docs" / "processes.md").read_text()
    (function,) = re.findall(r"```python\n(.*?def take_first_ids.*?)```", page, re.DOTALL)
    (row,) = re.findall(rf"^\| {server}.*", page, re.MULTILINE)
    hook = re.findall("`([^`]*take_first_ids[^`]*)`", row) or ["take_first_ids()"]
    path = site.directory / "hooked.py"
    path.write_text(f"{application}\n{function}\n\n{hook[0]}\n")
    return path


def wait_for_first_ids(site: Site, workers: int) -> None:
    """Until that many processes hold a worker id, which nothing was asked of."""

    def all_hold() -> bool:
        with suppress(sqlite3.OperationalError):  # the first id makes the tables
            return len(site.held()) == workers
        return False

    eventually(all_hold)


WSGI_FILE = "import uwsgidecorators\nfrom tests.faults.site.wsgi import application\n"
ASGI_FILE = (
    "from django.core.asgi import get_asgi_application\napplication = get_asgi_application()\n"
)


@pytest.mark.parametrize("server", ["gunicorn", *long("uWSGI", "uvicorn")])
def test_workers_take_first_ids_before_a_request(sqlite_site: Site, server: str) -> None:
    """As the page says it: with its function and its hook, no request waits for a first id."""
    site = sqlite_site
    if server == "gunicorn":
        configuration = write_hooked(site, "gunicorn \\|")
        command = gunicorn("--workers", "2", "--config", str(configuration))
    elif server == "uWSGI":
        write_hooked(site, "uWSGI \\| `", WSGI_FILE)
        command = uwsgi("--master", "--processes", "2", "--module", "hooked")
    else:
        write_hooked(site, "uvicorn, daphne, hypercorn \\| at", ASGI_FILE)
        options = ("--workers", "2", "--port", "{port}")
        command = (program("uvicorn"), "hooked:application", *options)
    with serving(site, *command) as web:
        wait_for_first_ids(site, 2)
        web.running.stop()
        if server == "gunicorn":
            assert site.held() == set()


def test_a_codec_that_is_not_for_text_harms_no_other_request(sqlite_site: Site) -> None:
    """Django fails before any view runs, as security.md says; the process goes on."""
    with serving(sqlite_site, *gunicorn("--workers", "1")) as web:
        before = web.take()
        with closing(HTTPConnection("127.0.0.1", web.port, timeout=PATIENCE)) as client:
            client.request("GET", "/ids/5?x=1", headers={"Content-Type": "a/b; charset=rot13"})
            assert client.getresponse().status == 500
        assert web.take()["pid"] == before["pid"]


@ON_POSTGRES
@pytest.mark.parametrize(("kind", "preload"), [("gthread", True), ("gevent", False)])
def test_concurrent_requests_in_one_worker_take_different_ids(
    site: Site, kind: str, preload: bool
) -> None:
    """Threads and greenlets never repeat an id, nor wait for ever."""
    site.environment["SITE_EARLY"] = "5"
    options = ["--workers", "2", "--threads", "8", "-k", kind, *["--preload"] * preload]
    with serving(site, *gunicorn(*options)) as web:
        taken = web.take_from_all(2, at_once=24) + site.recorded()
        assert_no_repeats(taken)
        assert len(site.held()) == 2 + preload
        web.running.stop()
        assert site.held() == set()


@pytest.mark.long
@ON_POSTGRES
def test_an_application_that_was_loaded_before_gevent_repeats_nothing(site: Site) -> None:
    """gevent's workers patch after the fork: all greenlets share Django's connections then,
    ours included, and Django refuses one that is open in another greenlet. One request at a
    time may meet one that is just being closed; the ids that come are unlike each other."""
    site.environment["SITE_EARLY"] = "5"
    with serving(site, *gunicorn("--workers", "2", "-k", "gevent", "--preload")) as web:
        taken: list[Taken] = []

        def both_have_answered() -> bool:
            answer = web.try_to_take()
            taken.extend([answer] if answer else [])
            return len({entry["pid"] for entry in taken}) == 2

        web.running.wait_until(both_have_answered)
        assert_no_repeats(taken + site.recorded())
        web.running.stop()
        assert site.held() == set()


# --- uWSGI, which forks its workers without Python's fork hooks ---------------


UWSGI_WORKERS = 3
FORK_OPTIONS = {
    "none": (),
    "uwsgi-hooks": ("--py-call-uwsgi-fork-hooks",),
}
if sys.version_info < (3, 13):
    # From 3.13 on uWSGI (2.0.30) itself crashes with these, whatever the application.
    FORK_OPTIONS["osafterfork"] = ("--py-call-osafterfork",)
    FORK_OPTIONS["both"] = (
        "--py-call-osafterfork",
        "--py-call-uwsgi-fork-hooks",
    )


def uwsgi(*options: str) -> tuple[str, ...]:
    serve = ("--http-socket", "127.0.0.1:{port}", "--module", "tests.faults.site.wsgi")
    ends = ("--need-app", "--die-on-term", "--stats", "127.0.0.1:{side}")
    return (program("uwsgi"), *serve, *ends, "--processes", str(UWSGI_WORKERS), *options)


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
        taken = web.take_from_all(UWSGI_WORKERS)
        assert_no_repeats(taken + site.recorded())
        # One that ran at the fork could leave the worker without the GIL.
        assert site.recorded()[0]["threads"] == []
        assert_workers_differ(taken)
        assert site.held() == {entry["worker"] for entry in taken}
        stop(web)
        assert site.held() == set()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            options, marks=[] if name in ("none", "uwsgi-hooks") else [pytest.mark.long], id=name
        )
        for name, options in FORK_OPTIONS.items()
    ],
)
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
        taken = web.take_from_all(UWSGI_WORKERS)
        assert_no_repeats(taken + sqlite_site.recorded())
        assert_workers_differ(taken)
        stop(web)


@pytest.mark.long
def test_lazy_apps(sqlite_site: Site) -> None:
    """Workers that load the application themselves have worker ids of their own."""
    sqlite_site.environment["SITE_EARLY"] = "20"
    with serving(sqlite_site, *uwsgi("--master", "--lazy-apps")) as web:
        taken = web.take_from_all(UWSGI_WORKERS) + sqlite_site.recorded()
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
    assert len(hooked) >= UWSGI_WORKERS


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
        taken = web.take_from_all(2 * UWSGI_WORKERS)

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

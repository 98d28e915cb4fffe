"""Ids under gunicorn: forked workers, restarts, and what is left behind."""

from __future__ import annotations

import signal

import pytest

from .processes import (
    ON_POSTGRES,
    PATIENCE,
    Site,
    Taken,
    assert_no_repeats,
    assert_workers_differ,
    eventually,
    program,
    serving,
)

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

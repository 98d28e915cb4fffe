"""Processes on the database and clients over HTTP, on one tag and in one namespace."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.core.errors import ConfigurationError, NamespaceMismatch
from django_idgen.leases.http import HttpLeases
from django_idgen.process.factory import build_namespace
from django_idgen.process.maps import current_settings
from tests.faults.conftest import postgres_site  # noqa: F401 - a fixture
from tests.faults.processes import (
    PATIENCE,
    Running,
    Site,
    Web,
    program,
    serving,
    worker_ids_from_redis,
)
from tests.server_tools import send, stop_between_transactions
from tests.tiers import LONG, long

from .service import SECRET, installation_of

IDGEN = {
    "REST": {"make_tags": True},
    "SEGMENTS": {"OPTIONS": {"default_step": 200}},
    "GENERATORS": {"default": {"OPTIONS": {"max_ahead": 1}}},
}


def gunicorn(*options: str) -> tuple[str, ...]:
    bind = ("--bind", "127.0.0.1:{port}", "--no-control-socket", "-k", "gthread", "--threads", "8")
    patient = ("--timeout", f"{PATIENCE:.0f}")
    return (program("gunicorn"), "tests.remote.site:application", *bind, *patient, *options)


@pytest.fixture
def site(postgres_site: Site) -> Site:  # noqa: F811
    postgres_site.set_idgen(IDGEN)
    return postgres_site


def url_of(web: Web) -> str:
    return f"http://127.0.0.1:{web.port}/idgen/"


@contextmanager
def taking(
    site: Site, name: str, urls: list[str], batches: int = 5
) -> Iterator[tuple[Running, Path]]:
    """A client that takes ids until so many batches came after :func:`finish`."""
    installation = installation_of(urls[0])
    site.environment.update(
        TAKER_URLS=" ".join(urls), TAKER_TOKEN=SECRET, TAKER_INSTALLATION=installation
    )
    path = site.directory / name
    path.touch()
    argv = (sys.executable, "-m", "tests.remote.taker", str(path), str(batches))
    with site.start(*argv, cold=True) as running:  # without Django
        yield running, path


def finish(running: Running, path: Path) -> None:
    Path(f"{path}.enough").touch()
    assert running.finish() == 0, running.output


def taken(paths: list[Path]) -> dict[str, list[int]]:
    entries = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return {
        kind: [value for entry in entries for value in entry.get(kind, [])]
        for kind in ("ids", "tag")
    }


def assert_rises(path: Path) -> None:
    """Ids of each kind rise in one process, whoever lent to it (I2)."""
    for kind, values in taken([path]).items():
        assert values == sorted(set(values)), kind


DIRECT = """
import json, sys
from django_idgen import generators, segments
with open({path!r}, "a") as out:
    for _ in range({batches}):
        out.write(json.dumps({{"ids": generators["default"].next_ids(50)}}) + "\\n")
        out.write(json.dumps({{"tag": segments["orders"].next_ids(50)}}) + "\\n")
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, *long(signal.SIGSTOP)])
def test_direct_processes_and_clients_repeat_nothing(site: Site, how: signal.Signals) -> None:
    """Two processes on the database, clients of two services: every id once, all rising.

    One of the services is killed or hangs meanwhile: its clients go on with the other (hazard 26).
    """
    batches, clients_of = (60, (0, 1, 0)) if LONG else (10, (0, 1))
    with ExitStack() as stack:
        webs = [stack.enter_context(serving(site, *gunicorn())) for _ in range(2)]
        urls = [url_of(web) for web in webs]
        clients = [
            stack.enter_context(taking(site, f"client{n}", urls[first:] + urls[:first], batches))
            for n, first in enumerate(clients_of)
        ]
        direct = []
        for n in range(2):
            path = site.directory / f"direct{n}"
            code = DIRECT.format(path=str(path), batches=batches)
            direct.append((stack.enter_context(site.python(code)), path))
        for running, path in clients:
            running.wait_until(lambda path=path: len(path.read_text().splitlines()) > 20)
        _strike(webs[0].running.process.pid, how)
        for running, path in [*clients, *direct]:
            finish(running, path)
        paths = [path for _, path in [*clients, *direct]]
        for kind, values in taken(paths).items():
            assert len(values) >= len(paths) * batches * 50
            assert len(set(values)) == len(values), kind
        for path in paths:
            assert_rises(path)
        # Clients that ended in order have given their worker ids back, as the others have. One
        # that has to find out that a service hangs may not have the time to.
        assert site.held() == set() or how == signal.SIGSTOP
        assert not any(SECRET in web.running.output for web in webs)


@pytest.fixture
def redis_site(site: Site, redis: str) -> Iterator[Site]:
    """As ``site``, with worker ids from Redis."""
    with worker_ids_from_redis(site, redis):
        yield site


def test_the_processes_of_a_service_over_redis_are_one_installation(redis_site: Site) -> None:
    """What one of them lent, another one renews: a client that has met one is not refused."""
    with (
        serving(redis_site, *gunicorn()) as first,
        serving(redis_site, *gunicorn()) as second,
    ):
        served = build_namespace(current_settings().generators["default"])
        clients = [
            HttpLeases(served, base_urls=url_of(web), generator="default", token=SECRET, timeout=30)
            for web in (first, second)
        ]
        assert len({client.installation() for client in clients}) == 1
        lease = clients[0].acquire(holder="a").lease
        assert clients[1].renew(lease, last_tick=lease.start).lease.token == lease.token
        assert clients[1].release(lease, last_tick=None) is True
        for client in clients:
            client.close()


@pytest.mark.long
def test_a_service_that_is_started_anew_is_found_again(site: Site) -> None:
    """With one address only, a client goes on when the service is back."""
    with serving(site, *gunicorn()) as web:
        with taking(site, "client", [url_of(web)]) as (running, path):
            running.wait_until(lambda: len(path.read_text().splitlines()) > 20)
            web.running.stop()
            running.wait_until(lambda: '"error"' in path.read_text())
            argv = (word.format(port=web.port, side=web.side) for word in gunicorn())
            with site.start(*argv):
                finish(running, path)
        assert_rises(path)


def test_settings_lead_a_django_project_to_a_service(site: Site) -> None:
    """``HttpSource`` and ``HttpLeases`` in ``IDGEN``: the maps give ids that the service lends."""
    with serving(site, *gunicorn()) as web:
        options = {"base_urls": [url_of(web)], "token": SECRET, "timeout": 20}
        leases = {"BACKEND": "django_idgen.leases.http.HttpLeases", "OPTIONS": options}
        source = {"BACKEND": "django_idgen.sources.http.HttpSource", "OPTIONS": options}
        far = {
            "GENERATORS": {
                "default": {"LEASES": leases, "OPTIONS": {"max_ahead": 1}},
                "hasty": {
                    "NAMESPACE": "hasty",
                    "LEASES": {**leases, "OPTIONS": {**options, "generator": "default"}},
                    "OPTIONS": {"max_ahead": 2},
                },
                "other": {
                    "NAMESPACE": "other",
                    "LEASES": {**leases, "OPTIONS": {**options, "generator": "default"}},
                    "EPOCH": "2024-01-01T00:00:00Z",
                },
            },
            "SEGMENTS": {"SOURCE": source, "OPTIONS": {"timeout": 20}},
        }
        with override_settings(IDGEN=far):
            assert segments["orders"].next_ids(3) == [1, 2, 3]
            first = generators["default"].next_id()
            assert generators["default"].next_id() > first
            assert len(site.held()) == 1
            # More of the future than the service reckons with, and another epoch.
            with pytest.raises(ConfigurationError, match=r"max_ahead.*2000.*1000"):
                generators["hasty"].next_id()
            with pytest.raises(NamespaceMismatch) as caught:
                generators["other"].next_id()
            assert caught.value.setting == "epoch_us"
            assert {caught.value.stored, caught.value.configured} == {
                1735689600000000,
                1704067200000000,
            }
        assert site.held() == set()


def _strike(pid: int, how: signal.Signals) -> None:
    """Signal a server and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pids = [pid, *map(int, children)]
    if how is signal.SIGSTOP:
        stop_between_transactions(*pids)
    else:
        send(how, *pids)

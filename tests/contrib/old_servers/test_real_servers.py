"""Old clients against real web servers, while our own processes take ids of the same tag."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.testing.contracts.lenders import at_once
from tests.faults.conftest import site, sqlite_site  # noqa: F401
from tests.faults.processes import ON_POSTGRES, Running, Site, Web, program, serving
from tests.tiers import long

from .old_clients import Ask, CosIdMachine, CosIdSegments, TinyClient

TAG = "shop.orders"
EACH = 80
"""Ids that each client takes: a few segments' worth."""
MAKE = f"""
from tests.server_tools import make_tables
make_tables("default")
from django.db import connection
from django_idgen.models import AccessToken
with connection.schema_editor() as editor:
    editor.create_model(AccessToken)
from django_idgen import segments
from django_idgen.rest.tokens import make_token
segments["{TAG}"].next_id()
print(make_token("old", tags=["*"], generators=["*"], leases=["*"])[1])
"""
TAKE = f"""
import json, sys
from django_idgen import generators, segments
print(json.dumps({{
    "ids": [segments["{TAG}"].next_id() for _ in range({EACH})],
    "worker": generators["default"].layout.unpack(generators["default"].next_id()).worker,
}}))
sys.stdout.flush()
"""
STAY = (
    TAKE
    + """
import os, time
while not os.path.exists("leave"):
    time.sleep(0.05)
"""
)


def gunicorn(*options: str) -> tuple[str, ...]:
    bind = ("--bind", "127.0.0.1:{port}", "--no-control-socket", "--log-level", "warning")
    return (program("gunicorn"), "tests.faults.site.wsgi:application", *bind, *options)


def prepared(site: Site) -> tuple[Site, str]:  # noqa: F811
    """The site with its tables and a tag, and a token for all of it."""
    site.environment["DJANGO_SETTINGS_MODULE"] = "tests.contrib.old_servers.site"
    with site.python(MAKE) as making:
        assert making.finish() == 0, making.output
        return site, making.output.split()[-1]


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str]:
    """One for several tests, which start their own servers."""
    directory = tmp_path_factory.mktemp("site")
    path = directory / "site.sqlite3"
    path.touch()
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    return prepared(Site(directory, database, "sqlite"))


def asking(web: Web, secret: str) -> Ask:
    """A client that sends each request over a connection of its own."""

    def ask(method: str, url: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)) as client:
            headers = {} if "token=" in url else {"Authorization": f"Bearer {secret}"}
            client.request(method, url, headers=headers)
            answer = client.getresponse()
            return answer.status, answer.read().decode()

    return ask


def taking(next_id: Callable[[], int]) -> Callable[[], list[int]]:
    return lambda: [next_id() for _ in range(EACH)]


def all_at_once(jobs: list[Callable[[], Any]]) -> list[Any]:
    return at_once(len(jobs), lambda number: jobs[number]())


def by_leaf(ask: Ask) -> Callable[[], int]:
    def next_id() -> int:
        status, text = ask("GET", f"/leaf/api/segment/get/{TAG}")
        assert status == 200, text
        return int(text)

    return next_id


def by_go_leaf(ask: Ask) -> Callable[[], int]:
    def next_id() -> int:
        status, text = ask("GET", f"/go/api/leaf?biz_tag={TAG}")
        said = json.loads(text)
        assert (status, said["code"]) == (200, 0), text
        return int(said["data"]["ID"])

    return next_id


@ON_POSTGRES
def test_no_id_comes_twice(site: Site) -> None:  # noqa: F811
    """Of all old clients at once, on several workers, and of a process of ours."""
    ready, secret = prepared(site)
    with serving(ready, *gunicorn("--workers", "2")) as web:
        ask = asking(web, secret)
        with ready.python(TAKE) as own:
            jobs = [
                taking(by_leaf(ask)),
                taking(by_go_leaf(ask)),
                *(taking(TinyClient(ask, TAG, secret).next_id) for _ in range(2)),
                *(taking(CosIdSegments(ask, "shop/orders", step).next_id) for step in (10, 30)),
            ]
            taken = [number for ids in all_at_once(jobs) for number in ids]
            assert own.finish() == 0, own.output
            taken += json.loads(own.output.splitlines()[-1])["ids"]
    assert len(taken) == 7 * EACH
    assert len(set(taken)) == len(taken)


@pytest.mark.long
@ON_POSTGRES
def test_no_machine_id_is_lent_twice(site: Site) -> None:  # noqa: F811
    """To instances that start at once, by two server processes, and to processes of ours."""
    ready, secret = prepared(site)
    with serving(ready, *gunicorn("--workers", "2")) as web:
        ask = asking(web, secret)
        machines = [CosIdMachine(ask, "shop", f"10.0.0.{n}:80", n % 3 == 0) for n in range(16)]
        twins = [CosIdMachine(ask, "shop", "10.0.0.1:80") for _ in range(3)]
        with ready.python(STAY) as own:  # at its end its worker id may be lent to anybody
            assert all(all_at_once([machine.start for machine in [*machines, *twins]]))
            (ready.directory / "leave").touch()
            assert own.finish() == 0, own.output
        given = [machine.machine for machine in machines]
        assert len(set(given)) == len(given)
        assert json.loads(own.output.splitlines()[-1])["worker"] not in given
        others = {machine.machine for machine in machines if machine.name != "10.0.0.1:80"}
        assert not others & {twin.machine for twin in twins}
        assert all(all_at_once([machine.guard for machine in machines]))
        assert all(all_at_once([machine.start for machine in machines]))
        assert [machine.machine for machine in machines if machine.stable] == [
            number for machine, number in zip(machines, given, strict=True) if machine.stable
        ]


@pytest.mark.parametrize("stable", [True, *long(False)])
def test_a_restarted_instance_accepts_the_time_that_it_is_told(
    on_sqlite: tuple[Site, str], stable: bool
) -> None:
    """At once, and again and again, with a clock that is as slow as clocks may be."""
    ready, secret = on_sqlite
    with serving(ready, *gunicorn()) as web:
        machine = CosIdMachine(asking(web, secret), "shop", "10.0.0.1:80", stable)
        for _ in range(4):
            assert machine.start(), machine.errors
            slow_ms = SYSTEM_CLOCK.wall_ns() // 1_000_000 - 200
            assert machine.accepts(slow_ms), machine.last_ms - slow_ms


ASKED = "/tinyid/id/nextIdSimple?bizType={tag}&token={secret}&batchSize=2"
REFUSED = "/tinyid/id/nothing?token={secret}"


def lines_of(running: Running, path: Path | None = None) -> Callable[[], bool]:
    """Whether both requests were logged."""

    def are_there() -> bool:
        text = running.output if path is None else path.read_text() if path.exists() else ""
        return text.count("token=") >= 2

    return are_there


@pytest.mark.parametrize("filtered", [True, *long(False)])
def test_gunicorns_access_log_has_no_token(on_sqlite: tuple[Site, str], filtered: bool) -> None:
    """Of requests that came to us in any case; with the filter, of all."""
    ready, secret = on_sqlite
    config = ready.directory / "gunicorn.conf.py"
    config.write_text(FILTER if filtered else "")
    log = ready.directory / f"access-{filtered}.log"
    options = ("--config", str(config), "--access-logfile", str(log))
    with serving(ready, *gunicorn(*options)) as web:
        ask = asking(web, secret)
        assert ask("GET", ASKED.format(tag=TAG, secret=secret))[0] == 200
        other = secret if filtered else "another"
        assert ask("GET", REFUSED.format(secret=other))[0] == 404
        web.running.wait_until(lines_of(web.running, log))
        text = log.read_text()
        assert secret not in text + web.running.output
        assert "nextIdSimple?bizType=shop.orders&token=[redacted]&batchSize=2" in text
        assert (f"token={other}" in text) is not filtered


FILTER = """
def on_starting(server):
    import logging
    from django_idgen.contrib.old_servers.redaction import RedactTokens
    logging.getLogger("gunicorn.access").addFilter(RedactTokens())
"""


def test_runservers_output_has_no_token(on_sqlite: tuple[Site, str]) -> None:
    """Whether the request came to us or not."""
    made, secret = on_sqlite
    ready = replace(made, environment={**made.environment, "SITE_DEBUG": "1"})
    command = ("-m", "django", "runserver", "--noreload", "127.0.0.1:{port}")
    with serving(ready, sys.executable, *command) as web:
        ask = asking(web, secret)
        assert ask("GET", ASKED.format(tag=TAG, secret=secret))[0] == 200
        assert ask("GET", REFUSED.format(secret=secret))[0] == 404
        web.running.wait_until(lines_of(web.running))
        assert secret not in web.running.output
        assert "nextIdSimple?bizType=shop.orders&token=[redacted]" in web.running.output

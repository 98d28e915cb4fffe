"""Ids over HTTP from real servers, of either kind; and while their database is away."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import servers, tiers
from tests.faults.processes import Site, Web, database_settings, eventually, program, serving
from tests.own_servers import pointing_at
from tests.private_postgres import PostgresServer, postgres_farm

WSGI = "tests.faults.site.wsgi:application"
ASGI = "tests.rest.ids.asgi:application"
LISTEN = {
    "gunicorn": ("gunicorn", "--bind", "127.0.0.1:{port}", "--no-control-socket"),
    "granian": ("granian", "--port", "{port}", "--log-level", "warning"),
    "uvicorn": ("uvicorn", "--port", "{port}", "--log-level", "warning", "--lifespan", "off"),
}
SERVERS = {
    "gunicorn": (*LISTEN["gunicorn"], "--workers", "2", "--threads", "4", WSGI),
    "granian, WSGI": (*LISTEN["granian"], "--interface", "wsgi", "--blocking-threads", "8", WSGI),
    "granian, ASGI": (*LISTEN["granian"], "--interface", "asginl", ASGI),
    "uvicorn": (*LISTEN["uvicorn"], ASGI),
}
ONE_WORKER = (*LISTEN["gunicorn"][1:], "--threads", "4", WSGI)
PREPARE = """
from django.core.management import call_command
from django_idgen.models import LeafAlloc
call_command("migrate", verbosity=0)
LeafAlloc.objects.get_or_create(biz_tag="orders", defaults={"step": 10_000})
call_command("idgen_token", "create", "tests", "--tags", "*", "--generators", "*")
"""
TAG_URL = "/idgen/tags/orders/ids"
GENERATOR_URL = "/idgen/generators/default/ids"
CALLERS = 8
EACH = 8


class Api:
    """What a client of the site sees."""

    def __init__(self, web: Web, secret: str) -> None:
        self._web = web
        self.secret = secret

    def link(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._web.port, timeout=30)

    def ask(
        self,
        url: str,
        method: str = "GET",
        *,
        link: http.client.HTTPConnection | None = None,
        secret: str = "",
        **options: Any,
    ) -> tuple[int, http.client.HTTPMessage, Any]:
        headers = {"Authorization": f"Bearer {secret or self.secret}"}
        headers |= options.pop("headers", {})
        with closing(self.link()) as own:
            used = link or own
            # A server that refuses by the headers may close before it has the body.
            with suppress(BrokenPipeError, ConnectionResetError):
                used.request(method, url, headers=headers, **options)
            answer = used.getresponse()
            body = answer.read()
            return answer.status, answer.headers, json.loads(body) if body else None


def prepared(site: Site) -> str:
    """The secret of a token, on a site that is ready to be served."""
    site.environment |= {"DJANGO_SETTINGS_MODULE": "tests.rest.ids.site_settings"}
    with site.python(PREPARE) as running:
        assert running.finish() == 0, running.output
        return next(line for line in running.output.splitlines() if line.startswith("idgen_"))


@pytest.fixture(scope="module")
def sqlite_api(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str]:
    """The site on a SQLite file, and a secret for it."""
    directory = tmp_path_factory.mktemp("site")
    name = str(directory / "site.sqlite3")
    site = Site(directory, {"ENGINE": "django.db.backends.sqlite3", "NAME": name}, "sqlite")
    return site, prepared(site)


@pytest.mark.parametrize(
    "server", ["granian, WSGI", *tiers.long("gunicorn", "granian, ASGI", "uvicorn")]
)
def test_every_server_gives_each_id_once(sqlite_api: tuple[Site, str], server: str) -> None:
    """To many callers at once, on connections that stay; and refuses what is wrong."""
    site, secret = sqlite_api
    name, *arguments = SERVERS[server]
    if find_spec(name) is None:
        servers.absent(f"{name} is not installed")
    with serving(site, program(name), *arguments) as web:
        api = Api(web, secret)
        for url in (TAG_URL, GENERATOR_URL):
            with ThreadPoolExecutor(CALLERS) as pool:
                taken = list(pool.map(partial(take, api), [url] * CALLERS))
            ids = [value for each in taken for value in each]
            assert len(ids) == len(set(ids)) == CALLERS * EACH * 4
        check_refusals(api)


def take(api: Api, url: str) -> list[int]:
    """Ids by GET and POST, one and many at a time."""
    taken: list[int] = []
    body = {"body": b'{"count": 2}', "headers": {"Content-Type": "application/json"}}
    with closing(api.link()) as link:
        for _ in range(EACH):
            for method, options in (("GET", {}), ("POST", {}), ("POST", body)):
                status, headers, answer = api.ask(url, method, link=link, **options)
                assert status == 200, answer
                assert "no-store" in headers["Cache-Control"]
                taken.extend(map(int, answer.get("ids") or [answer["id"]]))
    return taken


def check_refusals(api: Api) -> None:
    assert api.ask("/idgen/tags/nobodys/ids")[0] == 404
    assert api.ask(f"{TAG_URL}?count=0")[0] == 400
    assert api.ask(TAG_URL, "HEAD")[::2] == (200, None)
    status, headers, _ = api.ask(TAG_URL, secret="idgen_wrong")
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    json_body = {"Content-Type": "application/json"}
    assert api.ask(TAG_URL, "POST", body=b"x" * 3_000_000, headers=json_body)[0] == 413
    wide = json.dumps({f"k{number}": 1 for number in range(200_000)}).encode()
    for body in (b"x" * 65_537, wide, iter([wide[:999], wide[999:]])):
        status, _, answer = api.ask(TAG_URL, "POST", body=body, headers=json_body)
        assert (status, answer["code"]) in ((413, "too_large"), (411, "length_required"))
    status, _, answer = api.ask(TAG_URL, "POST", body=wide[:50_000] + b"}", headers=json_body)
    assert (status, len(json.dumps(answer)) < 4000) == (400, True)
    chunks = iter([b'{"count"', b": 2}"])
    status, _, answer = api.ask(TAG_URL, "POST", body=chunks, headers=json_body)
    # Some servers hand it on as a whole, whose length they know.
    assert (status, answer.get("code")) == (411, "length_required") or len(answer["ids"]) == 2


# --- the database is away -------------------------------------------------------------


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that can be stopped."""
    with postgres_farm() as farm:
        yield farm.server()


@pytest.mark.long
def test_while_the_database_is_away_known_tokens_take_ids(
    own_postgres: PostgresServer, tmp_path: Path, django_db_blocker: Any
) -> None:
    """Longer than ``token_max_age``; others are told to come again; then all is as before."""
    with django_db_blocker.unblock(), pointing_at(own_postgres, "own") as alias:
        site = Site(tmp_path, database_settings(alias), alias)
        site.set_idgen({"REST": {"token_max_age": 0.5, "token_outage": 600}})
        secret = prepared(site)
        with serving(site, program("gunicorn"), *ONE_WORKER) as web:
            api = Api(web, secret)
            for url in (TAG_URL, GENERATOR_URL):
                assert api.ask(url)[0] == 200
            own_postgres.stop()
            check_outage(api, web)
            own_postgres.start()
            eventually(lambda: api.ask(TAG_URL, secret="idgen_wrong")[0] == 401)
            assert api.ask(TAG_URL)[0] == 200
            with site.python(
                "from django.core.management import call_command\n"
                "call_command('idgen_token', 'revoke', 'tests')"
            ) as revoking:
                assert revoking.finish() == 0, revoking.output
            eventually(lambda: api.ask(TAG_URL)[0] == 401)
        assert secret not in web.running.output


def check_outage(api: Api, web: Web) -> None:
    ids: list[str] = []

    def have_outlived_max_age() -> bool:
        for url in (TAG_URL, GENERATOR_URL):
            status, _, answer = api.ask(url)
            assert status == 200, answer
            ids.append(answer["id"])
        return "can't be queried for access token" in web.running.output

    eventually(have_outlived_max_age)
    assert len(ids) == len(set(ids))
    for url, secret in ((TAG_URL, "idgen_wrong"), ("/idgen/tags/unseen/ids", "idgen_wrong")):
        status, headers, answer = api.ask(url, secret=secret)
        assert (status, answer["code"]) == (503, "authentication_unavailable")
        assert int(headers["Retry-After"]) > 0

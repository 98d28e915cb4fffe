"""Who asks for ids: access tokens in the Authorization header, and how often one may ask."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.db import DatabaseError, OperationalError, ProgrammingError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path
from django.views.debug import ExceptionReporter
from rest_framework.authentication import BaseAuthentication, BasicAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated

from django_idgen.contrib.old_servers import cosid, tinyid
from django_idgen.models import AccessToken, LeafAlloc
from django_idgen.rest import authentication
from django_idgen.rest.authentication import TOKENS, TokenAuthentication, TokenUser, secret_of
from django_idgen.rest.tokens import find_token, make_token

from .conftest import GENERATOR_URL, URL, Asking

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tag")]


def get(header: str, client: Client | None = None) -> Any:
    return (client or Client()).get(URL, headers={"Authorization": header})


def test_what_is_no_token_is_a_401() -> None:
    """With the way to say it right, and nothing of what was sent in the answer."""
    for header in (
        *("Bearer idgen_", "Bearer idgen_" + "x" * 43, "Bearer idgen_" + "x" * 10_000),
        *("Bearer idgen_\x00", "Bearer idgen_\xff\xe9", "Bearer idgen_a b c"),
        *("Bearer idgen_é".encode().decode("latin-1"), "Bearer idgen_' OR 1=1 --"),
        *("Bearer", "Bearer ", "Bearer something-else", "Bearer " + "x" * 10_000),
        *("Token\tidgen_x", "idgen_x", " ", "\x00"),
        *("Basic aWRnZW46eA==", "Basic idgen_x", "Digest x"),
    ):
        for _ in range(2):
            answer = get(header)
            assert answer.status_code == 401, header[:40]
            assert answer["WWW-Authenticate"] == "Bearer"
            assert set(answer.json()) == {"detail", "code"}
            assert "idgen_x" not in answer.text
    # It was sent, so it is not said to be missing.
    lost = "This is not an access token: those begin with idgen_."
    assert get("Bearer wrong").json()["detail"] == lost
    assert "were not provided" in get("idgen_x").text


def test_case_and_spaces_of_the_scheme_do_not_count(secret: str) -> None:
    """``Bearer`` or ``Token``, however written."""
    for header in (f"Bearer {secret}", f"BEARER   {secret} ", f"token {secret}"):
        assert get(header).status_code == 200
    assert secret_of(f"Bearer {secret}") == secret_of(f"Bearer {secret}".encode()) == secret
    assert get(f"Bearer {secret.upper()}").status_code == 401


def test_a_session_does_not_help_a_wrong_token(secret: str) -> None:
    """Who sends a token is judged by it, whoever is logged in besides."""
    client = Client()
    client.force_login(User.objects.create_user("ada"))
    assert get("Bearer idgen_wrong", client).status_code == 401
    assert get(f"Bearer {secret}", client).status_code == 200
    assert get("Bearer somebody-elses", client).status_code == 200  # of another authentication


def test_a_token_has_no_permissions_of_users(secret: str) -> None:
    """It may take ids, and that is all."""
    user = TokenUser(find_token(secret))  # type: ignore[arg-type]
    assert not user.has_perm("django_idgen.change_leafalloc")
    assert not user.has_perms([])
    assert not user.has_module_perms("django_idgen")
    assert not any((user.is_staff, user.is_superuser, user.is_anonymous))
    assert str(user) == user.get_username() == "tests"


# --- the database is away ----------------------------------------------------------------


def test_a_database_that_can_not_be_asked_is_a_503(
    secret: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """With the time to wait; what went on stands in the log, with the way out."""
    for kind in (OperationalError, ProgrammingError, DatabaseError):
        error = kind("no such table: django_idgen_accesstoken")
        monkeypatch.setattr(TOKENS, "_find", Mock(side_effect=error))
        caplog.clear()
        answer = get(f"Bearer {secret}")
        assert answer.status_code == 503
        assert int(answer["Retry-After"]) > 0
        assert answer.json()["code"] == "authentication_unavailable"
        assert "accesstoken" not in answer.text
        assert "manage.py migrate django_idgen" in caplog.text
        assert secret not in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_project_that_has_not_migrated_is_told_so(caplog: Any) -> None:
    """A 503 and a line in the log, not a 500."""
    with connection.schema_editor() as editor:
        editor.delete_model(AccessToken)
    try:
        assert get("Bearer idgen_x").status_code == 503
        assert "manage.py migrate django_idgen" in caplog.text
    finally:
        with connection.schema_editor() as editor:
            editor.create_model(AccessToken)


def test_a_session_that_can_not_be_read_is_a_503(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The same for the users' own table."""
    client = Client()
    client.force_login(User.objects.create_user("ada"))
    fail = Mock(side_effect=OperationalError("away"))
    monkeypatch.setattr("django.contrib.auth.get_user", fail)
    monkeypatch.setattr("django.contrib.auth.middleware.auth.get_user", fail)
    answer = client.get(URL)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer["Retry-After"]) > 0


# --- where a secret must not be -----------------------------------------------------------


def test_no_secret_is_stored_logged_or_shown(secret: str, caplog: Any) -> None:
    """The database has a digest; neither logs nor reprs have more than four characters."""
    caplog.set_level(logging.DEBUG)
    with CaptureQueriesContext(connection) as queries:
        for header in (f"Bearer {secret}", f"Bearer {secret}x"):
            get(header)
    sql = " ".join(query["sql"] for query in queries.captured_queries)
    token = AccessToken.objects.get()
    known = find_token(secret)
    shown = (caplog.text, sql, repr(token), str(token), repr(known), repr(vars(token)))
    assert all(secret[6:-4] not in text for text in shown)
    assert repr(TOKENS._entries).count(secret[6:]) == 0


@pytest.mark.parametrize("lately", [False, True])
def test_an_error_report_has_no_secret(
    secret: str, monkeypatch: pytest.MonkeyPatch, settings: Any, lately: bool
) -> None:
    """Neither in the variables of any frame of ours nor in the headers."""
    settings.DEBUG = False
    if lately:
        get(f"Bearer {secret}")
    monkeypatch.setattr(
        TOKENS, "lately" if lately else "_find", Mock(side_effect=ZeroDivisionError)
    )
    client = Client(raise_request_exception=False)
    answer = get(f"Bearer {secret}", client)
    assert answer.status_code == 500
    reporter = ExceptionReporter(answer.wsgi_request, *answer.exc_info)
    for text in (reporter.get_traceback_html(), reporter.get_traceback_text()):
        assert "ZeroDivisionError" in text
        assert secret not in text


# --- how often one may ask; a cache that fails stops nobody ---------------------------


class DownCache(LocMemCache):
    """A cache whose server is away."""

    def get(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("the cache is away")

    set = get


def client_of(name: str, tags: str = "*") -> Client:
    secret = make_token(name, tags=[tags], generators=["*"])[1]
    return Client(headers={"Authorization": f"Bearer {secret}"})


def statuses(client: Client, url: str, times: int) -> list[int]:
    return [client.get(url).status_code for _ in range(times)]


def test_a_caller_may_ask_so_often(tag: str, settings: Any) -> None:
    """Whatever for; another caller is not counted with it, and a user is one, too.

    Without rates nobody is throttled: they are off unless set.
    """
    one, other = client_of("one"), client_of("other")
    assert set(statuses(one, URL, 50)) == {200}
    settings.IDGEN = {"REST": {"caller_rate": "3/h"}}
    assert statuses(one, URL, 2) + statuses(one, GENERATOR_URL, 2) == [200, 200, 200, 429]
    assert statuses(other, URL, 4) == [200, 200, 200, 429]
    user = Client()
    user.force_login(User.objects.create_user("ada"))
    assert statuses(user, URL, 4) == [200, 200, 200, 429]


def test_all_callers_together_may_ask_so_often_for_one_tag(tag: str, settings: Any) -> None:
    """Each tag and each generator is counted apart."""
    settings.IDGEN = {"REST": {"tag_rate": "3/h"}}
    LeafAlloc.objects.create(biz_tag="default")
    one, other = client_of("one"), client_of("other")
    assert statuses(one, URL, 2) + statuses(other, URL, 2) == [200, 200, 200, 429]
    assert statuses(other, "/idgen/tags/default/ids", 4) == [200, 200, 200, 429]
    assert statuses(other, GENERATOR_URL, 4) == [200, 200, 200, 429]


def test_who_may_not_take_a_tag_does_not_use_up_its_rate(tag: str, settings: Any) -> None:
    """A refusal is not counted against those who may."""
    settings.IDGEN = {"REST": {"tag_rate": "2/h"}}
    assert statuses(client_of("stranger", tags="others"), URL, 5) == [403] * 5
    assert statuses(client_of("one"), URL, 3) == [200, 200, 429]


def test_it_says_when_to_come_again(
    ask: Asking, tag: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``Retry-After`` in whole seconds, never 0; nothing was taken."""
    monkeypatch.setattr(authentication.SettingThrottle, "timer", lambda _self: 1e9)
    for rate, waits in (("1/s", 1), ("2/h", 3600)):
        cache.clear()
        settings.IDGEN = {"REST": {"caller_rate": rate}}
        *_, answer = [ask("get", URL) for _ in range(3)]
        assert (answer.status_code, answer.json()["code"]) == (429, "throttled")
        assert int(answer["Retry-After"]) == waits
        assert "no-store" in answer["Cache-Control"]


def test_a_cache_that_is_away_stops_no_ids(
    ask: Asking, tag: str, settings: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, once a minute."""
    monkeypatch.setattr(authentication.SettingThrottle, "_warn_at", float("-inf"))
    settings.CACHES = {"default": {"BACKEND": f"{__name__}.DownCache", "LOCATION": "down"}}
    settings.IDGEN = {"REST": {"caller_rate": "1/h", "tag_rate": "1/h"}}
    assert {ask("get", URL).status_code for _ in range(5)} == {200}
    wrong = Client(headers={"Authorization": "Bearer idgen_wrong"})
    assert statuses(wrong, URL, 3) == [401] * 3
    warnings = [record for record in caplog.records if "not throttled" in record.message]
    assert len(warnings) == 1


def test_wrong_secrets_from_one_address_come_to_an_end(
    ask: Asking, tag: str, settings: Any, django_assert_num_queries: Any
) -> None:
    """The database is left alone then; a token that is known goes on from there, too."""
    settings.IDGEN = {"REST": {"caller_rate": "5/h", "token_max_age": 0}}
    assert ask("get", URL).status_code == 200

    def wrong(number: int, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer idgen_{number}"}
        return Client().get(URL, headers=headers, **options)

    assert [wrong(number).status_code for number in range(6)] == [401] * 5 + [429]
    with django_assert_num_queries(0):
        answer = wrong(7)
    assert (answer.status_code, answer["Retry-After"] != "0") == (429, True)
    assert wrong(8, REMOTE_ADDR="192.0.2.7").status_code == 401
    assert ask("get", URL).status_code == 200


@pytest.mark.parametrize("proxies", [None, 1])
def test_who_guesses_is_not_another_one_by_saying_so(
    tag: str, settings: Any, proxies: int | None
) -> None:
    """``X-Forwarded-For`` is the caller's own word, but for what ``NUM_PROXIES`` proxies say."""
    settings.IDGEN = {"REST": {"caller_rate": "3/h"}}
    settings.REST_FRAMEWORK = {"NUM_PROXIES": proxies}

    def wrong(number: int, said: str) -> int:
        headers = {"Authorization": f"Bearer idgen_{number}", "X-Forwarded-For": said}
        return int(Client().get(URL, headers=headers).status_code)

    found = [wrong(number, f"192.0.2.{number}, 10.0.0.1") for number in range(5)]
    assert found == [401] * 3 + [429] * 2
    assert wrong(6, "192.0.2.1, 10.0.0.2") == (429 if proxies is None else 401)


def test_who_was_known_comes_in_after_a_restart(ask: Asking, tag: str, settings: Any) -> None:
    """Though somebody at the same address, as behind one proxy, goes on guessing."""
    settings.IDGEN = {"REST": {"caller_rate": "5/h"}}
    assert ask("get", URL).status_code == 200
    wrong = [Client(headers={"Authorization": f"Bearer idgen_{number}"}) for number in range(6)]
    assert [statuses(each, URL, 1)[0] for each in wrong] == [401] * 5 + [429]
    TOKENS.clear()  # a new process, which has heard of nobody
    assert ask("get", URL).status_code == 200


@pytest.mark.parametrize("url", [URL, "/cosid/ids/orders", "/idgen/schema/"])
def test_wrong_passwords_from_one_address_come_to_an_end(settings: Any, url: str) -> None:
    """Hazard 113: as wrong secrets do, at the old servers' URLs, too.

    Neighbours at the address, who were right before, come in by password and by token.
    """
    settings.IDGEN = {
        "GENERATORS": {"default": {}, "second": {}},
        "REST": {"caller_rate": "5/h", "make_tags": True},
    }
    settings.ROOT_URLCONF = (
        path("idgen/", include("django_idgen.rest.urls")),
        path("", include("tests.contrib.old_servers.urls")),
    )

    def basic(name: str, password: str) -> Client:
        words = b64encode(f"{name}:{password}".encode()).decode()
        return Client(headers={"Authorization": f"Basic {words}"})

    for name in ("ada", "bob"):
        User.objects.create_user(name, password="right")
    neighbours = basic("ada", "right"), client_of("program")
    assert [each.get(url).status_code for each in neighbours] == [200, 200]
    wrong = [basic("bob", f"guess {number}").get(url).status_code for number in range(6)]
    assert wrong == [401] * 5 + [429]
    TOKENS.clear()
    assert [each.get(url).status_code for each in neighbours] == [200, 200]
    assert basic("bob", "right").get(url).status_code == 429  # a right guess is not told


class KeyAuthentication(BaseAuthentication):
    """A class of the project's own, which reads a header of its own."""

    def authenticate(self, request: Any) -> Any:
        key = request.META.get("HTTP_X_API_KEY")
        if key not in (None, "right"):
            raise AuthenticationFailed
        return None if key is None else (User.objects.get(username="ada"), None)


class Insisting(BaseAuthentication):
    """A class that wants a header, and says so in another way."""

    def authenticate(self, request: Any) -> Any:
        raise NotAuthenticated


COSID_URL = "/cosid/ids/orders"
TINYID_URL = "/tinyid/id/nextId?bizType=orders"
NUL = f"Basic {b64encode(b'a' + bytes(1) + b'b:x').decode()}"
REFUSED = {
    "another header": (URL, {"X-API-Key": "wrong"}),
    "another header, at an old server": (COSID_URL, {"X-API-Key": "wrong"}),
    "a NUL in the user name": (URL, {"Authorization": NUL}),
    "a NUL in the user name, at an old server": (COSID_URL, {"Authorization": NUL}),
    "no prefix": (URL, {"Authorization": "Bearer wrong"}),
    "no prefix, at an old server": (COSID_URL, {"Authorization": "Bearer wrong"}),
    "a scheme of nobody": (URL, {"Authorization": "Digest x"}),
    "a scheme of nobody, at an old server": (COSID_URL, {"Authorization": "Digest x"}),
    "TinyID, no prefix": (f"{TINYID_URL}&token=wrong", {}),
    "TinyID, no ASCII": (f"{TINYID_URL}&token=idgen_%C3%A9", {}),
    "TinyID, no class": ("/keys/tinyid/id/nextId?bizType=orders&token=idgen_x", {}),
    "before the class of tokens": (
        "/keys/ids/orders",
        {"X-API-Key": "wrong", "Authorization": "Bearer idgen_x"},
    ),
    "a token that no class reads": ("/passwords/ids/orders", {"Authorization": "Bearer idgen_x"}),
    "a class that says so in another way": ("/insisting/ids/orders", {"Authorization": "Own x"}),
}
"""Ways to be refused with a credential: a URL and headers."""


@pytest.mark.parametrize("way", REFUSED)
def test_each_refused_credential_is_counted_once(settings: Any, way: str) -> None:
    """Whichever class refuses it, or if none reads it.

    Who is right at the address comes in, and who sends no credential is not counted.
    """
    settings.IDGEN = {
        "GENERATORS": {"default": {}, "second": {}},
        "REST": {"caller_rate": "3/h", "make_tags": True},
    }
    kinds = ("KeyAuthentication", "BasicAuthentication")
    settings.REST_FRAMEWORK = {"DEFAULT_AUTHENTICATION_CLASSES": [f"{__name__}.{k}" for k in kinds]}
    keys = [KeyAuthentication, TokenAuthentication]
    settings.ROOT_URLCONF = (
        path("idgen/", include("django_idgen.rest.urls")),
        path("keys/", include(cosid.urls(authentication=keys))),
        path("keys/tinyid/", include(tinyid.urls(authentication=[KeyAuthentication]))),
        path("passwords/", include(cosid.urls(authentication=[BasicAuthentication]))),
        path("insisting/", include(cosid.urls(authentication=[Insisting]))),
        path("", include("tests.contrib.old_servers.urls")),
    )
    User.objects.create_user("ada")
    neighbours = client_of("program"), Client(headers={"X-API-Key": "right"})
    assert [each.get(COSID_URL).status_code for each in neighbours] == [200, 200]
    url, headers = REFUSED[way]

    def throttled(url: str, times: int, **options: Any) -> list[bool]:
        return [Client().get(url, **options).status_code == 429 for _ in range(times)]

    assert not any(throttled(url.partition("&token")[0], 5))
    assert throttled(url, 5, headers=headers) == [False] * 3 + [True] * 2
    assert not any(throttled(url.partition("&token")[0], 2))
    assert throttled(url, 1, headers=headers, REMOTE_ADDR="192.0.2.7") == [False]
    TOKENS.clear()
    assert [each.get(COSID_URL).status_code for each in neighbours] == [200, 200]


def test_tags_with_any_characters_are_counted(settings: Any) -> None:
    """Caches refuse spaces and long keys; a throttle's keys have neither."""
    settings.IDGEN = {"REST": {"tag_rate": "1/h"}}
    for tag in ("a b", "🦆" * 128):
        LeafAlloc.objects.create(biz_tag=tag)
        assert statuses(client_of("one"), f"/idgen/tags/{tag}/ids", 2) == [200, 429]

"""How often one may ask, in Django's cache; a cache that fails stops nobody."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.cache.backends.locmem import LocMemCache
from django.test import Client

from django_idgen.models import LeafAlloc
from django_idgen.rest import authentication
from django_idgen.rest.authentication import TOKENS
from django_idgen.rest.tokens import make_token

from .conftest import GENERATOR_URL, URL, Asking

pytestmark = pytest.mark.django_db


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


def test_without_rates_nobody_is_throttled(ask: Asking, tag: str) -> None:
    """They are off unless set."""
    assert {ask("get", URL).status_code for _ in range(50)} == {200}


def test_a_caller_may_ask_so_often(tag: str, settings: Any) -> None:
    """Whatever for; another caller is not counted with it, and a user is one, too."""
    settings.IDGEN = {"REST": {"caller_rate": "3/h"}}
    one, other = client_of("one"), client_of("other")
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


def test_tags_with_any_characters_are_counted(settings: Any) -> None:
    """Caches refuse spaces and long keys; a throttle's keys have neither."""
    settings.IDGEN = {"REST": {"tag_rate": "1/h"}}
    for tag in ("a b", "🦆" * 128):
        LeafAlloc.objects.create(biz_tag=tag)
        assert statuses(client_of("one"), f"/idgen/tags/{tag}/ids", 2) == [200, 429]

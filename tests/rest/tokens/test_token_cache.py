"""Tokens seen lately, believed for a while; and many replacements of one at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.utils import timezone

from django_idgen.models import AccessToken
from django_idgen.rest import authentication
from django_idgen.rest.authentication import RETRY_AFTER, TokenCache
from django_idgen.rest.tokens import KnownToken, find_token, make_token, replace_token

MAX_AGE = 60.0
OUTAGE = 1200.0


class World:
    """A clock that is set by hand, and a database that can be taken away."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.asked: list[str] = []
        self.tokens: dict[str, KnownToken] = {}
        self.away = False
        self.cache = TokenCache(self.find, self)  # type: ignore[arg-type]

    def stopwatch(self) -> float:
        return self.seconds

    def find(self, secret: str) -> KnownToken | None:
        self.asked.append(secret)
        if self.away:
            raise OperationalError("away")
        return self.tokens.get(secret)

    def add(self, secret: str, **values: Any) -> KnownToken:
        known = {"tags": ("*",), "generators": (), "leases": (), "expires_at": None} | values
        self.tokens[secret] = KnownToken(pk=1, name=secret, **known)
        return self.tokens[secret]


@pytest.fixture
def world(settings: Any) -> World:
    settings.IDGEN = {"REST": {"token_max_age": MAX_AGE, "token_outage": OUTAGE}}
    return World()


def test_it_is_asked_once_in_max_age(world: World) -> None:
    """And changes show then."""
    token = world.add("a")
    assert world.cache.lately("a") is None
    for _ in range(3):
        assert world.cache.get("a") is token
        assert world.cache.lately("a") is token
    changed = world.add("a", tags=("b",))
    world.seconds += MAX_AGE - 0.001
    assert world.cache.get("a") is token
    world.seconds += 0.001
    assert world.cache.lately("a") is None
    assert world.cache.get("a") is changed
    assert world.asked == ["a", "a"]


def test_its_age_counts_from_the_question(world: World) -> None:
    """A slow answer is an old one."""
    world.add("a")
    find = world.find

    def slow(secret: str) -> KnownToken | None:
        found = find(secret)
        world.seconds += MAX_AGE / 2
        return found

    world.cache._find = slow
    assert world.cache.get("a")
    world.seconds += MAX_AGE / 2
    assert world.cache.lately("a") is None


def test_a_revoked_one_is_refused_within_max_age(world: World) -> None:
    """And not longer, whatever the outage may last."""
    world.add("a")
    assert world.cache.get("a")
    del world.tokens["a"]
    world.seconds += MAX_AGE
    assert world.cache.get("a") is None
    world.away = True
    with pytest.raises(OperationalError):
        world.cache.get("a")


def test_in_an_outage_it_is_believed_for_so_long(world: World, settings: Any) -> None:
    """The database is tried every few seconds, not at each request; then it is an error.

    With ``token_outage`` 0 it is one at once.
    """
    token = world.add("a")
    assert world.cache.get("a") is token
    world.away = True
    world.seconds = MAX_AGE
    while world.seconds < MAX_AGE + OUTAGE:
        assert world.cache.get("a") is token
        assert world.cache.lately("a") is token
        world.seconds += RETRY_AFTER / 2
    assert len(world.asked) <= 2 + OUTAGE / RETRY_AFTER
    with pytest.raises(OperationalError):
        world.cache.get("a")
    assert world.cache.lately("a") is None
    with pytest.raises(OperationalError):
        world.cache.get("unseen")
    world.away = False
    assert world.cache.get("a") is token
    settings.IDGEN = {"REST": {"token_max_age": MAX_AGE, "token_outage": 0}}
    world.away = True
    world.seconds += MAX_AGE
    with pytest.raises(OperationalError):
        world.cache.get("a")


def test_one_that_expires_is_refused_in_that_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen lately, or believed in an outage."""
    end = datetime.now(UTC) + timedelta(seconds=100)
    world.add("a", expires_at=end)
    assert world.cache.get("a")

    monkeypatch.setattr(timezone, "now", lambda: end)
    assert world.cache.lately("a") is None
    assert world.cache.get("a") is None
    world.away, world.seconds = True, MAX_AGE
    assert world.cache.get("a") is None


def test_a_silent_database_holds_up_one_thread(world: World) -> None:
    """The others go on with what was known."""
    token = world.add("a")
    assert world.cache.get("a") is token
    world.seconds = MAX_AGE
    begun, go_on = threading.Event(), threading.Event()
    asked: list[str] = []

    def silent(secret: str) -> KnownToken | None:
        asked.append(secret)
        begun.set()
        assert go_on.wait(60)
        return None

    world.cache._find = silent
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.cache.get, "a")
        assert begun.wait(60)
        assert [world.cache.get("a") for _ in range(3)] == [token] * 3
        go_on.set()
        assert first.result(60) is None
    assert asked == ["a"]
    world.cache._find = world.find
    del world.tokens["a"]
    assert world.cache.get("a") is None


def test_an_unknown_one_is_asked_for_each_time(world: World) -> None:
    """So that it works as soon as it is made, and fills no memory."""
    for number in range(100):
        assert world.cache.get(f"wrong {number}") is None
    assert not world.cache._entries
    assert not world.cache.has_seen("a")
    token = world.add("a")
    assert world.cache.get("a") is token
    assert world.cache.has_seen("a")


def test_only_so_many_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first, and come back when they are asked for."""
    monkeypatch.setattr(authentication, "MOST_TOKENS", 3)
    for name in "abcd":
        world.add(name)
        assert world.cache.get(name)
    assert [name for name in "abcd" if world.cache.lately(name)] == ["b", "c", "d"]
    assert world.cache.get("a")


def test_many_threads_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is taken for another's, however often they push each other out."""
    monkeypatch.setattr(authentication, "MOST_TOKENS", 5)
    names = [f"token {number}" for number in range(20)]
    for name in names:
        world.add(name)

    def look(turn: int) -> bool:
        return all(
            (found := world.cache.get(name)) is not None and found.name == name
            for name in names[turn:] + names[:turn]
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, list(range(20)) * 10))


# --- on a database server ----------------------------------------------------------------


def test_of_many_replacements_at_once_the_last_one_survives(postgres: str, settings: Any) -> None:
    """None of them may end each other: a client would be left without any."""
    settings.DATABASE_ROUTERS = [f"{__name__}.ToPostgres"]
    with connections[postgres].schema_editor() as editor:
        editor.create_model(AccessToken)
    make_token("shop", tags=["a"])

    def replace(_number: int) -> str:
        try:
            return replace_token("shop", overlap=timedelta(hours=1))[1]
        finally:
            connections[postgres].close()

    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(replace, range(24)))
    assert all(find_token(secret) for secret in secrets)
    endless = AccessToken.objects.using(postgres).filter(expires_at=None)
    last = AccessToken.objects.using(postgres).latest("pk")
    assert last in endless


class ToPostgres:
    """Tokens are written to a server, and read from a replica that has none of them yet."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return "default" if model is AccessToken else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "postgres" if model is AccessToken else None

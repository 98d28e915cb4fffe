"""Access tokens in the Authorization header: what is one, what it may, and who learns of it."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, ProgrammingError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.views.debug import ExceptionReporter

from django_idgen.models import AccessToken
from django_idgen.rest.authentication import TOKENS, TokenUser, secret_of
from django_idgen.rest.tokens import find_token, make_token

from .conftest import URL

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tag")]


@pytest.fixture
def secret() -> str:
    return make_token("shop", tags=["*"])[1]


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
    assert str(user) == user.get_username() == "shop"


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

"""No secret in logs, error reports and debug pages."""

from __future__ import annotations

import itertools
import logging
import os
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

import django
import pytest
from asgiref.sync import async_to_sync
from django.core import mail
from django.core.exceptions import TooManyFieldsSent
from django.http import HttpRequest, QueryDict
from django.test import AsyncClient, Client, RequestFactory
from django.utils.log import AdminEmailHandler

from django_idgen import segments
from django_idgen.contrib.old_servers import redaction
from django_idgen.rest.tokens import PREFIX, make_token
from tests import warm
from tests.server_tools import ROOT
from tests.tiers import long

from .conftest import TAG

SECRET = PREFIX + "s" * 43


def test_what_is_redacted(db: None) -> None:
    """The values of ``token``, however it is written, and whatever looks like ours."""
    for text, clean in (
        (
            "GET /tinyid/id/nextId?bizType=a&token=abc HTTP/1.1",
            "GET /tinyid/id/nextId?bizType=a&token=[redacted] HTTP/1.1",
        ),
        ("token=abc", "token=[redacted]"),
        ("/x?token=abc&token=def&b=1", "/x?token=[redacted]&token=[redacted]&b=1"),
        ("/x?tok%65n=abc", "/x?tok%65n=[redacted]"),
        ("/x?%54OK%45N=abc", "/x?%54OK%45N=[redacted]"),
        ("/x?a=1;token=abc", "/x?a=1;token=[redacted]"),
        (f"/x?key={SECRET}.", "/x?key=[redacted]."),
        (f"Bearer {SECRET}", "Bearer [redacted]"),
        ("/x?tokens=abc&mytoken=1", "/x?tokens=abc&mytoken=1"),
        ("nothing here", "nothing here"),
    ):
        assert redaction.redacted(text) == clean
    assert redaction.redacted(f"<{make_token('a')[1]}>") == "<[redacted]>"


def test_long_texts_are_gone_through_once() -> None:
    """Half a million characters of anything, which take long if each one begins anew."""
    code = """
import django; django.setup()
from django_idgen.contrib.old_servers import redaction
for text in ("a", "%61", "a?", "a ", "idgen_", "token", "token=", "="):
    redaction.redacted(text * (500_000 // len(text)))
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    done = warm.run(["-c", code], cwd=ROOT, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_hostile_header_holds_up_nothing(tag: str) -> None:
    """Not named yet; no expression goes through it, and nothing of it is kept."""
    request = RequestFactory().get("/x", headers={"Referer": "/x?token=abc&" * 400_000})
    with patch.object(redaction, "_SECRET", None):
        assert redaction.take_token(request) is None
    assert "HTTP_REFERER" not in request.META


class Missing(dict[str, Any]):
    """As gunicorn's arguments: what is missing is a dash."""

    def __missing__(self, key: str) -> str:
        return "-"


def test_records_of_all_kinds_are_cleaned() -> None:
    """Words, arguments in a tuple, and in a mapping, which stays what it was.

    A message that is no text is left as it is.
    """
    kinds: list[tuple[str, Any]] = [
        ('"%s" %s', ("GET /x?token=abc HTTP/1.1", 200)),
        ("%(r)s %(none)s", (Missing(r="GET /x?token=abc", s=200),)),
        ("GET /x?token=abc", ()),
    ]
    for message, args in kinds:
        record = logging.LogRecord("x", logging.INFO, "", 0, message, args, None)
        assert redaction.RedactTokens().filter(record)
        assert "abc" not in record.getMessage()
        assert "token=[redacted]" in record.getMessage()
    record = logging.LogRecord("x", logging.INFO, "", 0, ValueError("x"), None, None)  # type: ignore[arg-type]
    assert redaction.RedactTokens().filter(record)
    assert record.getMessage() == "x"


def test_djangos_loggers_are_cleaned_once() -> None:
    """However often the URLs are mounted."""
    for _ in range(3):
        redaction.install()
    for name in ("django.server", "django.request"):
        filters = logging.getLogger(name).filters
        assert sum(isinstance(each, redaction.RedactTokens) for each in filters) == 1


def test_a_request_has_its_token_no_more() -> None:
    """Neither in its query nor wherever a server has put that; the rest is left."""
    request = RequestFactory().get("/x?bizType=a&token=abc&batchSize=2")
    request.META["RAW_URI"] = request.META["REQUEST_URI"] = "/x?bizType=a&token=abc&batchSize=2"
    request.META["HTTP_REFERER"] = "http://h/x?token=abc"
    assert redaction.take_token(request) == "abc"
    assert "abc" not in repr((request.META, request.GET, request, request.get_full_path()))
    assert (request.GET["bizType"], request.GET["batchSize"]) == ("a", "2")
    with pytest.raises(AttributeError):
        request.GET["a"] = "b"


def test_a_query_that_cant_be_read_is_cleaned(settings: Any) -> None:
    """One with more parameters than Django reads; it is answered all the same."""
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 2
    request = RequestFactory().get("/x?a=1&b=2&c=3&token=abc")
    with pytest.raises(TooManyFieldsSent):
        redaction.take_token(request)
    assert "abc" not in repr(request.META)
    answer = Client().get("/tinyid/id/nextId?a=1&b=2&c=3&token=abc")
    assert (answer.status_code, answer.json()["code"]) == (200, 6)


def test_a_form_has_its_token_no_more() -> None:
    """Nor the body that it was read from."""
    form = QueryDict("bizType=a&token=abc").urlencode()
    request = RequestFactory().post("/x", form, content_type="application/x-www-form-urlencoded")
    assert redaction.take_token_of_form(request) == "abc"
    assert b"abc" not in request.body
    assert "abc" not in repr(request.POST)
    assert request.POST["bizType"] == "a"


def fail(*_args: object) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("debug", [True, *long(False)])
@pytest.mark.parametrize("place", ["query", "form", "header"])
def test_a_report_of_a_bug_has_no_secret(
    tag: str, secret: str, settings: Any, debug: bool, place: str
) -> None:
    """Not on the debug page, with its local variables, nor in the mail to the admins."""
    settings.DEBUG = debug
    address = "a@example.com"
    settings.ADMINS = [("a", address) if django.VERSION < (6, 0) else address]
    settings.ALLOWED_HOSTS = ["*"]
    # Django 6.1 warns who mails without them.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    handler = logging.getLogger("django.request")
    mailer = AdminEmailHandler(include_html=True)
    handler.addHandler(mailer)
    client = Client(raise_request_exception=False)
    segments[tag].next_id()
    try:
        with patch("django_idgen.contrib.old_servers.tinyid._count", fail):
            url = "/tinyid/id/nextId"
            if place == "query":
                answer = client.get(f"{url}?bizType={tag}&token={secret}")
            elif place == "form":
                answer = client.post(url, {"bizType": tag, "token": secret})
            else:
                headers = {"Authorization": f"Bearer {secret}"}
                answer = client.get(f"{url}?bizType={tag}", headers=headers)
    finally:
        handler.removeHandler(mailer)
    assert answer.status_code == 500
    assert secret not in answer.content.decode()
    assert "ZeroDivisionError" in answer.content.decode() or not debug
    said = [(sent.subject, sent.body, *map(str, sent.alternatives)) for sent in mail.outbox]
    assert said
    assert secret not in repr(said)


def test_under_asgi_the_scope_is_cleaned(tag: str) -> None:
    """What uvicorn logs of it."""
    seen: list[HttpRequest] = []
    take = redaction.take_token

    def noting(request: HttpRequest) -> str | None:
        found = take(request)
        seen.append(request)
        return found

    with patch("django_idgen.contrib.old_servers.redaction.take_token", noting):
        url = f"/tinyid/id/nextId?bizType={TAG}&token=abc"
        async_to_sync(AsyncClient().get)(url)
    assert seen[0].scope["query_string"] == b"bizType=orders&token=[redacted]"  # type: ignore[attr-defined]


ENDS = ["\u0661", "é", "\ud800", "\x00", "\n", " ", "=" * 2000]


@pytest.mark.parametrize("debug", [True, *long(False)])
def test_a_secret_that_no_header_holds_is_refused(
    tag: str, secret: str, settings: Any, debug: bool
) -> None:
    """As any other wrong one: no error page shows it."""
    settings.DEBUG = debug
    client = Client(raise_request_exception=False)
    form = "application/x-www-form-urlencoded"
    paths = ("nextId", "nextIdSimple", "nextSegmentId", "nextSegmentIdSimple")
    for end, path in itertools.product(ENDS, paths):
        sent = urlencode({"bizType": tag, "token": secret + end}, errors="surrogatepass")
        url = f"/tinyid/id/{path}"
        for answer in (client.get(f"{url}?{sent}"), client.post(url, sent, content_type=form)):
            assert answer.status_code == 200
            assert secret not in answer.content.decode()
            assert "Simple" in path or answer.json()["code"] in (200, 5)

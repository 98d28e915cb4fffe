"""The API does what its description says, whatever is sent: schemathesis finds nothing.

Requests go through the WSGI application, ids come from a real PostgreSQL where there is one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks

from django_idgen import handlers, next_id, segments
from django_idgen.core.errors import InvalidTag
from django_idgen.core.segment import MAX_TAG_LENGTH, check_tag
from django_idgen.rest.openapi_views import describe
from django_idgen.tables import make_missing_tables
from django_idgen.tokens import make_token
from tests import servers
from tests.conftest import _empty_database
from tests.places import empty_sqlite, idgen_on

EXAMPLES = 5
"""At random, for an operation: many times as many go through the edges of each field."""
# schemathesis makes a session's cookie up, and takes what a password lets in for its doing.
WITHOUT_SESSIONS = {
    "REST_FRAMEWORK": {
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"]
    }
}
STATEFUL = {
    "decode_id": "whether digits make an id is a matter of its layout, and of the time",
    "take_apart_id": "the same",
    "take_segment": "the body may repeat the tag of the URL, and no other",
    "skip_tag": "how far a tag may skip is a matter of where it stands",
}
"""Operations whose schema can't say of all data what is right, and why."""
TAGS = ("orders", "a/b", "é 1")

load_all_checks()
(positive_data_acceptance,) = CHECKS.get_by_names(["positive_data_acceptance"])


def _may_be_tag(text: str) -> bool:
    """Or could, were it shorter."""
    try:
        check_tag(text[:MAX_TAG_LENGTH])
    except InvalidTag:
        return False
    return True


# What can't be said in a pattern of JSON Schema. Of these few values, the edges among them and
# what is too long, one of a certain length is found at once; at random it takes half a minute.
LENGTHS = tuple(edge + by for edge in (2, 64, 128, 200, 256) for by in (-1, 0, 1))
WORDS = ("a", ".", "..", "web-1", "é ñ", "a.b-c", *("x" * length for length in LENGTHS))
schemathesis.openapi.format(
    "idgen-tag", st.sampled_from((*TAGS, *filter(_may_be_tag, WORDS), "a.b/.c", "_"))
)
schemathesis.openapi.format("idgen-words", st.sampled_from(WORDS))
schemathesis.openapi.format("idgen-text", st.sampled_from((*WORDS, " ", "\u202e", "\U0001f600")))


@pytest.fixture(scope="module")
def database(_databases: set[str], django_db_blocker: Any) -> Iterator[str]:
    """Where ids come from: PostgreSQL if it is there, else SQLite."""
    if servers.is_open("postgres"):
        with _empty_database("postgres", _databases, django_db_blocker) as alias:
            yield alias
    else:
        yield "default"


@pytest.fixture(scope="module")
def project(
    database: str, tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any
) -> Iterator[None]:
    """A project with users, whose ids come from ``database``."""
    with (
        django_db_blocker.unblock(),
        empty_sqlite(tmp_path_factory.mktemp("project") / "project.sqlite3"),
        override_settings(
            ROOT_URLCONF="tests.rest.openapi.urls",
            ALLOWED_HOSTS=["*"],
            IDGEN=idgen_on(database),
            **WITHOUT_SESSIONS,
        ),
    ):
        for app in ("auth", "sessions", "django_idgen"):
            call_command("migrate", app, verbosity=0)
        make_missing_tables(connections[database])
        for tag in TAGS:
            segments[tag].next_id()
        next_id()
        yield
        handlers.reset()


@pytest.fixture(scope="module")
def credentials(project: None) -> dict[str, str]:
    """Headers of a user who may do everything, and of a program that may take and borrow."""
    User.objects.create_superuser("root", password="secret")
    basic = b64encode(b"root:secret").decode()
    _, secret = make_token("program", tags=["*"], generators=["*"], leases=["*"])
    return {"basicAuth": f"Basic {basic}", "accessToken": f"Bearer {secret}"}


with override_settings(**WITHOUT_SESSIONS):
    schema = schemathesis.openapi.from_dict({**describe(), "servers": [{"url": "/idgen"}]})
schema.app = WSGIHandler()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_nothing_that_is_sent_surprises_the_api(case: Any, credentials: dict[str, str]) -> None:
    """No 500; statuses, types and answers as described; wrong data refused, right data taken;
    nobody let in without credentials; no method that is not described."""
    operation = case.operation.definition.raw
    security = operation.get("security", [])
    scheme = "basicAuth" if {"basicAuth": []} in security else "accessToken"
    case.call_and_validate(
        headers={"Authorization": credentials[scheme]},
        excluded_checks=[positive_data_acceptance] if operation["operationId"] in STATEFUL else [],
    )

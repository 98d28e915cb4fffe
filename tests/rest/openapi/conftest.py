"""A service that runs: requests go through WSGI, ids come from PostgreSQL where there is one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import override_settings

from django_idgen import next_id
from django_idgen.process import maps
from django_idgen.rest.tokens import make_token
from tests import servers
from tests.conftest import _empty_database
from tests.places import empty_sqlite, idgen_on, make_tables

# schemathesis makes a session's cookie up, and takes what a password lets in for its doing.
WITHOUT_SESSIONS = {
    "REST_FRAMEWORK": {
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"]
    }
}


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
            ROOT_URLCONF="tests.remote.urls",
            ALLOWED_HOSTS=["*"],
            IDGEN=idgen_on(database),
            **WITHOUT_SESSIONS,
        ),
    ):
        for app in ("auth", "sessions", "admin", "django_idgen"):
            call_command("migrate", app, verbosity=0)
        make_tables(database)
        next_id()
        yield
        maps.reset()


@pytest.fixture(scope="module")
def credentials(project: None) -> dict[str, str]:
    """Headers of a user who may do everything, and of a program that may take and borrow."""
    User.objects.create_superuser("root", password="secret")
    basic = b64encode(b"root:secret").decode()
    _, secret = make_token("program", tags=["*"], generators=["*"], leases=["*"])
    return {"basicAuth": f"Basic {basic}", "idgenToken": f"Bearer {secret}"}


def scheme_of(operation: dict[str, Any]) -> str:
    """Which of the credentials opens an operation."""
    return "basicAuth" if {"basicAuth": []} in operation.get("security", []) else "idgenToken"

"""The pages where the database does not answer, or was not migrated to this version yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client

from django_idgen.db.connection import home_connection
from django_idgen.db.tables import add_missing_columns, make_missing_tables
from django_idgen.models import LeafAlloc, SegmentHistory
from tests.places import empty_sqlite
from tests.servers import free_port

from .tag_tools import TAGS, act, on, page, shown_at

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "postgres"])


@contextmanager
def away(connection: Any) -> Iterator[None]:
    """Nothing listens where ``connection`` leads, as when the server was stopped."""
    kept = dict(connection.settings_dict)
    connection.settings_dict.update(HOST="127.0.0.1", PORT=str(free_port()))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(kept)


def test_missing_tables_are_named(admin_client: Client) -> None:
    """Every page opens, says that the table isn't there and how to get it, and adds nothing."""
    connection = connections["default"]
    with connection.schema_editor() as editor:
        for model in (LeafAlloc, SegmentHistory):
            editor.delete_model(model)
    try:
        assert admin_client.get("/admin/").status_code == 200
        for page_of in ("leafalloc", "segmenthistory"):
            root = f"/admin/django_idgen/{page_of}/"
            assert "manage.py migrate" in admin_client.get(root, {"q": "x"}).content.decode()
            assert admin_client.get(f"{root}add/").status_code == 403
            assert admin_client.get(f"{root}x/change/").status_code == 302
    finally:
        make_missing_tables(connection)


@pytest.mark.parametrize(
    "alias", [on("postgres", transaction=True), on("mariadb", transaction=True)]
)
def test_a_table_of_an_earlier_version_is_named(
    alias: str,
    request: pytest.FixtureRequest,
    admin_client: Client,
    settings: Any,
    monkeypatch: Any,
) -> None:
    """With what it lacks and what helps; once it is migrated, its tags are there."""
    request.getfixturevalue(alias)
    shown_at(alias, monkeypatch, settings)
    with connections[alias].schema_editor() as editor:
        editor.create_model(LeafAlloc)
    LeafAlloc.objects.create(biz_tag="t")
    with connections[alias].cursor() as cursor:
        for column in ("paused", "holder", "fetched_at"):
            cursor.execute(f"ALTER TABLE leaf_alloc DROP COLUMN {column}")
    assert admin_client.get("/admin/").status_code == 200
    text = page(admin_client, q="t")
    assert "lacks leaf_alloc.paused, leaf_alloc.holder, leaf_alloc.fetched_at" in text
    assert "manage.py migrate" in text
    assert admin_client.get(f"{TAGS}t/change/").status_code == 302
    add_missing_columns(home_connection(alias))
    assert ">t<" in page(admin_client)


def test_a_database_that_is_away_breaks_no_page(
    postgres: str, admin_client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the list, nor a tag's page, nor the admin's first one: they say what is wrong."""
    shown_at(postgres, monkeypatch, settings)
    connection = connections[postgres]
    connection.close()
    with away(connection):
        assert "Database 'postgres' does not answer" in page(admin_client)
        assert admin_client.get("/admin/").status_code == 200
        assert admin_client.get(f"{TAGS}t/change/").status_code == 302
        for action in ("pause", "skip_ahead", "resume"):
            assert "does not answer" in act(admin_client, action, "t")[1]


@pytest.mark.parametrize("alias", [on("postgres", transaction=True)])
def test_a_database_without_tokens_is_named(
    alias: str,
    request: pytest.FixtureRequest,
    admin_client: Client,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as one for which a router forbids our tables."""
    request.getfixturevalue(alias)
    shown_at(alias, monkeypatch, settings)
    url = "/admin/django_idgen/accesstoken/"
    assert "lacks django_idgen_accesstoken" in admin_client.get(url).content.decode()
    assert admin_client.get(f"{url}add/").status_code == 403


def test_tokens_are_beside_the_users_and_not_in_the_second_file(tmp_path: Path) -> None:
    """Where SQLite has our other tables in a file of its own."""
    with empty_sqlite(tmp_path / "shop.sqlite3"):
        call_command("migrate", verbosity=0)
        client = Client()
        client.force_login(User.objects.create_superuser("root"))
        url = "/admin/django_idgen/accesstoken/"
        assert "lacks" not in client.get(url).content.decode()
        assert client.get(f"{url}add/").status_code == 200

"""``manage.py idgen_native``: what it says, and what it refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from django_idgen.models import LeafAlloc
from tests.app.models import Invoice, Receipt, Ticket
from tests.ops.native.conftest import TAG, Route, Shop, on
from tests.places import idgen_on

PAGE = Path(__file__).parents[3] / "docs" / "native.md"
SQL = re.compile(r"```sql\n(.*?)```", re.DOTALL)


def test_what_it_says_from_the_first_to_the_last(shop: Shop) -> None:
    """Each line names the column, its tag, the range, and what is skipped."""
    where = f"app_invoice.id in {shop.alias!r} (tag 'app.invoice'): "
    assert shop.command() == "There are no sequences of idgen_native.\n"
    assert shop.command(TAG, "--list") == f"{where}no sequence\n"
    said = shop.command(TAG)
    assert said.startswith(f"{where}takes from sequence idgen_native_app_invoice_id_")
    assert said.endswith("1 to 100000, 100000 left\n")
    shop.insert(2)
    position = shop.position()
    listed = f"{where}1 to 100000, {position.left} left\n"
    assert shop.command() == shop.command("--list") == shop.command(TAG, "--list") == listed
    assert shop.command("--extend") == shop.command(TAG, "--extend") == listed
    assert "has its sequence already" in shop.command(TAG, "--length", "500")
    assert "continues with 100021 to" not in shop.command()
    assert "(as you asked)" in shop.command(TAG, "--renew", "--length", "500")
    assert "has no default any more; 500 ids are skipped" in shop.command(TAG, "--remove")
    assert "has no sequence of idgen_native" in shop.command(TAG, "--remove")
    with pytest.raises(CommandError, match="has no sequence of idgen_native"):
        shop.command(TAG, "--extend")


def test_the_sql_of_the_docs(shop: Shop) -> None:
    """As it stands on the page."""
    shop.command(TAG)
    text = PAGE.read_text(encoding="utf-8")
    for statement in SQL.findall(text):
        shop.sql(statement.replace("shop_ticket", "app_invoice"))
    assert shop.ids() == [1]


def test_installed_anew_it_gives_no_id_again(shop: Shop) -> None:
    """Also where the rows are gone, and with a sequence that a killed run has left behind."""
    shop.command(TAG, "--length", "100")
    assert shop.insert(5)[-1] == 5
    shop.sql("DELETE FROM app_invoice")
    shop.command(TAG, "--remove")
    shop.command(TAG, "--length", "100")
    assert shop.insert() == [101]
    shop.sql("ALTER TABLE app_invoice ALTER COLUMN id DROP DEFAULT")
    assert shop.command() == "There are no sequences of idgen_native.\n"
    shop.command(TAG, "--length", "100")
    assert shop.insert() == [201]


def test_a_column_that_is_no_key(server_alias: str) -> None:
    """A number beside the key takes its default from the tag of its own field."""
    with made(server_alias, Receipt):
        call_command("idgen_native", "receipts", length=100)
        with connections[server_alias].cursor() as cursor:
            for number in (1, 2):  # MariaDB's own counter is of the key
                cursor.execute(f"INSERT INTO app_receipt (stamp, note) VALUES ({number}, 'x')")
        found = Receipt.objects.using(server_alias).values_list("number", flat=True)
        assert sorted(found) == [1, 2]
        call_command("idgen_native", "receipts", remove=True)


@contextmanager
def made(alias: str, model: Any) -> Iterator[None]:
    with connections[alias].schema_editor() as editor:
        editor.create_model(model)
    with override_settings(IDGEN=idgen_on(alias), DATABASE_ROUTERS=[Route(alias)]):
        yield


REFUSED = {
    ("app.nothing",): "No model has a SegmentIdField .* tag 'app.nothing'.*app.invoice",
    ("tickets",): "There is no app_ticket.id .*Run 'manage.py migrate' first",
    ("app.invoice", "--length", "99"): "must be a whole number of 100 to 1000000000, not 99",
    ("app.invoice", "--length", "1000000001"): "must be a whole number",
    ("app.invoice", "--database", "nowhere"): "There is no database 'nowhere'",
    ("app.invoice", "--database", "default"): "is SQLite, whose columns can't .* REST API",
    ("--renew",): "Name the tag",
    ("--remove",): "Name the tag",
}


def test_what_it_refuses(shop: Shop) -> None:
    """With the value and the way out; no id is taken and nothing is changed."""
    for words, said in REFUSED.items():
        with pytest.raises(CommandError, match=said):
            shop.command(*words)
    assert shop.command() == "There are no sequences of idgen_native.\n"
    assert not LeafAlloc.objects.using(shop.alias).exists()


def test_mysql_is_refused(mariadb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no sequences. The list and the scheduler pass it over."""
    with on(mariadb) as shop:
        connection: Any = connections[mariadb]
        monkeypatch.setattr(type(connection), "mysql_is_mariadb", False)
        with pytest.raises(CommandError, match="'mariadb' is MySQL, whose columns can't"):
            shop.command(TAG)
        assert shop.command() == "There are no sequences of idgen_native.\n"
        call_command("idgen_native", extend=True)


def test_a_default_of_somebody_else_is_left_alone(shop: Shop) -> None:
    """An identity, or another sequence, may be what a program relies on."""
    if shop.alias == "postgres":
        shop.sql("ALTER TABLE app_invoice ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY")
    else:
        shop.sql("ALTER TABLE app_invoice MODIFY id bigint NOT NULL AUTO_INCREMENT")
    with pytest.raises(CommandError, match=r"has a default already .(identity|auto_increment)"):
        shop.command(TAG)
    assert shop.insert() == [1]


def test_without_the_right_to_it_nothing_is_changed(shop: Shop) -> None:
    """The database says what is missing; the segment that was fetched is a gap."""
    user = f"idgen_{os.getpid()}"
    shop.sql(f"DROP USER IF EXISTS {user}")
    shop.sql(f"CREATE USER {user}" + (" IDENTIFIED BY ''" if shop.alias == "mariadb" else ""))
    if shop.alias == "postgres":
        shop.sql(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {user}")
    else:
        shop.sql(f"GRANT SELECT, INSERT, UPDATE ON * TO {user}")
    settings = connections.settings[shop.alias]
    configured = dict(settings)
    try:
        settings["USER"] = user
        with pytest.raises(CommandError, match=r"permission denied|command denied"):
            shop.command(TAG)
    finally:
        settings.update(configured)
        connections[shop.alias].close()
        shop.sql(f"DROP OWNED BY {user}" if shop.alias == "postgres" else "SELECT 1")
        shop.sql(f"DROP USER {user}")
    assert shop.command(TAG, "--list").endswith("no sequence\n")


def test_a_table_that_is_in_use_is_not_waited_for(shop: Shop) -> None:
    """The writers behind the command would wait, too: it gives up, and says why."""
    Invoice.objects.using(shop.alias).create()
    other = connections[shop.alias].copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("UPDATE app_invoice SET note = 'open'")
        with pytest.raises(CommandError, match="is in use"):
            shop.command(TAG)
    finally:
        other.close()
    assert "takes from sequence" in shop.command(TAG)


def test_a_tag_that_is_kept_in_memory_is_refused(postgres: str) -> None:
    """The sequence would outlive it, and a later process give its ids again."""
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    connections.settings["in_memory"] = {**connections.settings["default"], **memory}
    try:
        with (
            on(postgres, idgen_on("in_memory")) as shop,
            pytest.raises(CommandError, match="kept in this process' memory"),
        ):
            shop.command(TAG)
    finally:
        del connections.settings["in_memory"]


def test_a_paused_tag_gives_no_segment(shop: Shop) -> None:
    """Neither to a sequence."""
    LeafAlloc.objects.using(shop.alias).create(biz_tag=TAG, step=20, paused=True)
    with pytest.raises(CommandError, match="paused"):
        shop.command(TAG)


def test_the_models_of_the_tests_are_what_is_meant() -> None:
    """One tag by the model's label, and one that is named."""
    assert Invoice._meta.pk.resolved_tag == TAG  # type: ignore[union-attr]
    assert Ticket._meta.pk.resolved_tag == "tickets"  # type: ignore[union-attr]

"""``manage.py idgen_native``, and who looks after the sequences: the scheduler, the doctor."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import override_settings

from django_idgen import tasks
from django_idgen.core.errors import SegmentUnavailable, UpkeepFailed
from django_idgen.core.segment import Segment
from django_idgen.models import LeafAlloc
from django_idgen.ops.native import extend_native
from django_idgen.sources.database import DatabaseSource
from tests.app.models import Invoice, Receipt
from tests.ops.doctor.asking import findings
from tests.ops.native.conftest import TAG, Route, Shop, on
from tests.places import idgen_on
from tests.server_tools import unreachable

PAGE = Path(__file__).parents[3] / "docs" / "segments.md"
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
    """With the value and the way out; no id is taken and nothing is changed. A paused tag, too."""
    for words, said in REFUSED.items():
        with pytest.raises(CommandError, match=said):
            shop.command(*words)
    assert shop.command() == "There are no sequences of idgen_native.\n"
    rows = LeafAlloc.objects.using(shop.alias)
    assert not rows.exists()
    rows.create(biz_tag=TAG, step=20, paused=True)
    with pytest.raises(CommandError, match="paused"):
        shop.command(TAG)


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


# --- who looks after the sequences ----------------------------------------------------


NAME = "app_invoice.id"


def half_used(shop: Shop) -> None:
    shop.command(TAG, "--length", "100")
    shop.insert(60)


def put_back(shop: Shop, value: int) -> None:
    """The sequence as an old backup has it."""
    if shop.alias == "postgres":
        shop.sql(f"SELECT setval('{shop.position().name}', {value}, false)")
    else:
        shop.sql(f"ALTER SEQUENCE {shop.position().name} RESTART WITH {value}")


def test_the_scheduler_extends_what_is_half_used_up(shop: Shop) -> None:
    """Once; until then it says how much is left. The task and the command do the same."""
    assert extend_native() == {}
    shop.command(TAG, "--length", "100")
    assert extend_native() == {NAME: {"left": 100}}
    shop.insert(60)
    (done,) = tasks.extend_native().values()
    assert "continues to 200" in done["extended"]
    assert extend_native() == {NAME: {"left": 140}}
    assert json.dumps(done)


def test_the_command_for_cron_does_it(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    """Without Celery."""
    half_used(shop)
    call_command("idgen_upkeep")
    assert '"extended": "app_invoice.id' in capsys.readouterr().out


def test_a_failure_is_told_after_all_was_done(shop: Shop) -> None:
    """A paused tag gives nothing; cron hears of it. A database that is away is named."""
    half_used(shop)
    LeafAlloc.objects.using(shop.alias).update(paused=True)
    with pytest.raises(UpkeepFailed, match="paused") as failed:
        extend_native()
    assert list(failed.value.done) == [NAME]
    with pytest.raises(CommandError, match="Sequences were not all extended"):
        call_command("idgen_upkeep")
    with unreachable(shop.alias), pytest.raises(UpkeepFailed, match=f"database {shop.alias}"):
        extend_native()


def test_databases_without_sequences_are_not_even_asked() -> None:
    """SQLite: no connection is opened for it, and nothing is said."""
    with override_settings(DATABASE_ROUTERS=[Route("default")]):
        assert extend_native() == {}


def test_the_doctor_finds_what_the_scheduler_has_left(shop: Shop) -> None:
    """A warning when half is used up, an error when all is; ``--extend`` goes on."""
    half_used(shop)
    (found,) = findings("native", database=[shop.alias])
    assert found["severity"] == "warning"
    assert "gives 1 to 100, 40 left." in found["what"]
    assert "idgen_native --extend" in found["todo"]
    assert "continues to 200" in shop.command("--extend")
    assert findings("native", database=[shop.alias]) == []
    shop.insert(140)
    (found,) = findings("native", database=[shop.alias])
    assert found["severity"] == "error"


def test_a_sequence_that_was_put_back_leaves_its_segment(shop: Shop) -> None:
    """Rows lie above where it stands: the doctor says so, and ``--extend`` gives another one."""
    half_used(shop)
    put_back(shop, 50)
    (found,) = findings("native", database=[shop.alias])
    assert found["severity"] == "error"
    assert "but the table has id 60, which it would give again" in found["what"]
    shop.command("--extend")
    assert shop.insert() == [101]


def test_the_scheduler_notices_that_too(shop: Shop) -> None:
    """Though not even a tenth was used."""
    shop.command(TAG, "--length", "100")
    shop.insert(8)
    put_back(shop, 3)
    assert "the table has id 8" in str(extend_native())
    assert shop.insert() == [101]


def test_a_segment_below_the_rows_is_not_taken(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a source answers: the sequence stays where it is, and the error says what came."""
    half_used(shop)
    before = shop.position()
    low = Segment(TAG, 1, 101, 100)
    monkeypatch.setattr(DatabaseSource, "fetch", lambda *_args, **_given: low)
    with pytest.raises(SegmentUnavailable, match="gave 100 ids from 1 on, instead of two or more"):
        shop.extend()
    assert shop.position() == before


def test_after_a_failover_it_leaves_its_segment(shop: Shop) -> None:
    """The server that took over may have missed ids; their rows are lost, their copies not."""
    shop.command(TAG, "--length", "100")
    shop.insert(8)
    other = shop.column()
    other._identity = lambda: "another"  # type: ignore[method-assign]
    other._note(shop.position().name)
    assert "another server has taken over" in str(extend_native())
    assert shop.insert() == [101]
    assert "left" in extend_native()[NAME]


def test_a_tag_that_was_put_back_meets_no_sequence(shop: Shop) -> None:
    """Its next fetches would be the sequence's ids: both go on above them."""
    shop.command(TAG, "--length", "100")
    shop.insert(8)
    LeafAlloc.objects.using(shop.alias).filter(pk=TAG).update(max_id=50)
    (found,) = findings("native", database=[shop.alias])
    assert "the tag was reset" in found["what"]
    extend_native()
    assert shop.insert()[0] > 100
    assert Invoice.objects.using(shop.alias).create().pk > shop.position().ids[-1]


def test_after_a_restore_idgen_skip_sees_to_the_sequence(shop: Shop) -> None:
    """What it gave since the backup is in no table any more, but may be elsewhere."""
    half_used(shop)
    put_back(shop, 10)
    shop.sql("DELETE FROM app_invoice WHERE id >= 10")
    out = StringIO()
    call_command("idgen_skip", TAG, yes=True, stdout=out)
    assert "of those before, up to 91 are skipped (as you asked)" in out.getvalue()
    assert shop.insert()[0] > 100

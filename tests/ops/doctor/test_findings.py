"""What the doctor finds, and that it is silent where all is well; on real servers and files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.test import override_settings

from django_idgen import generators, segments
from django_idgen.models import Installation, LeafAlloc, NamespaceRecord, WorkerLease
from django_idgen.sources.server import FAILOVER_SKIP
from tests.app.models import Comment, Invoice, Line, Order, Tag, Ticket
from tests.ops.doctor.asking import doctor, findings, mended
from tests.ops.doctor.fleet import idgen, on_database, on_redis
from tests.places import make_tables
from tests.redis_servers import RedisFarm, cache_alias
from tests.server_tools import execute, one_more


def make_shop(alias: str) -> None:
    """Tables of the project in ``alias``, and all of ours."""
    make_tables(alias)
    with connections[alias].schema_editor() as editor:
        for model in (Tag, Order, Invoice, Ticket):
            editor.create_model(model)


@pytest.fixture
def shop(server_alias: str) -> Iterator[str]:
    """The alias of a server with tables of orders and invoices; ids come from it."""
    make_shop(server_alias)
    with override_settings(IDGEN=idgen(on_database(server_alias), window=180)):
        yield server_alias


def found(*only: str, alias: str, **options: Any) -> list[dict[str, Any]]:
    return findings(*only, database=[alias], **options)


def fix(only: str, alias: str, **options: Any) -> str:
    return mended(only, database=[alias], **options)


def test_all_is_well(shop: str) -> None:
    """Of a project that has used ids, there is nothing to tell; and the exit status says so."""
    for model in (Order, Invoice, Ticket):
        model.objects.using(shop).create()
    code, words = doctor(database=[shop])
    assert (code, words.startswith("All is well.\nExamined in ")) == (0, True), words
    code, words = doctor("tags", database=[shop], fix=True)
    assert (code, "nothing that --fix can do" in words) == (0, True), words


# --- tags ------------------------------------------------------------------------------


def test_a_tag_behind_its_table(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a higher id than the tag has come to; the fix raises the tag past it.

    As far as a failover would: nobody knows whether the tag was put back, and what it
    had given out since. It is no success where such rows come as fast as it is raised.
    """
    Invoice.objects.using(shop).create()
    Invoice.objects.using(shop).create(pk=70_000)
    (finding,) = found("tags", alias=shop)
    assert finding["severity"] == "error"
    assert "70000" in finding["what"]
    with monkeypatch.context() as patch:
        patch.setattr("django_idgen.ops.doctor.tags.raise_tag", lambda *_: None)
        code, words = doctor("tags", database=[shop], fix=True, yes=True)
    assert (code != 0, "was raised 5 times" in words) == (True, True), words
    words = fix("tags", shop)
    skipped = 50 * LeafAlloc.objects.using(shop).values_list("largest_step", flat=True)[0]
    assert f"next id is {70_001 + skipped}" in words
    segments.close()
    assert Invoice.objects.using(shop).create().pk == 70_001 + skipped


def test_a_tag_that_is_used_for_the_first_time_beside_old_rows(shop: str) -> None:
    """It would start at 1; the fix makes it where it has to start. Nothing is past the last id."""
    Ticket.objects.using(shop).create(pk=5)
    (finding,) = found("tags", alias=shop)
    assert finding["subject"] == "tag 'tickets'"
    fix("tags", shop)
    assert Ticket.objects.using(shop).create().pk == 6
    Ticket.objects.using(shop).create(pk=2**63 - 1)
    (finding,) = found("tags", alias=shop)
    assert finding["fix"] is None
    assert "used up" in finding["todo"]


def test_a_tag_of_several_databases(shop: str) -> None:
    """Only ids that the database would give out itself count."""
    segments["tests.x"].next_id()
    LeafAlloc.objects.using(shop).create(biz_tag="tickets", max_id=101, delta=2, remainder=1)
    Ticket.objects.using(shop).create(pk=400)
    assert found("tags", alias=shop) == []
    Ticket.objects.using(shop).create(pk=401)
    assert "401" in found("tags", alias=shop)[0]["what"]


def test_declining_changes_nothing(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown first what would be done; the answer is no unless it is yes."""
    Ticket.objects.using(shop).create(pk=5)
    for answer in ("", "n", "what?"):
        monkeypatch.setattr("builtins.input", lambda _prompt, answer=answer: answer)
        code, words = doctor("tags", database=[shop], fix=True)
        assert code == 2
        assert "Raises tag 'tickets' to 6" in words
        assert "Nothing was changed" in words
    assert not LeafAlloc.objects.using(shop).filter(pk="tickets").exists()
    monkeypatch.setattr("builtins.input", lambda _prompt: "y")
    assert doctor("tags", database=[shop], fix=True)[0] == 0


# --- the future ------------------------------------------------------------------------


def test_rows_past_all_marks(shop: str) -> None:
    """Somebody else stamps ids: the fix begins past them, under a live holder.

    Not past a row of years ahead, which is that row's fault: all ids would be stamped so.
    """
    mine = Order.objects.using(shop).create()
    layout: Any = generators["default"].layout  # type: ignore[attr-defined]
    until = NamespaceRecord.objects.using(shop).get().highest_until
    foreign = layout.pack(until + 60_000, 3)
    Order.objects.using(shop).create(pk=foreign)
    (finding,) = found("future", alias=shop)
    assert "past everything" in finding["what"]
    fix("future", shop)
    generators.close()
    assert Order.objects.using(shop).create().pk > foreign > mine.pk
    Order.objects.using(shop).create(pk=layout.pack(layout.max_ticks - 1, 3))
    (finding,) = found("future", alias=shop)
    assert finding["fix"] is None


# --- marks -----------------------------------------------------------------------------


def test_a_poisoned_mark(shop: str) -> None:
    """A clock that was years ahead: it is lowered only if somebody vouches for the rest."""
    Order.objects.using(shop).create()
    generators.close()
    far = 40 * 365 * 86_400_000
    WorkerLease.objects.using(shop).update(until=far)
    NamespaceRecord.objects.using(shop).update(highest_until=far)
    (finding,) = found("marks", alias=shop)
    assert finding["severity"] == "error"
    assert finding["fix"]["needs"] == ["--others-stopped", "--trust-tables"]
    _, words = doctor("marks", database=[shop], fix=True, yes=True)
    assert "not without --others-stopped --trust-tables" in words
    assert NamespaceRecord.objects.using(shop).get().highest_until == far
    fix("marks", shop, others_stopped=True, trust_tables=True)
    before = Order.objects.using(shop).get().pk
    assert Order.objects.using(shop).create().pk > before
    assert found("marks", "future", alias=shop) == []


def test_a_poisoned_mark_whose_ids_may_be_used_stays(shop: str) -> None:
    """A table shows one, or a database is away whose tables may."""
    layout: Any = generators["default"].layout  # type: ignore[attr-defined]
    far = 40 * 365 * 86_400_000
    generators["default"].next_id()
    generators.close()
    NamespaceRecord.objects.using(shop).update(highest_until=far)
    with one_more(shop) as gone:
        (finding,) = found("marks", alias=shop)
    assert finding["fix"] is None
    assert repr(gone) in finding["todo"]
    assert found("marks", alias=shop)[0]["fix"] is not None
    Order.objects.using(shop).create(pk=layout.pack(far - 1, 3))
    assert found("marks", alias=shop)[0]["fix"] is None


def test_a_tag_that_was_skipped_too_far(shop: str) -> None:
    """A warning: it goes back to its table's highest id, and some way past it, when asked for."""
    Ticket.objects.using(shop).create()
    segments.close()
    LeafAlloc.objects.using(shop).filter(pk="tickets").update(max_id=2**62)
    (finding,) = found("marks", alias=shop)
    assert "lost" in finding["why"]
    assert doctor("marks", database=[shop])[0] == 1
    assert doctor("marks", database=[shop], fail_on="error")[0] == 0
    fix("marks", shop, others_stopped=True, trust_tables=True)
    assert 1 < Ticket.objects.using(shop).create().pk < 10**6


# --- columns and ends ------------------------------------------------------------------


def test_columns_that_are_too_narrow(shop: str) -> None:
    """In the database, whatever the model says: a foreign key, and a generic one."""
    with connections[shop].schema_editor() as editor:
        editor.create_model(Line)
    quote = connections[shop].ops.quote_name
    for table, column in ((Line._meta.db_table, "order_id"), (Ticket._meta.db_table, "id")):
        _narrow(shop, quote(table), quote(column))
    words = {finding["subject"]: finding for finding in found("columns", alias=shop)}
    assert len(words) == 2
    ticket, line = sorted(words.values(), key=lambda each: each["subject"])
    assert (line["severity"], ticket["severity"]) == ("error", "warning")
    table = Comment._meta.db_table
    execute(shop, f"CREATE TABLE {table} (id bigint, content_type_id int, object_id int)")
    (generic,) = (each for each in found("columns", alias=shop) if each["subject"] not in words)
    assert "object_id" in generic["subject"]


def _narrow(alias: str, table: str, column: str) -> None:
    if alias == "postgres":
        execute(alias, f"ALTER TABLE {table} ALTER COLUMN {column} TYPE integer")
    else:
        for row in execute(
            alias,
            "SELECT table_name, constraint_name FROM information_schema.key_column_usage "
            "WHERE constraint_schema = database() AND referenced_table_name IS NOT NULL",
        ):
            execute(alias, f"ALTER TABLE {row[0]} DROP FOREIGN KEY {row[1]}")
        execute(alias, f"ALTER TABLE {table} MODIFY {column} int NOT NULL")


def test_ends_that_come_near(shop: str) -> None:
    """Of the column that a tag fills, at its rate; of the tag; and of a layout."""
    Ticket.objects.using(shop).create()
    _narrow(shop, Ticket._meta.db_table, "id")
    for rate, severity, words in ((50.0, "warning", "1.4 years"), (500.0, "error", "50 days")):
        LeafAlloc.objects.using(shop).filter(pk="tickets").update(rate=rate)
        (finding,) = found("columns", alias=shop)
        assert (finding["severity"], words in finding["what"]) == (severity, True), finding
    assert found("exhaustion", alias=shop) == []
    LeafAlloc.objects.using(shop).filter(pk="tickets").update(rate=0, max_id=2**62 + 1)
    (finding,) = found("exhaustion", alias=shop)
    assert (finding["severity"], "an unknown time" in finding["what"]) == ("warning", True)
    LeafAlloc.objects.using(shop).filter(pk="tickets").update(rate=10**12)
    assert found("exhaustion", alias=shop)[0]["severity"] == "error"
    short = {"LAYOUT": {"time": 28, "worker": 10, "sequence": 12, "tick": 0.25}}
    with override_settings(IDGEN=idgen(on_database(shop), **short)):
        (layout,) = found("settings", alias=shop)
    assert (layout["severity"], layout["check"]) == ("warning", "django_idgen.W004")
    assert "such as {'time': 29, 'worker': 9, 'sequence': 12, 'tick': 0.25}" in layout["todo"]


# --- worker ids and clocks -------------------------------------------------------------


def test_worker_ids_that_are_nearly_all_taken(server_alias: str) -> None:
    """An error where none is left. A lease that has expired is free."""
    with override_settings(IDGEN=idgen(on_database(server_alias, workers=[0, 2]), window=180)):
        generators["default"].next_id()
        assert found("workers", alias=server_alias) == []
        row = WorkerLease.objects.using(server_alias).get()
        for worker in {0, 1} - {row.worker}:
            row.pk, row.worker, row.token = f"default/{worker}", worker, "a" * 32
            WorkerLease.objects.using(server_alias).bulk_create([row])
        NamespaceRecord.objects.using(server_alias).update(workers_made=2)
        (finding,) = found("workers", alias=server_alias)
        assert finding["severity"] == "error"
        assert "0 left" in finding["what"]
        WorkerLease.objects.using(server_alias).filter(token="a" * 32).update(until=1)
        assert found("workers", alias=server_alias) == []


def once(alias: str, workers: int, **options: Any) -> dict[str, Any]:
    """Settings of a generator whose worker ids are lent once."""
    leases = {"BACKEND": "django_idgen.leases.disposable.DisposableLeases"}
    given = {"database": alias, "workers": [0, workers], **options}
    return idgen({**leases, "OPTIONS": given}, window=180)


def was_lent(alias: str, workers: Iterable[int], days_ago: float) -> None:
    """As one worker id was, by a process that was killed."""
    rows = WorkerLease.objects.using(alias)
    values = rows.values().get(worker=0)
    values |= {"acquired_at": values["acquired_at"] - timedelta(days=days_ago), "until": 1}
    rows.bulk_create(
        WorkerLease(**values | {"id": f"default/{each}", "worker": each, "token": f"{each:032x}"})
        for each in workers
    )


@pytest.mark.long
def test_worker_ids_that_are_lent_once_come_to_an_end(server_alias: str) -> None:
    """Told long before, by the share that is used or the rate of the last days; and the way out."""
    with override_settings(IDGEN=once(server_alias, 1000)):
        generators["default"].next_id()
        was_lent(server_alias, range(1, 61), days_ago=8)
        assert found("workers", alias=server_alias) == []  # 939 for 6,573 days
        was_lent(server_alias, range(61, 400), days_ago=3)
        (finding,) = found("workers", alias=server_alias)
        assert finding["severity"] == "warning"
        assert "400 (40%) are used, and 600 left, for about 12 days at" in finding["what"]
        assert "'recycle': True" in finding["todo"]
        was_lent(server_alias, range(400, 800), days_ago=0.5)
        assert found("workers", alias=server_alias)[0]["severity"] == "error"
        assert "2 days at the rate" in found("workers", alias=server_alias)[0]["what"]
        WorkerLease.objects.using(server_alias).filter(worker__lt=799).delete()
        (finding,) = found("workers", alias=server_alias)  # by the highest, not by the rows
        assert "800 (80%) are used, and 200 left" in finding["what"]
    with override_settings(IDGEN=once(server_alias, 1000, recycle=True)):
        generators["default"].next_id()
        assert found("workers", alias=server_alias) == []
    with override_settings(IDGEN=idgen(on_database(server_alias, workers=[0, 1000]), window=180)):
        fix("settings", server_alias)
        generators["default"].next_id()


def test_the_last_worker_id_that_is_lent_once(server_alias: str) -> None:
    """An error where there is none left, however long that took."""
    with override_settings(IDGEN=once(server_alias, 5)):
        generators["default"].next_id()
        was_lent(server_alias, range(1, 4), days_ago=30)
        WorkerLease.objects.using(server_alias).update(acquired_at=datetime(2025, 1, 1, tzinfo=UTC))
        (finding,) = found("workers", alias=server_alias)
        assert finding["severity"] == "warning"
        assert "4 (80%) are used, and 1 left." in finding["what"]
        was_lent(server_alias, [4], days_ago=30)
        (finding,) = found("workers", alias=server_alias)
        assert finding["severity"] == "error"
        assert "and 0 left" in finding["what"]


def test_holders_whose_clocks_are_off(shop: str) -> None:
    """By what the registry noted when they were seen."""
    generators["default"].next_id()
    assert found("workers", "clocks", alias=shop) == []
    WorkerLease.objects.using(shop).update(clock_offset_us=45_000_000)
    (finding,) = found("workers", alias=shop)
    assert "+45.0 s" in finding["what"]


# --- several databases -----------------------------------------------------------------


def test_rows_that_do_not_agree(shop: str) -> None:
    """A tag with another shard than its database; one last used on another server."""
    segments["orders"].next_id()
    assert found("databases", alias=shop) == []
    LeafAlloc.objects.using(shop).update(server="another")
    assert "another server" in found("databases", alias=shop)[0]["what"]
    LeafAlloc.objects.using(shop).update(delta=3, remainder=2)
    assert "'orders' has delta=3, remainder=2" in found("databases", alias=shop)[0]["what"]
    Installation.objects.using(shop).all().delete()
    assert "emptied" in found("databases", alias=shop)[0]["what"]


# --- half-migrated, and away -----------------------------------------------------------


def test_a_half_migrated_database(server_alias: str) -> None:
    """It names what is missing, and migrate; makes nothing, and doesn't fail on the rest."""
    with override_settings(IDGEN=idgen(on_database(server_alias))):
        (finding,) = found("tables", alias=server_alias)
        assert (finding["severity"], "It lacks leaf_alloc," in finding["what"]) == ("error", True)
        make_tables(server_alias)
        assert found("tables", alias=server_alias) == []
        execute(server_alias, "ALTER TABLE leaf_alloc DROP COLUMN paused")
        execute(server_alias, "DROP TABLE django_idgen_leasehistory")
        code, words = doctor(database=[server_alias])
        assert code == 2, words
        assert "leaf_alloc.paused" in words
        assert f"migrate django_idgen --database {server_alias}" in " ".join(words.split())
        assert "NOT EXAMINED" not in words, words
        names = connections[server_alias].introspection.table_names()
        assert "django_idgen_leasehistory" not in names


def test_it_makes_nothing(file: str, server_alias: str) -> None:
    """Neither tables, on a server, nor a file, on SQLite."""
    with override_settings(IDGEN=idgen(on_database(server_alias))):
        code, words = doctor(database=[server_alias])
        assert code == 2, words
    assert connections[server_alias].introspection.table_names() == []
    with override_settings(IDGEN={}):
        code, words = doctor(database=[file])
    assert code == 0, words
    assert list(Path(connections.settings[file]["NAME"]).parent.iterdir()) == []


def test_a_database_that_is_away_is_named(postgres: str) -> None:
    """And the rest goes on; the exit status is of its own."""
    make_tables(postgres)
    with override_settings(IDGEN=idgen(on_database(postgres))), one_more(postgres) as gone:
        code, words = doctor(database=[gone, postgres])
        execute(postgres, "DROP TABLE django_idgen_leasehistory")
        worse, more = doctor(database=[gone, postgres])
    assert code == 3, words
    assert "database 'gone'" in words
    assert worse == 2, more
    assert f"database '{postgres}'" in more


# --- the command -----------------------------------------------------------------------


def test_bad_input() -> None:
    """What there is is named. Settings that can't work are the finding."""
    for given, words in (
        (["--only", "nothing"], "choose from '?settings"),
        (["--database", "nowhere"], "choose from '?default"),
        (["--moved-from", "nowhere"], "choose from '?default"),
        (["--json", "--fix"], "--yes"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("idgen_doctor", *given, stdout=StringIO())
    named: tuple[tuple[dict[str, list[str]], str], ...] = (
        ({"only": ["nothing"]}, "Known: settings"),
        ({"database": ["nowhere"]}, "Known: default"),
        ({"moved_from": ["nowhere"]}, "Known: default"),
    )
    for options, words in named:
        with pytest.raises(CommandError, match=words):
            call_command("idgen_doctor", stdout=StringIO(), **options)
    with (
        override_settings(IDGEN={"NOTHING": 1}),
        pytest.raises(CommandError, match="NOTHING") as caught,
    ):
        call_command("idgen_doctor")
    assert caught.value.returncode == 3


def test_json_with_a_fix(shop: str) -> None:
    """JSON alone on the one stream, what was done on the other."""
    Ticket.objects.using(shop).create(pk=5)
    out, errors = StringIO(), StringIO()
    call_command(
        "idgen_doctor",
        only=["tags"],
        database=[shop],
        json=True,
        fix=True,
        yes=True,
        stdout=out,
        stderr=errors,
    )
    assert json.loads(out.getvalue())["exit_code"] == 0
    assert "done: tag 'tickets'" in errors.getvalue()


# --- Redis -----------------------------------------------------------------------------


def test_a_namespace_that_moved_to_a_service_says_how_far_to_skip(postgres: str) -> None:
    """Past every window that the project's own database lent: ``--until`` takes that time."""
    make_tables(postgres)
    with override_settings(IDGEN=idgen(on_database(postgres))):
        generators["default"].next_id()
    options = {"base_urls": "http://127.0.0.1:9/", "token": "x"}
    service = {"BACKEND": "django_idgen.leases.http.HttpLeases", "OPTIONS": options}
    with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": service}}}):
        (finding,) = found("settings", alias=postgres)
    assert finding["severity"] == "warning"
    until = datetime.fromisoformat(re.search(r"--until (\S+Z)'", finding["todo"])[1])  # type: ignore[index]
    highest = NamespaceRecord.objects.using(postgres).get().highest_until
    end = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(milliseconds=highest)
    assert end <= until < end + timedelta(seconds=2)


def test_a_redis_that_evicts_and_is_shared(postgres: str, farm: RedisFarm) -> None:
    """Its policy, the cache beside it, and one that is a replica."""
    server = farm.server(maxmemory="20mb", maxmemory_policy="allkeys-lru", save='"3600 1"')
    setting = idgen(on_redis("idgen", postgres))
    with cache_alias("idgen", server.url), override_settings(IDGEN=setting):
        words = " ".join(finding["what"] for finding in found("redis", alias=postgres))
        assert "allkeys-lru" in words
        server.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert found("redis", alias=postgres) == []
        generators["default"].next_id()
        assert found("redis", alias=postgres) == []
        generators.close()
        with cache_alias("pages", server.url):
            assert "pages" in found("settings", alias=postgres)[0]["what"]
        server.run("ACL", "SETUSER", "default", "-info")
        assert "+info" in found("redis", alias=postgres)[0]["what"]
        server.run("ACL", "SETUSER", "default", "+info")
        server.kill()
        code, words = doctor("redis", database=[postgres])
        assert code == 3
        assert "did not answer" in words


# --- SQLite ----------------------------------------------------------------------------


@pytest.fixture
def site(file: str) -> Iterator[Path]:
    """A SQLite project in which ids were used; yields its database's path."""
    with override_settings(IDGEN={}):
        make_shop(file)
        Invoice.objects.create()
        Order.objects.create()
        segments.close()
        generators.close()
        yield Path(connections.settings[file]["NAME"])


def test_an_id_file_that_is_gone(site: Path) -> None:
    """It says what the next process does, and makes no file by asking."""
    code, words = doctor(database=["default"])
    assert (code, "All is well." in words) == (0, True), words
    make_tables("default")
    file = site.with_name(site.name + "-idgen")
    file.unlink()
    assert "is gone" in found("sqlite", alias="default")[0]["what"]
    assert not file.exists()


def test_a_sqlite_tag_behind_its_table(site: Path) -> None:
    """It is raised as on a server, past what others may have had."""
    Invoice.objects.create(pk=90_000)
    fix("tags", "default")
    assert Invoice.objects.create().pk == 90_001 + FAILOVER_SKIP * 2 * 1000


@pytest.mark.long
def test_sqlite_moves_to_another_layout(site: Path) -> None:
    """I8: also to one of longer ticks, whose marks are lower numbers; and on from there."""
    first = Order.objects.get().pk
    days = {"LAYOUT": {"time": 31, "worker": 10, "sequence": 22, "tick": 1.0}}
    for setting in (days, {"LAYOUT": "standard", "EPOCH": "2019-01-01T00:00:00Z"}):
        with override_settings(IDGEN={"GENERATORS": {"default": setting}}):
            with pytest.raises(Exception, match="opened with"):
                generators["default"].next_id()
            assert found("settings", alias="default")[0]["fix"] is not None
            fix("settings", "default")
            number = Order.objects.create().pk
            assert number > first
            first = number
            generators.close()
            assert Order.objects.create().pk > number
            generators.close()

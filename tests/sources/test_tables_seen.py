"""Ids of a field are above its table's rows, whichever door moved the tag first (hazard 99)."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from copy import copy
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.admin import site
from django.core.management import call_command
from django.db import ProgrammingError, connections, models, transaction
from django.db.backends.signals import connection_created
from django.test import RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_idgen import segments
from django_idgen.core.errors import SegmentUnavailable, TagPaused
from django_idgen.core.loader import is_prefork
from django_idgen.core.segment_generator import SegmentAllocator
from django_idgen.db.connection import home_of
from django_idgen.fields import SegmentIdField, SnowflakeField
from django_idgen.models import LeafAlloc
from django_idgen.process import maps
from django_idgen.process.watch import IdColumn, highest_in
from django_idgen.sources.http import HttpSource
from tests.app.models import Invoice
from tests.places import STEP, Only, idgen_on, sqlite, using
from tests.remote.service import SECRET, service
from tests.rest.tags.people import ADD, CHANGE, VIEW, Person, clerk
from tests.server_tools import execute, execute_apart, make_tables, unreachable
from tests.sources.pool.test_project import idgen_on as pooled
from tests.tiers import long

ROWS = 5000
DATABASE_SOURCE = "django_idgen.sources.database.DatabaseSource"
TICKETS = "django_idgen.contrib.sharding.TicketGenerator"
TAG = "app.invoice"
pytestmark = pytest.mark.urls("tests.sources.urls_of_doors")


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[str]:
    """The database of the project: its table has rows 1 to 5000, which came by COPY."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            stack.enter_context(django_db_blocker.unblock())
            alias = stack.enter_context(sqlite(tmp_path))
        else:
            alias = request.getfixturevalue(request.param)
            stack.enter_context(using(alias))
            stack.enter_context(override_settings(DATABASE_ROUTERS=[Only(alias)]))
        fill(alias, Invoice._meta.db_table)
        stack.callback(maps.reset)
        yield alias


on_postgres = pytest.mark.parametrize("shop", ["postgres"], indirect=True)


def fill(alias: str, table: str, *, up_to: int = ROWS) -> None:
    """Rows that no process of django_idgen knows."""
    columns, rest = ("id, note", ", ''") if table == Invoice._meta.db_table else ("id", "")
    rows = ", ".join(f"({number}{rest})" for number in range(1, up_to + 1))
    with connections[alias].cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} ({columns}) VALUES {rows}")


@contextmanager
def another_program() -> Iterator[None]:
    """A process that doesn't know the project's models, such as an id service."""
    with patch.object(maps.segments, "fields", {}):
        yield
    maps.reset()


def created() -> int:
    return int(Invoice.objects.create().pk)


# --- the doors ---------------------------------------------------------------------------


def post(url: str, method: str = "post", **body: Any) -> Any:
    answer = getattr(clerk(), method)(f"/{url}", body, format="json")
    assert answer.status_code in (200, 201), answer.content
    return answer


def tag_made(**values: Any) -> None:
    """The tag's row, as other programs make it."""
    segments["another"].next_id()  # which makes the tables
    LeafAlloc.objects.create(biz_tag=TAG, step=STEP, **values)


def skip(**how: int) -> None:
    tag_made()
    call_command("idgen_skip", TAG, yes=True, **how)


def by_the_admin() -> None:
    """The form that adds a tag, sent by a user who needs no tables."""
    segments["another"].next_id()
    new = {"biz_tag": TAG, "max_id": 2, "step": STEP, "initial-step": STEP}
    request = RequestFactory().post("/admin/django_idgen/leafalloc/add/", new)
    request.user, request._dont_enforce_csrf_checks = Person(VIEW, ADD, CHANGE, staff=True), True
    tags = site.get_model_admin(LeafAlloc)
    with patch.object(tags, "log_addition"), patch.object(tags, "message_user"):
        assert tags.add_view(request).status_code == 302


def by_a_java_leaf() -> None:
    """It shares the table, and knows neither our columns nor the project's tables."""
    tag_made()
    with connections[home_of(LeafAlloc.objects.db)].cursor() as cursor:
        cursor.execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = %s", [TAG])


DOORS: dict[str, Callable[[], object]] = {
    "a segment over HTTP": lambda: (tag_made(), post(f"idgen/tags/{TAG}/segment", tag=TAG)),
    "ids over HTTP": lambda: (tag_made(), post(f"idgen/tags/{TAG}/ids", count=3)),
    "TinyID's segment": lambda: (tag_made(), post(f"tinyid/id/nextSegmentId?bizType={TAG}")),
    "CosId's range": lambda: (tag_made(), post("cosid/segments/app/invoice?step=10", "patch")),
    "the Go Leaf's tag": lambda: post("go/api/leaf", biz_tag=TAG, max_id=2),
    "a tag over REST": lambda: post("idgen/tags/", tag=TAG, max_id="2"),
    "a skip over REST": lambda: (tag_made(), post(f"idgen/tags/{TAG}/skip", by=1)),
    "idgen_skip --by": lambda: skip(by=1),
    "idgen_skip --to": lambda: skip(to=100),
    "an id of the tag": lambda: segments[TAG].next_id(),
    "the admin's form": by_the_admin,
    "a row of the ORM": lambda: tag_made(max_id=2),
    "a Java Leaf": by_a_java_leaf,
}


@pytest.mark.parametrize("door", DOORS)
def test_rows_come_before_ids_whatever_moved_the_tag(door: str, shop: str) -> None:
    """A program without the model moves the tag, and can't look; the project does."""
    with another_program():
        DOORS[door]()
    assert 1 < LeafAlloc.objects.using(shop).get(pk=TAG).max_id < ROWS
    assert created() == ROWS + 1
    maps.reset()
    assert created() > ROWS + 1


# --- what is stored ----------------------------------------------------------------------


@contextmanager
def looks() -> Iterator[list[str]]:
    """The tables that are looked at in the block."""
    found: list[str] = []
    highest = IdColumn.highest

    def looking(column: IdColumn) -> tuple[int, bool]:
        found.append(column.model.__name__)
        return highest(column)

    with patch.object(IdColumn, "highest", looking):
        yield found


def test_a_table_is_looked_at_once(shop: str) -> None:
    """The next process reads in its fetch that this was done; no test counts a query of it."""
    with looks() as found, CaptureQueriesContext(connections[shop]) as counted:
        assert created() == ROWS + 1
        maps.reset()
        assert created() > ROWS + 1
    assert found == ["Invoice"]
    assert [query["sql"].split()[0] for query in counted] == ["INSERT", "INSERT"]


def test_a_tag_that_was_idle_is_not_looked_at_again(shop: str) -> None:
    """Nothing is held, and the row says what was looked at: a table may have no index."""
    assert created() == ROWS + 1
    allocator = segments.allocator()
    for _ in range(3):
        allocator.idle_after = -1.0
        allocator.sweep()
    gc.collect()
    assert TAG not in segments
    with looks() as found:
        assert created() > ROWS + 1
    assert found == []


def test_a_tag_that_was_deleted_is_looked_at_anew(shop: str) -> None:
    """Another program makes it again, between two ids of a process that was granted none."""
    assert created() == ROWS + 1
    maps.reset()
    segments.of_field(Invoice._meta.pk)  # found, and not taken from
    LeafAlloc.objects.filter(pk=TAG).delete()
    with patch.object(maps.segments, "fields", {}):
        LeafAlloc.objects.create(biz_tag=TAG, max_id=2, step=STEP)
    assert created() == ROWS + 2


def parcel(tag: str = TAG, table: str = "parcel") -> Any:
    """A model of another project, or of the next release."""
    with isolate_apps("tests.app"):

        class Parcel(models.Model):
            id = SegmentIdField(primary_key=True, tag=tag)

            class Meta:
                app_label = "app"
                db_table = table

    return Parcel


def with_rows(alias: str, table: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY)")
    fill(alias, table, up_to=2 * ROWS)


def test_a_second_table_of_the_tag_is_looked_at(shop: str) -> None:
    """In the process that has ids of the tag, and in another one."""
    assert created() == ROWS + 1
    with_rows(shop, "parcel")
    assert parcel().objects.create().pk == 2 * ROWS + 1
    with connections[shop].cursor() as cursor:
        cursor.execute("CREATE TABLE box (id bigint PRIMARY KEY)")
        cursor.execute(f"INSERT INTO box VALUES ({3 * ROWS})")
    maps.reset()
    assert parcel(table="box").objects.create().pk == 3 * ROWS + 1


@on_postgres
def test_a_table_that_was_made_anew_is_looked_at_anew(shop: str) -> None:
    """PostgreSQL tells the two apart. (A dump was loaded, beside the tags.)"""
    with_rows(shop, "parcel")
    assert parcel().objects.create().pk == 2 * ROWS + 1
    maps.reset()
    with connections[shop].cursor() as cursor:
        cursor.execute("DROP TABLE parcel")
        cursor.execute("CREATE TABLE parcel (id bigint PRIMARY KEY)")
        cursor.execute(f"INSERT INTO parcel VALUES ({3 * ROWS})")
    assert parcel().objects.create().pk == 3 * ROWS + 1


# --- how it is looked at -----------------------------------------------------------------


def test_the_tag_is_not_locked_meanwhile(shop: str) -> None:
    """A look at a table without an index may take minutes; others take ids of the tag."""
    tag_made(max_id=2)
    highest = IdColumn.highest

    def slowly(column: IdColumn) -> tuple[int, bool]:
        with transaction.atomic(using=home_of(shop)):
            LeafAlloc.objects.using(shop).filter(pk=TAG).update(step=7)
        return highest(column)

    with patch.object(IdColumn, "highest", slowly):
        assert created() == ROWS + 1


def test_what_the_caller_wrote_counts(shop: str) -> None:
    """Also before it is committed."""
    with transaction.atomic(using=shop):
        Invoice.objects.bulk_create([Invoice(pk=ROWS + 5)])
        assert created() == ROWS + 6


@contextmanager
def atomic(alias: str) -> Iterator[None]:
    with transaction.atomic(using=alias):
        yield


@contextmanager
def by_hand(alias: str) -> Iterator[None]:
    """As a project does that has switched autocommit off."""
    transaction.set_autocommit(False, using=alias)
    try:
        yield
        transaction.commit(using=alias)
    finally:
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)


@contextmanager
def by_sql(alias: str) -> Iterator[None]:
    """Code that begins it without Django's knowledge."""
    with connections[alias].cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            yield
            cursor.execute("COMMIT")
        except BaseException:
            cursor.execute("ROLLBACK")
            raise


@pytest.mark.parametrize("begun", [atomic, by_hand, by_sql])
def test_rows_that_a_rollback_brings_back_count(shop: str, begun: Any) -> None:
    """An import that replaces all rows, and fails."""
    with suppress(ZeroDivisionError), begun(shop):
        with connections[shop].cursor() as cursor:
            cursor.execute("DELETE FROM app_invoice")
        assert created() == ROWS + 1
        raise ZeroDivisionError
    assert created() > ROWS + 1
    maps.reset()
    assert created() > ROWS + 1


@on_postgres
def test_rows_of_a_table_that_was_locked_count_afterwards(shop: str) -> None:
    """A look that could not see what is committed is repeated once the transaction has ended."""
    with suppress(ZeroDivisionError), transaction.atomic(using=shop):
        execute(shop, "TRUNCATE app_invoice")
        assert [created() for _ in range(2)] == [1, 2]
        raise ZeroDivisionError
    assert created() == ROWS + 1
    assert LeafAlloc.objects.get(pk=TAG).tables_seen


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_a_transaction_of_sqlite_does_not_begin_with_a_look(shop: str) -> None:
    """After a read it could not write while another process does."""
    other = sqlite3.connect(connections[shop].settings_dict["NAME"], timeout=0)
    connections[shop].close()  # it has written
    with closing(other), transaction.atomic(using=shop):
        key = Invoice._meta.pk.next_value()
        other.execute("INSERT INTO app_invoice (id, note) VALUES (-1, '')")
        other.commit()
        Invoice.objects.create(pk=key)
    assert key == ROWS + 1


def test_one_thread_looks_for_all(shop: str) -> None:
    """A herd of first ids would take a connection each."""
    with looks() as found, ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: segments[TAG].next_id(), range(8)))
    assert found == ["Invoice"]
    assert min(ids) == ROWS + 1


@pytest.mark.parametrize("shop", ["postgres", *long("mariadb")], indirect=True)
def test_rows_that_an_old_snapshot_does_not_show_count(shop: str) -> None:
    """They were committed after the caller's transaction began."""
    with transaction.atomic(using=shop):
        with connections[shop].cursor() as cursor:
            if shop == "postgres":
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT count(*) FROM app_invoice")
        execute_apart(shop, "INSERT INTO app_invoice (id, note) VALUES (9000, '')")
        assert created() == 9001


@on_postgres
def test_an_alter_table_of_the_caller_is_not_waited_for(shop: str) -> None:
    """A migration changes a table, and fills it. Nothing is stored that others don't see."""
    with transaction.atomic(using=shop):
        execute(shop, "ALTER TABLE app_invoice ADD COLUMN more integer")
        assert created() == ROWS + 1
    assert not LeafAlloc.objects.get(pk=TAG).tables_seen


@on_postgres
def test_rows_that_a_policy_may_hide_are_looked_at_by_each_process(shop: str) -> None:
    """Another user may see more of them."""
    with suppress(ProgrammingError):
        execute(shop, "CREATE ROLE idgen_tests")
    execute(shop, "GRANT ALL ON ALL TABLES IN SCHEMA public TO idgen_tests")
    execute(shop, "ALTER TABLE app_invoice ENABLE ROW LEVEL SECURITY")
    execute(shop, f"CREATE POLICY low ON app_invoice USING (id <= {ROWS - 10} OR id > {ROWS})")
    execute(shop, "SET ROLE idgen_tests")
    assert Invoice._meta.pk.next_value() == ROWS - 9
    execute(shop, "RESET ROLE")
    assert not LeafAlloc.objects.get(pk=TAG).tables_seen
    maps.reset()
    assert created() > ROWS


@on_postgres
def test_what_the_caller_wrote_counts_whatever_alias_rows_are_read_from(shop: str) -> None:
    """A router may read from the same database by another name."""
    connections.settings["twin"] = connections.settings[shop]
    router = Only(shop)
    router.db_for_read = lambda model, **hints: "twin"  # type: ignore[method-assign]
    try:
        with override_settings(DATABASE_ROUTERS=[router]), transaction.atomic(using=shop):
            Invoice.objects.using(shop).bulk_create([Invoice(pk=ROWS + 5)])
            assert created() == ROWS + 6
    finally:
        connections["twin"].close()
        del connections["twin"], connections.settings["twin"]


def test_a_row_that_is_saved_elsewhere_is_above_the_rows_there(postgres: str) -> None:
    """By ``using``, without a router."""
    with using(postgres), override_settings(IDGEN=idgen_on(postgres)):
        fill(postgres, Invoice._meta.db_table)
        assert Invoice.objects.using(postgres).create().pk == ROWS + 1
        maps.reset()


def test_a_column_that_is_not_there_yet_has_no_rows(shop: str) -> None:
    """A migration takes ids before another one renames the column."""
    field = copy(parcel()._meta.pk)
    with_rows(shop, "parcel")
    field.column = "number"
    assert highest_in(field) == 0


def test_a_table_that_is_missing_is_looked_for_before_the_fetch(shop: str) -> None:
    """It may be there by then. A fetch that is refused would cost a turn of several databases."""
    source = segments.allocator().source
    fetch = patch.object(type(source), "fetch", autospec=True, side_effect=type(source).fetch)
    fields = {"parcels": [parcel("parcels")._meta.pk]}
    with patch.dict(maps.segments.fields, fields), fetch as called:
        generator = segments["parcels"]
        assert generator.next_id() == 1
        asked = called.call_count
        for _ in range(3):
            segments.allocator().segments["parcels"].clear()
            generator.next_id()
        assert called.call_count == asked + 3


def test_a_database_without_a_driver_harms_nothing(shop: str) -> None:
    """No id goes there."""
    connections.settings["gone"] = {**connections.settings[shop], "ENGINE": "nowhere.at_all"}
    try:
        assert created() == ROWS + 1
    finally:
        del connections.settings["gone"]


def test_the_master_of_uwsgi_looks(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For fields of tags, and for those of generators."""
    master = ModuleType("uwsgi")
    master.worker_id = lambda: 0  # type: ignore[attr-defined]
    master.masterpid = os.getpid  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uwsgi", master)
    assert is_prefork()
    assert created() == ROWS + 1
    with tickets_of(shop) as kind:
        assert kind.objects.create().pk == 2 * ROWS + 1


@on_postgres
def test_a_database_that_does_not_answer_is_an_error(shop: str) -> None:
    """No id is given out that a row may have; afterwards they flow again."""
    with unreachable(shop), pytest.raises(SegmentUnavailable, match="'postgres' can't be asked"):
        created()
    assert created() == ROWS + 1


def test_a_look_leaves_no_connection_open(shop: str) -> None:
    """An id without a row: the thread may never use the database."""
    connections[shop].close()
    assert segments[TAG].next_id() == ROWS + 1
    assert connections[shop].connection is None


def test_what_a_pool_was_given_before_is_passed_by(shop: str, redis: str) -> None:
    """Ids that a program without the model put into it are below the rows."""
    with override_settings(IDGEN=pooled(redis, shop)):
        with another_program():
            segments[TAG].next_id()
            assert segments.allocator().source.refill(TAG, 3 * STEP)
        assert created() == ROWS + 1


def test_a_project_looks_at_the_tables_that_a_service_cant_see(shop: str) -> None:
    """The service's row goes past them, as far as one request may skip."""
    with service({**idgen_on(shop), "REST": {"make_tags": True}}) as url:
        source = HttpSource(base_urls=url, token=SECRET)
        with closing(SegmentAllocator(source, source.loader)) as allocator:
            generator = allocator.generator(TAG)
            maps.segments.follow(generator, Invoice._meta.pk)
            assert generator.next_id() == ROWS + 1


@contextmanager
def tickets_of(alias: str) -> Iterator[Any]:
    """A model whose ids come from a generator of a tag."""
    with isolate_apps("tests.app"):

        class Parcel(models.Model):
            id = SnowflakeField(primary_key=True, generator="tickets")

            class Meta:
                app_label = "app"

    with_rows(alias, Parcel._meta.db_table)
    source = {"BACKEND": DATABASE_SOURCE, "OPTIONS": {"database": alias}}
    tickets = {"BACKEND": TICKETS, "OPTIONS": {"tag": "tickets"}, "SOURCE": source}
    with override_settings(IDGEN={**idgen_on(alias), "GENERATORS": {"tickets": tickets}}):
        yield Parcel


def test_the_field_of_a_generator_of_a_tag_looks(shop: str) -> None:
    """Its ids come from a row, too. (A worker's part of serials can't go past another's.)"""
    with tickets_of(shop) as kind:
        assert kind.objects.create().pk == 2 * ROWS + 1
        assert kind.objects.create().pk == 2 * ROWS + 2


# --- tenants and coroutines --------------------------------------------------------------


@pytest.fixture
def tenants(postgres: str) -> Iterator[str]:
    """Two schemas with one table each, 5,000 rows and 10,000; ids come from a third one."""
    with ExitStack() as stack:
        stack.enter_context(override_settings(DATABASE_ROUTERS=[Only(postgres)]))
        stack.enter_context(override_settings(IDGEN=idgen_on(postgres)))
        make_tables(postgres)
        with connections[postgres].cursor() as cursor:
            for schema in ("north", "south"):
                cursor.execute(f"CREATE SCHEMA {schema}")
                stack.callback(execute, postgres, f"DROP SCHEMA {schema} CASCADE")
            cursor.execute("CREATE TABLE north.parcel (id bigint PRIMARY KEY)")
            cursor.execute("CREATE TABLE south.parcel (id bigint PRIMARY KEY)")
        fill(postgres, "north.parcel")
        fill(postgres, "south.parcel", up_to=2 * ROWS)
        stack.callback(maps.reset)
        yield postgres


def go_to(alias: str, schema: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"SET search_path TO {schema}, public")


def test_each_tenant_is_looked_at(tenants: str) -> None:
    """One process after the other, each in the search path of its caller."""
    kind = parcel()
    for schema, rows in (("north", ROWS), ("south", 2 * ROWS)):
        go_to(tenants, schema)
        assert kind.objects.create().pk == rows + 1
        maps.reset()
    with looks() as found:
        for schema in ("north", "south"):
            go_to(tenants, schema)
            assert kind.objects.create().pk > 2 * ROWS + 1
            maps.reset()
    assert found == []


def test_a_receiver_that_sets_the_search_path_is_followed(tenants: str) -> None:
    """Our own connection is opened by the same code, and finds our tables all the same."""

    def go(connection: Any, **kwargs: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path TO south, public")

    connections[tenants].close()
    connection_created.connect(go)
    try:
        assert parcel().objects.create().pk == 2 * ROWS + 1
    finally:
        connection_created.disconnect(go)
        connections[tenants].close()


def test_a_tenant_that_is_dropped_is_no_matter_of_the_others(tenants: str) -> None:
    """Its table has no rows any more."""
    kind = parcel()
    go_to(tenants, "south")
    LeafAlloc.objects.create(biz_tag=TAG, max_id=1, step=STEP, paused=True)
    with pytest.raises(TagPaused):
        kind.objects.create()
    execute(tenants, "DROP SCHEMA south CASCADE")
    execute(tenants, "CREATE SCHEMA south")
    LeafAlloc.objects.update(paused=False)
    go_to(tenants, "north")
    maps.segments[TAG].watch._found.clear()  # type: ignore[union-attr]
    assert kind.objects.create().pk == ROWS + 1


def test_each_tenant_is_looked_at_by_one_process(
    tenants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the connection names the tenant, as django-tenants' does."""
    kind = parcel()
    segments.of_field(kind._meta.pk)  # before there is any tenant
    for schema, rows in (("north", ROWS), ("south", 2 * ROWS)):
        monkeypatch.setattr(connections[tenants], "schema_name", schema, raising=False)
        go_to(tenants, schema)
        assert kind.objects.create().pk == rows + 1
    go_to(tenants, "public")


def test_a_coroutine_looks_in_its_search_path(
    tenants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the thread where it uses the ORM; one that doesn't await, on a connection of its own."""
    monkeypatch.setitem(maps.segments.fields, "parcels", [parcel("parcels")._meta.pk])
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")

    async def one() -> int:
        return await segments["parcels"].anext_id()

    async def of_south() -> int:
        await sync_to_async(go_to)(tenants, "south")
        try:
            return await one()
        finally:
            await sync_to_async(lambda: connections[tenants].close())()

    async def without_waiting() -> int:
        go_to(tenants, "north")
        try:
            return segments["parcels"].next_id()
        finally:
            connections[tenants].close()

    go_to(tenants, "north")
    assert async_to_sync(one)() == ROWS + 1
    for ask, rows in ((of_south, 2 * ROWS), (without_waiting, ROWS)):
        LeafAlloc.objects.all().delete()
        maps.reset()
        assert asyncio.run(ask()) == rows + 1

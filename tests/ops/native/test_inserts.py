"""Rows of other programs beside Django's: no id comes twice, and none out of a grant of others."""

from __future__ import annotations

import re
import threading
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from django.core.management.color import no_style
from django.db import DatabaseError, IntegrityError, connections, transaction

from django_idgen.core.errors import IdgenError, SegmentUnavailable
from django_idgen.models import LeafAlloc
from django_idgen.ops.native import NativeColumn
from django_idgen.testing.contracts.lenders import at_once
from tests.app.models import Invoice
from tests.contrib.adopt.conftest import make_project, project
from tests.contrib.adopt.projects import DEPLOY, QUIET, Project, manage, written
from tests.ops.native.conftest import INSERT, TAG, Shop, on, unless_busy
from tests.places import idgen_on
from tests.server_tools import make_tables
from tests.tiers import long

RUN_OUT = re.compile(r"maximum value|run out")
RETURNING = f"{INSERT} RETURNING id"
ROWS = 150
SHARDED = "django_idgen.contrib.sharding.ShardedSource"


class Grants(list[range]):
    """The segments that sequences were given, as they are given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        take = NativeColumn._take

        def noted(column: NativeColumn, *args: Any) -> range:
            ids = take(column, *args)
            self.append(ids)
            return ids

        monkeypatch.setattr(NativeColumn, "_take", noted)

    def has(self, value: int) -> bool:
        return any(value in ids for ids in self)


def by_sql(shop: Shop, count: int) -> list[int]:
    """The ids of ``count`` rows inserted by plain SQL, of which every third is rolled back."""
    found: list[int] = []
    for number in range(100 * count):
        if len(found) == count:
            break
        try:
            with transaction.atomic(using=shop.alias):
                found.append(shop.sql(RETURNING)[0][0])
                if number % 3 == 0:
                    raise IdgenError("roll it back")
        except IdgenError:
            pass
        except IntegrityError:
            raise
        except DatabaseError as error:
            if not RUN_OUT.search(str(error)):
                raise
    connections[shop.alias].close()
    return found


def by_django(shop: Shop, count: int) -> list[int]:
    found = [Invoice.objects.using(shop.alias).create().pk for _ in range(count)]
    connections[shop.alias].close()
    return found


def extending(shop: Shop, over: threading.Event) -> list[int]:
    while not over.is_set():
        unless_busy(shop.extend)
    return []


def test_threads_of_both_kinds_and_two_extenders(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No id twice, not even of a row that was rolled back; each out of a grant of its own."""
    grants, over = Grants(monkeypatch), threading.Event()
    shop.command(TAG, "--length", "100")
    working = [6]

    def job(number: int) -> list[int]:
        if number >= 6:
            return extending(shop, over)
        try:
            return (by_sql if number % 2 else by_django)(shop, ROWS)
        finally:
            working[0] -= 1
            if not working[0]:
                over.set()

    found = at_once(8, job)
    ours = [value for number in (0, 2, 4) for value in found[number]]
    theirs = [value for number in (1, 3, 5) for value in found[number]]
    assert len(ours) == 3 * ROWS
    assert len(theirs) == 3 * ROWS
    assert len({*ours, *theirs}) == len(ours) + len(theirs)
    assert all(map(grants.has, theirs))
    assert not any(map(grants.has, ours))
    assert len(grants) > 2
    assert all(ids == sorted(ids) for ids in found)


def test_renewed_again_and_again_under_inserts(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart in the midst of inserts gives nothing from between the segments."""
    grants = Grants(monkeypatch)
    shop.command(TAG, "--length", "1000")

    def job(number: int) -> list[int]:
        if number:
            return by_sql(shop, 200)
        for _ in range(12):
            unless_busy(partial(shop.extend, renew=True))
        return []

    theirs = [value for found in at_once(4, job) for value in found]
    assert len(set(theirs)) == len(theirs)
    assert all(map(grants.has, theirs))
    assert all(a[-1] < b[0] for a, b in pairwise(grants))


def test_what_runs_out_is_refused_by_the_database(shop: Shop) -> None:
    """It does not begin again; Django's rows go on, and after an extension all do."""
    shop.command(TAG, "--length", "100")
    assert shop.insert(100) == list(range(1, 101))
    for _ in range(2):
        with pytest.raises(DatabaseError, match=RUN_OUT):
            shop.sql(INSERT)
    assert Invoice.objects.using(shop.alias).create().pk == 101
    assert "0 left" in shop.command()
    assert "continues with 121 to 320; of those before, up to 0 are skipped" in shop.command(
        "--extend"
    )
    assert shop.insert(2) == [121, 122]


def test_only_one_of_several_extenders_does_it(shop: Shop) -> None:
    """The others find, when it is their turn, that nothing is due any more."""
    shop.command(TAG, "--length", "100")
    shop.insert(60)

    done = at_once(5, lambda _number: unless_busy(shop.extend))
    assert len(list(filter(None, done))) == 1
    assert shop.position().ids == range(1, 201)


def test_where_segments_adjoin_nothing_is_skipped(shop: Shop) -> None:
    """And elsewhere it is said how many are."""
    shop.command(TAG, "--length", "100")
    shop.insert(70)
    assert "continues to 200, nothing is skipped" in shop.command("--extend")
    assert shop.insert(70)[-1] == 140
    Invoice.objects.using(shop.alias).create()
    shop.insert(15)
    said = shop.command("--extend")
    assert "continues with 221 to 320; of those before, up to 45 are skipped" in said
    assert shop.insert() == [221]


def test_a_sequence_that_is_used_up_fast_gets_longer_segments(shop: Shop) -> None:
    """Less than a quarter was left when it was extended: the next one is twice as long."""
    shop.command(TAG, "--length", "100")
    shop.insert(80)
    shop.extend()
    assert shop.position().ids == range(1, 301)
    shop.insert(130)
    shop.extend()
    assert shop.position().ids == range(1, 501)


def test_what_mariadb_held_in_reserve_is_skipped_not_repeated(mariadb: str) -> None:
    """It says so: with a longer segment the server reads ten values ahead.

    A hundredth of the segment, also of one that is shorter or longer than the first.
    """
    with on(mariadb) as shop:
        shop.command(TAG, "--length", "1000")
        assert shop.insert(501)[-1] == 501
        said = shop.command("--extend")
        assert "nothing is skipped; MariaDB also skips what it held in reserve" in said
        assert shop.insert() == [511]
        for length, left in (("1000", 990), ("50000", 49_500)):
            shop.command(TAG, "--renew", "--length", length)
            shop.insert()
            assert shop.position().left == left


def test_a_crash_after_the_fetch_wastes_the_segment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is granted to nobody else, and the sequence goes on as it was."""
    shop.command(TAG, "--length", "100")
    shop.insert(60)

    def crash(*_args: Any, **_options: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(NativeColumn, "_set", crash)
        with pytest.raises(MemoryError):
            shop.extend()
    assert shop.insert() == [61]
    assert "continues with 201 to 300" in shop.extend()


def test_a_long_transaction_delays_the_extension_and_nobody_else(shop: Shop) -> None:
    """It says so, and the next run goes on; ids are given meanwhile."""
    shop.command(TAG, "--length", "100")
    shop.insert(60)
    with transaction.atomic(using=shop.alias):
        (first,) = shop.sql(RETURNING)
        with pytest.raises(SegmentUnavailable, match="is in use"):
            shop.extend()
        (second,) = shop.sql(RETURNING)
    assert [first[0], second[0]] == [61, 62]
    assert "up to 38 are skipped" in shop.extend()


def test_what_resets_sequences_leaves_ours_alone(postgres: str) -> None:
    """TRUNCATE ... RESTART IDENTITY, sqlsequencereset, and a flush by a user's tests."""
    with on(postgres) as shop:
        shop.command(TAG, "--length", "100")
        shop.insert(5)
        shop.sql("TRUNCATE app_invoice RESTART IDENTITY CASCADE")
        assert shop.insert() == [6]
        shop.sql("DELETE FROM app_invoice")
        shop.sql("SELECT setval(pg_get_serial_sequence('app_invoice', 'id'), 1, false)")
        operations = connections[postgres].ops
        flush = operations.sql_flush(no_style(), ["app_invoice"], reset_sequences=True)
        operations.execute_sql_flush(flush)
        assert shop.insert() == [7]


PAIRS = [("postgres", "another"), *long(("postgres", "mariadb"), ("mariadb", "postgres"))]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The aliases of two databases."""
    for alias in request.param:
        request.getfixturevalue(alias)
    return request.param  # type: ignore[no-any-return]


def test_the_tag_may_be_in_another_database(pair: tuple[str, str]) -> None:
    """Segments come from there, and nothing is written there besides."""
    rows, tags = pair
    with on(rows, idgen_on(tags)) as shop:
        make_tables(tags)
        shop.command(TAG, "--length", "100")
        assert shop.insert(60)[-1] == 60
        assert Invoice.objects.using(rows).create().pk == 101
        assert "continues with 121 to 220" in shop.command("--extend")
        assert shop.insert() == [121]
        assert LeafAlloc.objects.using(tags).get(pk=TAG).max_id == 221


def test_databases_that_share_the_tag(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequence counts by their number, whichever of them gave the segment."""
    source = {"BACKEND": SHARDED, "OPTIONS": {"databases": list(pair)}}
    idgen = {"SEGMENTS": {"SOURCE": source, "OPTIONS": {"default_step": 20}}}
    grants = Grants(monkeypatch)
    make_tables(pair[1])
    for alias in pair:
        with on(alias, idgen) as shop:
            shop.command(TAG, "--length", "100")
            theirs = shop.insert(60)
            ours = by_django(shop, 60)
            shop.command("--extend")
            shop.command(TAG, "--renew")
            theirs += shop.insert(60)
            assert len({*ours, *theirs}) == 180
            assert all(map(grants.has, theirs))
            assert not any(map(grants.has, ours))
            assert {ids.step for ids in grants} == {2}
            assert "by 2" in shop.command()


def test_a_table_with_rows_goes_on_above_them(shop: Shop) -> None:
    """Also where its tag never gave an id: the rows were there before."""
    Invoice.objects.using(shop.alias).create(pk=5000)
    shop.command(TAG, "--length", "100")
    assert shop.insert() == [5001]
    assert Invoice.objects.using(shop.alias).create().pk > 5100


# --- the migration operation, in a small project --------------------------------------


__all__ = ["make_project", "project"]

SHOP = """
from django_idgen.fields import SegmentIdField, SnowflakeField


class Order(models.Model):
    id = SegmentIdField(primary_key=True)
    stamp = SnowflakeField(null=True)
    note = models.CharField(max_length=20)
"""
NATIVE = """
from django.db import migrations
from django_idgen.contrib.native import NativeIds


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [NativeIds({arguments})]
"""
PSQL = """
from django.db import connection
from django.db.utils import Error
with connection.cursor() as cursor:
    try:
        cursor.execute("INSERT INTO shop_order (note) VALUES ('psql')")
    except Error as error:
        print("refused")
print(*Order.objects.order_by("pk").values_list("pk", flat=True))
"""
CREATE = "print(Order.objects.create(note='django').pk)"
BACK = manage("migrate", "shop", "0001", *QUIET)
on_servers = pytest.mark.parametrize("project", ["postgres", *long("mariadb")], indirect=True)


def native(arguments: str) -> str:
    """A piece of code: the migration is written, with ``arguments`` of the operation."""
    return written("0002_native", NATIVE.format(arguments=arguments))


@on_servers
def test_forwards_backwards_and_forwards_again(project: Project) -> None:
    """makemigrations sees no drift; the way back drops the default, and no id comes twice."""
    listed = manage("idgen_native")
    _, plan, _, one, rows, told, sql, _, refused, none, _, again = project.begin(
        SHOP,
        native('"order", "id", length=500'),
        manage("migrate", "--plan"),
        DEPLOY,
        CREATE,
        PSQL,
        listed,
        manage("sqlmigrate", "shop", "0002"),
        BACK,
        PSQL,
        listed,
        DEPLOY,
        PSQL,
    )
    assert "Let the database give ids to order.id" in plan
    assert one.split() == ["501"]
    assert rows.split() == ["1", "501"]
    assert "1 to 500, 49" in told
    assert "CANNOT BE WRITTEN AS SQL" in sql
    assert refused.split() == ["refused", "1", "501"]
    assert "There are no sequences" in none
    following = int(again.split()[-1])
    assert following > 501
    assert int(project.run(CREATE)[0]) > following + 400


@on_servers
def test_in_the_migration_that_makes_the_table(project: Project) -> None:
    """Where our own tables may not be there yet; and a test database is made likewise."""
    zero = (manage("migrate", app, "zero", *QUIET) for app in ("shop", "django_idgen"))
    *_, rows = project.begin(SHOP, *zero, native('"order", "id"'), DEPLOY, PSQL)
    assert rows.split() == ["1"]


@on_servers
def test_killed_in_its_middle_it_is_run_again(project: Project) -> None:
    """The segment of the first run is a gap; its sequence is in nobody's way."""
    project.begin(SHOP, native('"order", "id", length=500'))
    assert project.killed("migrate", after="CREATE.*SEQUENCE")
    assert project.deploy(PSQL)[0].split() == ["501"]


@pytest.mark.parametrize("project", ["sqlite"], indirect=True)
def test_sqlite_is_refused_or_passed_over(project: Project) -> None:
    """It has no sequences: a project whose tests run there says ``optional=True``."""
    _, said, _, _, one, _ = project.begin(
        SHOP,
        native('"order", "id"'),
        manage("migrate", code=1),
        native('"order", "id", optional=True'),
        DEPLOY,
        CREATE,
        BACK,
    )
    assert "CommandError: Database 'default' is SQLite" in said
    assert "optional=True" in said
    assert one.split() == ["1"]


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_what_it_can_not_be_used_for(project: Project) -> None:
    """A snowflake, a plain column and an impossible length: ``migrate`` says what is wrong."""
    wrong = {
        '"order", "stamp"': "shop.Order.stamp is a SnowflakeField. Name a SegmentIdField",
        '"order", "note"': "shop.Order.note is a CharField",
        '"order", "id", length=5': "must be a whole number of 100 to 1000000000, not 5",
    }
    pieces = (f"{native(arguments)}\n{manage('migrate', code=1)}" for arguments in wrong)
    for said, out in zip(wrong.values(), project.begin(SHOP, *pieces), strict=True):
        assert said in out

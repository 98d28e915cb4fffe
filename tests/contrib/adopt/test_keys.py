"""A table's key goes over to our fields, and back, while it is in use."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from django.db import connections

from django_idgen import segments
from django_idgen.contrib.adopt import marks
from django_idgen.core.segment import Demand
from django_idgen.ops.tags.edits import raise_tag
from tests import servers
from tests.contrib.adopt.conftest import MakeProject
from tests.contrib.adopt.projects import DEPLOY, MIGRATE, QUIET, Inserter, Project, adopt, manage
from tests.contrib.sharding.conftest import _shards, shards
from tests.places import idgen_on as idgen_on_database
from tests.places import make_tables
from tests.remote.service import SECRET, service
from tests.sources.pool.test_project import idgen_on
from tests.sources.pool.test_project import project as pooled
from tests.tiers import long

__all__ = ["_shards", "shards"]

SHOP = """
class Label(models.Model):
    text = models.CharField(max_length=20)


class Order(models.Model):
    id = models.{field}(primary_key=True)
    note = models.CharField(max_length=20)
    parent = models.ForeignKey("self", models.CASCADE, null=True)
    labels = models.ManyToManyField(Label)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
"""
BIG = SHOP.format(field="BigAutoField")
FILL = "for n in range(5): Order.objects.create(note=str(n))"
CREATE = "print(Order.objects.create(note='new').pk)"
HTTP = "django_idgen.sources.http.HttpSource"
POOL = "django_idgen.sources.pool.PoolSource"
IDS = "print(*Order.objects.order_by('pk').values_list('pk', flat=True))"
MARK = (
    "from django_idgen.models import LeafAlloc\n"
    "print(LeafAlloc.objects.get(pk='shop.order').max_id)"
)
on_servers = pytest.mark.parametrize("project", ["postgres", *long("mariadb")], indirect=True)
on_any = pytest.mark.parametrize("project", ["postgres", *long("sqlite", "mariadb")], indirect=True)
on_one = pytest.mark.parametrize("project", ["sqlite"], indirect=True)


def ids_of(inserter: Inserter) -> list[int]:
    found, refused = inserter.stop()
    assert refused == []
    return [int(word) for word in found]


@pytest.mark.long
@on_servers
def test_old_and_new_processes_insert_side_by_side(project: Project) -> None:
    """Through all stages, there and back, nobody is refused and no id comes twice."""
    out = project.begin(BIG, FILL, adopt())[-1]
    old = Inserter(project)
    project.edit(out)
    project.deploy()
    new = Inserter(project)
    new.wait_for_more()
    autos, ours = ids_of(old), ids_of(new)
    assert max(autos) < min(ours)
    assert min(ours) > 100_000
    last = Inserter(project)
    # The counter is dropped: no process takes ids from it any more.
    out = project.run(adopt(), DEPLOY, adopt("--back"))[-1]
    project.edit(out)
    project.deploy()
    back = Inserter(project)
    back.wait_for_more()
    ours, autos = ours + ids_of(last), autos + ids_of(back)
    assert not set(ours) & set(autos)
    *_, said, done = project.run(
        adopt("--back"), f"{DEPLOY}\n{CREATE}\n{MARK}\n{IDS}", adopt("--back")
    )
    following, mark, *there = map(int, said.split())
    assert following > max(*ours, *autos)
    assert following >= mark  # ids below it may be held by a process that was left behind
    assert {*ours, *autos, following, 1, 5} <= set(there)
    assert "from the database again" in done


@on_servers
def test_the_counter_stops_at_the_fence(project: Project) -> None:
    """An old process that uses up its margin gets an error, never an id of ours."""
    out = project.begin(BIG, FILL, adopt("--margin", "40"))[-1]
    old = Inserter(project)
    project.edit(out)
    project.deploy(CREATE)
    old.process.wait_for("refused")
    said, status = project.run(f"{CREATE}\n{IDS}", adopt("--status"))
    ours = [int(word) for word in said.split()]
    autos, refused = old.stop()
    assert all("maximum value" in words or "run out" in words for words in refused)
    assert max(map(int, autos)) < ours[0] == max(ours)
    assert "and ends at" in status


@on_servers
def test_snowflakes_leave_the_counter_alone(project: Project) -> None:
    """Old processes go on with small ids after snowflakes were stored (hazard 48)."""
    out = project.begin(BIG, FILL, adopt("--field", "snowflake"))[-1]
    old = Inserter(project)
    project.edit(out)
    ours = [int(word) for said in project.deploy(CREATE, CREATE) for word in said.split()]
    old.wait_for_more()
    assert max(ids_of(old)) < 10**9 < 10**15 < min(ours)
    project.edit(project.run(adopt(), DEPLOY, adopt("--back"))[-1])
    assert int(project.deploy(CREATE)[0]) > max(ours)


@pytest.mark.long
@on_servers
def test_back_from_snowflakes_that_are_far_ahead(project: Project) -> None:
    """After a skip, processes stamp ids of months later: the counter begins past those, too."""
    project.edit(project.begin(BIG, FILL, adopt("--field", "snowflake", "--at-once"))[-1])
    later = datetime.now(UTC) + timedelta(days=90)
    skip = manage("idgen_skip", "--generators", "--yes", "--until", later.isoformat())
    out = project.deploy(skip, adopt("--back", "--at-once"))[-1]
    last = Inserter(project)
    project.edit(out)
    following = int(project.deploy(CREATE)[0])
    last.wait_for_more()
    assert following > max(ids_of(last))


@on_one
def test_where_the_counter_cant_be_held(project: Project) -> None:
    """On SQLite the switch is at once: an old process gets an error, and nothing is repeated."""
    out = project.begin(BIG, FILL, adopt("--field", "segment"))[-1]
    old = Inserter(project)
    project.edit(out)
    project.deploy()
    new = Inserter(project)
    old.process.wait_for("refused")
    found, refused = old.stop()
    assert all("NOT NULL" in words or "locked" in words for words in refused), refused
    ours = ids_of(new)
    assert min(ours) > max(map(int, found))
    project.edit(project.run(adopt(), DEPLOY, adopt("--back"))[-1])
    following, *there = map(int, project.deploy(f"{CREATE}\n{IDS}")[0].split())
    assert following > max(ours)
    assert {1, 2, 3, 4, 5, following, *ours, *map(int, found)} <= set(there)


@pytest.mark.parametrize("way", [(), *long(("--at-once",))])
def test_there_and_back_at_a_client_of_a_service(
    postgres: str, redis: str, make_project: MakeProject, way: tuple[str, ...]
) -> None:
    """The service has the tag: the ids begin above the rows, and the counter above its ids.

    Also above those of them that are higher than what its pool grants next.
    """
    make_tables(postgres)
    with service({"REST": {"make_tags": True}, **idgen_on(redis, postgres)}) as url:
        options = {"base_urls": url, "token": SECRET}
        source = {"BACKEND": HTTP, "OPTIONS": options}
        project = make_project("postgres", idgen={"SEGMENTS": {"SOURCE": source}})
        raise_tag("shop.order", 1_000_000)
        project.edit(project.begin(BIG, FILL, adopt(*way))[-1])
        (said,) = project.deploy(CREATE)
        assert int(said) > 1_000_000
        back = ("--back", *way)
        stages = [adopt(), DEPLOY, adopt(*back)] if not way else [adopt(*back)]
        project.edit(project.run(*stages)[-1])
        pool = segments.allocator().source
        low = pool.fetch("shop.order").ids()
        taken = segments["shop.order"].next_ids(200_000)  # elsewhere: no row here has them
        pool.give_back("shop.order", [low])
        project.deploy()
        if not way:
            low = pool.fetch("shop.order").ids()
            taken = segments["shop.order"].next_ids(200_000)
            pool.give_back("shop.order", [low])
            project.run(adopt(*back), DEPLOY)
        (following,) = project.run(CREATE)
        assert int(following) > taken[-1]
        known = project.run(IDS)[0].split()
        assert len(set(known)) == len(known) == 7


def test_a_pool_has_nothing_below_the_first_id(postgres: str, redis: str) -> None:
    """Also if the tag is past it: the database's counter may give these ids yet.

    Nor does it get any from processes that end later.
    """
    make_tables(postgres)
    with pooled(redis, postgres) as pool:
        low, later = pool.fetch("shop.order").ids(), pool.fetch("shop.order").ids()
        pool.fetch("shop.order", demand=Demand(at_least=100_000))
        pool.give_back("shop.order", [low])
        marks.raise_tag("shop.order", 50_000)
        pool.give_back("shop.order", [later])
        high = pool.fetch("shop.order").ids()
        assert high[0] > 100_000
        pool.give_back("shop.order", [high])
        assert pool.fetch("shop.order").start == high[0]


@pytest.mark.long
def test_the_pool_of_a_client_has_nothing_below_the_first_id(
    postgres: str, redis: str, make_project: MakeProject
) -> None:
    """The service has the tag, and skipped it; the client's own pool had ids of before."""
    make_tables(postgres)
    location = servers.REDIS["redis"]
    with service({"REST": {"make_tags": True}, **idgen_on_database(postgres)}) as url:
        client = {"BACKEND": HTTP, "OPTIONS": {"base_urls": url, "token": SECRET}}
        pool = {"BACKEND": POOL, "OPTIONS": {"alias": redis, "source": client, "timeout": 20}}
        project = make_project("postgres", idgen={"SEGMENTS": {"SOURCE": pool}})
        path = project.directory / "settings.py"
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location}
        path.write_text(f"{path.read_text()}\nCACHES = {{{redis!r}: {cache!r}}}\n")
        take = "from django_idgen import segments\nprint(segments['t'].next_id())"
        out = project.begin(BIG, FILL, take, adopt("--tag", "t", "--at-once"))[-1]
        raise_tag("t", 1_000_000)
        project.edit(out)
        assert int(project.deploy(CREATE)[0]) >= 1_000_000


@pytest.mark.long
def test_a_client_cant_see_how_far_several_databases_are(
    shards: list[str], make_project: MakeProject
) -> None:
    """One segment shows one of them: the other may have ids of rows yet."""
    source = {"BACKEND": "django_idgen.contrib.sharding.ShardedSource"}
    tags = {"SOURCE": {**source, "OPTIONS": {"databases": shards[:2]}}}
    with service({"REST": {"make_tags": True}, "SEGMENTS": tags}) as url:
        client = {"BACKEND": HTTP, "OPTIONS": {"base_urls": url, "token": SECRET}}
        project = make_project("postgres", idgen={"SEGMENTS": {"SOURCE": client}})
        project.edit(project.begin(BIG, FILL, adopt("--at-once"))[-1])
        (said,) = project.run(manage("migrate", code=1))
        assert "2 databases share tag 'shop.order' there" in said


@on_any
@pytest.mark.parametrize("way", [(), ("--at-once",)])
@pytest.mark.parametrize("field", ["segment", "snowflake"])
def test_the_way_back_of_an_emptied_table(
    project: Project, field: str, way: tuple[str, ...]
) -> None:
    """The counter begins above ids whose rows are deleted, and above those that processes hold."""
    project.edit(project.begin(BIG, FILL, adopt("--field", field, "--at-once"))[-1])
    empty = "Order.objects.all().delete()"
    *_, issued, _, out = project.deploy(CREATE, empty, adopt("--back", *way))
    project.edit(out)
    assert int(project.deploy(CREATE)[0]) > int(issued)
    if project.kind == "sqlite":  # in a new database nothing was issued
        for path in project.directory.glob("db.sqlite3*"):
            path.unlink()
        away = {"BACKEND": HTTP, "OPTIONS": {"base_urls": "http://127.0.0.1:9", "token": SECRET}}
        project.idgen = {"SEGMENTS": {"SOURCE": away}}
        assert project.run(MIGRATE, CREATE)[-1] == "1\n"


@pytest.mark.parametrize("project", ["postgres"], indirect=True)
def test_a_sequence_that_the_column_does_not_own(project: Project) -> None:
    """It would be taken for none, and go on beside our ids."""
    change = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("ALTER TABLE shop_order ALTER COLUMN id DROP IDENTITY")
    cursor.execute("CREATE SEQUENCE order_seq")
    cursor.execute("ALTER TABLE shop_order ALTER COLUMN id SET DEFAULT nextval('order_seq')")
"""
    project.edit(project.begin(BIG, change, FILL, adopt())[-1])
    (said,) = project.run(manage("migrate", code=1))
    assert "Run ALTER SEQUENCE" in said


@pytest.mark.long
def test_a_way_back_without_its_service_changes_nothing(
    mariadb: str, make_project: MakeProject
) -> None:
    """MariaDB rolls no column back: it would count from below the ids that the service gave."""
    make_tables(mariadb)
    with service({"REST": {"make_tags": True}, **idgen_on_database(mariadb)}) as url:
        options = {"base_urls": url, "token": SECRET}
        source = {"BACKEND": HTTP, "OPTIONS": options}
        project = make_project("mariadb", idgen={"SEGMENTS": {"SOURCE": source}})
        raise_tag("shop.order", 1_000_000)
        project.edit(project.begin(BIG, FILL, adopt("--at-once"))[-1])
        project.deploy(CREATE)
        project.edit(project.run(adopt("--back", "--at-once"))[-1])
    project.run(manage("migrate", code=1))
    with connections["mariadb"].cursor() as cursor:
        cursor.execute(
            "SELECT extra FROM information_schema.columns WHERE table_schema = %s "
            "AND table_name = 'shop_order' AND column_name = 'id'",
            [project.name],
        )
        assert cursor.fetchone() == ("",)


@on_any
def test_a_key_of_32_bits(project: Project) -> None:
    """It is widened first, in the model, too, with all that refers to it; then snowflakes fit."""
    rows = (
        "o = Order.objects.create(note='a')\n"
        "p = Order.objects.create(note='b', parent=o)\n"
        "Item.objects.create(order=p); p.labels.add(Label.objects.create(text='x'))"
    )
    stage = adopt("--field", "snowflake")
    out = project.begin(SHOP.format(field="AutoField"), rows, stage)[-1]
    assert "widened to 64 bits" in out
    assert "3 columns" in out
    project.edit(out)
    (out,) = project.deploy(stage)
    assert "+    id = SnowflakeField(primary_key=True)" in out
    project.edit(out)
    new = (
        "o = Order.objects.create(note='n', parent_id=2)\n"
        "Item.objects.create(order=o); o.labels.add(Label.objects.get())\n"
        "print(o.pk > 2**50, Order.objects.get(item__order__note='b').labels.count(),\n"
        "  Order.objects.filter(parent__note='b', labels__text='x', item__isnull=False).count())"
    )
    said, _, _, done, status = project.deploy(new, adopt(), DEPLOY, adopt(), adopt("--status"))
    assert said.split() == ["True", "1", "1"]
    assert "nothing is left to do" in done
    assert "gives this column no ids" in status


FOREIGN = """
from django.db import connection
for table in ("shop_order", "shop_order_labels", "shop_item"):
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table).values()
    print(*(f"{table}.{c['columns'][0]}" for c in found if c["foreign_key"]), sep="\\n")
"""
HOLD = """
from django.db import transaction
with transaction.atomic():
    print(f"id {Item.objects.create(order_id=1).pk}")
    import time
    time.sleep(600)
"""


@pytest.mark.parametrize("project", ["mariadb"], indirect=True)
def test_widening_that_a_busy_site_stops(project: Project) -> None:
    """Hazard 120: foreign keys are put back, or named; a second run does the rest."""
    rows = "Item.objects.create(order=Order.objects.create(note='a'))"
    keys, out = project.begin(SHOP.format(field="AutoField"), rows, FOREIGN, adopt())[1:]
    assert "Then run 'migrate' again: it does what is left." in out
    assert "shop_item.order_id" in keys
    project.edit(out)
    busy = Inserter(project, HOLD)
    impatient = "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
    options = {**project.database().get("OPTIONS", {}), "init_command": impatient}
    project.extra = {"default": {**project.database(), "OPTIONS": options}}
    refused = manage("migrate", *QUIET, code=1)
    said, now = project.run(refused, FOREIGN)
    assert "CommandError: Run 'manage.py migrate shop' again" in said
    assert "no key is missing" in said
    assert "1205" in said
    assert set(now.split()) == set(keys.split())
    busy.stop()
    orphan = "INSERT INTO shop_item (order_id) VALUES (77)"
    said, now = project.run(
        "from django.db import connection\n"
        "with connection.constraint_checks_disabled(), connection.cursor() as cursor:\n"
        f"    cursor.execute({orphan!r})\n" + refused,
        FOREIGN,
    )
    assert "these foreign keys are missing: shop_item.order_id." in said
    assert set(now.split()) == set(keys.split()) - {"shop_item.order_id"}
    project.run("Item.objects.filter(order_id=77).delete()")
    wide = "Item.objects.create(order=Order.objects.create(id=2**40))"
    assert set(project.deploy(FOREIGN, wide)[0].split()) == set(keys.split())


@pytest.mark.long
@on_any
def test_at_once(project: Project) -> None:
    """For a site that is stopped: the column gives no ids any more, ours go on right above."""
    stage = adopt("--at-once", "--tag", "orders")
    out = project.begin(SHOP.format(field="AutoField"), FILL, stage)[-1]
    old = Inserter(project)
    project.edit(out)
    ours = int(project.deploy(CREATE)[0])
    old.process.wait_for("refused")
    found, _ = old.stop()
    assert max(5, *map(int, found)) < ours <= max(5, *map(int, found)) + 1001
    done, out = project.run(adopt("--at-once"), adopt("--at-once", "--back"))
    assert "nothing is left" in done
    project.edit(out)
    following, done = project.deploy(CREATE, adopt("--back"))
    assert int(following) > ours
    assert "from the database again" in done


@on_any
def test_a_new_database(project: Project) -> None:
    """Where the migrations meet no rows, as in a test run, ids begin at 1, as with any tag."""
    project.edit(project.begin(BIG, adopt())[-1])
    zero = manage("migrate", "shop", "zero", *QUIET)
    *_, first, _, second = project.deploy(adopt(), DEPLOY, CREATE, f"{zero}\n{MIGRATE}", CREATE)
    assert int(first) == 1
    assert int(second) > 1


@on_one
def test_a_key_that_the_model_does_not_declare(project: Project) -> None:
    """The edit removes no line that is not there, and the declared key stands in its place."""
    out = project.begin(UNDECLARED, FILL, adopt())[-1]
    assert "\n-    id" not in out
    project.edit(out)
    (out,) = project.deploy(adopt("--back"))
    assert "\n-    id" in out
    project.edit(out)


@on_one
def test_the_way_back_waits_for_the_edit_of_a_key_by_default_auto_field(project: Project) -> None:
    """The code still takes our ids until the key is declared, so the counter is not freed."""
    path = project.directory / "settings.py"
    path.write_text(
        path.read_text().replace(
            '"django.db.models.BigAutoField"', '"django_idgen.fields.SegmentAutoField"'
        )
    )
    *_, out = project.begin(UNDECLARED, FILL, adopt("--back"), MIGRATE, adopt("--back", code=1))
    assert "the model has a SegmentAutoField" in out


UNDECLARED = BIG.replace("    id = models.BigAutoField(primary_key=True)\n", "")
STEPS = r"(CREATE|ALTER|DROP|INSERT INTO|UPDATE)\b(?!.*(django_migrations|content_type))"


KILLED = [
    ("postgres", "there"),
    ("sqlite", "back"),
    *long(("postgres", "back"), ("sqlite", "there"), ("mariadb", "there"), ("mariadb", "back")),
]


@pytest.mark.parametrize("case", KILLED, ids="-".join)
def test_killed_after_any_statement(make_project: MakeProject, case: tuple[str, str]) -> None:
    """SIGKILL in a migration: run again it comes to its end, and no id is repeated."""
    kind, way = case
    project = make_project(kind)
    out = project.begin(BIG, FILL, adopt("--margin", "1000"))[-1]
    project.edit(out)
    if way == "back":
        out = project.deploy(CREATE, adopt(), DEPLOY, adopt("--back", "--margin", "1000"))[-1]
        project.edit(out)
    # Where DDL can be taken back, a few places stand for all of them.
    places = range(1, 40) if project.kind == "mariadb" else (1, 4)
    died = list(takewhile(lambda n: project.killed("migrate", after=STEPS, count=n), places))
    assert died
    assert len(died) < 39
    numbers = [int(word) for word in project.deploy(f"{IDS}\n{CREATE}\n{CREATE}")[0].split()]
    assert numbers[:5] == [1, 2, 3, 4, 5]
    assert sorted(set(numbers)) == numbers


# --- a UUID key, and back -------------------------------------------------------------


MODELS = """
class Label(models.Model):
    text = models.CharField(max_length=20)


class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    note = models.CharField(max_length=20)
    parent = models.ForeignKey("self", models.CASCADE, null=True)
    labels = models.ManyToManyField(Label)
    token = models.UUIDField(default=uuid.uuid4)


class Item(models.Model):
    product = models.ForeignKey(Label, models.CASCADE)
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    was = models.ForeignKey(Order, models.SET_NULL, null=True, related_name="+")
    line = models.IntegerField()

    class Meta:
        unique_together = [("product", "order")]
        indexes = [
            models.Index(fields=["order", "line"], name="item_line"),
            models.Index(fields=["line", "-was"], name="item_was"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["order", "line"], name="item_uniq"),
            models.UniqueConstraint(
                fields=["product", "order"], condition=models.Q(was=None), name="item_first"
            ),
            models.CheckConstraint(condition=models.Q(line__gt=0), name="item_pos"),
        ]


class Receipt(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    order = models.OneToOneField(Order, models.CASCADE)
"""
ROWS = """
labels = [Label.objects.create(text=str(n)) for n in range(3)]
last = None
for n in range(8):
    last = Order.objects.create(note=str(n), parent=last if n % 3 else None)
    for k, label in enumerate(labels):
        Item.objects.create(order=last, product=label, line=k + 1, was=last.parent)
    last.labels.set(labels[:n % 3])
    if n % 2:
        Receipt.objects.create(order=last)
"""
VIEW = """
for o in sorted(Order.objects.exclude(note="old"), key=lambda o: int(o.note)):
    print(o.note, o.parent and o.parent.note, sorted(l.text for l in o.labels.all()),
        sorted((i.line, i.product.text, i.was and i.was.note) for i in o.items.all()),
        hasattr(o, "receipt"))
"""
KEYS = """
from django.db import connection
for table in ("shop_order", "shop_order_labels", "shop_item", "shop_receipt"):
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table)
        names = {c.name for c in connection.introspection.get_table_description(cursor, table)}
    print(table, sorted(names), sorted(name for name in found if name.startswith("item_")))
    for one in sorted((sorted(c["columns"]), c["primary_key"], c["unique"], c["check"],
            c["foreign_key"] or "") for c in found.values() if c["columns"] and (c["unique"] or
            c["primary_key"] or c["foreign_key"] or c["check"])):
        print("  ", *one)
"""
NEW = """
o = Order.objects.create(note='100', parent=Order.objects.get(note='3'))
Item.objects.create(order=o, product=Label.objects.first(), line=1)
assert Order.objects.get(uuid=o.uuid).pk == o.pk
"""


@pytest.mark.long
def test_there_and_back(project: Project) -> None:
    """Rows, references of each kind, indexes and constraints come through; so does what is new.

    Rows are inserted while the columns are filled, by a process that knows nothing of it.
    """
    _, before, keys, *_ = project.begin(MODELS, ROWS, VIEW, KEYS, adopt("--tag", "orders"), MIGRATE)
    busy = Inserter(project)
    status, filled = project.run(adopt("--status"), adopt("--batch", "7"))
    assert "are left to fill" in status
    assert "rows were filled" in filled
    busy.stop()
    out = "".join(project.run(adopt(), adopt()))  # where rows are left, the first one fills them
    assert "+    id = SegmentIdField(primary_key=True, tag='orders')" in out
    assert "+    uuid = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)" in out
    project.edit(out)

    after, _, done, now, *_, out = project.deploy(
        VIEW, NEW, adopt(), VIEW, adopt("--back"), MIGRATE, adopt("--back"), adopt("--back")
    )
    assert after == before
    assert "nothing is left" in done
    assert "+    id = models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True)" in out
    project.edit(out)
    filled, _, view, back, _, done = project.run(
        adopt("--back"),
        DEPLOY,
        VIEW,
        KEYS,
        "assert Order.objects.create(note='101').number",
        adopt("--back"),
    )
    assert "0 rows are empty. The switch fills the rest." in filled
    assert view == now
    assert back.replace("'number', ", "").replace("   ['number'] False True False \n", "") == keys
    assert "nothing is left" in done


@pytest.mark.parametrize("project", ["postgres", *long("sqlite", "mariadb")], indirect=True)
@pytest.mark.parametrize("kind", [("--tag", "orders"), *long(("--field", "segment"), ())])
def test_a_small_table_is_filled_by_the_switch(project: Project, kind: tuple[str, ...]) -> None:
    """No run fills so few rows before; the new code's key still has UUIDs in the database then."""
    project.at_switch = 10_000
    _, before, *_, out = project.begin(MODELS, ROWS, VIEW, adopt(*kind), MIGRATE, adopt())
    project.edit(out)
    after, _, ids = project.deploy(VIEW, NEW, IDS)
    assert after == before
    numbers = [int(word) for word in ids.split()]
    assert sorted(set(numbers)) == numbers
    assert len(numbers) == 9


BY_TIME = """
import os, time


def uuid7():
    return uuid.UUID(int=time.time_ns() // 10**6 << 80 | 7 << 76 | 2 << 62 | uuid.uuid4().int >> 70)


class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7)
    note = models.CharField(max_length=20)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)
"""
BUSY = """
while True:
    order = Order.objects.create(note="old")
    Item.objects.create(order=order)
    print(f"id {order.pk}")
"""


@pytest.mark.parametrize("project", ["postgres", *long("mariadb")], indirect=True)
def test_the_filling_ends_while_rows_are_inserted_without_a_pause(project: Project) -> None:
    """Hazard 119: keys that rise come behind each pass.

    It leaves the last rows to the switch, and says so.
    """
    project.at_switch = 500
    rows = (
        "many = Order.objects.bulk_create(Order(note=str(n)) for n in range(1500))\n"
        "Item.objects.bulk_create(Item(order=order) for order in many)"
    )
    project.begin(BY_TIME, rows, adopt(), MIGRATE)
    busy = Inserter(project, BUSY)
    (said,) = project.run(adopt("--batch", "20"))
    busy.wait_for_more()
    lines = re.findall(r"^(\d+) %: \d+ rows are filled$", said, re.M)
    assert lines == sorted(set(lines), key=int)
    assert lines[-1] == "100"
    filled, left = map(int, re.findall(r"(\d+) rows were filled, and (\d+) are empty now", said)[0])
    assert filled >= 3000
    assert left <= 500
    assert "The switch fills the rest." in said
    busy.stop()
    project.edit("".join(project.run(adopt(), adopt())))  # the first one fills what came since
    count = "print(Order.objects.count(), Item.objects.filter(order__id__gt=2**50).count())"
    orders, items = map(int, project.deploy(count)[0].split())
    assert items >= 1500 + 2
    assert orders - items in (0, 1)  # the process was killed between the two


SMALL = """
class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    note = models.CharField(max_length=20)
    parent = models.ForeignKey("self", models.CASCADE, null=True)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="items")
    line = models.IntegerField()

    class Meta:
        unique_together = [("order", "line")]
"""
SMALL_ROWS = """
last = None
for n in range(20):
    last = Order.objects.create(note=str(n), parent=last if n % 3 else None)
    Item.objects.create(order=last, line=n)
"""
SMALL_VIEW = """
print(*sorted(f"{o.note} {o.parent and o.parent.note} {o.items.get().line}"
    for o in Order.objects.all()), sep="\\n")
"""
UUID_STEPS = r"(ALTER|CREATE|DROP)\b(?!.*django_migrations)"


@pytest.mark.parametrize("project", ["postgres", *long("sqlite", "mariadb")], indirect=True)
def test_killed_after_any_statement_of_a_uuid_key(project: Project) -> None:
    """SIGKILL in the filling, and in either migration: run again, all rows have come through."""
    project.begin(SMALL, SMALL_ROWS, adopt())
    # Where DDL can be taken back, one place stands for all of them.
    assert project.killed("migrate", after=UUID_STEPS, count=2)
    _, before = project.run(DEPLOY, SMALL_VIEW)
    fill = ("idgen_adopt", "shop.Order", "--yes", "--batch", "5")
    for count in (1, 6):
        assert project.killed(*fill, after=r"UPDATE .?shop_", count=count)
    project.edit(project.run(manage(*fill), adopt())[1])
    # Each time it gets one statement further than the last time, where what it did is for good.
    places = range(1, 40) if project.kind == "mariadb" else (1,)
    died = list(takewhile(lambda n: project.killed("migrate", after=UUID_STEPS, count=1), places))
    assert died
    assert len(died) < 39
    item = "Item.objects.create(order=Order.objects.create(note='20'), line=1)"
    assert project.deploy(SMALL_VIEW, item)[0] == before


@pytest.mark.parametrize("project", ["mariadb"], indirect=True)
def test_rows_of_an_old_process_in_a_switch_that_was_broken_off(project: Project) -> None:
    """What was inserted between two runs is filled by the second: no reference is lost."""
    project.at_switch = 5
    project.begin(MODELS, ROWS, adopt(), MIGRATE, adopt())
    old = project.start(
        "parent = Order.objects.get(note='1')\n"
        "import sys, time, os\n"
        "print('ready')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "o = Order.objects.create(note='77', parent=parent)\n"
        "print('done')\n"
    )
    old.wait_for("ready")
    project.edit(project.run(adopt())[0])
    assert project.killed("migrate", after=r"ALTER TABLE .?shop_item. DROP", count=1)
    (project.directory / "go").touch()
    old.wait_for("done")
    (parent,) = project.deploy("print(Order.objects.get(note='77').parent.note)")
    assert parent.strip() == "1"


@pytest.mark.parametrize("project", ["postgres", *long("mariadb")], indirect=True)
def test_unfilled_rows_and_orphans(project: Project) -> None:
    """A switch with too much to fill, or with references that lead nowhere, changes nothing."""
    models = MODELS.replace("null=True)\n    labels", "null=True, db_constraint=False)\n    labels")
    project.at_switch = 5
    project.edit(project.begin(models, adopt(), MIGRATE, adopt())[-1])
    refused = manage("migrate", *QUIET, code=1)
    unfilled, orphans, pk = project.run(
        INSERT + f"insert(6, None)\n{refused}",
        f"insert(1, str(uuid.uuid4()))\n{refused}",
        f"insert(0, None)\n{MIGRATE}\nprint(Order.objects.create(note='1').pk > 0)",
    )
    assert "6 rows of shop_order" in unfilled
    assert "have no new key yet" in unfilled
    assert "1 of shop_order.parent_id" in orphans
    assert "do not exist" in orphans
    assert pk.strip() == "True"


INSERT = """
import uuid
from django.db import connection
def insert(count, parent):
    rows = [(str(uuid.uuid4()), 'n', str(uuid.uuid4()), parent) for _ in range(count)]
    with connection.cursor() as cursor:
        cursor.execute('DELETE FROM shop_order')
        cursor.executemany('INSERT INTO shop_order (id, note, token, parent_id) '
                           'VALUES (%s, %s, %s, %s)', rows)
"""


# --- the user model ----------------------------------------------------------------------

USERS = """
AUTH_USER_MODEL = "shop.Order"
INSTALLED_APPS += [
    "django.contrib.auth", "django.contrib.sessions", "rest_framework", "rest_framework.authtoken"]
"""
USER = """
from django.contrib.auth.models import AbstractUser


class Order(AbstractUser):
    id = models.{field}
"""
PERSON = """
from django.contrib.auth.models import Group
from django.test import Client
from rest_framework.authtoken.models import Token

ada = Order.objects.create_user("ada")
ada.groups.add(Group.objects.create(name="staff"))
Token.objects.create(user=ada)
Client().force_login(ada)
"""
STILL_THERE = """
from django.contrib.auth import get_user
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.test import RequestFactory
from rest_framework.authtoken.models import Token

ada = Order.objects.get(username="ada")
assert Token.objects.get(user=ada).user.groups.get().name == "staff"
Token.objects.create(user=Order.objects.create_user("new"))
session = Session.objects.get()
request = RequestFactory().get("/")
request.session = session.get_session_store_class()(session.pk)
try:
    print("known" if get_user(request) == ada else "unknown")
except ValidationError:
    print("refused")
"""


@on_any
@pytest.mark.parametrize("field", ["AutoField", "UUIDField"])
def test_a_user_model_with_rows(project: Project, field: str) -> None:
    """Columns of other apps that refer to it move along; a session ends with the key it names."""
    with (project.directory / "settings.py").open("a") as settings:
        settings.write(USERS)
    if field == "AutoField":
        person = USER.format(field="AutoField(primary_key=True)")
        project.edit(project.begin(person, PERSON, adopt())[-1])
        project.edit(project.deploy(adopt())[-1])
    else:
        project.at_switch = 10_000
        person = USER.format(field="UUIDField(primary_key=True, default=uuid.uuid4)")
        project.edit(project.begin(person, PERSON, adopt(), MIGRATE, adopt())[-1])
    (said,) = project.deploy(STILL_THERE)
    assert said.strip() == {"AutoField": "known", "UUIDField": "refused"}[field]

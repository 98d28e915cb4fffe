"""The creation time of a row goes into its new key."""

from __future__ import annotations

import re

import pytest

from tests.contrib.adopt.conftest import MakeProject
from tests.contrib.adopt.projects import DEPLOY, MIGRATE, QUIET, Project, adopt, manage
from tests.tiers import long

KEPT = {"LEASES": {"OPTIONS": {"workers": [0, 1000]}}, "EPOCH": "2020-01-01T00:00:00Z"}
IDGEN = {"GENERATORS": {"default": KEPT}}
FROM_KEY = ("--created-from", "id", "--workers", "1000", "1003")
FROM_DATE = ("--created-from", "placed_at", "--workers", "1000", "1003")
MODELS = """
import os, time
from datetime import UTC, datetime, timedelta


def uuid7_at(ms):
    return uuid.UUID(int=int(ms) << 80 | 7 << 76 | 2 << 62 | uuid.uuid4().int >> 70)


def uuid7():
    return uuid7_at(time.time_ns() // 10**6)


class Order(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7)
    note = models.CharField(max_length=20)
    placed_at = models.DateTimeField(null=True)


class Item(models.Model):
    order = models.ForeignKey(Order, models.CASCADE)


class Bill(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7)
    due = models.DateField(null=True)
"""
ROWS = """
# Three bursts: more rows of one millisecond than it has ids, and others around them.
BEGAN = 1_614_556_800_000
ages = [BEGAN + n * 1000 for n in range(20)]
ages += [BEGAN + 50_000] * 5000 + [BEGAN + 50_001] * 3 + [BEGAN + 60_000 + n for n in range(20)]
Order.objects.bulk_create(
    Order(id=uuid7_at(ms), note=str(ms), placed_at=datetime.fromtimestamp(ms / 1000, UTC))
    for ms in ages
)
Item.objects.bulk_create(Item(order=order) for order in Order.objects.all()[:100])
"""
LAST_ROWS = """
BEGAN = 1_614_556_800_000
ages = [BEGAN + 70_000 + n for n in range(20)]
Order.objects.bulk_create(
    Order(id=uuid7_at(ms), note=str(ms), placed_at=datetime.fromtimestamp(ms / 1000, UTC))
    for ms in ages
)
"""
CHECK = """
from django_idgen import generators
before = -1
for pk, old, ms in Order.objects.order_by("pk").values_list("pk", "uuid", "note"):
    parts = generators["default"].decode(pk)
    made = parts.created.timestamp() * 1000
    assert parts.worker in range(1000, 1003), parts
    assert int(ms) >= before, (ms, before)
    assert -1 < made - int(ms) < 20, (made, ms)
    before = int(ms)
assert Item.objects.filter(order__pk__gt=2**50).count() == 100
first = Order.objects.create(note="new").pk
assert first > Order.objects.order_by("-pk")[1].pk
assert generators["default"].decode(first).worker < 1000
print("all is well", Order.objects.count())
"""
CLAIMED = """
from django_idgen.process.maps import registries
stored = registries["default"].stored_book().read()
print(*(f"{era.workers.start}:{era.until}" for era in stored.eras))
"""


@pytest.mark.parametrize(
    "case",
    [
        ("postgres", FROM_KEY),
        *long(
            ("sqlite", FROM_KEY),
            ("mariadb", FROM_DATE),
            ("sqlite", FROM_DATE),
            ("postgres", FROM_DATE),
            ("mariadb", FROM_KEY),
        ),
    ],
    ids=lambda case: f"{case[0]}-{case[1][1]}",
)
def test_from_uuids_to_snowflakes_of_their_age(
    make_project: MakeProject, case: tuple[str, tuple[str, ...]]
) -> None:
    """In the order of creation, at the time of creation, none twice, by a worker id of their own.

    SIGKILL between the batches loses no order; the switch fills the last rows alike.
    """
    kind, options = case
    project = make_project(kind, idgen=IDGEN, at_switch=30)
    project.begin(MODELS, ROWS, adopt(*options), MIGRATE)
    fill = ("idgen_adopt", "shop.Order", "--yes", "--batch", "700")
    for count in (1, 2):
        assert project.killed(*fill, after=r"UPDATE .?shop_order", count=count)
    _, out, _ = project.run(manage(*fill), adopt(), LAST_ROWS)
    project.edit(out)
    (said,) = project.deploy(CHECK)
    assert "all is well 5064" in said


PROMPT = """
from django_idgen.contrib.adopt import filling
ids = filling.FillingByAge._ids
def slow(self, rows):
    print(f"id {rows[0][0]}")
    import os, time
    while not os.path.exists("go"): time.sleep(0.01)
    return ids(self, rows)
filling.FillingByAge._ids = slow
"""


@pytest.mark.parametrize("project", ["postgres", *long("sqlite", "mariadb")], indirect=True)
def test_two_runs_at_once(project: Project) -> None:
    """One ends with an error before it has written a row out of order; the other comes through."""
    project.idgen, project.at_switch = IDGEN, 100
    project.begin(MODELS, ROWS, adopt(*FROM_KEY), MIGRATE)
    # Both have read the same rows, in batches of different lengths.
    first = project.start(PROMPT, "manage('idgen_adopt', 'shop.Order', '--yes', '--batch', '900')")
    first.wait_for("id ")
    second = project.start(PROMPT, "manage('idgen_adopt', 'shop.Order', '--yes', '--batch', '500')")
    second.wait_for("id ")
    (project.directory / "go").touch()
    status = first.wait(), second.wait()
    said = first.output() + second.output()
    assert "Another run is filling shop_order" in said
    assert sorted(status) == [0, 1]
    project.edit(project.run(adopt())[0])
    assert "all is well 5044" in project.deploy(CHECK)[0]


def test_what_was_taken_moves_along(make_project: MakeProject) -> None:
    """To another table, to other settings, and to another database: no tick comes twice."""
    project = make_project("sqlite", idgen=IDGEN, at_switch=10_000)
    bills = "Bill.objects.bulk_create(Bill(id=uuid7_at(BEGAN + n * 1000)) for n in range(20))"
    project.begin(MODELS, ROWS + bills, adopt(*FROM_KEY), MIGRATE)
    project.edit(project.run(adopt())[0])
    bill = (
        "idgen_adopt",
        "shop.Bill",
        "--yes",
        "--created-from",
        "id",
        "--workers",
        "1000",
        "1003",
    )
    *_, out = project.run(
        DEPLOY, manage(*bill), MIGRATE, manage("idgen_adopt", "shop.Bill", "--yes")
    )
    project.edit(out)
    before = project.deploy(CLAIMED)[0].split()
    assert [word.partition(":")[0] for word in sorted(before)] == ["1001", "1002"]
    used = "print(*Bill.objects.values_list('pk'), *Order.objects.values_list('pk'))"
    ids = re.findall(r"\d+", project.run(used)[0])
    assert len(set(ids)) == len(ids) == 20 + 5043

    # All worker ids are lent, from past what was taken on, and by another database.
    path = project.directory / "second.sqlite3"
    project.extra = {"second": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}}
    leases = {"OPTIONS": {"workers": [0, 1024], "database": "second"}}
    project.idgen = {"GENERATORS": {"default": {**KEPT, "LEASES": leases}}}
    doctor = manage(
        "idgen_doctor",
        "--fix",
        "--others-stopped",
        "--yes",
        "--moved-from",
        "default",
        "--only",
        "settings",
        "--fail-on",
        "error",
    )
    second = manage("migrate", "--database", "second", *QUIET)
    fence = "print(stored.fence, stored.highest)"
    (said,) = project.run(second, doctor, f"{CLAIMED}{fence}")[2:]
    *now, beginning, _highest = said.split()
    assert set(before) <= set(now)
    assert all(int(word.partition(":")[2]) <= int(beginning) for word in before)


REFUSED = {
    "its own and an earlier EPOCH, and name it with --generator": (
        FROM_KEY[:2],
        {"EPOCH": "2022-01-01T00:00:00Z"},
        "",
    ),
    "which is in the future: no id can have that time. Correct the row, or name another": (
        FROM_DATE[:2],
        {},
        "Order.objects.create(placed_at=datetime.now(UTC) + timedelta(days=1))",
    ),
    "1 rows of shop_order have no date": (FROM_DATE[:2], {}, "Order.objects.create()"),
    "a UUID of another version than 7": (FROM_KEY[:2], {}, "Order.objects.create(id=uuid.uuid4())"),
    "lends 0 to 1000. Give the table a generator with a NAMESPACE of its own": (
        FROM_KEY[:2],
        {"LEASES": {"OPTIONS": {"workers": [0, 1001]}}},
        "",
    ),
    "must name the key": (("--created-from", "note"), {}, ""),
    "do not rise with time": (
        FROM_KEY[:2],
        {"LAYOUT": {"worker": 10, "time": 41, "sequence": 12, "tick": 0.001}},
        "",
    ),
    "are not kept in a database": (
        FROM_KEY[:2],
        {
            "LEASES": {
                "BACKEND": "django_idgen.leases.static.StaticLeases",
                "OPTIONS": {"workers": [0, 1000], "directory": "."},
            }
        },
        "",
    ),
}


def test_what_is_refused_before_anything_is_written(make_project: MakeProject) -> None:
    """Each in words that name the way out; no migration is written, no row has changed."""
    project = make_project("sqlite", idgen=IDGEN)
    project.begin(MODELS, ROWS)
    for words, (options, settings, row) in REFUSED.items():
        project.idgen = {"GENERATORS": {"default": {**KEPT, **settings}}}
        refused = adopt(*options, "--workers", "1000", "1003", code=1)
        undo = f"{row.replace('Order', 'o = Order', 1)}\n" if row else ""
        (said,) = project.run(f"{undo}{refused}\n{'o.delete()' if row else ''}")
        assert words in said, said
    for options in (FROM_KEY[:2], ("--workers", "1000", "1003"), (*FROM_KEY, "--field", "segment")):
        project.run(adopt(*options, code=1))
    assert project.migrations() == ["0001_initial"]


EARLY_BILLS = """
dues = [datetime(2016, 2, day).date() for day in (28, 29, 1, 15)]
Bill.objects.bulk_create(Bill(due=due) for due in dues * 2)
"""
EARLY_CHECK = """
from django_idgen import generators
rows = list(Bill.objects.order_by("pk").values_list("pk", "due", "id__created"))
assert [due for _, due, _ in rows] == sorted(due for _, due, _ in rows)
for pk, due, created in rows:
    parts = generators["bills"].decode(pk)
    assert parts.worker in range(1000, 1003), parts
    assert parts.created == created
    late = created - datetime.combine(due, datetime.min.time(), UTC)
    assert timedelta() <= late < timedelta(seconds=1), late
assert Bill.objects.create().pk > rows[-1][0]
print("all is well", len(rows))
"""


def test_dates_before_the_epoch_go_into_a_generator_with_an_earlier_one(
    make_project: MakeProject,
) -> None:
    """The way out that the refusal names. A date is its midnight."""
    early = {"bills": {**KEPT, "EPOCH": "2015-01-01T00:00:00Z"}}
    project = make_project("sqlite", at_switch=10_000)
    project.idgen = {"GENERATORS": {"default": KEPT, **early}}
    bill = ("idgen_adopt", "shop.Bill", "--yes")
    given = (*bill, "--created-from", "due", *FROM_KEY[2:])
    *_, refused, _, _, out = project.begin(
        MODELS,
        EARLY_BILLS,
        manage(*given, code=1),
        manage(*given, "--generator", "bills"),
        MIGRATE,
        manage(*bill),
    )
    assert "name it with --generator" in refused
    project.edit(out)
    assert "all is well 8" in project.deploy(EARLY_CHECK)[0]


ODD = "odd = Order.objects.create(id=uuid.uuid4(), placed_at=datetime.now(UTC))"
OTHER_TABLE = """
from django_idgen.core.stored import Era
from django_idgen.process.maps import registries
book = registries["default"].stored_book()
for worker in range(1000, 1003):
    def until_now(stored, now_us):
        layout = stored.era.layout
        return Era(layout, range(worker, worker + 1), (now_us - layout.epoch_us) // 1000)
    book.claim(until_now)
"""


def test_problems_show_while_the_site_is_up(make_project: MakeProject) -> None:
    """Rows without a time, and worker ids that are used up, before the switch and at its stage.

    So few rows are never filled in a run of their own: the switch would stop at them.
    """
    project = make_project("sqlite", idgen=IDGEN, at_switch=10_000)
    few = "Order.objects.create(); Order.objects.create()"
    refused = f"{ODD}\n{adopt(code=1)}\nodd.delete()"
    added, _, early, _, late, used = project.begin(
        MODELS,
        few,
        adopt(*FROM_KEY),
        MIGRATE,
        refused,
        adopt(),
        refused,
        OTHER_TABLE + adopt(code=1),
    )[1:]
    assert "nothing lends or ever lent these, and that none was a degraded_worker" in added
    for said in (early, late):
        assert "1 rows of shop_order have a UUID of another version than 7" in said
    assert "may have made ids of later moments" in used
    assert "a generator with a NAMESPACE of its own" in used


def test_options_of_a_later_run_are_not_ignored(make_project: MakeProject) -> None:
    """The migrations have them, in both files alike; others are refused, in words that name these.

    The same ones may be given again.
    """
    project = make_project("sqlite", idgen=IDGEN, at_switch=10_000)
    others = (FROM_DATE, (*FROM_KEY[:2], "--workers", "1000", "1002"))
    refused = [adopt(*options, code=1) for options in others]
    *_, column, workers, _ = project.begin(
        MODELS, "Order.objects.create()", adopt(*FROM_KEY), MIGRATE, *refused, adopt(*FROM_KEY)
    )
    added, switch = project.migrations()[1:]
    for said in (column, workers):
        assert f"{added} says created_from='id', workers=(1000, 1003)" in said
        assert f"edit {added}. Then" in said
    (said,) = project.run(refused[1])
    assert f"edit {added}, {switch}. Then" in said
    path = project.directory / "shop/migrations" / f"{switch}.py"
    path.write_text(path.read_text().replace("(1000, 1003)", "(1000, 1002)"))
    assert f"edit {added}, {switch}. Then" in project.run(adopt(code=1))[0]


LOCAL_ROWS = """
# That night local times went from 1 to 3 o'clock. Naive arithmetic makes those in between, too.
nights = [datetime(2021, 3, 28, hour, minute) for hour in range(5) for minute in (0, 30)]
Order.objects.bulk_create(Order(note=str(at), placed_at=at) for at in nights)
"""
LOCAL_CHECK = """
from django_idgen import generators
rows = Order.objects.order_by("pk").values_list("pk", "note")
assert [note for _, note in rows] == sorted(note for _, note in rows)
for pk, note in rows:
    made = generators["default"].decode(pk).created.replace(tzinfo=None)
    late = made - datetime.fromisoformat(note)
    assert timedelta(hours=-2) <= late <= timedelta(hours=3), (note, late)
print("all is well", len(rows))
"""


def test_local_times_that_a_zone_skips(make_project: MakeProject) -> None:
    """They are read as later than those after them, in one zone by two hours; no id is refused."""
    project = make_project("sqlite", idgen=IDGEN, at_switch=10_000, zone="Antarctica/Troll")
    out = project.begin(MODELS, LOCAL_ROWS, adopt(*FROM_DATE), MIGRATE, adopt())[-1]
    project.edit(out)
    assert "all is well 10" in project.deploy(LOCAL_CHECK)[0]

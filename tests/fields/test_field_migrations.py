"""The fields in migrations: no drift, no identity column, no table rebuilt for nothing."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, models
from django.db.migrations import AddField, AlterField, CreateModel
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.optimizer import MigrationOptimizer
from django.db.migrations.questioner import MigrationQuestioner
from django.db.migrations.serializer import serializer_factory
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import MigrationWriter, OperationWriter
from django.test import override_settings

from django_idgen import next_id, segments
from django_idgen.fields import SegmentAutoField, SegmentIdField, SnowflakeAutoField, SnowflakeField
from django_idgen.fields.operations import FillIds
from django_idgen.process import maps
from tests import tiers
from tests.fields.conftest import FOUR, Shop

SNOWFLAKES = [SnowflakeField, SnowflakeAutoField]
SEGMENTS = [SegmentIdField, SegmentAutoField]
OPTIONS: list[tuple[type[models.Field[Any, Any]], dict[str, Any]]] = [
    *((field, {}) for field in FOUR),
    *((field, {"generator": "other"}) for field in SNOWFLAKES),
    *((field, {"eager": True}) for field in SNOWFLAKES),
    *((field, {"tag": "inv"}) for field in SEGMENTS),
    *((field, {"text_form": "base62"}) for field in FOUR),
    *((field, {"prefix": "ord_"}) for field in FOUR),
    *((field, {"text_form": "crockford", "prefix": "o"}) for field in FOUR),
]


KEY = ("id", models.BigAutoField(primary_key=True))
"""The key of a table that gets a column of ours."""


def _create(name: str, *fields: tuple[str, Any]) -> CreateModel:
    return CreateModel(name, list(fields))


# --- drift --------------------------------------------------------------------


def test_a_migration_holds_the_options() -> None:
    """Those that were given, and nothing else; what it wrote is no change (hazard 41)."""
    for field, option in OPTIONS:
        made = field(primary_key=True, **option)
        _, path, args, kwargs = made.deconstruct()
        assert path == f"django_idgen.fields.{field.__name__}"
        assert (args, kwargs) == ([], {"primary_key": True, **option})
        assert made.clone().deconstruct() == made.deconstruct()
        text, imports = MigrationWriter.serialize(made)
        scope: dict[str, Any] = {}
        exec("\n".join(imports), scope)
        written, current = ProjectState(), ProjectState()
        _create("Thing", ("id", eval(text, scope))).state_forwards("shop", written)
        _create("Thing", ("id", field(primary_key=True, **option))).state_forwards("shop", current)
        assert MigrationAutodetector(written, current)._detect_changes() == {}, option


@pytest.mark.django_db
def test_the_models_have_no_drift() -> None:
    """Ours, and those of the test app with each way to use the fields, match their migrations."""
    out = io.StringIO()
    call_command("makemigrations", "app", "django_idgen", check=True, dry_run=True, stdout=out)
    assert "No changes detected" in out.getvalue()


def test_options_touch_no_table(shop: Shop) -> None:
    """Changing them, there and back, sends nothing: no table is rebuilt on SQLite."""
    for field in FOUR:
        shop.migrate(_create(field.__name__, ("id", field(primary_key=True))))
    for field, option in OPTIONS:
        for target in (field(primary_key=True, **option), field(primary_key=True)):
            sent = shop.migrate(AlterField(field.__name__, "id", target))
            assert [sql for sql in sent if "shop_" in sql] == [], option


# --- the column ---------------------------------------------------------------


def test_a_new_table_has_no_identity(shop: Shop) -> None:
    """The key is a bare bigint: nothing counts along when a huge id is stored (hazard 48)."""
    for field in FOUR:
        name = field.__name__
        shop.migrate(_create(name, ("id", field(primary_key=True))))
        assert shop.column(f"shop_{name.lower()}", "id") == ("bigint", False)
        shop.rows(name).create()  # or its tag would begin above the row that follows
        shop.rows(name).create(pk=2**62)
        table = shop.connection.ops.quote_name(f"shop_{name.lower()}")
        with pytest.raises(IntegrityError), shop.connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} (id) VALUES (NULL)")
        assert shop.rows(name).create().pk < 2**62


BECOMES = [(before, field) for before in (models.AutoField, models.BigAutoField) for field in FOUR]


@pytest.mark.parametrize("kinds", [BECOMES[0], BECOMES[-1], *tiers.long(*BECOMES[1:-1])])
def test_an_auto_field_can_become_ours(shop: Shop, kinds: tuple[Any, Any]) -> None:
    """Rows, foreign keys and through rows are kept; the identity goes; new ids fit everywhere."""
    before, field = kinds
    shop.migrate(
        _create("Label", KEY),
        _create("Thing", ("id", before(primary_key=True)), ("name", models.TextField())),
        _create(
            "Part",
            KEY,
            ("thing", models.ForeignKey("shop.Thing", models.CASCADE)),
        ),
        AddField("Thing", "labels", models.ManyToManyField("shop.Label")),
    )
    old = shop.rows("Thing").create(name="old")
    shop.rows("Part").create(thing=old)
    old.labels.add(shop.rows("Label").create())

    shop.migrate(AlterField("Thing", "id", field(primary_key=True)))

    assert shop.column("shop_thing", "id") == ("bigint", False)
    kept = shop.rows("Thing").get(name="old")
    assert (kept.part_set.count(), kept.labels.count()) == (1, 1)
    big = shop.rows("Thing").create(pk=2**62, name="big")
    shop.rows("Part").create(thing=big)
    big.labels.add(shop.rows("Label").get())
    assert shop.rows("Part").filter(thing_id=2**62, thing__labels__isnull=False).exists()


# --- data migrations and added columns ----------------------------------------


def test_historical_models_give_ids_of_the_same_tag(shop: Shop) -> None:
    """In a data migration ``create()`` and ``bulk_create()`` take the next numbers of the tag."""
    shop.migrate(_create("Thing", ("id", SegmentIdField(primary_key=True))))
    first = shop.rows("Thing").create().pk
    thing = shop.model("Thing")
    assert [row.pk for row in shop.rows("Thing").bulk_create([thing(), thing()])] == [
        first + 1,
        first + 2,
    ]
    assert segments["shop.thing"].next_id() == first + 3


@pytest.mark.parametrize(
    "field", [SegmentIdField(null=True, unique=True), SnowflakeField(null=True, eager=True)]
)
def test_a_column_can_be_added_to_a_table_with_rows(
    shop: Shop, field: models.Field[Any, Any]
) -> None:
    """Old rows get NULL, never one id for all of them, and keep it; new rows get an id each."""
    shop.migrate(_create("Thing", KEY))
    shop.rows("Thing").bulk_create([shop.model("Thing")()] * 2)
    shop.migrate(AddField("Thing", "number", field))
    assert set(shop.rows("Thing").values_list("number", flat=True)) == {None}
    shop.rows("Thing").first().save()
    assert set(shop.rows("Thing").values_list("number", flat=True)) == {None}
    assert shop.rows("Thing").create().number > 0


def test_a_column_without_null_asks_what_old_rows_get() -> None:
    """``makemigrations`` doesn't take for granted that there is a value: MySQL would store 0."""
    numbers = [
        ("number", SegmentIdField()),
        ("stamp", SnowflakeField()),
        ("eager", SnowflakeField(eager=True)),
    ]
    before, after = ProjectState(), ProjectState()
    for state, added in ((before, []), (after, numbers)):
        _create("Thing", KEY, *added).state_forwards("shop", state)
    asked: list[str] = []

    class Questioner(MigrationQuestioner):
        def ask_not_null_addition(self, field_name: str, model_name: str) -> int:
            asked.append(field_name)
            return 5

    detector = MigrationAutodetector(before, after, Questioner())
    (migration,) = detector._detect_changes()["shop"]
    assert sorted(asked) == ["eager", "number", "stamp"]
    assert not any(operation.preserve_default for operation in migration.operations)


def test_the_value_given_for_old_rows_is_used(shop: Shop) -> None:
    """What ``makemigrations`` was answered reaches the old rows, and no new one."""
    shop.migrate(_create("Thing", KEY))
    shop.rows("Thing").bulk_create([shop.model("Thing")()] * 2)
    shop.migrate(AddField("Thing", "number", SegmentIdField(default=-5), preserve_default=False))
    assert list(shop.rows("Thing").values_list("number", flat=True)) == [-5, -5]
    assert shop.rows("Thing").create().number > 0


def test_a_migration_names_next_id_as_everybody_imports_it() -> None:
    """``default=next_id`` on a field of Django's own is written down by its public name."""
    text, imports = serializer_factory(next_id).serialize()
    assert (text, imports) == ("django_idgen.next_id", {"import django_idgen"})


# --- filling a column that was added --------------------------------------------

KEYS: dict[str, tuple[list[tuple[str, Any]], Any]] = {
    "integer": ([KEY], lambda n: {}),
    "uuid": (
        [("id", models.UUIDField(primary_key=True))],
        lambda n: {"id": UUID(int=2**100 * (n * 7 % 97))},
    ),
    "text": (
        [("id", models.CharField(primary_key=True, max_length=50))],
        lambda n: {"id": f"{'Zä %s é'[n % 7 :]}'{n}"},
    ),
    "moment": (
        [("id", models.DateTimeField(primary_key=True))],
        lambda n: {"id": datetime(2025, 1, 1, microsecond=n, tzinfo=UTC)},
    ),
    "ours": ([("id", SnowflakeField(primary_key=True))], lambda n: {}),
    "composite": (
        [
            ("pk", getattr(models, "CompositePrimaryKey", Mock)("tenant", "day", "number")),
            ("tenant", models.CharField(max_length=20)),
            ("day", models.DateField(db_column="the day")),
            ("number", models.IntegerField()),
        ],
        lambda n: {"tenant": f"t{n % 3}", "day": date(2025, 1, 1 + n % 2), "number": n},
    ),
}


def _fields(kind: str) -> tuple[list[tuple[str, Any]], Any]:
    if kind == "composite" and not hasattr(models, "CompositePrimaryKey"):
        pytest.skip("Django 5.2 brought composite keys")
    return KEYS[kind]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *((kind, SnowflakeField(null=True)) for kind in KEYS),
        ("integer", SegmentIdField(null=True)),
    ],
)
def test_old_rows_are_filled_whatever_their_key(
    shop: Shop, kind: str, field: models.Field[Any, Any]
) -> None:
    """Each row gets an id of its own, in the order of the key; those that have one keep it."""
    fields, values = _fields(kind)
    shop.migrate(_create("Thing", *fields))
    old = shop.model("Thing")
    shop.rows("Thing").bulk_create([old(**values(n)) for n in range(23)])
    shop.migrate(AddField("Thing", "number2", field))
    new = shop.model("Thing")
    kept = [new(**values(n)) for n in range(23, 26)]
    shop.rows("Thing").bulk_create(kept)

    sent = shop.migrate(FillIds("Thing", "number2", batch_size=10))

    found = list(shop.rows("Thing").order_by("pk").values_list("pk", "number2"))
    before = {row.pk: row.number2 for row in kept}
    assert {pk: number for pk, number in found if pk in before} == before
    filled = [number for pk, number in found if pk not in before]
    assert filled == sorted(filled)
    assert len({number for _, number in found}) == 26
    assert min(filled) > max(before.values())
    queries = [
        sql for sql in sent if "shop_thing" in sql and not sql.startswith(("LOCK", "DELETE"))
    ]
    # Two for each batch of ten, and a count before and after.
    assert len(queries) == 3 * 2 + 2, queries


def test_what_others_do_during_a_batch(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that a row got meanwhile is kept; an empty row behind the batch is filled as well."""
    shop.migrate(_create("Thing", KEY))
    old = shop.model("Thing")
    shop.rows("Thing").bulk_create([old(pk=pk) for pk in range(10, 15)])
    shop.migrate(AddField("Thing", "number", SegmentIdField(null=True)))

    take = SegmentIdField.next_values

    def take_late(field: SegmentIdField, count: int) -> list[int]:
        if not shop.rows("Thing").filter(pk=5).exists():
            shop.rows("Thing").filter(pk=11).update(number=-7)
            shop.rows("Thing").create(pk=5)
            shop.rows("Thing").filter(pk=5).update(number=None)
        return take(field, count)

    monkeypatch.setattr(SegmentIdField, "next_values", take_late)
    shop.migrate(FillIds("Thing", "number"))
    found = dict(shop.rows("Thing").values_list("pk", "number"))
    assert found[11] == -7
    assert None not in found.values()
    assert len(set(found.values())) == len(found) == 6


def test_the_tag_of_filled_rows_is_that_of_the_model(shop: Shop) -> None:
    """The next row that is saved goes on where the filling ended; a tag of its own is kept."""
    shop.migrate(_create("Thing", KEY))
    thing = shop.model("Thing")
    shop.rows("Thing").bulk_create([thing() for _ in range(3)])
    shop.migrate(
        AddField("Thing", "number", SegmentIdField(null=True)),
        AddField("Thing", "other", SegmentIdField(null=True, tag="fill-other")),
        FillIds("thing", "number"),
        FillIds("Thing", "other"),
    )
    numbers = [*shop.rows("Thing").order_by("pk").values_list("number", flat=True)]
    assert segments["shop.thing"].next_id() == numbers[-1] + 1
    others = [*shop.rows("Thing").order_by("pk").values_list("other", flat=True)]
    assert segments["fill-other"].next_id() == others[-1] + 1
    created = shop.rows("Thing").create()
    assert (created.number, created.other) == (numbers[-1] + 2, others[-1] + 2)


def test_filled_rows_get_ids_of_the_field_s_generator(shop: Shop) -> None:
    """Not of the default one: here they fit a JavaScript number."""
    shop.migrate(_create("Thing", KEY))
    shop.rows("Thing").create()
    idgen = {"GENERATORS": {"default": {}, "other": {"LAYOUT": "js_safe"}}}
    with override_settings(IDGEN=idgen):
        shop.migrate(
            AddField("Thing", "number", SnowflakeField(null=True, generator="other")),
            FillIds("Thing", "number"),
        )
        maps.reset()
    assert 0 < shop.rows("Thing").get().number < 2**53


def test_a_child_table_is_filled_by_its_parent_s_key(shop: Shop) -> None:
    """A column of the child is filled in its own table, and one of the parent in the parent's."""
    shop.migrate(
        _create("Thing", KEY),
        CreateModel("Part", [("size", models.IntegerField(default=1))], bases=("shop.Thing",)),
    )
    shop.rows("Part").create()
    shop.rows("Thing").create()
    shop.migrate(
        AddField("Part", "number", SnowflakeField(null=True)),
        AddField("Thing", "label", SnowflakeField(null=True)),
        FillIds("Part", "number"),
        FillIds("Part", "label"),
    )
    assert shop.rows("Part").get().number > 0
    assert not shop.rows("Thing").filter(label=None).exists()


class Elsewhere:
    """A router that keeps the app's tables out of every database."""

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if app_label == "shop" else None


def test_a_router_s_word_counts_for_filling(shop: Shop) -> None:
    """In a database that doesn't have the table nothing is asked, and no id is taken."""
    shop.migrate(
        _create("Thing", KEY),
        AddField("Thing", "number", SnowflakeField(null=True, unique=True)),
    )
    with override_settings(DATABASE_ROUTERS=[Elsewhere()]):
        sent = shop.migrate(FillIds("Thing", "number"))
    assert [sql for sql in sent if "shop_thing" in sql] == []


CAN_T_BE_FILLED = [
    (FillIds("Thin", "number"), ["FillIds", "'Thin'", "shop"]),
    (FillIds("Thing", "nubmer"), ["'nubmer'"]),
    (FillIds("Thing", "name"), ["shop.Thing.name is a TextField", "SnowflakeField"]),
    (FillIds("Thing", "full"), ["shop.Thing.full has no null=True", "before the AlterField"]),
    (FillIds("Thing", "number", batch_size=0), ["batch_size", "1 to 5000"]),
    (FillIds("Thing", "number", batch_size=5001), ["batch_size", "1 to 5000"]),
]


@pytest.mark.parametrize("empty_place", ["sqlite"], indirect=True)
def test_what_can_t_be_filled_is_named(shop: Shop) -> None:
    """A wrong name, field or number ends ``migrate`` in words, with nothing changed."""
    name, full = ("name", models.TextField()), ("full", SnowflakeField())
    shop.migrate(_create("Thing", KEY, name, full, ("number", SnowflakeField(null=True))))
    for operation, words in CAN_T_BE_FILLED:
        with pytest.raises(CommandError) as raised:
            shop.migrate(operation)
        assert [word for word in words if word not in str(raised.value)] == []


def test_the_operation_is_written_as_it_was_given() -> None:
    """``squashmigrations`` writes it down, and moves nothing past it unless it is elidable."""
    text, imports = OperationWriter(FillIds("order", "public_id"), indentation=0).serialize()
    assert imports == {"import django_idgen.fields.operations"}
    assert "".join(text.split()) == (
        "django_idgen.fields.operations.FillIds(model_name='order',name='public_id',),"
    )
    told = FillIds("order", "public_id", batch_size=50, elidable=True)
    text, _ = OperationWriter(told, indentation=0).serialize()
    assert "batch_size=50," in text
    assert "elidable=True," in text
    add = AddField("order", "public_id", SnowflakeField(null=True))
    alter = AlterField("order", "public_id", SnowflakeField(unique=True))
    kept = [add, FillIds("order", "public_id"), alter]
    assert MigrationOptimizer().optimize(kept, "shop") == kept
    (left,) = MigrationOptimizer().optimize([add, told, alter], "shop")
    assert isinstance(left, AddField)

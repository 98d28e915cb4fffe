"""System checks: each fault is named before it does harm, and nothing else is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core.checks import CheckMessage, run_checks
from django.db import connections, models
from django.test.utils import isolate_apps, override_settings

from django_idgen import checks, generators
from django_idgen.core.errors import TimeExhausted
from django_idgen.fields import SegmentAutoField, SegmentIdField, SnowflakeAutoField, SnowflakeField
from tests import servers, warm
from tests.app import models as app
from tests.ops.doctor.asking import messages
from tests.redis_servers import RedisFarm, cache_alias


def ids(messages: list[CheckMessage]) -> list[str]:
    return [message.id or "" for message in messages]


def model(name: str, *bases: Any, meta: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A model of the test app."""
    options = type("Meta", (), {"app_label": "app", **(meta or {})})
    return type(name, bases or (models.Model,), {"__module__": __name__, "Meta": options, **fields})


@isolate_apps("tests.app")
def check_field(field: models.Field[Any, Any]) -> list[CheckMessage]:
    found: list[CheckMessage] = model("Thing", id=field).check()
    return found


# --- fields -------------------------------------------------------------------


def test_good_fields_pass() -> None:
    """Fields as the documentation shows them, and aliases of the settings, raise no message."""
    for field in (
        SnowflakeField(primary_key=True),
        SnowflakeField(primary_key=True, generator="default", eager=True),
        SegmentIdField(primary_key=True, tag="inv"),
        SnowflakeAutoField(primary_key=True),
        SegmentAutoField(primary_key=True),
    ):
        assert check_field(field) == []
    with override_settings(IDGEN={"GENERATORS": {"orders": {}}}):
        for generator in ("orders", "default"):
            assert check_field(SnowflakeField(primary_key=True, generator=generator)) == []


FAULTS: list[tuple[list[Any], str, list[Any], str]] = [
    ([SnowflakeField], "generator", ["nowhere", "", None, ["default"]], "E002"),
    ([SegmentIdField, SegmentAutoField], "tag", ["", " x", "x" * 129, "a\nb", 7], "E003"),
    ([SnowflakeField], "eager", [1, "yes", None], "E004"),
    ([SnowflakeField, SegmentIdField], "default", [7, None], "E005"),
    ([SnowflakeField, SegmentIdField], "db_default", [7], "E005"),
    ([SegmentIdField], "scramble", [1, "yes", None], "E009"),
]
"""Fields, an option, its values that cannot work, and the message that says so."""


def test_options_that_cannot_work_are_named() -> None:
    """An unknown alias, a tag that can't be stored, no boolean, a second source of values."""
    for fields, option, values, identity in FAULTS:
        for field, value in product(fields, values):
            (error,) = check_field(field(primary_key=True, **{option: value}))
            assert error.id == f"django_idgen.{identity}", (option, value)
            assert identity in ("E003", "E005") or repr(value) in error.msg
            assert identity != "E002" or "default" in (error.hint or "")


# --- uniqueness ---------------------------------------------------------------


OF_SOME = models.UniqueConstraint(
    fields=["number"], condition=models.Q(number__gt=9), name="of_some_rows"
)
OF_HALVES = models.UniqueConstraint(models.F("number") / 2, name="of_halves")
OF_ALL = models.UniqueConstraint(fields=["shop", "number"], name="of_a_shop")
OF_COLUMN = models.UniqueConstraint(models.F("number"), name="of_column")


KEPT_UNIQUE: list[tuple[dict[str, Any], list[Any], bool]] = [
    ({}, [], False),
    ({"db_index": True}, [], False),
    ({}, [OF_SOME], False),
    ({}, [OF_HALVES], False),
    ({"unique": True}, [], True),
    ({"unique": True, "null": True}, [], True),
    ({}, [OF_ALL], True),
    ({}, [OF_SOME, OF_COLUMN], True),
]
"""Options of a field, constraints of its table, and whether they keep it unique."""


def test_a_column_that_nothing_keeps_unique_is_named() -> None:
    """W009 names an id field whose values a table may have twice (hazard 83)."""
    fields = (SegmentIdField, SnowflakeField)
    for (options, constraints, kept), field in product(KEPT_UNIQUE, fields):
        with isolate_apps("tests.app"):
            base = model("Base", meta={"abstract": True}, shop=models.IntegerField())
            bill = model("Bill", base, meta={"constraints": constraints}, number=field(**options))
            draft, final = model("Draft", bill, meta={"proxy": True}), model("Final", bill)
            found = bill.check()
        assert ids(found) == ([] if kept else ["django_idgen.W009"]), (options, constraints)
        assert all(one.obj is bill._meta.get_field("number") for one in found)
        assert draft.check() == final.check() == []


@isolate_apps("tests.app")
def test_other_ways_to_be_unique() -> None:
    """W009 takes ``unique_together`` and a part of a composite key for what they are.

    Each model that inherits the field is asked for itself: an unmanaged one, too.
    """
    fields = {"shop": models.IntegerField(), "number": SegmentIdField()}
    base = model("Numbered", meta={"abstract": True}, **fields)
    together = model("Together", base, meta={"unique_together": ("shop", "number")})
    composite = model("Composite", base, pk=models.CompositePrimaryKey("shop", "number"))
    assert together.check() == composite.check() == []
    elsewhere = model("Elsewhere", base, meta={"managed": False})
    assert ids(elsewhere.check()) == ["django_idgen.W009"]


@override_settings(IDGEN={})
def test_scrambling_needs_a_key() -> None:
    """E009 before the first page that can't be shown; with a key all is well."""
    field = SegmentIdField(primary_key=True, scramble=True)
    (error,) = check_field(field)
    assert error.id == "django_idgen.E009"
    assert "IDGEN['SCRAMBLE_KEYS']" in (error.hint or "")
    with override_settings(IDGEN={"SCRAMBLE_KEYS": {"A": "x" * 16}}):
        assert check_field(SegmentIdField(primary_key=True, scramble=True)) == []


@override_settings(IDGEN={"SCRAMBLE_KEYS": {"A": "x" * 16}, "REST": {"strings": False}})
def test_an_api_of_numbers_scrambles_none() -> None:
    """E009: it would send the plain numbers that outsiders must not see."""
    (error,) = check_field(SegmentIdField(primary_key=True, scramble=True))
    assert error.id == "django_idgen.E009"
    assert "IDGEN['REST']['strings'] is False" in error.msg
    assert check_field(SegmentIdField(primary_key=True)) == []


@override_settings(INSTALLED_APPS=["tests.app"])
def test_a_project_that_forgot_the_app_is_told() -> None:
    """The fields say that the app isn't installed, since its own checks don't run then."""
    for field in (SnowflakeField, SegmentAutoField):
        (error,) = check_field(field(primary_key=True))
        assert error.id == "django_idgen.E006"
        assert "INSTALLED_APPS" in error.msg


# --- settings -----------------------------------------------------------------


def test_impossible_settings_are_named() -> None:
    """E001 says where in the settings, and shows the value."""
    with override_settings(IDGEN={"GENERATORS": {"default": {"OPTIONS": {"max_ahed": 1}}}}):
        (error,) = checks.check_settings()
        assert error.id == "django_idgen.E001"
        assert "['default']['OPTIONS']" in error.msg
        assert "'max_ahed'" in error.msg
        assert "django_idgen.E001" in ids(run_checks())


def test_a_layout_that_ends_soon_is_warned_of_with_the_date() -> None:
    """Years ahead, for ids that stop coming can't be mended in an hour."""
    short = {"time": 28, "worker": 22, "sequence": 13, "tick": 1}
    entry = {"LAYOUT": short, "EPOCH": "2020-01-01T00:00:00Z"}
    with override_settings(IDGEN={"GENERATORS": {"old": entry}}):
        messages = checks.check_exhaustion()
    assert ids(messages) == ["django_idgen.W004"]
    assert "'old' has no ids after 2028-07-03" in messages[0].msg
    assert "later EPOCH" in (messages[0].hint or "")
    longer = {"time": 29, "worker": 21, "sequence": 13, "tick": 1}
    assert f"such as {longer}." in (messages[0].hint or "")
    with override_settings(IDGEN={"GENERATORS": {"old": {**entry, "LAYOUT": longer}}}):
        assert checks.check_exhaustion() == []
    with override_settings(IDGEN={"GENERATORS": {"old": {"LAYOUT": {**short, "tick": 0.01}}}}):
        (message,) = checks.check_exhaustion()
    assert "after 2025-02-01 (in the past)" in message.msg
    assert checks.check_exhaustion() == []


@pytest.mark.parametrize("place", ["leases", "nested", "serial", "segments"])
def test_a_directory_that_others_may_write_to_is_warned_of(tmp_path: Path, place: str) -> None:
    """A mark that a stranger puts there makes ids repeat; /tmp with its sticky bit, too."""
    options = {"directory": str(tmp_path)}
    static = {"BACKEND": "django_idgen.leases.static.StaticLeases", "OPTIONS": options}
    nested = {
        "BACKEND": "django_idgen.leases.checkpointed.CheckpointedLeases",
        "OPTIONS": {"directory": "/etc", "registry": static},
    }
    serial = "django_idgen.core.tag_generator.SerialGenerator"
    file = {"BACKEND": "django_idgen.sources.file.FileSource", "OPTIONS": options}
    idgen: dict[str, Any] = {
        "leases": {"GENERATORS": {"default": {"LEASES": static}}},
        "nested": {"GENERATORS": {"default": {"LEASES": nested}}},
        "serial": {"GENERATORS": {"s": {"BACKEND": serial, "SOURCE": {"OPTIONS": options}}}},
        "segments": {"SEGMENTS": {"SOURCE": file}},
    }[place]
    with override_settings(IDGEN=idgen):
        for mode, wanted in ((0o777, ["django_idgen.W014"]), (0o1777, ["django_idgen.W014"])):
            tmp_path.chmod(mode)
            assert ids(checks.check_directories()) == wanted
        for mode in (0o700, 0o770):
            tmp_path.chmod(mode)
            assert checks.check_directories() == []
        tmp_path.rmdir()
        assert checks.check_directories() == []


@pytest.mark.django_db
def test_the_epoch_of_uid_generator_only_decodes() -> None:
    """Its 28 bits of seconds are over (hazard 8): old ids are read, and none is given out."""
    entry = {"LAYOUT": "uid", "EPOCH": "2016-05-20T00:00:00+08:00"}
    with override_settings(IDGEN={"GENERATORS": {"old": entry}}):
        parts = generators["old"].decode((1 << 35) * 1_000_000 + (5 << 13) + 7)
        assert (parts.created.isoformat(), parts.worker, parts.sequence) == (
            "2016-05-31T05:46:40+00:00",
            5,
            7,
        )
        with pytest.raises(TimeExhausted, match="later epoch"):
            generators["old"].next_id()
        (message,) = checks.check_exhaustion()
        assert "'time': 29, 'worker': 21, 'sequence': 13" in (message.hint or "")


def test_bad_settings_are_reported_once() -> None:
    """With settings that can't be read, fields don't add messages of their own."""
    with override_settings(IDGEN={"GENERATORS": 7}):
        assert check_field(SnowflakeField(primary_key=True, generator="x")) == []
        assert ids(run_checks()).count("django_idgen.E001") == 1


# --- models -------------------------------------------------------------------


def test_the_test_project_passes() -> None:
    """A project with every kind of field, as an app's default too, gets no message."""
    assert [m for m in run_checks() if (m.id or "").startswith("django_idgen")] == []


def test_a_global_default_is_warned_of() -> None:
    """W001 recommends the AppConfig instead. Django's fields, and what can't be imported, pass."""
    for field in ("SnowflakeAutoField", "SegmentAutoField"):
        with override_settings(DEFAULT_AUTO_FIELD=f"django_idgen.fields.{field}"):
            (warning,) = checks.check_default_auto_field()
        assert warning.id == "django_idgen.W001"
        assert "AppConfig" in (warning.hint or "")
    for path in ("django.db.models.BigAutoField", "no.such.Field"):
        with override_settings(DEFAULT_AUTO_FIELD=path):
            assert checks.check_default_auto_field() == []


def test_narrow_generic_keys_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """W002: a GenericForeignKey over 32 bits or fewer can't point at our rows."""
    for column, narrow in (
        (models.PositiveIntegerField(), True),
        (models.IntegerField(), True),
        (models.PositiveSmallIntegerField(), True),
        (models.BigIntegerField(), False),
        (models.PositiveBigIntegerField(), False),
        (models.CharField(max_length=40), False),
    ):
        with isolate_apps("tests.app", "django.contrib.contenttypes") as isolated:
            model("Order", id=SnowflakeField(primary_key=True))
            kind = models.ForeignKey(ContentType, models.CASCADE)
            about = GenericForeignKey("kind", "number")
            model("Remark", kind=kind, number=column, about=about)
            monkeypatch.setattr(checks, "apps", isolated)
            found = checks.check_generic_keys()
        assert ids(found) == ["django_idgen.W002"] * narrow
        assert not narrow or "app.Remark.about" in found[0].msg


# --- the database -------------------------------------------------------------


WILL_BE_NARROW, NARROW = "django_idgen.W003", "django_idgen.E023"
NARROWED: list[tuple[type[models.Model], str]] = [
    (app.Line, "order_id"),
    (app.Order.tags.through, "tag_id"),
    (app.Counter, "id"),
    (app.Parcel, "order_id"),
]


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[str]:
    """A server with tables of another hand: 32 bits in ``NARROWED``, and no constraints."""
    servers.require(request.param)
    connection = connections[request.param]
    for model, narrow in NARROWED:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
            columns = ", ".join(
                f"{editor.quote_name(field.column)} {'int' if field.column == narrow else 'bigint'}"
                for field in model._meta.local_concrete_fields
            )
            editor.execute(f"CREATE TABLE {editor.quote_name(model._meta.db_table)} ({columns})")
    yield str(request.param)
    for model, _ in NARROWED:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
            editor.create_model(model)


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_narrow_columns_are_found_in_the_database(server: str) -> None:
    """W003 and E023 name each key, foreign key and through column that is still int32."""
    found = [each for each in messages(server) if each.id in {WILL_BE_NARROW, NARROW}]
    assert {str(message.obj) for message in found} == {
        f"column {column!r} of table {model._meta.db_table!r} in database {server!r}"
        for model, column in NARROWED
    }
    of_tag = f"column 'id' of table {app.Counter._meta.db_table!r} in database {server!r}"
    assert {each.id for each in found if each.obj == of_tag} == {WILL_BE_NARROW}
    assert {each.id for each in found if each.obj != of_tag} == {NARROW}


@pytest.mark.django_db(databases="__all__")
def test_wide_columns_pass() -> None:
    """A migrated database gets no message, and without a database nothing is asked."""
    found = messages(*connections)
    assert [each for each in found if each.id in {WILL_BE_NARROW, NARROW}] == []
    assert checks.check_deployment() == []


# --- Redis --------------------------------------------------------------------


def test_a_redis_that_is_none_is_found(settings: Any) -> None:
    """E001, of the registry as of the pool: an unknown alias, and one that is not a Redis."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    for alias in ("nosuch", "default"):
        options = {"OPTIONS": {"alias": alias}}
        leases = {"BACKEND": "django_idgen.leases.redis.RedisLeases", **options}
        pool = {"BACKEND": "django_idgen.sources.pool.PoolSource", **options}
        for idgen in (
            {"GENERATORS": {"default": {"LEASES": leases}}},
            {"SEGMENTS": {"SOURCE": pool}},
        ):
            settings.IDGEN = idgen
            (found,) = checks.check_settings()
            assert found.id == "django_idgen.E001"
            # Whole sentences, wherever the reason comes from.
            assert re.search(
                rf"CACHES\['{alias}'\] can't be used as a Redis: .*[^.]\. It must be", found.msg
            )
            assert alias == "nosuch" or "locmem.LocMemCache" in found.msg


# --- without the app ------------------------------------------------------------


WITHOUT_THE_APP = """
import django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()
from django.db import models
from django_idgen import next_id
from django_idgen.fields import SegmentIdField, SnowflakeField
class Stamped(models.Model):
    id = SnowflakeField(primary_key=True)
    class Meta:
        app_label = "app"
class Numbered(models.Model):
    id = SegmentIdField(primary_key=True)
    class Meta:
        app_label = "app"
for take in (Stamped().save, Numbered().save, next_id):
    try:
        take()
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_ids_without_the_app_say_what_is_missing() -> None:
    """In a shell or a server, where no check has run: what to add, and nothing of our models."""
    environment = {key: value for key, value in os.environ.items() if "DJANGO" not in key}
    done = warm.run(["-c", WITHOUT_THE_APP], cwd=warm.FOLDER, env=environment)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    for line in said:
        assert line.startswith("SettingsError ")
        assert "add 'django_idgen' to INSTALLED_APPS" in line


# --- a Redis that django_idgen relies on --------------------------------------


REDIS = "django_redis.cache.RedisCache"
LEASES = {"BACKEND": "django_idgen.leases.redis.RedisLeases", "OPTIONS": {"alias": "ids"}}
FILES = "django.core.cache.backends.filebased.FileBasedCache"
CHECKPOINTED = "django_idgen.leases.checkpointed.CheckpointedLeases"


def entry(location: Any) -> dict[str, Any]:
    return {"BACKEND": REDIS, "LOCATION": location}


def said(identity: str, caches: dict[str, Any], leases: dict[str, Any]) -> list[str]:
    idgen = {"GENERATORS": {"default": {"LEASES": leases}}}
    with override_settings(CACHES=caches, IDGEN=idgen):
        return [found.msg for found in run_checks(tags=["caches"]) if found.id == identity]


@pytest.fixture
def caches() -> dict[str, Any]:
    return {"default": entry("redis://127.0.0.1:1/0"), "ids": entry("redis://127.0.0.1:1/1")}


def test_an_alias_of_its_own_is_well(caches: dict[str, Any]) -> None:
    """A Redis database that nothing else uses is what the check asks for."""
    assert said("django_idgen.W005", caches, LEASES) == []


def test_an_alias_that_is_the_default_cache_is_named(caches: dict[str, Any]) -> None:
    """``cache.clear()`` would empty it."""
    (message,) = said("django_idgen.W005", caches, {**LEASES, "OPTIONS": {}})
    assert "CACHES['default']" in message
    assert "default cache" in message


def test_a_place_is_one_place_for_every_user(caches: dict[str, Any]) -> None:
    """Two aliases of it are named, whoever logs in, and however the address is written."""
    for location in (
        "redis://127.0.0.1:1/1",
        "redis://ids:secret@127.0.0.1:1/1",
        "rediss://127.0.0.1:1?db=1",
        ["redis://127.0.0.2:1/1", "redis://:secret@127.0.0.1:1/1"],
        "redis://127.0.0.2:1/1,redis://127.0.0.1:1/1",
    ):
        caches["sessions"] = entry(location)
        (message,) = said("django_idgen.W005", caches, LEASES)
        assert "the same Redis database as CACHES['sessions']" in message


def test_another_place_is_none_of_its_business(caches: dict[str, Any]) -> None:
    """Another database, another server, and a cache that is no Redis."""
    for location in (
        "redis://127.0.0.1:1/2",
        "redis://127.0.0.1:1/2,redis://127.0.0.2:1/2",
        "redis://ids@127.0.0.1:2/1",
        "unix:///a?db=1",
    ):
        caches["sessions"] = entry(location)
        assert said("django_idgen.W005", caches, LEASES) == []
    for location in ("/tmp/cache", Path("/tmp/cache")):
        caches["sessions"] = {"BACKEND": FILES, "LOCATION": location}
        assert said("django_idgen.W005", caches, LEASES) == []


def test_a_registry_within_another_is_found(caches: dict[str, Any]) -> None:
    """As that of a host's checkpoints."""
    caches["ids"] = caches["default"]
    leases = {"BACKEND": CHECKPOINTED, "OPTIONS": {"directory": "/tmp", "registry": LEASES}}
    assert len(said("django_idgen.W005", caches, leases)) == 1


def test_without_redis_nothing_is_said(caches: dict[str, Any]) -> None:
    """A project whose worker ids come from its database may use its caches as it likes."""
    assert said("django_idgen.W005", caches, {}) == []


def said_of_eviction(location: str) -> list[str]:
    idgen = {"GENERATORS": {"default": {"LEASES": LEASES}}}
    with cache_alias("ids", location), override_settings(IDGEN=idgen):
        return [one.msg for one in messages("default") if one.id == "django_idgen.W006"]


@pytest.mark.parametrize(
    ("policy", "memory", "warned"),
    [("allkeys-lru", "10mb", True), ("noeviction", "10mb", False), ("allkeys-lru", "0", False)],
)
def test_a_server_that_evicts_is_named(
    farm: RedisFarm, django_db_blocker: Any, policy: str, memory: str, warned: bool
) -> None:
    """Once its memory is full, it would drop worker ids as if they were cached pages."""
    server = farm.server(maxmemory_policy=policy, maxmemory=memory)
    with django_db_blocker.unblock():
        messages = said_of_eviction(server.url)
    assert [policy in message for message in messages] == [True] * warned


def test_manage_check_warns_of_both(farm: RedisFarm, tmp_path: Path) -> None:
    """In a process of its own, which has imported nothing of Redis before its checks run."""
    server = farm.server(maxmemory_policy="allkeys-lru", maxmemory="10mb")
    code = f"""
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["django_idgen"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "{tmp_path}/db"}}}},
    CACHES={{name: {entry(server.url)!r} for name in ("default", "ids")}},
    IDGEN={{"GENERATORS": {{"default": {{"LEASES": {LEASES!r}}}}}}},
)
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", "check", "--deploy", "--database", "default"])
"""
    done = warm.run(["-c", code], cwd=warm.FOLDER)
    assert re.findall(r"django_idgen\.(\w+)", done.stderr) == ["W005", "W006"], done.stderr

"""``manage.py idgen_status``: all of it on every database, what is away said so, nothing taken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, ProgrammingError, connections
from django.test import override_settings
from django.utils import timezone

from django_idgen import generators, next_id, segments
from django_idgen.db.tables import with_way_out
from django_idgen.models import LeafAlloc
from django_idgen.ops.status import VERSION
from django_idgen.ops.status_text import TAG_COLUMNS, render, span, table
from django_idgen.process import maps
from django_idgen.rest.clients import installation_of_source
from tests import servers, warm
from tests.places import make_tables
from tests.places import place as place
from tests.server_tools import execute, one_more, sessions


def shown(*words: str, **options: Any) -> str:
    out = StringIO()
    call_command("idgen_status", *words, stdout=out, **options)
    return out.getvalue()


def document(*words: str) -> dict[str, Any]:
    return dict(json.loads(shown("--json", "--timeout", "60", *words)))


def tags_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tag["tag"]: tag for part in found["tags"] for tag in part["list"]}


# --- what it says --------------------------------------------------------------------


def test_it_tells_generators_tags_and_databases(place: str) -> None:
    """The worker id in use with its holder, the tag with its ids, the database that answers."""
    make_tables(place)
    worker = generators["default"].layout.unpack(next_id()).worker  # type: ignore[attr-defined]
    segments["orders"].next_ids(5)
    assert segments["orders"].preload(60)  # type: ignore[attr-defined]
    found = document()
    assert found["version"] == VERSION
    (generator,) = found["generators"]
    assert (generator["alias"], generator["registry"]) == ("default", "database")
    assert generator["workers"]["total"] == 1024
    assert generator["workers"]["held"] == 1
    (holder,) = generator["holders"]
    assert (holder["worker"], holder["state"]) == (worker, "held")
    assert 0 < holder["window_left"] <= 180
    tag = tags_of(found)["orders"]
    assert tag["max_id"] == segments["orders"].floor  # type: ignore[attr-defined]
    assert tag["holder"]
    assert tag["pooled"] is None
    assert found["pool"] is None
    (database,) = found["databases"]
    assert (database["alias"], database["behind"], database["error"]) == (place, [], None)

    name = installation_of_source(segments.allocator().source, "orders")  # as a service tells it
    assert database["installation"] == name

    text = shown("--timeout", "60")
    words = ("GENERATOR default", "1 held", str(worker), "orders", f"DATABASE {place}")
    for word in (*words, f"installation {name}"):
        assert word in text


def test_its_moments_are_in_utc_in_a_project_without_time_zones(place: str, settings: Any) -> None:
    """With ``USE_TZ = False``, too: whoever reads them knows no other zone."""
    settings.USE_TZ = False
    # MySQL has but its own time then, which should be the project's.
    settings.TIME_ZONE = "UTC" if place == "mariadb" else "America/New_York"
    make_tables(place)
    next_id()
    segments["orders"].next_ids(5)
    found = document()
    moments = [
        tags_of(found)["orders"]["fetched_at"],
        found["generators"][0]["holders"][0]["seen_at"],
    ]
    for text in moments:
        assert abs(datetime.fromisoformat(text) - datetime.now(UTC)) < timedelta(minutes=2)
    assert "orders" in shown("--timeout", "60")


def test_it_takes_nothing_and_leaves_nothing(place: str) -> None:
    """No worker id, no id, no table, no connection."""
    before = _traces(place)
    for _ in range(2):
        found = document("--all")
    assert found["generators"][0]["workers"]["held"] == 0
    assert maps.generators.made() == {}
    assert maps.segments.made() == {}
    assert _traces(place) == before
    if place in servers.URLS:
        connections[place].close()
        connections[place].ensure_connection()
        assert sessions(place) == 0


def _traces(alias: str) -> set[str]:
    if alias in servers.URLS:
        return set(connections[alias].introspection.table_names())
    return {path.name for path in Path(connections.settings[alias]["NAME"]).parent.iterdir()}


def test_a_half_migrated_database_is_told_in_words(server_alias: str) -> None:
    """What can be read is; what lacks is named, with the way out."""
    idgen = {"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": server_alias}}}}
    make_tables(server_alias)
    execute(server_alias, "ALTER TABLE leaf_alloc DROP COLUMN paused")
    with override_settings(IDGEN=idgen):
        found = document()
        text = shown("--timeout", "60")
    (tags,) = found["tags"]
    assert tags["total"] is None
    assert "manage.py migrate django_idgen" in tags["error"]
    behind = {each["alias"]: each["behind"] for each in found["databases"]}
    assert behind[server_alias] == ["leaf_alloc.paused"]
    assert "lacks leaf_alloc.paused" in " ".join(text.split())
    assert "Traceback" not in text


def test_a_database_without_tables_is_told_in_words(server_alias: str) -> None:
    """Who runs it before ``migrate`` sees what to do."""
    with override_settings(IDGEN={"SEGMENTS": {"SOURCE": {"OPTIONS": {"database": server_alias}}}}):
        unmade = {each["alias"]: each["unmade"] for each in document()["databases"]}
        text = " ".join(shown("--timeout", "60").split())
    assert "leaf_alloc" in unmade[server_alias]
    assert unmade["default"] == []
    assert "and lacks leaf_alloc, " in text
    assert f"run 'manage.py migrate django_idgen --database {server_alias}'" in text


def test_a_database_that_is_not_there_lacks_no_table() -> None:
    """Its error is a sentence of its own, without a hint that does not help."""
    missing = OperationalError('FATAL:  database "trial" does not exist\n')
    assert with_way_out(missing) == 'FATAL: database "trial" does not exist.'
    for absent in (ProgrammingError("no relation"), OperationalError("no such table: leaf_alloc")):
        assert with_way_out(absent).startswith(f"{absent}. If a table or a column is missing, run")


def test_what_is_away_is_said_and_the_rest_goes_on(tmp_path: Path, django_db_blocker: Any) -> None:
    """A database without a server: its error stands where it belongs; SQLite is told of."""
    server = {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": "127.0.0.1",
        "NAME": "nowhere",
        "USER": "nobody",
        "PASSWORD": "secret-of-the-test",
    }
    with one_more("default", **server) as away:
        idgen = {
            "GENERATORS": {"far": {"LEASES": {"OPTIONS": {"database": away}}}},
            "SEGMENTS": {"SOURCE": {"OPTIONS": {"database": away}}},
        }
        with django_db_blocker.unblock(), override_settings(IDGEN=idgen):
            found = document()
            text = shown("--timeout", "60")
    errors = {each["alias"]: each["error"] for each in found["generators"]}
    assert errors["default"] is None
    assert errors["far"]
    assert found["tags"][0]["error"]
    assert {each["alias"]: each["error"] is None for each in found["databases"]} == {
        away: False,
        "default": True,
    }
    assert text.count("can't be queried") == 3
    assert "secret-of-the-test" not in text


def test_the_pool_is_told(postgres: str, redis: str) -> None:
    """What lies ready in Redis, how long it lasts, and how much memory that uses."""
    pool = {
        "BACKEND": "django_idgen.sources.pool.PoolSource",
        "OPTIONS": {"alias": redis, "source": {"OPTIONS": {"database": postgres}}},
    }
    idgen = {"SEGMENTS": {"SOURCE": pool, "OPTIONS": {"timeout": 30}}}
    with override_settings(IDGEN=idgen):
        segments["pooled"].next_id()
        left = segments["pooled"].clear()  # type: ignore[attr-defined]
        LeafAlloc.objects.using(postgres).update(rate=10.0)
        found = document()
        tag = tags_of(found)["pooled"]
        assert (tag["pooled"], tag["pool_left"]) == (left, left / 10)
        assert left > 100
        assert found["pool"]["alias"] == redis
        assert found["pool"]["memory"] > 1000
        assert found["pool"]["error"] is None
        assert f"POOL {redis}: {left} ids ready" in " ".join(shown("--timeout", "60").split())


@pytest.mark.django_db
def test_of_very_many_tags_the_busiest_are_told(no_tags: None) -> None:
    """And how many there are besides; --all and --tag tell more."""
    make_tables("default")
    LeafAlloc.objects.bulk_create(
        LeafAlloc(biz_tag=f"many.{number:04}", rate=float(number)) for number in range(300)
    )
    found = document()
    assert found["tags"][0]["total"] == 300
    assert len(tags_of(found)) == 50
    assert "many.0299" in tags_of(found)
    assert "and 250 that are used less: see --all" in shown()
    assert len(tags_of(document("--all"))) == 300
    assert set(tags_of(document("--tag", "many.0001", "many.0002"))) == {"many.0001", "many.0002"}
    assert tags_of(document("--tag", "unknown")) == {}


# --- bad input -----------------------------------------------------------------------


def test_bad_input_is_refused_in_words() -> None:
    """Naming the value."""
    for words, says in (
        (["--generator", "nobody"], "There is no generator 'nobody'"),
        (["--tag", "\n"], "can't be used"),
        (["--watch", "0"], "number of seconds"),
        (["--watch", "soon"], "number of seconds"),
        (["--timeout", "nan"], "number of seconds"),
        (["--timeout", "-1"], "number of seconds"),
    ):
        with pytest.raises(CommandError, match=says):
            shown(*words)
    with override_settings(IDGEN={"NONE": 1}), pytest.raises(CommandError, match="unknown key"):
        shown()


# --- watching ------------------------------------------------------------------------


WATCH = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
import django; django.setup()
from django.core.management import call_command
call_command("idgen_status", "--json", "--watch", "0.1")
"""


def test_watching_looks_again_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    """A line of JSON for each look; then a clean end."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    with (
        (tmp_path / "errors").open("w+") as errors,
        warm.Process(
            ["-c", WATCH],
            cwd=warm.FOLDER,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as watching,
    ):
        assert watching.stdout is not None
        try:
            looks = [json.loads(watching.stdout.readline()) for _ in range(3)]
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
        finally:
            watching.kill()
        assert "Traceback" not in (tmp_path / "errors").read_text()
    assert len({look["at"] for look in looks}) == 3


# --- the table -----------------------------------------------------------------------


def test_a_table_fits_the_terminal_with_all_its_columns() -> None:
    """Long cells and lines are cut, wide characters count twice, nothing orders the terminal."""
    rows = [("a" * 90, "1", ""), ("订单" * 20, "22", "h" * 90), ("x\x1b[2Jy", "3", "")]
    lines = table(("TAG", "N", "HOLDER"), rows, 50)
    assert lines[0].split() == ["TAG", "N", "HOLDER"]
    assert lines[3].split() == ["x?[2Jy", "3", "-"]
    assert all(len(line.encode("gb18030")) <= 53 for line in lines)
    assert lines[1].split()[1:] == ["1", "-"]
    assert "…" in lines[1]
    assert lines[2].endswith("…")
    # What is cut first is at the end: the holder, not the tag or its state.
    row = ("billing.invoice-line", "PAUSED", "host-with-a-long-name/4711/gunicorn")
    _, line = table(("TAG", "STATE", "HOLDER"), [row], 50)
    assert line.split()[:2] == ["billing.invoice-line", "PAUSED"]
    assert (line[-1], len(line)) == ("…", 50)


@pytest.mark.django_db
@pytest.mark.usefixtures("no_tags")
def test_a_paused_tag_never_looks_healthy() -> None:
    """It comes first, however idle; its state is whole, and nothing it has left "lasts"."""
    make_tables("default")
    name, now = "a.tag." + "long" * 20, timezone.now()
    known = {"max_id": 5001, "fetched_at": now, "fetched_ids": 1000, "holder": "h" * 100}
    LeafAlloc.objects.create(biz_tag=name, paused=True, rate=2.0, **known)
    LeafAlloc.objects.create(biz_tag="busy", rate=5.0, **known)
    heads, paused, busy = shown().partition("  TAG ")[2].splitlines()[:3]
    assert heads.split() == [*" ".join(TAG_COLUMNS[1:]).split()]
    assert paused.split() == [name, "PAUSED", "5001", "1000", *"-----", "h" * 100]
    assert busy.split()[:6] == ["busy", "in", "use", "5001", "1000", "5"]
    assert "2 (1 paused)" in shown()
    (found,) = document("--tag", name)["tags"]
    assert (found["paused"], found["list"][0]["state"]) == (1, "paused")
    for columns in (60, 80):
        cut = render(document(), width=columns).splitlines()
        (line,) = (each for each in cut if "PAUSED" in each)
        assert len(line) <= columns


def test_a_duration_is_told_in_the_unit_that_suits_it() -> None:
    """Short enough for a column."""
    for seconds, words in (
        (None, "-"),
        (0.0, "0 s"),
        (0.25, "0.25 s"),
        (59.0, "59 s"),
        (150.0, "2.5 min"),
        (7200.0, "2 h"),
        (86400.0 * 3, "3 d"),
        (31557600.0 * 67.8, "67.8 y"),
        (float("inf"), "> 1000 y"),
        (1e18, "> 1000 y"),
    ):
        assert span(seconds) == words

"""The examinations that only read, as Django's ``check --deploy --database`` runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import ERROR, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.test import override_settings

from django_idgen import segments
from django_idgen.models import LeafAlloc
from tests.ops.doctor.asking import doctor, findings, messages
from tests.ops.doctor.fleet import idgen, on_database, on_redis
from tests.places import make_tables
from tests.redis_servers import RedisFarm, cache_alias
from tests.server_tools import execute, one_more, wait_for_threads


def ids(*aliases: str) -> set[str]:
    return {str(each.id).removeprefix("django_idgen.") for each in messages(*aliases)}


def ours(leases: dict[str, Any]) -> Any:
    """The setting ``IDGEN`` with these leases, which the models of the test app pass."""
    keys = settings.IDGEN["SCRAMBLE_KEYS"]
    return override_settings(IDGEN={**idgen(leases), "SCRAMBLE_KEYS": keys})


@contextmanager
def configured_as(**given: Any) -> Iterator[str]:
    """The alias of one more database."""
    connections.settings["other"] = {**connections.settings["default"], **given}
    try:
        yield "other"
    finally:
        wait_for_threads("other")
        connections["other"].close()
        del connections["other"]
        del connections.settings["other"]


def test_check_and_the_doctor_find_the_same(postgres: str) -> None:
    """``check --deploy --database`` fails with what the doctor prints, and with both alone."""
    make_tables(postgres)
    with ours(on_database(postgres)):
        segments["orders"].next_id()
        assert ids(postgres) == set()
        LeafAlloc.objects.using(postgres).update(delta=3, remainder=2, server="another")
        with pytest.raises(SystemCheckError, match=r"database 'postgres': \(django_idgen.E028\)"):
            call_command("check", deploy=True, databases=[postgres])
        call_command("check", databases=[postgres], stderr=StringIO())
        call_command("check", deploy=True, stderr=StringIO())
        assert ids(postgres) == {"E028", "I029"}
        found = {each["check"] for each in findings(database=[postgres])}
        assert found == {"django_idgen.E028", "django_idgen.I029"}


def test_a_silenced_check_is_silent_in_the_doctor(postgres: str) -> None:
    """As Django silences it."""
    make_tables(postgres)
    with ours(on_database(postgres)):
        segments["orders"].next_id()
        LeafAlloc.objects.using(postgres).update(delta=3, remainder=2)
        assert doctor("databases", database=[postgres])[0] == 2
        with override_settings(SILENCED_SYSTEM_CHECKS=["django_idgen.E028"]):
            assert doctor("databases", database=[postgres])[0] == 0


def test_no_deployment_is_stopped_before_its_tables_are_there(server_alias: str) -> None:
    """``migrate`` runs a database's checks before it makes our tables: none of them is ours."""
    with ours(on_database(server_alias)):
        assert ids(server_alias) == {"E021"}
        assert connections[server_alias].introspection.table_names() == []
        plain = run_checks(tags=["database"], databases=[server_alias])
        assert [each for each in plain if str(each.id).startswith("django_idgen")] == []
        call_command("migrate", "django_idgen", database=server_alias, skip_checks=False)
        assert ids(server_alias) == set()


class Forbids:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return app_label != "django_idgen"


def test_tables_that_a_router_forbids(server_alias: str) -> None:
    """Django notes our migrations as applied then, without a table: the doctor says why.

    Once the router allows them, the two commands of the page make them.
    """
    with ours(on_database(server_alias)):
        with override_settings(DATABASE_ROUTERS=[Forbids()]):
            call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
            (found,) = (each for each in messages(server_alias) if each.id == "django_idgen.E021")
            assert "'allow_migrate' of DATABASE_ROUTERS forbids them" in str(found.hint)
        call_command("migrate", "django_idgen", database=server_alias, verbosity=0)
        assert ids(server_alias) == {"E021"}
        migrate = ("migrate", "django_idgen")
        call_command(*migrate, "zero", fake=True, database=server_alias, verbosity=0)
        call_command(*migrate, database=server_alias, verbosity=0)
        assert ids(server_alias) == set()


def test_on_sqlite_no_table_or_file_is_awaited(file: str) -> None:
    """The first use makes both. The checks make neither, nor the database."""
    folder = Path(connections.settings[file]["NAME"]).parent
    with override_settings(IDGEN={}):
        assert ids(file) == set()
        assert list(folder.iterdir()) == []
        connections[file].ensure_connection()
        assert ids(file) == set()
    assert [each.name for each in folder.iterdir()] == [
        Path(connections.settings[file]["NAME"]).name
    ]


def test_a_database_that_does_not_answer(postgres: str) -> None:
    """It is named once, and is no error, whether ids come from it or not; the rest is examined."""
    make_tables(postgres)
    with one_more(postgres) as gone, ours(on_database(postgres)):
        (message,) = messages(gone, postgres)
        assert (message.id, message.obj) == ("django_idgen.W020", "database 'gone'")
        execute(postgres, "DROP TABLE django_idgen_leasehistory")
        assert ids(gone, postgres) == {"W020", "E021"}
        with ours(on_database(gone)):
            found = messages(gone)
    assert {each.id for each in found} == {"django_idgen.W020"}
    assert {each.obj for each in found} == {"database 'gone'", "generator 'default'"}
    assert all(each.level < ERROR for each in found)


def test_a_user_without_rights(postgres: str) -> None:
    """What may not be read could not be examined; nothing fails, and nothing is made."""
    make_tables(postgres)
    configured = connections.settings[postgres]
    role, user = f"idgen_poor_{configured['NAME']}", configured["USER"]
    execute(postgres, f"CREATE ROLE {role} LOGIN")
    connections[postgres].close()
    configured["USER"] = role
    try:
        with ours(on_database(postgres)):
            found = messages(postgres)
            code, words = doctor(database=[postgres])
    finally:
        wait_for_threads(postgres)
        connections[postgres].close()
        configured["USER"] = user
        execute(postgres, f"DROP ROLE {role}")
    assert {each.id for each in found} == {"django_idgen.W020"}
    assert any("permission denied" in each.msg for each in found)
    assert (code, "NOT EXAMINED" in words) == (3, True), words


def test_engines_that_django_does_not_ship(tmp_path: Path, django_db_blocker: Any) -> None:
    """Of another vendor, what can be read is examined. One that can't be used is named."""
    engine = "tests.ops.doctor.other_vendor"
    with (
        django_db_blocker.unblock(),
        configured_as(ENGINE=engine, NAME=str(tmp_path / "db"), OPTIONS={}) as alias,
        ours(on_database(alias)),
    ):
        assert ids(alias) == {"E021"}
    with configured_as(ENGINE="django.db.backends.dummy") as alias:
        (message,) = messages(alias)
        assert (message.id, message.obj) == ("django_idgen.W020", f"database {alias!r}")


def test_a_fault_of_an_examination_is_no_traceback(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a router or a driver raises: a check never raises, and the others go on."""
    make_tables(postgres)

    class Router:
        def allow_migrate(self, *_args: object, **_hints: object) -> bool:
            raise KeyError("the tenant")

    given = {"IDGEN": idgen(on_database(postgres)), "DATABASE_ROUTERS": [Router()]}
    with override_settings(**given):
        execute(postgres, "DROP TABLE django_idgen_leasehistory")
        found = messages(postgres)
    assert {each.id for each in found} == {"django_idgen.W020", "django_idgen.E021"}


def test_settings_that_cannot_be_read_are_reported_once() -> None:
    """By E001 alone."""
    with override_settings(IDGEN={"NOTHING": 1}):
        assert [each.id for each in messages("default")] == ["django_idgen.E001"]


def test_a_redis_that_does_not_answer(postgres: str) -> None:
    """It is named, and is no error."""
    make_tables(postgres)
    with (
        cache_alias("ids", "redis://127.0.0.1:1/0"),
        ours(on_redis("ids", postgres)),
    ):
        found = messages(postgres)
    assert {each.id for each in found} == {"django_idgen.W020"}
    assert "Redis 'ids'" in {each.obj for each in found}


def test_servers_are_asked_only_where_databases_are(farm: RedisFarm, postgres: str) -> None:
    """A plain ``check``, and one without a database, opens no connection to Redis."""
    make_tables(postgres)
    server = farm.server(maxmemory_policy="allkeys-lru", maxmemory="10mb")
    with cache_alias("ids", server.url), ours(on_redis("ids", postgres)):
        assert ids(postgres) == {"W006"}
        before = server.info("stats")["total_connections_received"]
        call_command("check", stderr=StringIO())
        call_command("check", databases=[postgres], stderr=StringIO())
        call_command("check", deploy=True, stderr=StringIO())
        assert server.info("stats")["total_connections_received"] == before + 1

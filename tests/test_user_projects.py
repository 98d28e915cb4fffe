"""A user's own tests, run as the user runs them: nothing is set up for django_idgen.

The project is in ``projects/``. Each test here runs its tests in a process of its
own, on one database, with one runner: on push a few, in long every combination.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_idgen import migrations
from tests import servers, tiers, warm

PROJECT = Path(__file__).parent / "projects"

RUNNERS = {
    "manage": ["-W", "error", "manage.py", "test"],
    "parallel": ["-W", "error", "manage.py", "test", "--parallel", "2"],
    "pytest": ["-m", "pytest", "-q"],
    "xdist": ["-m", "pytest", "-q", "-n", "2"],
}
SQLITE: dict[str, dict[str, Any]] = {
    "memory": {},
    "journal": {},
    "wal": {"init_command": "PRAGMA journal_mode=WAL"},
    "immediate": {"transaction_mode": "IMMEDIATE"},
}
DATABASES = [*SQLITE, *servers.URLS]
PUSH = [("postgres", "parallel"), ("memory", "pytest")]
# Django copies a database's main file only: under WAL the copies lack its tables.
EVERY = [
    (name, runner)
    for name in DATABASES
    for runner in RUNNERS
    if (name, runner) != ("wal", "parallel")
]

_serial = count(1)


@dataclass
class Shop:
    """The sample project on one database; ``directory`` is where its files would be."""

    directory: Path
    name: str
    aliases: tuple[str, ...] = ("default",)
    environment: dict[str, str] = field(default_factory=dict)
    number: int = field(default_factory=lambda: next(_serial))

    def run(self, *command: str) -> str:
        """What ``python`` ``command`` printed; the test fails if it does."""
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "COV"))
        }
        done = warm.run(
            list(command),
            cwd=PROJECT,
            env={
                **environment,
                "DJANGO_SETTINGS_MODULE": "project_settings",
                "PYTHONPATH": os.pathsep.join([str(PROJECT.parents[1]), str(PROJECT)]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "SHOP_DATABASES": json.dumps(
                    {alias: self.database(alias) for alias in self.aliases}
                ),
                **self.environment,
            },
            cold=not {"pytest", "--parallel"}.isdisjoint(command) or LOADED in command,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return printed

    def database(self, alias: str) -> dict[str, Any]:
        if self.name == "memory":
            return {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        if self.name in SQLITE:
            return {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(self.directory / f"{alias}.sqlite3"),
                "OPTIONS": SQLITE[self.name],
                "TEST": {"NAME": str(self.directory / f"test_{alias}.sqlite3")},
            }
        # The database itself is not there: a test run has no business in it.
        own = {"NAME": f"shop_{os.getpid()}_nowhere", "TEST": {"NAME": self.test_name(alias)}}
        return {**servers.database(self.name), **own}

    def test_name(self, alias: str) -> str:
        return f"shop_{os.getpid()}_{self.number}_{alias}"

    def left_behind(self) -> list[str]:
        """Files, or databases on the server, that the runs have left."""
        if self.name in SQLITE:
            return sorted(path.name for path in self.directory.iterdir())
        query = {
            "postgres": "SELECT datname FROM pg_database",
            "mariadb": "SELECT schema_name FROM information_schema.schemata",
        }[self.name]
        with connections[self.name]._nodb_cursor() as cursor:
            cursor.execute(query)
            names = [name for (name,) in cursor.fetchall()]
        return sorted(
            name for name in names if name.startswith(f"shop_{os.getpid()}_{self.number}")
        )

    def remove(self) -> None:
        if self.name in SQLITE:
            return
        for name in self.left_behind():
            with connections[self.name]._nodb_cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[Shop]:
    """The project on the database that the test is parametrized with."""
    if request.param in servers.URLS:
        servers.require(request.param)
    with django_db_blocker.unblock():
        made = Shop(tmp_path, request.param)
        yield made
        made.remove()


def assert_silent(output: str) -> None:
    # The databases' names contain none of these: whatever does is a word of ours.
    for word in ("idgen", "warning", "segment_", "lease_", "worker_"):
        assert word not in output.lower(), output


@pytest.mark.parametrize(("shop", "runner"), EVERY if tiers.LONG else PUSH, indirect=["shop"])
def test_users_tests_pass_and_leave_nothing(shop: Shop, runner: str) -> None:
    """TestCase, TransactionTestCase, SimpleTestCase and LiveServerTestCase pass, unprepared.

    Nothing of ours is printed, and the test databases are dropped with all that was ours.
    """
    assert_silent(shop.run(*RUNNERS[runner]))
    assert shop.left_behind() == []


@pytest.mark.long
@pytest.mark.parametrize("shop", DATABASES if tiers.LONG else ["postgres"], indirect=True)
def test_several_databases(shop: Shop) -> None:
    """Tests that use two aliases pass, and so do those that may use one of them only."""
    shop.aliases = ("default", "second")
    assert_silent(shop.run(*RUNNERS["manage"]))
    assert shop.left_behind() == []


# Django itself can't do that with SQLite in a file.
@pytest.mark.long
@pytest.mark.parametrize("shop", ["memory"], indirect=True)
def test_parallel_runs_whose_processes_inherit_nothing(shop: Shop) -> None:
    """A spawned process goes on where the migrations of the copied database left off."""
    shop.environment["SHOP_START_METHOD"] = "spawn"
    assert_silent(shop.run(*RUNNERS["parallel"]))
    assert shop.left_behind() == []


@pytest.mark.long
@pytest.mark.parametrize("shop", DATABASES if tiers.LONG else ["journal"], indirect=True)
@pytest.mark.parametrize("option", ["--keepdb", *tiers.long("--reuse-db")])
def test_a_database_that_is_kept(shop: Shop, option: str) -> None:
    """A second run on the database of the first repeats none of its ids."""
    command = [*RUNNERS["manage" if option == "--keepdb" else "pytest"], option]
    assert_silent(shop.run(*command))
    kept = shop.left_behind()
    assert_silent(shop.run(*command))
    assert shop.left_behind() == kept
    if shop.name in SQLITE and shop.name != "memory":
        assert "test_default.sqlite3-idgen" in kept  # it belongs to the database


@pytest.mark.long
@pytest.mark.parametrize("shop", DATABASES if tiers.LONG else ["journal"], indirect=True)
def test_tables_made_without_migrations(shop: Shop) -> None:
    """Our tables are made on first use where MIGRATION_MODULES turns migrations off."""
    shop.environment["SHOP_NO_MIGRATIONS"] = "1"
    assert_silent(shop.run(*RUNNERS["manage"]))
    assert shop.left_behind() == []


@pytest.mark.long
@pytest.mark.parametrize("shop", DATABASES, indirect=True)
def test_pytest_without_migrations(shop: Shop) -> None:
    """The same with pytest-django's --nomigrations."""
    assert_silent(shop.run(*RUNNERS["pytest"], "--nomigrations"))
    assert shop.left_behind() == []


@pytest.mark.long
@pytest.mark.parametrize("shop", ["journal", *tiers.long("postgres")], indirect=True)
@pytest.mark.parametrize("runner", ["pytest", *tiers.long("xdist")])
def test_the_end_of_pytest_logs_to_no_closed_stream(shop: Shop, runner: str) -> None:
    """A project that logs INFO to the console sees no "Logging error" once pytest is done."""
    shop.environment["SHOP_LOGGING"] = "1"
    output = shop.run(*RUNNERS[runner], "shop/pytest_rows.py")
    assert "passed" in output
    assert "Logging error" not in output
    assert shop.left_behind() == []


@pytest.mark.parametrize("shop", DATABASES if tiers.LONG else ["journal"], indirect=True)
def test_nothing_else_need_be_installed(shop: Shop) -> None:
    """Templates, Django's commands and ours work without the admin and all its kin (hazard 84)."""
    shop.run("-W", "error", "manage.py", "check")
    shop.run("-W", "error", "manage.py", "test", "shop.alone_tests")


@pytest.mark.parametrize("shop", ["journal"], indirect=True)
def test_a_migration_without_the_admin(shop: Shop) -> None:
    """``migrate`` runs on an empty database, and again on the one that it made (hazard 84)."""
    for _ in range(2):
        assert "idgen" in shop.run("-W", "error", "manage.py", "migrate")


@pytest.mark.parametrize("shop", ["memory"], indirect=True)
def test_what_a_project_does_not_install_is_not_imported(shop: Shop) -> None:
    """The admin, REST framework and Celery are there; nothing of ours asks for them (hazard 84)."""
    assert json.loads(shop.run("-W", "error", "-c", LOADED)) == []


LOADED = """
import json, sys
from io import StringIO
import django
django.setup()
from django.core.management import call_command
from django.template import engines
call_command("check", stdout=StringIO(), stderr=StringIO())
assert engines["django"].from_string("{% load idgen %}hi").render() == "hi"
names = ("django.contrib", "rest_framework", "django_filters", "celery", "redis", "httpx")
print(json.dumps(sorted(name for name in sys.modules if name.startswith(names))))
"""


@pytest.mark.parametrize("shop", ["memory"], indirect=True)
@pytest.mark.parametrize("discovers", ["", "1"], ids=["without", "with"])
def test_the_admin_that_discovers_nothing_by_itself(shop: Shop, discovers: str) -> None:
    """With ``SimpleAdminConfig`` our pages are there once the project looks for them (hazard 84).

    Without it the index is there and has none of them.
    """
    shop.environment |= {
        "DJANGO_SETTINGS_MODULE": "simple_admin_settings",
        "OFFICE_AUTODISCOVER": discovers,
    }
    shop.run("-W", "error", "manage.py", "check")
    shop.run("-W", "error", "manage.py", "test", "office.index_tests")


@pytest.mark.parametrize("shop", ["postgres"], indirect=True)
def test_a_history_holds_copies_of_fields(shop: Shop) -> None:
    """Beside django-simple-history and django-pghistory (hazard 107)."""
    shop.environment["DJANGO_SETTINGS_MODULE"] = "ledger_settings"
    shop.run("-W", "ignore", "manage.py", "test", "ledger.history_tests")


@pytest.mark.parametrize("shop", ["memory"], indirect=True)
def test_users_whose_key_is_a_snowflake(shop: Shop) -> None:
    """``AUTH_USER_MODEL``: sessions, the admin's log, links to reset a password, DRF's tokens."""
    shop.environment["DJANGO_SETTINGS_MODULE"] = "members_settings"
    shop.run("-W", "error", "manage.py", "test", "members.user_tests")


@pytest.mark.parametrize("shop", ["memory"], indirect=True)
def test_a_service_without_users(shop: Shop) -> None:
    """Programs take ids with tokens where ``django.contrib.auth`` is not installed (hazard 84)."""
    shop.environment["DJANGO_SETTINGS_MODULE"] = "service_settings"
    shop.run("-W", "error", "manage.py", "test", "shop.service_tests")


# --- on the tables of each released migration, while migrate is under way (hazard 96) ---
#
# In the sample project the app "accounts" has a data migration that takes ids. It comes before
# any migration of ours, or right behind the one that it depends on: one that a later version
# adds, with a new column in each table, comes after it (projects/later).


FOLDER = Path(next(iter(migrations.__path__)))
RELEASED = sorted(path.stem for path in FOLDER.glob("0*.py"))
"""Our migrations: each stands for the tables that one version or more had."""
PLACES = ["journal", *servers.URLS]
HERE, LATER = "accounts", "accounts later"
"""The apps of the project with this version of ours, and with a later one."""
UPGRADES = [(name, LATER) for name in RELEASED] + [(name, HERE) for name in RELEASED[:-1]]
TARGETS = [[], ["accounts"]]
"""What is migrated: all, or that app alone."""
LAST = RELEASED[-1]
UPGRADED = [("journal", LAST, LATER, TARGETS[0]), ("postgres", LAST, LATER, TARGETS[1])]
FRESH = [("memory", "", HERE), ("journal", LAST, LATER), ("postgres", "", LATER)]
if tiers.LONG:
    UPGRADED = [(name, *version, to) for name, version, to in product(PLACES, UPGRADES, TARGETS)]
    FRESH = [*product(["memory", *PLACES], ["", *RELEASED], [HERE, LATER])]

AS_RELEASED = """
import sys
import django
django.setup()
from django.db import connection, connections
from django_idgen.db.connection import home_of
from django.db.migrations.executor import MigrationExecutor

class Tables(MigrationExecutor):
    def apply_migration(self, state, migration, **options):
        # Not as its code makes them today, but as its state has them.
        state = migration.mutate_state(state)
        models = state.apps.get_app_config("django_idgen").get_models()
        home = connections[home_of("default")]
        with home.schema_editor() as editor:
            for model in models:
                if model._meta.db_table not in home.introspection.table_names():
                    editor.create_model(model)
                known = home.introspection.get_table_description(
                    home.cursor(), model._meta.db_table)
                for field in model._meta.local_concrete_fields:
                    if field.column not in [column.name for column in known]:
                        editor.add_field(model, field)
        self.recorder.record_applied(migration.app_label, migration.name)
        return state

Tables(connection).migrate([("django_idgen", sys.argv[1])])
"""
WHAT_IS_THERE = """
import django
django.setup()
from accounts.models import Account
from django_idgen.models import SegmentHistory
from django_idgen.db.connection import home_connection
from django_idgen.db.tables import missing_columns
assert not missing_columns(home_connection("default"))
ids = set(Account.objects.values_list("pk", flat=True))
numbers = set(Account.objects.values_list("number", flat=True))
assert len(ids) == len(numbers) == 1202 and min(numbers) > 0, (len(ids), len(numbers))
assert SegmentHistory.objects.exists()
"""


class Site(Shop):
    """The project on a database that is there, and empty."""

    def database(self, alias: str) -> dict[str, Any]:
        found = super().database(alias)
        return found if self.name in SQLITE else {**found, "NAME": found["TEST"]["NAME"]}

    def create(self) -> None:
        if self.name in servers.URLS:
            with connections[self.name]._nodb_cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {self.test_name('default')}")


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any) -> Iterator[Site]:
    """The project's own database, of the kind that the test is parametrized with."""
    if request.param in servers.URLS:
        servers.require(request.param)
    with django_db_blocker.unblock():
        made = Site(tmp_path, request.param)
        made.create()
        yield made
        made.remove()


@pytest.mark.parametrize(("site", "release", "apps", "target"), UPGRADED, indirect=["site"])
def test_a_data_migration_on_the_tables_of_an_earlier_version(
    site: Site, release: str, apps: str, target: list[str]
) -> None:
    """It takes ids, renews and gives back: ``migrate`` after an upgrade from that version."""
    site.environment.update(SHOP_APPS=apps, SHOP_RELEASE=release)
    site.run("-c", AS_RELEASED, release)
    site.run("-W", "error", "manage.py", "migrate", *target)
    site.run("-c", WHAT_IS_THERE)


@pytest.mark.parametrize(("shop", "release", "apps"), FRESH, indirect=["shop"])
def test_a_fresh_test_run(shop: Shop, release: str, apps: str) -> None:
    """A user's ``manage.py test`` passes, whether the data migration depends on ours or not.

    Hazard 96: it runs between two migrations of django_idgen, or before them all.
    """
    shop.environment.update(SHOP_APPS=apps, SHOP_RELEASE=release)
    assert_silent(shop.run(*RUNNERS["manage"], "accounts.user_tests"))
    assert shop.left_behind() == []

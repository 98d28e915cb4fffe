"""Our code on the tables of each released migration, while ``migrate`` is under way (hazard 96).

In the sample project the app ``accounts`` has a data migration that takes ids. It comes
before any migration of ours, or right behind the one that it depends on: one that a later
version adds, with a new column in each table, comes after it (``projects/later``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from django_idgen import migrations
from tests import servers, tiers
from tests.test_user_projects import RUNNERS, SQLITE, Shop, assert_silent
from tests.test_user_projects import shop as shop

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
    """A user's ``manage.py test`` passes, whether the data migration depends on ours or not."""
    shop.environment.update(SHOP_APPS=apps, SHOP_RELEASE=release)
    assert_silent(shop.run(*RUNNERS["manage"], "accounts.user_tests"))
    assert shop.left_behind() == []

"""One test, on each of the databases: SQLite and PostgreSQL on push, MariaDB in long, too."""

from __future__ import annotations

import pytest
from django.conf import settings

from tests import servers, tiers


@pytest.fixture(params=["default", "postgres", "mariadb"])
def alias(request: pytest.FixtureRequest) -> str:
    """The alias of a database: SQLite in a file, or a server that was found."""
    if request.param != "default":
        servers.require(request.param)
    return str(request.param)


# A database that is named here is made, and each test begins a transaction in it.
_USED = [name for name in settings.DATABASES if tiers.LONG or name != "mariadb"]
on_every_database = pytest.mark.django_db(databases=_USED)

"""One test, on each of the three databases."""

from __future__ import annotations

import pytest

from tests import servers


@pytest.fixture(params=["default", "postgres", "mariadb"])
def alias(request: pytest.FixtureRequest) -> str:
    """The alias of a database: SQLite in a file, or a server that was found."""
    if request.param != "default":
        servers.require(request.param)
    return str(request.param)


on_every_database = pytest.mark.django_db(databases="__all__")

"""The site on each database."""

from __future__ import annotations

from pathlib import Path

import pytest

from .processes import Site, database_settings


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Site:
    """The site on a SQLite file."""
    path = tmp_path / "site.sqlite3"
    path.touch()  # as it is after a migrate
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}
    return Site(tmp_path, database, "sqlite")


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """The site on each database in turn."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_site")
    alias = request.getfixturevalue(request.param)
    return Site(tmp_path, database_settings(alias), alias)


@pytest.fixture
def postgres_site(postgres: str, tmp_path: Path) -> Site:
    """The site on PostgreSQL."""
    return Site(tmp_path, database_settings(postgres), postgres)

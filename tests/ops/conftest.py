"""An empty SQLite file, for what needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.places import empty_sqlite


@pytest.fixture
def file(tmp_path: Path, django_db_blocker: Any) -> Iterator[str]:
    """The alias of an empty SQLite file."""
    with django_db_blocker.unblock(), empty_sqlite(tmp_path / "db.sqlite3") as alias:
        yield alias

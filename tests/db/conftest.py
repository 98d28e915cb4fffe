"""A directory for the files of SQLite databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests import servers


@pytest.fixture
def directory(django_db_blocker: Any) -> Iterator[Path]:
    """Where no file waits for a disk. Its databases may be used."""
    with (
        django_db_blocker.unblock(),
        TemporaryDirectory(dir=servers.fast_directory()) as name,
    ):
        yield Path(name)

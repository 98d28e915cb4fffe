"""The registry and the source of a server keep the contracts in a SQLite file, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.places import empty_sqlite
from tests.servers import fast_directory

from .lease_contract import LeaseContract
from .lenders import Lender
from .source_contract import Shop, SourceContract
from .test_server import ServerLender, ServerShop


@contextmanager
def database() -> Iterator[str]:
    """The alias of an empty SQLite database in a file."""
    with (
        TemporaryDirectory(dir=fast_directory()) as directory,
        empty_sqlite(Path(directory) / "shop.sqlite3") as alias,
    ):
        yield alias


class TestSqliteLeases(LeaseContract):
    examples = 5
    measures_clocks = True

    @pytest.fixture
    def _backing(self, django_db_blocker: Any) -> Iterator[None]:
        with django_db_blocker.unblock():
            yield

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with database() as alias:
            yield ServerLender(alias)


class TestSqliteSource(SourceContract):
    examples = 5

    @pytest.fixture
    def _backing(self, django_db_blocker: Any) -> Iterator[None]:
        with django_db_blocker.unblock():
            yield

    @contextmanager
    def new_shop(self) -> Iterator[Shop]:
        with database() as alias:
            yield ServerShop(alias)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from django_idgen.testing.contracts import LeaseContract, SourceContract
from tests.conftest import SERVERS, _empty_database
from tests.places import empty_sqlite, make_tables
from tests.servers import fast_directory
from tests.tiers import LONG

LeaseContract.preload = ("tests.contracts.elsewhere",)
if LONG:
    LeaseContract.effort = SourceContract.effort = 10
    LeaseContract.acquirers = SourceContract.fetchers = 64


@pytest.fixture(scope="class")
def database(
    request: pytest.FixtureRequest, _databases: set[str], django_db_blocker: Any
) -> Iterator[str]:
    """The alias of a database with our tables that the tests of a class share.

    Its parameter is a server, ``sqlite`` or ``memory``. Each test lends from a namespace of its
    own there, or begins without a tag.
    """
    with ExitStack() as stack:
        if request.param in SERVERS:
            made = _empty_database(request.param, _databases, django_db_blocker)
            alias = stack.enter_context(made)
        else:
            stack.enter_context(django_db_blocker.unblock())
            directory = stack.enter_context(TemporaryDirectory(dir=fast_directory()))
            file = Path(directory) / "shop.sqlite3"
            path = Path(":memory:") if request.param == "memory" else file
            alias = stack.enter_context(empty_sqlite(path))
        make_tables(alias)
        yield alias

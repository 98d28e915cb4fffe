"""Which tests run on push, and which in long alone (``IDGEN_LONG=1``, as ``tox -e long`` sets it).

A test is long if it is marked ``long``, or by the server that its parameters name: a promise is
held on SQLite and PostgreSQL on push, on MariaDB where SQL differs, and in SQLite's other modes
where the file is the point. Each long test is also run in long only.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from hypothesis import Phase, settings

LONG = os.environ.get("IDGEN_LONG") == "1"
SQL_DIFFERS = {"leases", "sources", "db", "contracts"}
"""The rooms whose tests run on MariaDB on push."""
FILE_IS_THE_POINT = {"test_sqlite_file.py", "test_transactions.py"}
"""Whose tests run in SQLite's modes WAL and IMMEDIATE on push."""


def long(*values: object) -> list[Any]:
    """Parameters of a test that run in long alone."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def is_long(item: pytest.Item) -> bool:
    """Whether the test runs in long alone."""
    if item.get_closest_marker("long"):
        return True
    words = set(re.findall(r"[a-z]+", item.name.partition("[")[2].lower()))
    parts = set(item.path.parts)
    return bool(
        ("mariadb" in words and not SQL_DIFFERS & parts)
        or (words & {"wal", "immediate"} and not FILE_IS_THE_POINT & parts)
    )


def examples(count: int) -> int:
    """Examples of a test where each is dear: ``count`` on push, ten times as many in long."""
    return 10 * count if LONG else count


def load_hypothesis_profile() -> None:
    """20 examples a test on push, 200 in long. No deadline: a busy machine is not a failure."""
    settings.register_profile("push", max_examples=20, deadline=None)
    settings.register_profile("long", max_examples=200, deadline=None)
    # For the breaks of safety: it counts that a test fails, not the smallest example.
    settings.register_profile(
        "breaks",
        max_examples=200,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
    )
    settings.load_profile("long" if LONG else "push")

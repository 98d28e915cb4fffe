"""Metrics of a process of its own: what was counted can't be taken back in this one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import sqlite_site
from tests.faults.processes import Site

__all__ = ["sqlite_site"]

Script = Callable[[str], str]


@pytest.fixture
def metrics_site(sqlite_site: Site) -> Site:
    """The site with metrics, on a SQLite file."""
    sqlite_site.environment["DJANGO_SETTINGS_MODULE"] = "tests.ops.metrics.site_settings"
    return sqlite_site


@pytest.fixture
def script(metrics_site: Site) -> Script:
    """Runs Python in a process with metrics, and returns what it printed."""

    def run(code: str) -> str:
        with metrics_site.python(PREAMBLE + code) as running:
            assert running.finish() == 0, running.output
            return running.output

    return run


PREAMBLE = """
from django_idgen import generators, next_id, segments
from django_idgen.process import maps
from django_idgen.ops.metrics.exporter import start
from django_idgen.ops.metrics.exporter import exposition
from tests.ops.metrics.samples import Scraped
from django.db import connection
from django_idgen.db.tables import make_missing_tables

make_missing_tables(connection)

def scraped():
    return Scraped(exposition(start())[0].decode())
"""


@pytest.fixture
def files(metrics_site: Site, tmp_path: Path) -> Path:
    """The directory of the files that processes write their figures to."""
    directory = tmp_path / "prometheus"
    directory.mkdir()
    metrics_site.environment["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    return directory

"""A project to be adopted, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.contrib.adopt.projects import KINDS, Project


@pytest.fixture(params=KINDS)
def project(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: Any
) -> Iterator[Project]:
    """A project without models, on a database of its own."""
    if request.param != "sqlite":
        servers.require(request.param)
    with django_db_blocker.unblock():
        made = Project(tmp_path, request.param)
        yield made
        made.remove()

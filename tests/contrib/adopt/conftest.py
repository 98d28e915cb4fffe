"""Projects to be adopted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.contrib.adopt.projects import KINDS, Project

MakeProject = Callable[..., Project]


@pytest.fixture
def make_project(tmp_path: Path, django_db_blocker: Any) -> Iterator[MakeProject]:
    """Makes a project without models, on a database of its own of a kind."""
    made: list[Project] = []

    def make(kind: str, **options: Any) -> Project:
        if kind != "sqlite":
            servers.require(kind)
        made.append(Project(tmp_path, kind, **options))
        return made[-1]

    with django_db_blocker.unblock():
        try:
            yield make
        finally:
            for project in made:
                project.remove()


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, make_project: MakeProject) -> Project:
    """A project on each kind of database."""
    return make_project(request.param)

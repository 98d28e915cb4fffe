"""Which file a SQLite database's ``NAME`` means, compared with what SQLite opens."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from django_idgen.db.sqlite import file_of

FILES = [
    "shop.db",
    "./below/../shop.db",
    "link.db",
    "linked/shop.db",
    "file:shop.db",
    "file:link.db?mode=rwc&cache=shared",
    "file:a%20shop%3F.db#part",
    "file://{here}/shop.db",
    "file://localhost{here}/linked/shop.db?x=1",
    "{here}/shop.db",
]
NONE = [":memory:", "", "file::memory:", "file::memory:?cache=shared", "file:x?mode=memory"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a database and, beside it, links to a file and to a directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to("elsewhere")
    (tmp_path / "link.db").symlink_to("elsewhere/shop.db")
    return tmp_path


def opened_by_sqlite(name: str) -> str:
    with closing(sqlite3.connect(name, uri=True)) as db:
        db.execute("CREATE TABLE t (x)")
        return str(db.execute("PRAGMA database_list").fetchone()[2])


def test_it_is_the_file_that_sqlite_opens(here: Path) -> None:
    """However the name is written, the marks lie beside the one database it means."""
    for name in (each.format(here=here) for each in FILES):
        assert file_of(name) == Path(opened_by_sqlite(name)).resolve()
        file_of(name).unlink()


def test_a_database_without_a_file_has_none(here: Path) -> None:
    """Its marks stand in memory, as it does: no file is left in the working directory."""
    for name in NONE:
        assert file_of(name) is None
        assert opened_by_sqlite(name) == ""


def test_a_path_and_nothing_will_do(here: Path) -> None:
    """Django takes a ``Path``, and an alias may have no name."""
    assert file_of(Path("link.db")) == here / "elsewhere" / "shop.db"
    assert file_of(None) is None

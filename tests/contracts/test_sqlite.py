"""The marks file beside a SQLite database keeps the contracts, and its own promises."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.core.source import Source
from django_idgen.db.sqlite.marks import MarksFile
from django_idgen.leases.sqlite import SqliteLeases
from django_idgen.sources.sqlite import SqliteSource

from .lease_contract import LeaseContract
from .lenders import Lender
from .source_contract import Shop, SourceContract


def execute(path: Path, statement: str) -> list[tuple[object, ...]]:
    """What somebody does with the sqlite3 command."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement).fetchall()


def leases_at(path: Path, namespace: Namespace) -> SqliteLeases:
    return SqliteLeases(namespace, marks=MarksFile(path))


class SqliteLender(Lender):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def make(self, namespace: Namespace) -> Registry:
        return SqliteLeases(namespace, marks=MarksFile(self.path), read_now_us=self.time.read)

    def forget(self) -> None:
        MarksFile(self.path).snapshot()
        execute(self.path, "DELETE FROM leases")

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        return partial(leases_at, self.path, namespace)


class TestSqliteLeases(LeaseContract):
    examples = 12

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with tempfile.TemporaryDirectory() as directory:
            yield SqliteLender(Path(directory) / "db-idgen")


class SqliteShop(Shop):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def make(self, default_step: int) -> Source:
        return SqliteSource(marks=MarksFile(self.path), default_step=default_step)

    def set_step(self, tag: str, step: int) -> None:
        SqliteSource(marks=MarksFile(self.path)).set_step(tag, step)

    def forget(self) -> None:
        MarksFile(self.path).snapshot()
        execute(self.path, "DELETE FROM segments")

    def tags(self) -> list[str]:
        return sorted(MarksFile(self.path).snapshot().segments)


class TestSqliteSource(SourceContract):
    examples = 10

    @contextmanager
    def new_shop(self) -> Iterator[Shop]:
        with tempfile.TemporaryDirectory() as directory:
            yield SqliteShop(Path(directory) / "db-idgen")

    @pytest.mark.parametrize("step", [0, -1, 10**9 + 1, 2**63])
    def test_an_impossible_step_is_not_stored(self, shop: Shop, step: int) -> None:
        """An edit to a step that no segment can have leaves the row as it was."""
        source = shop.source()
        source.fetch("t")
        with pytest.raises(ValueError):
            shop.set_step("t", step)
        assert source.fetch("t").step == 10

    def test_max_id_is_the_next_free_one(self, tmp_path: Path) -> None:
        """``max_id`` says where the next segment starts, for tags never fetched too."""
        source = SqliteSource(marks=MarksFile(tmp_path / "m"), default_step=7)
        assert source.max_id("t") == 1
        source.fetch("t")
        assert source.max_id("t") == 8
        assert source.fetch("t").start == 8

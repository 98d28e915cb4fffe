"""The registries that the page on the architecture shows keep the contract; worse ones do not."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_idgen.core.book import Book
from django_idgen.core.clock import SYSTEM_CLOCK, Reading
from django_idgen.core.lease import Namespace
from django_idgen.core.registry import Registry
from django_idgen.leases.memory import MemoryLeases, MemoryStore
from django_idgen.testing.contracts import LeaseContract, Lender
from tests.core.json_leases import SHOWN, DocumentLeases, JsonLeases
from tests.servers import fast_directory

MOST_LINES = (80, 40)


def json_leases(namespace: Namespace, **options: Any) -> Registry:
    registry: Registry = JsonLeases(namespace, **options)
    return registry


class JsonLender(Lender):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "leases.json"

    def make(self, namespace: Namespace) -> Registry:
        return json_leases(namespace, path=self.path, now_us=self.time.read)

    def forget(self) -> None:
        if self.path.exists():
            words = json.loads(self.path.read_text())
            self.path.write_text(json.dumps({**words, "marks": []}))

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        return partial(json_leases, namespace, path=self.path)


class TestJsonLeases(LeaseContract):
    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with tempfile.TemporaryDirectory() as directory:
            yield JsonLender(Path(directory))


class Documents:
    """Documents with versions, each replaced by one conditional statement of SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._run("CREATE TABLE IF NOT EXISTS documents (name PRIMARY KEY, version, text)")

    def read(self, name: str) -> tuple[int, str]:
        """The version and the text; 0 and "" without a document."""
        _, rows = self._run("SELECT version, text FROM documents WHERE name = ?", name)
        return rows[0] if rows else (0, "")

    def replace(self, name: str, text: str, version: int) -> bool:
        """False if the version is another one by now."""
        if version:
            where = "name = ? AND version = ?"
            sql = f"UPDATE documents SET text = ?, version = version + 1 WHERE {where}"
            return self._run(sql, text, name, version)[0] == 1
        sql = "INSERT OR IGNORE INTO documents (text, name, version) VALUES (?, ?, 1)"
        return self._run(sql, text, name)[0] == 1

    def _run(self, sql: str, *values: object) -> tuple[int, list[Any]]:
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            cursor = db.execute(sql, values)
            return cursor.rowcount, cursor.fetchall()


def document_leases(namespace: Namespace, path: Path, **options: Any) -> Registry:
    registry: Registry = DocumentLeases(namespace, documents=Documents(path), **options)
    return registry


class DocumentLender(Lender):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "documents.sqlite3"

    def make(self, namespace: Namespace) -> Registry:
        return document_leases(namespace, self.path, now_us=self.time.read)

    def forget(self) -> None:
        documents = Documents(self.path)
        version, text = documents.read(self.namespace.name)
        if text:
            words = json.dumps({**json.loads(text), "marks": []})
            assert documents.replace(self.namespace.name, words, version)

    def elsewhere(self, namespace: Namespace) -> Callable[[], Registry]:
        return partial(document_leases, namespace, self.path)


class TestDocumentLeases(LeaseContract):
    examples = 5

    @contextmanager
    def new_lender(self) -> Iterator[Lender]:
        with tempfile.TemporaryDirectory(dir=fast_directory()) as directory:
            yield DocumentLender(Path(directory))


class KeptClock(MemoryStore):
    """Reads its clock once and keeps what it read, or (with ``fresh``) the server's time alone."""

    stale = True
    fresh = False
    kept: Reading | None = None

    def run(self, job: Callable[[Book], Any]) -> Any:
        if not self.stale:
            return super().run(job)

        def with_kept_clock(book: Any) -> Any:
            now = book.read_at
            self.kept = self.kept or now
            times = now if self.fresh else self.kept
            book.read_at = Reading(self.kept.registry_us, times.sent_ns, times.received_ns)
            return job(book)

        return super().run(with_kept_clock)


@pytest.mark.parametrize(("stale", "fresh"), [(True, False), (True, True), (False, False)])
def test_a_clock_that_is_older_than_the_request_fails_the_suite(stale: bool, fresh: bool) -> None:
    """As of a store that asks its server for the time now and then; one that is read passes."""

    class KeptLender(Lender):
        def make(self, namespace: Namespace) -> Registry:
            registry = MemoryLeases(namespace)
            registry.store = KeptClock(namespace.name, registry.marks, SYSTEM_CLOCK, self.time.read)
            registry.store.stale, registry.store.fresh = stale, fresh
            return registry

        def forget(self) -> None:
            raise NotImplementedError

    lender = KeptLender()
    with pytest.raises(AssertionError) if stale else nullcontext():
        LeaseContract().test_the_clock_is_read_during_the_request(lender, lender.registry())


@pytest.mark.parametrize(("text", "most"), list(zip(SHOWN, MOST_LINES, strict=True)))
def test_it_is_short(text: str, most: int) -> None:
    """A registry of one's own is one file of some 80 lines, or half of that."""
    assert text.count("\n") <= most

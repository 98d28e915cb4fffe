"""Leaf, its Go version and TinyID as far as their tables go: their own statements, under load."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, contextmanager

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.leaf import TABLE as LEAF_TABLE
from tests.leaf import leaf_fetch
from tests.server_tools import execute

GO_TABLE = {
    "mysql": "CREATE TABLE leaf_alloc (id int NOT NULL AUTO_INCREMENT PRIMARY KEY, "
    "biz_tag varchar(128) NOT NULL DEFAULT '' UNIQUE, max_id bigint NOT NULL DEFAULT 1, "
    "step int NOT NULL, description varchar(256), update_time bigint NOT NULL DEFAULT 0)",
    "postgresql": "CREATE TABLE leaf_alloc (id serial PRIMARY KEY, "
    "biz_tag varchar(128) NOT NULL DEFAULT '' UNIQUE, max_id bigint NOT NULL DEFAULT 1, "
    "step int NOT NULL, description varchar(256), update_time bigint NOT NULL DEFAULT 0)",
}
TINYID_TABLE = (
    "CREATE TABLE tiny_id_info (id bigint NOT NULL PRIMARY KEY, biz_type varchar(63) NOT NULL "
    "UNIQUE, begin_id bigint NOT NULL, max_id bigint NOT NULL, step int, delta int NOT NULL, "
    "remainder int NOT NULL, version bigint NOT NULL)"
)


def make(kind: str, alias: str, tag: str, max_id: int, step: int, shard: tuple[int, int]) -> None:
    """The server's table, with one tag."""
    vendor = connections[alias].vendor
    if kind == "tinyid":
        execute(alias, TINYID_TABLE)
        row = f"(1, '{tag}', {max_id}, {max_id}, {step}, {shard[0]}, {shard[1]}, 0)"
        execute(alias, f"INSERT INTO tiny_id_info VALUES {row}")
        return
    execute(alias, (LEAF_TABLE if kind == "leaf" else GO_TABLE)[vendor])
    execute(
        alias,
        "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) "
        f"VALUES ('{tag}', {max_id}, {step}, 'of old')",
    )


def leaf_ids(connection: BaseDatabaseWrapper, tag: str) -> range:
    """A segment as Leaf takes it, in Java and in Go."""
    segment = leaf_fetch(connection, tag)
    return range(segment.start, segment.stop)


def tinyid_ids(connection: BaseDatabaseWrapper, tag: str) -> range:
    """A segment as TinyID takes it: read, then written if the version is the same."""
    query = "SELECT max_id, step, delta, remainder, version FROM tiny_id_info WHERE biz_type = %s"
    update = (
        "UPDATE tiny_id_info SET max_id = %s, version = version + 1 "
        "WHERE biz_type = %s AND version = %s AND max_id = %s"
    )
    while True:
        with connection.cursor() as cursor:
            cursor.execute(query, [tag])
            at, step, delta, remainder, version = cursor.fetchone()
            cursor.execute(update, [at + step, tag, version, at])
            if cursor.rowcount:
                first = at + 1  # what it gives out lies in (at, at + step]
                return range(first + (remainder - first) % delta, at + step + 1, delta)


FETCH: dict[str, Callable[[BaseDatabaseWrapper, str], range]] = {
    "leaf": leaf_ids,
    "go-leaf": leaf_ids,
    "tinyid": tinyid_ids,
}


class Running:
    """Threads that take segments of ``tag`` and give out all ids of them, until stopped."""

    def __init__(self, kind: str, alias: str, tag: str, threads: int = 3) -> None:
        self.ids: list[int] = []
        self._fetch = FETCH[kind]
        self._alias = alias
        self._tag = tag
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._serve) for _ in range(threads)]

    def _serve(self) -> None:
        with closing(connections.create_connection(self._alias)) as connection:
            while not self._stopped.wait(0.002):
                self.ids.extend(self._fetch(connection, self._tag))

    def wait_for(self, count: int) -> None:
        """Until it has given out so many more ids."""
        wanted = len(self.ids) + count
        while len(self.ids) < wanted:
            assert any(thread.is_alive() for thread in self._threads)
            self._stopped.wait(0.01)

    @contextmanager
    def serving(self):  # type: ignore[no-untyped-def]
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopped.set()
            for thread in self._threads:
                thread.join(30)

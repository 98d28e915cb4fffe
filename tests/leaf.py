"""A Meituan Leaf that shares our database: its own table, and its own statements."""

from __future__ import annotations

from django.core.management import call_command
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idgen.core.errors import SegmentUnavailable
from django_idgen.core.segment import Segment
from django_idgen.core.source import Source
from tests.server_tools import execute

# As Leaf's README has it; what it has for MySQL alone is put into the others' words.
TABLE = {
    "mysql": """
        CREATE TABLE `leaf_alloc` (
          `biz_tag` varchar(128)  NOT NULL DEFAULT '',
          `max_id` bigint(20) NOT NULL DEFAULT '1',
          `step` int(11) NOT NULL,
          `description` varchar(256)  DEFAULT NULL,
          `update_time` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
          PRIMARY KEY (`biz_tag`)
        ) ENGINE=InnoDB""",
    "postgresql": """
        CREATE TABLE leaf_alloc (
          biz_tag varchar(128) NOT NULL DEFAULT '' PRIMARY KEY,
          max_id bigint NOT NULL DEFAULT 1,
          step integer NOT NULL,
          description varchar(256) DEFAULT NULL,
          update_time timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP)""",
}
INSERT = (
    "INSERT INTO leaf_alloc (biz_tag, max_id, step, description) "
    "VALUES ('leaf-segment-test', 1, 2000, 'Test leaf Segment Mode Get Id')"
)


def make_leaf(alias: str) -> None:
    """Leaf's table, as Leaf's own SQL makes it."""
    execute(alias, TABLE[connections[alias].vendor])


def migrated_leaf(alias: str) -> None:
    """Leaf's table, taken over by ``migrate``."""
    make_leaf(alias)
    call_command("migrate", "django_idgen", database=alias, verbosity=0)


def leaf_fetch(connection: BaseDatabaseWrapper, tag: str) -> Segment:
    """A segment as Leaf takes it (IDAllocMapper): UPDATE and SELECT in one transaction."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = %s", [tag])
        cursor.execute("SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = %s", [tag])
        _, max_id, step = cursor.fetchone()
        cursor.execute("COMMIT")
    return Segment(tag, max_id - step, max_id, step)


def fetch_again(source: Source, tag: str) -> Segment:
    """A segment of ``source``, tried 30 times: others may lock the row for longer than it waits.

    Raises the last :class:`SegmentUnavailable`.
    """
    for _ in range(30):
        try:
            return source.fetch(tag)
        except SegmentUnavailable as error:
            refused = error
    raise refused

"""The faults of earlier systems, of packages beside ours and of our own drafts, by number.

A test names the fault that it is about in its docstring (``Hazard 12: ...``), and a break by its
rule. ``docs/reference.py`` makes the page of hazards from both.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HAZARDS", "Hazard", "tests_of"]

ROOT = Path(__file__).parent.parent
LEAF, GO_LEAF, BAIDU, TINYID = "Leaf", "Go Leaf", "uid-generator", "TinyID"
COSID, FINGER_MARK, PEAR = "CosId", "finger-mark", "pear-flower"
YITTER, SONYFLAKE, DJANGO = "yitter", "sonyflake", "Django"
ALL, NONE, DRAFT = "all of them", "none handles it", "our drafts"
NAMED = re.compile(r"[Hh]azards? (\d+(?:(?:, | and | to )\d+)*)")


@dataclass(frozen=True, slots=True)
class Hazard:
    """A fault that repeats, loses or spoils ids. Frozen."""

    number: int
    fault: str
    who: tuple[str, ...]
    """The systems that have it."""


FAULTS: tuple[tuple[str, ...], ...] = (
    # Worker ids and clocks
    (
        FINGER_MARK,
        "A lease has a constant value: a renewal extends its present holder's.",
    ),
    (FINGER_MARK, "One error of Redis ends renewal for good."),
    (FINGER_MARK, "Without a registration a random worker id is used, and ten tries may all fail."),
    (FINGER_MARK, LEAF, COSID, YITTER, "A restart after the clock was set back repeats ids."),
    (LEAF, "Two nodes that start together both become worker 0."),
    (LEAF, "The check of the clock at the start fails, and the start continues with an old file."),
    (LEAF, "A clock that went back makes all callers spin under the lock."),
    (LEAF, FINGER_MARK, COSID, BAIDU, "Time that no longer fits its bits makes negative ids."),
    (BAIDU, YITTER, "A worker id or sequence past its range spills into the next field."),
    (COSID, "A file with a worker id is believed after another node got that id."),
    (COSID, "The loss of a machine id is logged, and ids continue."),
    (COSID, "Leases expire by the clients' clocks: one that is fast takes a live id."),
    (COSID, SONYFLAKE, "Hosts are told apart by address and pid, which containers share."),
    (YITTER, SONYFLAKE, "A forked child repeats its parent's ids."),
    (SONYFLAKE, "A step back of the clock is slept through with the lock held."),
    (YITTER, "Time runs ahead and is stored nowhere: a quick restart repeats."),
    (ALL, "Redis is flushed, or a replica that missed writes is promoted: one worker id twice."),
    (NONE, "A process that was stopped past its lease wakes up and continues."),
    # Segments
    (LEAF, "Callers fail if the database takes longer than 10 ms while both buffers are empty."),
    (GO_LEAF, "All waiters wake, one gets ids, and the others fail though there are some."),
    (GO_LEAF, "A preload that fails as the last id goes is never tried again."),
    (GO_LEAF, "An error answers id 0, and the lock of all tags is held during a query."),
    (LEAF, "A mode that is off answers 0 with success."),
    (LEAF, "A step edited in the table does not reach nodes that run."),
    (TINYID, "A later segment may be used before an earlier one."),
    (TINYID, "A client stays with one database that is down, and its token is in logged URLs."),
    (BAIDU, "Two threads take one slot of an emptying ring."),
    (BAIDU, "Prepared ids drift away from the clock, and never come back."),
    (PEAR, "A race at the first use makes two generators with one seed."),
    (PEAR, "Errors are returned as ids: -1, -2, -3."),
    (DJANGO, "A rollback of the caller's transaction takes a grant back that is in use."),
    (DJANGO, "A second connection to a SQLite file waits for the caller's own lock."),
    (DJANGO, "A background thread's connection stays open, so a test database can't be dropped."),
    (ALL, "A database replica that missed updates grants a range again."),
    # Peers in Python and Django
    ("snowflake-id", "No lock, and None as an id when the clock goes back or a tick is full."),
    (
        "snowflake-id",
        "flakeid",
        "snowflake-id-toolkit",
        "sonyflake-py",
        "Two children of one parent repeat ids.",
    ),
    ("snowflake-id-toolkit", "The sequence overflows into the worker id."),
    ("uuid6", "A burst drifts a millisecond ahead with each id."),
    ("heeranjid-django", "A query for each id, and its row stays locked until the caller commits."),
    ("uidgenerator-utils", "A filter on None takes an id."),
    ("django-ulid", "makemigrations sees a change each time."),
    ("django-hashid-field", "A ModelSerializer needs the field declared."),
    ("DRF", "Big integers become text in keys but not in foreign keys, nor in the schema."),
    (DJANGO, "F() followed by get() repeats ranges without a transaction."),
    (DJANGO, "A router reads the row back from a replica."),
    (DJANGO, "A thread's connection that the server closed fails for ever."),
    (DJANGO, "Ten finished threads leave ten connections."),
    (DJANGO, "One explicit key moves AUTOINCREMENT on MariaDB and SQLite."),
    # Our own drafts
    (DRAFT, "A fence by time after a loss is too short for a second loss or a slow clock."),
    (DRAFT, "A renewal lowers the mark after the registry's clock went back."),
    (DRAFT, "One token for a process: a late release frees a newer lease."),
    (DRAFT, "A lease that expired is renewed after a failover forgot its successor."),
    (DRAFT, "redis-py sends a script again: one segment is in the pool twice."),
    (DRAFT, "What is left is read from an iterator that a thread still uses."),
    (DRAFT, "A live fleet moves from one kind of registry to another."),
    (DRAFT, "uWSGI forks without Python's hooks."),
    (DRAFT, "A grant in the caller's SQLite transaction goes with its rollback."),
    (DRAFT, "A rollout from n to 2n databases collides."),
    (DRAFT, "PostgreSQL names the old timeline after a promotion; MariaDB has no server_uuid."),
    (DRAFT, "The skip after a failover follows the row's step, not the longest fetch."),
    (DRAFT, "leaf_alloc is flushed or restored under a running process."),
    (DRAFT, "One name for a mapping and a package."),
    (DRAFT, "migrate needs an id before our tables are there."),
    (DRAFT, "freezegun and time-machine replace the clock."),
    (DRAFT, "MariaDB's NOW() steps back in autumn."),
    (DRAFT, "Children of multiprocessing and Celery run no atexit."),
    (DRAFT, "An in-memory SQLite database fails in a second thread."),
    (DRAFT, "One locked row holds up the loads of all tags."),
    # Found by attack, by original clients, by first users
    (DRAFT, "A release computes the mark from a number that its caller sent."),
    (DRAFT, "A client frees and takes the machine id with which another one works."),
    (DRAFT, "One client takes all worker ids, or stamps an hour ahead."),
    (DRAFT, "A client without the right to change a tag moves it by a floor."),
    (DRAFT, "Lease tokens are read letter by letter through look-ups of the admin."),
    (DRAFT, "A slow regular expression runs before authentication."),
    (DRAFT, "200,000 unknown keys in a body cost 11 s."),
    (DRAFT, "A collation lets a token for Orders take ids of orders."),
    (DRAFT, "A revoked token is made valid again."),
    (DRAFT, "An error page shows a secret."),
    (DRAFT, "Two names of one CosId tag are two counters."),
    (DRAFT, "Original clients refuse a bound of the clock after a restart."),
    (DRAFT, "A renamed model's tag begins at 1 again."),
    (DRAFT, "A misspelt tag is made silently."),
    (DRAFT, "A generated column that is not unique repeats after an edit."),
    (DRAFT, "An app that is not installed is imported."),
    (DRAFT, "Importing a library patches others."),
    (DRAFT, "Application code makes tables."),
    (DRAFT, "migrate accepts a foreign table with other column types."),
    (DRAFT, "A rate counts fetches, and is shown as use."),
    (DRAFT, "A database sequence and a tag on one table meet."),
    (DRAFT, "Counters of a day repeat at midnight or across time zones."),
    (DRAFT, "Scrambled ids of an old key lead to another row."),
    (DRAFT, "A ring filled ahead is never filled again after the clock stood still."),
    (DRAFT, "A key that the user has set is inserted, never updated."),
    (DRAFT, "update_conflicts leaves a key on the instance that no row has."),
    (DRAFT, "A check dies of a column type that Django does not know."),
    (DRAFT, "Another app's data migration runs between two of django_idgen's."),
    (DRAFT, "Fixtures bring keys that the next id repeats."),
    # Beside other people's software
    ("django-cachalot", "A query cache answers the SELECT after our UPDATE."),
    (DRAFT, "One of many doors moves a tag before its table was looked at."),
    (DRAFT, "A wrapper of a source loses the floor."),
    (DRAFT, "Of two settings that exclude each other one wins silently."),
    (DRAFT, "A table in another case, schema or view counts as empty."),
    ("django-tenants", "A raw cursor passes by the search path that a package sets."),
    (DRAFT, "One client's lead raises what all others may stamp."),
    (DRAFT, "One tag's long range raises the skip of all tags."),
    (DJANGO, "A pool in the ENGINE holds our connection, too."),
    ("history packages", "A copied field generates ids on its own."),
    ("model_bakery", "has_default() is true, and default is not provided."),
    ("GraphQL, spreadsheets", "Ids as JSON numbers: another row is stored without an error."),
    (DRAFT, "All ids of a quiet process are multiples of 16."),
    (DRAFT, "One wrong reading of the clock binds a process to a period far away."),
    # The edges
    ("ASGI servers", "A body is spooled to disk before any view sees it."),
    (DRAFT, "Failed credentials of one kind are not counted."),
    (DRAFT, DJANGO, "JSON 950 deep, or in a charset that Python cannot decode."),
    (DRAFT, "An owner is recognised by a label that is cut."),
    (DRAFT, "Names with newlines and escapes are logged as they are."),
    (DRAFT, "A file is written through a link, or written in part, and nothing tells."),
    (DRAFT, "A number in a service's answer is past every bound."),
    (DRAFT, "A filling of a column never ends while rows arrive."),
    (DRAFT, "A change of a table fails half-way and leaves foreign keys off."),
    (DRAFT, "A next_id that its caller keeps gets slow, or dies of an exception."),
)
HAZARDS = tuple(Hazard(number, fault, tuple(who)) for number, (*who, fault) in enumerate(FAULTS, 1))


def tests_of() -> dict[int, list[str]]:
    """The tests that are about each fault: those that name it first, then those of breaks.

    Last those of modules that name it.
    """
    from .breaks.catalogue import BREAKS

    named: dict[int, list[str]] = {}
    covered: dict[int, list[str]] = {}
    shipped = ROOT / "django_idgen" / "testing" / "contracts"
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *shipped.rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        whole = _numbers(ast.get_docstring(tree) or "")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                name = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
                for number in _numbers(ast.get_docstring(node) or ""):
                    named.setdefault(number, []).append(name)
                for number in whole:
                    covered.setdefault(number, []).append(name)
    for each in BREAKS:
        for number in _numbers(each.rule):
            tests = [test.partition("[")[0] for test in each.tests]
            named.setdefault(number, []).extend(tests)
    return {
        number: list(dict.fromkeys([*named.get(number, ()), *covered.get(number, ())]))
        for number in {*named, *covered}
    }


def _numbers(text: str) -> list[int]:
    numbers = []
    for named in NAMED.findall(text):
        for part in re.split(r", | and ", named):
            first, _, last = part.partition(" to ")
            numbers += range(int(first), int(last or first) + 1)
    return numbers

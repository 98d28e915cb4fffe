"""Random nests of transactions, from several threads and several processes at once.

``IDGEN_LONG=1`` runs long histories.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connections
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.app.models import Folder, Invoice
from tests.places import STEP, make_tables, place, wait_endlessly
from tests.simulation.sessions import ProcessSession, Reply, ThreadSession
from tests.tiers import LONG, examples

__all__ = ["place"]

SESSIONS = 3


@pytest.fixture(autouse=True)
def _who_waits_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_endlessly(monkeypatch.setattr)


def histories(count: int) -> settings:
    return settings(
        max_examples=examples(count),
        stateful_step_count=60 if LONG else 40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@dataclass
class Frame:
    """One level of a nest, and the rows that stand or fall with it."""

    kind: str
    invoices: list[int] = field(default_factory=list)
    folders: list[int] = field(default_factory=list)

    def take_over(self, other: Frame | Reply) -> None:
        made = other if isinstance(other, dict) else vars(other)
        self.invoices += made["invoices"]
        self.folders += made["folders"]


class _Monitor:
    """Tells whether anything was committed to a SQLite database."""

    def __init__(self, alias: str) -> None:
        self._db = sqlite3.connect(connections.settings[alias]["NAME"])
        self._version = 0
        self.has_changed()

    def has_changed(self) -> bool:
        before = self._version
        (self._version,) = self._db.execute("PRAGMA data_version").fetchone()
        return self._version != before

    def close(self) -> None:
        self._db.close()


class World:
    """The sessions, every id that was ever given out, and the rows that should be there."""

    def __init__(self, alias: str, start: Callable[[str], Any]) -> None:
        self.alias = alias
        make_tables(alias)
        self.sqlite = connections[alias].vendor == "sqlite"
        self.sessions = [start(alias) for _ in range(SESSIONS)]
        self.nests: list[list[Frame]] = [[Frame("rows")] for _ in range(SESSIONS)]
        self.disturbed = [False] * SESSIONS
        """Whether others have written to the database since the session's transaction began."""
        self.monitor = _Monitor(alias) if self.sqlite else None
        self.invoices: set[int] = set()
        self.folders: set[int] = set()
        for session in range(SESSIONS):
            self.take_in(self.sessions[session].do("take"))

    def do(self, session: int, command: str, count: int = 1) -> Reply:
        reply: Reply = self.sessions[session].do(command, count)
        self.take_in(reply)
        if self.monitor is not None and self.monitor.has_changed():
            for other in range(SESSIONS):
                self.disturbed[other] |= other != session
        if reply["locked"]:
            # SQLite's own rule under WAL: what was read is not the latest any more. But
            # then it was somebody else who wrote, not we on another connection.
            assert self.sqlite
            assert self.disturbed[session]
            del self.nests[session][1:]
        return reply

    def take_in(self, reply: Reply) -> None:
        for known, new in ((self.invoices, reply["invoices"]), (self.folders, reply["folders"])):
            assert len(set(new)) == len(new)
            assert not known & set(new)
            known.update(new)

    def may_use_rows(self, session: int) -> bool:
        # SQLite has one writer: another one's would have to wait for it.
        others = (nest for number, nest in enumerate(self.nests) if number != session)
        return not self.sqlite or all(len(nest) == 1 for nest in others)

    def end_of(self, session: int) -> Frame:
        """The innermost atomic() of the session's nest, with all that is inside of it."""
        nest = self.nests[session]
        inner = nest.pop()
        while inner.kind != "atomic":
            nest[-1].take_over(inner)
            inner = nest.pop()
        return inner

    def close(self) -> None:
        for session in self.sessions:
            session.end()
        if self.monitor is not None:
            self.monitor.close()
        rows = Frame("rows")
        for nest in self.nests:
            rows.take_over(nest[0])
        stored = Invoice.objects.using(self.alias).values_list("pk", flat=True)
        assert sorted(stored) == sorted(rows.invoices)
        stored = Folder.objects.using(self.alias).values_list("pk", flat=True)
        assert sorted(stored) == sorted(rows.folders)


class Nests(RuleBasedStateMachine):
    """One history after the other in one world: ids must differ over all of them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    # One does most of it, so that its nests grow deep between what the others do.
    session = st.sampled_from([0, 0, 0, 0, *range(1, SESSIONS)])

    @rule(session=session)
    def begin(self, session: int) -> None:
        nest = self.world.nests[session]
        if self.world.may_use_rows(session) and len(nest) < 6:
            if len(nest) == 1:
                self.world.disturbed[session] = False
            if not self.world.do(session, "begin")["locked"]:
                nest.append(Frame("atomic"))

    @rule(session=session, raw=st.booleans())
    def savepoint(self, session: int, raw: bool) -> None:
        nest = self.world.nests[session]
        if 1 < len(nest) < 6:
            command = "raw_savepoint" if raw else "savepoint"
            if not self.world.do(session, command)["locked"]:
                nest.append(Frame("savepoint"))

    @rule(session=session)
    def roll_back_to(self, session: int) -> None:
        nest = self.world.nests[session]
        if nest[-1].kind == "savepoint":
            self.world.do(session, "roll_back_to")
            nest.pop()

    @rule(session=session)
    def commit(self, session: int) -> None:
        nest = self.world.nests[session]
        if len(nest) > 1 and not self.world.do(session, "commit")["locked"]:
            inner = self.world.end_of(session)
            nest[-1].take_over(inner)

    @rule(session=session)
    def roll_back(self, session: int) -> None:
        if len(self.world.nests[session]) > 1:
            self.world.do(session, "roll_back")
            self.world.end_of(session)

    @rule(session=session, count=st.integers(0, 2 * STEP))
    def read_and_take(self, session: int, count: int) -> None:
        """Ids that are taken between a transaction's first read and its first write."""
        if self.world.may_use_rows(session):
            self.world.do(session, "read")
            self.world.do(session, "take", count)

    @rule(
        session=session,
        command=st.sampled_from(["save", "save_many"]),
        count=st.integers(1, STEP + 5),
    )
    def save(self, session: int, command: str, count: int) -> None:
        if self.world.may_use_rows(session):
            nest = self.world.nests[session]
            reply = self.world.do(session, command, count)
            if not reply["locked"]:
                nest[-1].take_over(reply)

    @rule(session=session, count=st.integers(1, 2 * STEP))
    def take(self, session: int, count: int) -> None:
        self.world.do(session, "take", count)

    def teardown(self) -> None:
        for session, nest in enumerate(self.world.nests):
            while len(nest) > 1:
                self.roll_back(session)


def _live(alias: str, start: Callable[[str], Any], *, count: int) -> None:
    world = World(alias, start)
    try:
        run_state_machine_as_test(lambda: Nests(world), settings=histories(count))
    finally:
        world.close()


def test_threads(place: str) -> None:
    """Whatever threads nest and roll back, no id is given out twice and rows stay consistent."""
    _live(place, ThreadSession, count=20)


@pytest.mark.long
def test_processes(place: str) -> None:
    """The same for processes, each with a worker id and segments of its own."""
    _live(place, ProcessSession, count=6)

"""Fleets: real processes that take ids under settings of their own, and what they took."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import connections

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.core.layout import BitLayout, parse_layout
from tests import warm
from tests.places import make_tables
from tests.server_tools import ROOT

KEYS = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD", "NAME", "OPTIONS")
PATIENCE = 90
SHORT = 2
"""Seconds of a window: short, so that the windows of a fleet end within a test."""
DENSE: dict[str, Any] = {
    "LAYOUT": {"time": 41, "worker": 2, "sequence": 2, "tick": 0.05},
    "OPTIONS": {"max_ahead": 3},
}
"""A generator with so few ids a tick, and worker ids, that a fleet uses all of them up.

It goes as far past the time as it may, and leaves no gap. So whoever is lent a tick again,
with any worker id that was in use, repeats an id at once: nothing is left to chance."""
FAR: dict[str, Any] = {
    "LAYOUT": {**DENSE["LAYOUT"], "sequence": 1, "tick": 0.25},
    "OPTIONS": {"max_ahead": 100},
}
"""The same, so far ahead that neither the time nor an old mark comes up with it in a test."""
Idgen = dict[str, Any]


def idgen(
    leases: dict[str, Any] | None = None, *, window: float = SHORT, **generator: Any
) -> Idgen:
    """The setting ``IDGEN`` with a default generator of these leases."""
    given = leases or {}
    options = {"window": window, **given.get("OPTIONS", {})}
    return {
        "GENERATORS": {"default": {**generator, "LEASES": {**given, "OPTIONS": options}}},
        "SEGMENTS": {
            "SOURCE": {"OPTIONS": {"database": _database(given)}},
            "OPTIONS": {"timeout": 20},  # on a machine that has other things to do
        },
    }


def dense(leases: dict[str, Any], **changed: Any) -> Idgen:
    """The setting ``IDGEN`` with a default generator as in :data:`DENSE`."""
    return idgen(leases, **DENSE | changed)


def _database(leases: dict[str, Any]) -> str:
    return str(leases.get("OPTIONS", {}).get("database") or "default")


def on_database(alias: str, **options: Any) -> dict[str, Any]:
    return {"OPTIONS": {"database": alias, **options}}


def on_redis(alias: str, database: str, **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "django_idgen.leases.redis.RedisLeases",
        "OPTIONS": {"alias": alias, "database": database, **options},
    }


def on_zookeeper(hosts: str, database: str, **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "django_idgen.leases.zookeeper.ZooKeeperLeases",
        "OPTIONS": {"hosts": hosts, "database": database, **options},
    }


def _databases_in(setting: Idgen) -> Iterator[str]:
    for key, value in setting.items():
        if key == "database":
            yield value
        elif isinstance(value, dict):
            yield from _databases_in(value)


def layout_of(setting: Idgen) -> BitLayout:
    """The layout of the default generator."""
    entry = setting["GENERATORS"]["default"]
    return parse_layout(entry.get("LAYOUT", "standard"), epoch=entry.get("EPOCH"))


def lowest_of(takers: Iterable[Taker]) -> int:
    """The lowest id that any of them has taken."""
    return min(number for taker in takers for _, number in taker.ids())


def highest_of(takers: Iterable[Taker]) -> int:
    """The highest id that any of them has taken so far.

    All ids past a fence are above it. Where marks that are kept, too, hold back whoever
    would repeat an id, only this tells whether the fence is there.
    """
    return max(number for taker in takers for _, number in taker.ids())


def databases_of(aliases: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The setting ``DATABASES`` as another process is told of it."""
    entries = {alias: connections.settings[alias] for alias in aliases}
    return {
        alias: {key: entry[key] for key in KEYS if key in entry} for alias, entry in entries.items()
    }


class Child:
    """A process that takes ids until it is told to stop, and writes each batch down, a line."""

    def __init__(self, argv: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        self._out: IO[str] = log.open("w")
        self._errors: IO[str] = log.with_suffix(".errors").open("w")
        self._process = warm.Process(
            argv, cwd=ROOT, env={**os.environ, **env}, stdout=self._out, stderr=self._errors
        )

    def said(self) -> str:
        logs = (self.log, self.log.with_suffix(".errors"))
        return "\n".join(log.read_text()[-1500:] for log in logs)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().split("\n")[:-1]]

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
        while not holds():
            assert self._process.poll() is None, self.said()
            assert SYSTEM_CLOCK.stopwatch() < deadline, (what, self.said())
            SYSTEM_CLOCK.sleep(0.05)

    def end(self) -> None:
        try:
            assert self._process.wait(60) == 0, self.said()
        finally:
            self._process.kill()
            self._out.close()
            self._errors.close()


class Taker(Child):
    """One process of a fleet."""

    def __init__(self, setting: Idgen, stop: Path, log: Path, tags: list[str]) -> None:
        self.setting = setting
        databases = databases_of(connections.settings)
        given = {"DATABASES": databases, "CACHES": settings.CACHES, "IDGEN": setting}
        argv = ["-W", "ignore", "-m", "tests.ops.doctor.taker", str(stop), *tags]
        super().__init__(argv, {"FLEET_SETTINGS": json.dumps(given)}, log)

    def ids(self) -> list[tuple[str, int]]:
        return [
            (line[0], int(word))
            for line in self.lines()
            if line[0] != "refused"
            for word in line[1:]
        ]

    def refusals(self) -> set[str]:
        return {line[1] for line in self.lines() if line[0] == "refused"}

    def wait_for(self, count: int) -> None:
        """Until it has taken so many more ids."""
        before = len(self.ids())
        self.wait_until(lambda: len(self.ids()) >= before + count, f"{count} ids")

    def wait_for_refusal(self) -> None:
        self.wait_until(lambda: bool(self.refusals()), "a refusal")

    def wait_until_ahead(self) -> None:
        """Until it stamps nearly as far past the time as it may."""
        layout = layout_of(self.setting)
        most = self.setting["GENERATORS"]["default"]["OPTIONS"]["max_ahead"]

        def is_ahead() -> bool:
            ids = self.ids()
            soon = datetime.now(UTC) + timedelta(seconds=most * 2 / 3)
            return bool(ids) and layout.unpack(ids[-1][1]).created > soon

        self.wait_until(is_ahead, f"ids of {most} s ahead")


class Fleet:
    """All processes of a test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.takers: list[Taker] = []
        self._stops: dict[str, Path] = {}

    def start(
        self, setting: Idgen, count: int = 2, *, name: str = "old", tags: str = ""
    ) -> list[Taker]:
        """So many processes with ``setting``, of which ``name`` is told when to stop."""
        for alias in set(_databases_in(setting)):
            if connections[alias].vendor != "sqlite":
                make_tables(alias)
        stop = self._stops.setdefault(name, self._directory / f"stop-{name}")
        made = [
            Taker(setting, stop, self._directory / f"{name}-{number}.log", tags.split())
            for number in range(len(self.takers), len(self.takers) + count)
        ]
        self.takers += made
        return made

    def stop(self, name: str) -> None:
        self._stops[name].touch()

    def end(self) -> None:
        for stop in self._stops.values():
            stop.touch()
        for taker in self.takers:
            taker.end()

    def assert_no_repeats(self) -> int:
        """No id of a kind came twice, from whomever; returns how many there were."""
        counts = Counter(each for taker in self.takers for each in taker.ids())
        repeated = [each for each, count in counts.items() if count > 1]
        assert not repeated, f"{len(repeated)} ids came twice, such as {repeated[:3]}"
        return len(counts)


@contextmanager
def fleet(directory: Path) -> Iterator[Fleet]:
    """Processes for a block; all are stopped at its end."""
    made = Fleet(directory)
    try:
        yield made
    finally:
        made.end()

"""Fleets: real processes that take ids under settings of their own, and what they took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import connections

from django_idgen.core.clock import SYSTEM_CLOCK
from tests.server_tools import ROOT

KEYS = ("ENGINE", "HOST", "PORT", "USER", "PASSWORD", "NAME", "OPTIONS")
PATIENCE = 90
SHORT = 2
"""Seconds of a window: short, so that the windows of a fleet end within a test."""
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


def _database(leases: dict[str, Any]) -> str:
    options = leases.get("OPTIONS", {})
    nested = options.get("primary", {}).get("OPTIONS", {})
    return str(options.get("database") or nested.get("database") or "default")


def on_database(alias: str, **options: Any) -> dict[str, Any]:
    return {"OPTIONS": {"database": alias, **options}}


def on_redis(alias: str, database: str, **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "django_idgen.leases.redis.RedisLeases",
        "OPTIONS": {"alias": alias, "database": database, **options},
    }


class Taker:
    """One process."""

    def __init__(self, setting: Idgen, stop: Path, log: Path, tags: list[str]) -> None:
        self.log = log
        self._out: IO[str] = log.open("w")
        self._errors: IO[str] = log.with_suffix(".errors").open("w")
        databases = {
            alias: {key: entry[key] for key in KEYS if key in entry}
            for alias, entry in connections.settings.items()
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.doctor.taker", str(stop), *tags],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.doctor.site",
                "FLEET_DATABASES": json.dumps(databases),
                "FLEET_CACHES": json.dumps(settings.CACHES),
                "FLEET_IDGEN": json.dumps(setting),
            },
            stdout=self._out,
            stderr=self._errors,
        )

    def said(self) -> str:
        logs = (self.log, self.log.with_suffix(".errors"))
        return "\n".join(log.read_text()[-1500:] for log in logs)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().split("\n")[:-1]]

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
        self._wait(lambda: len(self.ids()) >= before + count, f"{count} ids")

    def wait_for_refusal(self) -> None:
        self._wait(lambda: bool(self.refusals()), "a refusal")

    def _wait(self, holds: Any, what: str) -> None:
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

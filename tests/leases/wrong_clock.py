"""A process whose wall clock is hours off, on worker ids that a server's clock decides on."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

WINDOW = 600_000
LAPSING = 500
"""Ticks of a window that is to be over soon; Redis' ceiling is two of them ahead."""
IDLE_AFTER = 900.0
"""Seconds, as the scheduler has it."""


def set_wall_clock_off(seconds: float) -> None:
    """From here on all wall clocks of this process are off. Call it before anything is imported."""
    import time_machine

    exact, coarse = time.clock_gettime_ns, 5
    # time-machine moves all readers but this one, by which core/clock.py finds it out.
    time.clock_gettime_ns = lambda clock: exact(time.CLOCK_REALTIME if clock == coarse else clock)
    time_machine.travel(time.time() + seconds, tick=True).start()


def spaces(prefix: str) -> dict[str, Any]:
    """The namespaces of one test, by what became of them."""
    from django_idgen.core.layout import parse_layout
    from django_idgen.core.lease import Namespace

    layout = parse_layout("standard")
    space = Namespace(
        prefix,
        epoch_us=layout.epoch_us,
        tick_us=layout.tick_us,
        max_ticks=layout.max_ticks,
        workers=range(1),
        window_ticks=WINDOW,
        skew_ticks=5000,
        fingerprint={**layout.fingerprint(), "workers": [0, 1]},
    )
    changes: dict[str, dict[str, Any]] = {
        "fresh": {},
        "held": {},
        "lapsed": {"window_ticks": LAPSING},
        # Redis lends on to whom it has lent, whatever the database has lost.
        "lost": {"workers": range(2)},
    }
    return {
        name: replace(space, name=f"{prefix}-{name}", **changed)
        for name, changed in changes.items()
    }


def registry_in(place: dict[str, str], namespace: Any) -> Any:
    """A registry on the server at ``place``."""
    from django_idgen.leases.database import DatabaseLeases
    from django_idgen.leases.redis.registry import RedisLeases

    if "redis" in place:
        return RedisLeases(namespace, alias=place["redis"], database=place["database"], timeout=30)
    return DatabaseLeases(namespace, database=place["database"], timeout=30)


def act(place: dict[str, str], prefix: str) -> dict[str, Any]:
    """What becomes of this process in each of the namespaces."""
    known = {name: registry_in(place, space) for name, space in spaces(prefix).items()}
    return {
        "wall_us": time.time_ns() // 1000,
        "renewed": {name: known[name].renew_seen(idle_after=IDLE_AFTER) for name in known},
        "now_us": {name: rewriting_at(known[name]) for name in known},
        "granted": {name: acquired(known[name], leaving=name == "fresh") for name in known},
        "read_us": [each.inspect().now_us for each in known.values()],
        "id": first_id(place),
    }


def rewriting_at(registry: Any) -> int:
    """The moment at which the doctor would change what is stored."""
    moments: list[int] = []

    def refuse(_stored: object, now_us: int) -> Any:
        moments.append(now_us)
        raise LookupError

    with suppress(LookupError):
        registry.stored_book().rewrite(refuse)
    return moments[-1]


def acquired(registry: Any, *, leaving: bool) -> list[dict[str, Any]]:
    """The lease as it was granted, and as it was renewed; none if there was no free worker id.

    One who is ``leaving`` then gives it back.
    """
    from django_idgen.core.errors import NoFreeWorker

    try:
        granted = registry.acquire(holder="of another time")
    except NoFreeWorker:
        return []
    renewed = registry.renew(granted.lease, last_tick=granted.lease.start)
    if leaving:
        assert registry.release(renewed.lease, last_tick=granted.lease.start)
    return [{**asdict(each.lease), **asdict(each.reading)} for each in (granted, renewed)]


def first_id(place: dict[str, str]) -> int:
    from django.test import override_settings

    from django_idgen import next_id
    from django_idgen.process import maps

    leases: dict[str, Any] = {"OPTIONS": {"database": place["database"]}}
    if "redis" in place:
        leases["BACKEND"] = "django_idgen.leases.redis.RedisLeases"
        leases["OPTIONS"]["alias"] = place["redis"]
    with override_settings(IDGEN={"GENERATORS": {"default": {"LEASES": leases}}}):
        found = next_id()
        maps.reset()
    return found


def main() -> None:
    hours, place, prefix = json.loads(sys.argv[1])
    set_wall_clock_off(hours * 3600)
    import django

    django.setup()
    from django.conf import settings
    from django.db import connections

    connections.settings[place["database"]]["NAME"] = place["name"]
    if "redis" in place:
        backend = {"BACKEND": "django_redis.cache.RedisCache", "OPTIONS": {}}
        settings.CACHES = {place["redis"]: {**backend, "LOCATION": place["url"]}}
    print(json.dumps(act(place, prefix)))


if __name__ == "__main__":
    main()

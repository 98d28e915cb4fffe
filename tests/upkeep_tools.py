"""What the tests of upkeep share: settings on a server, and a job killed in its middle."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from django.conf import settings
from django.db import connections
from django.test import override_settings

from django_idgen.core.clock import SYSTEM_CLOCK
from django_idgen.db.installation import DatabaseOwner
from django_idgen.db.redis_client import raw_client
from django_idgen.models import Installation
from django_idgen.process import lifecycle, maps
from tests import warm
from tests.server_tools import ROOT, execute_apart

REDIS_LEASES = "django_idgen.leases.redis.RedisLeases"
POOL = "django_idgen.sources.pool.PoolSource"
PATIENCE = 60.0


@contextmanager
def upkeep_on(idgen: dict[str, Any]) -> Iterator[None]:
    """The setting ``IDGEN`` for a block; whatever was opened for it is closed."""
    with override_settings(IDGEN=idgen):
        try:
            yield
        finally:
            lifecycle.close_all()


def leases_on(alias: str, **options: Any) -> dict[str, Any]:
    """``IDGEN["GENERATORS"]`` with the registry in the database ``alias``."""
    return {"GENERATORS": {"default": {"LEASES": {"OPTIONS": {"database": alias, **options}}}}}


def redis_leases_on(redis: str, alias: str, **options: Any) -> dict[str, Any]:
    """``IDGEN["GENERATORS"]`` with the registry in Redis, rooted in the database ``alias``."""
    given = {"alias": redis, "database": alias, "timeout": 20, **options}
    leases = {"BACKEND": REDIS_LEASES, "OPTIONS": given}
    return {"GENERATORS": {"default": {"LEASES": leases}}}


def pool_on(redis: str, alias: str, *, max_ids: int = 1_000_000, **behind: Any) -> dict[str, Any]:
    """``IDGEN["SEGMENTS"]`` with a pool in Redis, before the database ``alias``."""
    source: dict[str, Any] = {"OPTIONS": {"database": alias, **behind} if alias else behind}
    if "databases" in behind:
        source["BACKEND"] = "django_idgen.contrib.sharding.ShardedSource"
    options = {"alias": redis, "timeout": 20, "source": source, "max_ids": max_ids}
    return {"SEGMENTS": {"SOURCE": {"BACKEND": POOL, "OPTIONS": options}}}


def forget_redis(redis: str, *aliases: str) -> None:
    """Delete what the installations in the databases ``aliases`` have in a shared Redis."""
    with closing(raw_client(redis)) as client:
        for alias in aliases:
            owner = DatabaseOwner(alias).current()
            identities = Installation.objects.using(alias).values_list("identity", flat=True)
            for whose in (f"{{{owner}}}", *(f"{{{identity}:" for identity in identities)):
                for key in client.scan_iter(f"django_idgen:*{whose}*"):
                    client.delete(key)


def source() -> Any:
    """The source of this process' segments."""
    return maps.segments.allocator().source


def killed_while_waiting(alias: str, code: str, lock: str) -> None:
    """Run ``code`` in another process, and kill that while it waits for the rows of ``lock``."""
    configured = connections.settings[alias]
    script = (
        "import json, os, sys\n"
        "import django\n"
        "from django.conf import settings\n"
        "from tests import settings as base\n"
        "given = json.loads(sys.argv[1])\n"
        "base.DATABASES[given['alias']].update(given['database'])\n"
        "base.CACHES = given['caches']\n"
        "base.IDGEN = given['idgen']\n"
        "django.setup()\n"
    )
    given = {
        "alias": alias,
        "database": {key: configured[key] for key in ("NAME", "HOST", "PORT")},
        "caches": settings.CACHES,
        "idgen": settings.IDGEN,
    }
    before = _waiting(alias)
    with closing(connections.create_connection(alias)) as blocker:
        blocker.set_autocommit(False)
        with blocker.cursor() as cursor:
            cursor.execute(lock)
            cursor.fetchall()
        process = warm.Process(
            ["-c", script + code, json.dumps(given)],
            cwd=ROOT,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        )
        try:
            deadline = SYSTEM_CLOCK.stopwatch() + PATIENCE
            while _waiting(alias) <= before:
                assert process.poll() is None, "it ended without waiting for the rows"
                assert SYSTEM_CLOCK.stopwatch() < deadline
                SYSTEM_CLOCK.sleep(0.2)  # asked more often, MariaDB says the same as before
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            blocker.rollback()


def _waiting(alias: str) -> int:
    """How many sessions of this database wait for somebody else's lock."""
    sql = {
        "postgres": "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'",
        "mariadb": "SELECT count(*) FROM information_schema.innodb_trx "
        "JOIN information_schema.processlist ON id = trx_mysql_thread_id "
        "WHERE db = database() AND trx_state = 'LOCK WAIT'",
    }[alias]
    return int(execute_apart(alias, sql)[0][0])

"""A worker and a beat of Celery's on a real broker, in a queue that is deleted afterwards."""

from __future__ import annotations

import ast
import re
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from kombu import Connection

from tests import servers

from .processes import Running, Site, program

URLS = servers.REDIS | servers.RABBITMQ
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass
class Upkeep:
    """The two processes, and what the worker says that it did."""

    site: Site
    queue: str

    def worker(self) -> Running:
        """A worker with two forked processes, once it is ready."""
        node = ("-n", f"{self.queue}@localhost")
        pool = ("--pool", "prefork", "--concurrency", "2")
        running = self._start("worker", *node, *pool, *QUIET)
        running.wait_until(lambda: "ready." in running.output)
        return running

    def beat(self, *options: str) -> Running:
        schedule = str(self.site.directory / "beat-schedule")
        return self._start("beat", *(options or ("-s", schedule)))

    def _start(self, *words: str) -> Running:
        return self.site.start(
            program("celery"), "-A", "tests.faults.site.beat", *words, "-l", "info"
        )


@contextmanager
def queue_on(site: Site, broker: str) -> Iterator[str]:
    """A queue on ``broker`` that Celery's processes of ``site`` share with nobody else."""
    servers.require(broker)
    queue = f"idgen-test-{secrets.token_hex(6)}"
    site.environment.update(SITE_BROKER=URLS[broker], SITE_QUEUE=queue)
    try:
        yield queue
    finally:
        _clean(broker, queue)


@contextmanager
def upkeep(site: Site, broker: str) -> Iterator[Upkeep]:
    """Where Celery's processes of ``site`` can be started, on ``broker``."""
    with queue_on(site, broker) as queue:
        site.environment.update(
            DJANGO_SETTINGS_MODULE="tests.faults.site.beat_settings",
            SITE_REDIS=URLS["redis"],
        )
        yield Upkeep(site, queue)


def _clean(broker: str, queue: str) -> None:
    if broker == "redis":
        with closing(redis.Redis.from_url(URLS["redis"])) as client:
            for key in client.scan_iter(f"{queue}*"):
                client.delete(key)
        return
    with Connection(URLS[broker]) as connection:
        channel = connection.default_channel
        channel.queue_delete(queue)
        for exchange in (queue, f"{queue}-control.pidbox", f"{queue}-events"):
            channel.exchange_delete(exchange)


def done(worker: Running, task: str) -> list[dict[str, Any]]:
    """What each run of ``task`` returned, as the worker's log has it."""
    pattern = re.compile(rf"Task django_idgen\.tasks\.{task}\[\S+\] succeeded in \S+: (.*)")
    return [ast.literal_eval(found) for found in pattern.findall(worker.output)]

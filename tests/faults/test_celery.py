"""A real worker and a real beat of Celery: forked, blocked, and with its database away."""

from __future__ import annotations

import ast
import json
import re
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection

from django_idgen.contrib.old_servers.machines import Instance, MachineIds
from django_idgen.core.errors import NoFreeWorker
from django_idgen.process import factory
from django_idgen.settings.config import read_settings
from tests import servers
from tests.own_servers import pointing_at
from tests.private_postgres import PostgresServer, postgres_farm
from tests.server_tools import send, stop_between_transactions
from tests.tiers import LONG, long
from tests.upkeep_tools import POOL, forget_redis, redis_leases_on, upkeep_on

from .processes import (
    ON_POSTGRES,
    Running,
    Site,
    Taken,
    assert_no_repeats,
    assert_workers_differ,
    database_settings,
    eventually,
    program,
    serving,
)
from .test_web_servers import gunicorn, wait_for_first_ids, write_hooked

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
        site.use_redis()
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


# --- a worker that forks its processes ----------------------------------------


CHILDREN = 2
TASKS = 16
SEND = f"""
import json
from tests.faults.site.worker import ids
results = [ids.delay(5) for _ in range({TASKS})]
print(json.dumps([result.get(timeout=50) for result in results]))
"""


@contextmanager
def celery(
    site: Site, *options: str, application: str = "tests.faults.site.worker"
) -> Iterator[Running]:
    """A worker with two children, on Redis; ids were taken in their parent."""
    pool = ("--pool", "prefork", "--concurrency", str(CHILDREN))
    words = ("-A", application, "worker", *pool, *QUIET, "-l", "info", *options)
    with queue_on(site, "redis"):
        site.environment["SITE_EARLY"] = "5"
        with site.start(program("celery"), *words) as worker:
            yield worker


def run_tasks(site: Site, worker: Running) -> list[Taken]:
    """What the worker's children took in :data:`TASKS` tasks."""
    worker.wait_until(lambda: "ready." in worker.output)
    site.environment["SITE_EARLY"] = "0"  # the sender is no part of it
    with site.python(SEND, setup=False) as sender:
        assert sender.finish() == 0, sender.output + worker.output
        return list(json.loads(sender.output.splitlines()[-1]))


@ON_POSTGRES
def test_children_share_nothing_with_their_parent(site: Site) -> None:
    """Ids taken at import come in no task; a warm shutdown frees all worker ids.

    Hazards 14 and 66: Celery's children run neither ``atexit`` nor multiprocessing's finalizers.
    """
    with celery(site) as worker:
        taken = run_tasks(site, worker) + site.recorded()
        assert_no_repeats(taken)
        assert_workers_differ(taken)
        assert site.held() == {entry["worker"] for entry in taken}
        worker.stop()
        assert site.held() == set(), worker.output
    eventually(lambda: site.sessions() == 0)


def test_a_child_that_is_replaced_gives_its_id_back(sqlite_site: Site) -> None:
    """With --max-tasks-per-child worker ids don't pile up, and no id comes again."""
    site = sqlite_site
    with celery(site, "--max-tasks-per-child", "4") as worker:
        taken = run_tasks(site, worker)
        assert len({entry["pid"] for entry in taken}) > CHILDREN
        assert_no_repeats(taken + site.recorded())
        eventually(lambda: len(site.held()) <= CHILDREN + 1, say=lambda: worker.output)
        worker.stop()
        assert site.held() == set(), worker.output


@pytest.mark.long
def test_children_take_first_ids_before_a_task(sqlite_site: Site) -> None:
    """As the page says it: with its function and its hook, no task waits for a first id."""
    site = sqlite_site
    write_hooked(
        site,
        "Celery prefork \\| `",
        "import celery.signals\nfrom tests.faults.site.worker import app\n",
    )
    with celery(site, application="hooked") as worker:
        wait_for_first_ids(site, 1 + CHILDREN)  # the parent has taken ids, too
        worker.stop()
        assert site.held() == set(), worker.output


@pytest.mark.long
@pytest.mark.parametrize("pool", ["threads"])
def test_a_worker_without_children(sqlite_site: Site, pool: str) -> None:
    """Where the tasks run in the worker's own process, its worker id is given back as well."""
    with celery(sqlite_site, "--pool", pool) as worker:
        assert_no_repeats(run_tasks(sqlite_site, worker) + sqlite_site.recorded())
        assert len(sqlite_site.held()) == 1
        worker.stop()
        assert sqlite_site.held() == set(), worker.output


WINDOW = 3.0
"""Seconds: beat comes by each second. Much shorter, a loaded machine would lose it by itself."""
OUTAGE = 60.0 if LONG else 4.0


# --- a blocked process keeps its worker id ------------------------------------------------


@contextmanager
def blocked(pid: int) -> Iterator[None]:
    try:
        stop_between_transactions(pid)
        yield
    finally:
        send(signal.SIGCONT, pid)


class Newcomer:
    """Another process of the fleet, as far as the registry can tell."""

    def __init__(self, idgen: dict[str, Any]) -> None:
        with upkeep_on(idgen):
            self._registry = factory.build_registry(read_settings().generators["default"])

    def gets_it(self) -> bool:
        """Whether the one worker id that there is can be had; it is given back at once."""
        try:
            lease = self._registry.acquire(holder="newcomer").lease
        except NoFreeWorker:
            return False
        self._registry.release(lease, last_tick=lease.start)
        return True


def lend(site: Site, redis: str | None) -> dict[str, Any]:
    """Short windows, and one worker id, for ``site``; returns the same for this process."""
    options = {"window": WINDOW, "idle_after": 600, "workers": [0, 1]}
    if redis is None:
        site.set_leases(options)
        own = {"database": site.alias, **options}
        return {"GENERATORS": {"default": {"LEASES": {"OPTIONS": own}}}}
    site.set_idgen(redis_leases_on("idgen", "default", **options))
    return redis_leases_on(redis, site.alias, **options)


@pytest.mark.long
@pytest.mark.parametrize("broker", ["redis", *long("rabbitmq")])
def test_a_web_process_blocked_for_three_windows_keeps_its_worker_id(
    broker: str, postgres_site: Site, redis: str
) -> None:
    """Rule L2: nobody else is lent it meanwhile, and it goes on by itself.

    With the registry in Redis under one broker, and in the database under the other.
    """
    site = postgres_site
    idgen = lend(site, redis if broker == "redis" else None)
    with ExitStack() as stack:
        stack.callback(forget_redis, redis, site.alias)
        celery = stack.enter_context(upkeep(site, broker))
        worker = stack.enter_context(celery.worker())
        stack.enter_context(celery.beat())
        web = stack.enter_context(serving(site, *gunicorn("--workers", "1")))
        before = web.take()
        worker.wait_until(
            lambda: {"default": {"renewed": 1}} in done(worker, "renew_worker_leases")
        )
        newcomer = Newcomer(idgen)
        with blocked(before["pid"]):
            until = time.monotonic() + 3 * WINDOW
            while time.monotonic() < until:
                assert not newcomer.gets_it(), worker.output
                time.sleep(0.1)
        after = web.take()
        assert not newcomer.gets_it()
    assert after["pid"] == before["pid"]
    assert min(after["ids"]) > max(before["ids"])


@pytest.mark.long
def test_beat_leaves_a_silent_cosid_instance_to_its_guard(postgres_site: Site) -> None:
    """It was seen lately, but its own client alone may say that it lives."""
    site = postgres_site
    idgen = lend(site, None)
    instances = [Instance("shop", name, stable=True) for name in ("silent", "late")]
    with ExitStack() as stack:
        celery = stack.enter_context(upkeep(site, "redis"))
        worker = stack.enter_context(celery.worker())
        stack.enter_context(celery.beat())
        stack.enter_context(upkeep_on(idgen))
        worker.wait_until(lambda: done(worker, "renew_worker_leases"))  # once each second
        machines = MachineIds("default", guard=WINDOW, skew=0, late=0)
        silent = machines.distribute(instances[0])
        runs = len(done(worker, "renew_worker_leases"))

        def taken_over() -> bool:
            try:
                return machines.distribute(instances[1]).machine_id == silent.machine_id
            except NoFreeWorker:
                return False

        worker.wait_until(taken_over)
        assert len(done(worker, "renew_worker_leases")) > runs


@pytest.mark.long
def test_without_beat_a_blocked_process_loses_its_worker_id(postgres_site: Site) -> None:
    """The test above can fail: after a window a newcomer is lent it; no id comes twice."""
    site = postgres_site
    idgen = lend(site, None)
    with serving(site, *gunicorn("--workers", "1")) as web:
        before = web.take()
        newcomer = Newcomer(idgen)
        with blocked(before["pid"]):
            eventually(newcomer.gets_it, say=lambda: web.running.output)
        after = web.take()
    assert after["pid"] == before["pid"]
    assert min(after["ids"]) > max(before["ids"])


# --- django-celery-beat ---------------------------------------------------------------------


def migrate(site: Site) -> None:
    """As it is done before anything of a site is started."""
    with site.start(program("django-admin"), "migrate", "-v", "0") as running:
        assert running.finish() == 0, running.output


LIST = """
from django_celery_beat.models import PeriodicTask
from tests.faults.site.taking import record
record({"tasks": [[task.name, task.task, task.interval.every, task.pk]
                  for task in PeriodicTask.objects.filter(interval__isnull=False)]})
"""


@pytest.mark.long
def test_the_schedule_works_under_django_celery_beat(postgres_site: Site) -> None:
    """With ids of ours as the project's default: its rows are made, and the tasks run."""
    pytest.importorskip("django_celery_beat", reason="It does not know this Django.")
    site = postgres_site
    lend(site, None)
    site.environment["SITE_APPS"] = "django.contrib.contenttypes django_celery_beat"
    with ExitStack() as stack:
        celery = stack.enter_context(upkeep(site, "redis"))
        migrate(site)
        worker = stack.enter_context(celery.worker())
        beat = stack.enter_context(celery.beat("-S", "django"))
        beat.wait_until(lambda: len(done(worker, "renew_worker_leases")) >= 3)
        with site.python(LIST) as listing:
            assert listing.finish() == 0, listing.output
    (found,) = [entry["tasks"] for entry in site.journal() if "tasks" in entry]
    prefix = "django_idgen.tasks."
    assert {name: [task, every] for name, task, every, _ in found} == {
        "idgen-renew-worker-leases": [f"{prefix}renew_worker_leases", 1],
        "idgen-preload-segments": [f"{prefix}preload_segments", 60],
        "idgen-extend-native": [f"{prefix}extend_native", 60],
        "idgen-prune-history": [f"{prefix}prune_history", 86_400],
    }


# --- the database is away -------------------------------------------------------------------


@pytest.fixture
def server(postgres: str) -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test's own, which the alias leads to."""
    with postgres_farm() as farm:
        made = farm.server()
        with pointing_at(made, postgres):
            yield made


TAG = "load"
LOAD = f"""
from pathlib import Path
from tests.faults.site.load import take
take({TAG!r}, Path({{stop!r}}))
"""


@contextmanager
def load(site: Site) -> Iterator[Running]:
    """A process that takes ids all the time, until the end of the block."""
    stop = site.directory / "stop"
    with site.python(LOAD.format(stop=str(stop))) as running:
        running.wait_until(lambda: any(entry.get("tag") for entry in site.journal()))
        yield running
        stop.touch()
        assert running.finish() == 0, running.output


def segments_with(pool: bool) -> dict[str, Any]:
    """Steps so short that there are some fetches a second; the pool lasts for the outage."""
    source: dict[str, Any] = {"OPTIONS": {"database": "default"}}
    if pool:
        source = {"BACKEND": POOL, "OPTIONS": {"alias": "idgen", "source": source}}
    steps = {"default_step": 500, "longest_step": 500, "outage": 5 * OUTAGE}
    return {"SEGMENTS": {"SOURCE": source, "OPTIONS": steps}}


def is_ready(worker: Running) -> bool:
    """Whether what lies in the pool, by forecast, lasts longer than the outage will."""
    for each in done(worker, "preload_segments")[-1:]:
        tag = each["tags"].get(TAG, {"rate": 0})
        return bool(tag["rate"] > 500 and tag["after"] >= 4 * OUTAGE * tag["rate"])
    return False


@pytest.mark.long
@pytest.mark.parametrize(("broker", "how"), [("redis", "hung"), ("rabbitmq", "crashed")])
def test_a_database_that_is_away_under_load_is_not_felt(
    broker: str, how: str, postgres: str, server: PostgresServer, redis: str, tmp_path: Path
) -> None:
    """Segments lie ready by forecast, the lease lasts: no error, and no id twice.

    Once it is back beat fills the pool again.
    """
    site = Site(tmp_path, database_settings(postgres), postgres)
    site.set_idgen(segments_with(pool=True))
    site.environment["SITE_PRELOAD_EVERY"] = "1"
    with ExitStack() as stack:
        celery = stack.enter_context(upkeep(site, broker))
        migrate(site)  # a process that finds no tables does without a pool for a while
        stack.callback(forget_redis, redis, postgres)
        worker = stack.enter_context(celery.worker())
        stack.enter_context(celery.beat())
        loading = stack.enter_context(load(site))
        worker.wait_until(lambda: is_ready(worker))
        ready = time.time()
        # An entry is of half a second; at the very start a process may have waited in vain.
        loading.wait_until(lambda: site.journal()[-1]["at"] > ready + 1)
        server.take_away(how)
        gone = time.time()
        time.sleep(OUTAGE)
        back = time.time()
        server.bring_back(how)
        runs = len(done(worker, "preload_segments"))
        worker.wait_until(lambda: len(done(worker, "preload_segments")) > runs)
        loading.wait_until(lambda: site.journal()[-1]["at"] > back + 1)
    entries = site.journal()
    failed = [entry for entry in entries if entry["at"] > ready + 1 and entry["errors"]]
    assert [(entry["at"] - gone, entry["errors"][0]) for entry in failed] == []
    meanwhile = [entry for entry in entries if gone + 1 < entry["at"] < back]
    assert meanwhile
    assert all(entry["tag"] for entry in meanwhile)
    for kind in ("ids", "tag"):
        ids = [number for entry in entries for number in entry[kind]]
        assert len(set(ids)) == len(ids)


@pytest.mark.long
def test_without_upkeep_the_same_outage_is_felt(
    postgres: str, server: PostgresServer, tmp_path: Path
) -> None:
    """The test above can fail: with no pool, callers are told that there are no segments."""
    site = Site(tmp_path, database_settings(postgres), postgres)
    idgen = segments_with(pool=False)
    idgen["SEGMENTS"]["OPTIONS"]["timeout"] = 2
    site.set_idgen(idgen)
    with load(site) as loading:
        server.take_away("crashed")
        loading.wait_until(lambda: any(entry["errors"] for entry in site.journal()))
        server.bring_back("crashed")
    errors = {error.partition(":")[0] for entry in site.journal() for error in entry["errors"]}
    assert errors == {"SegmentUnavailable"}

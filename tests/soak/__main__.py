"""Every registry and source at once, under faults drawn at random: ``python -m tests.soak``.

Some processes take ids of all kinds from a PostgreSQL, a Redis, a ZooKeeper, files and a service
over HTTP, and write them down. Meanwhile processes are killed, stopped and forked, clocks are
stepped, and servers are flushed, cut off, killed and restarted. At the end the ids are sorted. It
prints how many there are of each kind and which faults there were, and exits with 1 if an id came
twice, or if the ids of one process do not rise.

It needs PostgreSQL's programs, ``redis-server`` and numpy; without ZooKeeper that kind is left
out. It uses no server that runs already.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests import servers
from tests.own_servers import OwnServer

ROOT = Path(__file__).parents[2]
WINDOW = 3
"""Seconds. Short, so that leases expire all the time."""
LONGEST_PAUSE = 4
"""Seconds that a process waits after a call for as many ids as it may ask for."""
LEASES = "django_idgen.leases"
HTTP_LEASES = f"{LEASES}.http.HttpLeases"


def settings_of(where: dict[str, Any]) -> dict[str, Any]:
    """Settings with every registry and source; ``where`` has the addresses."""
    directory = where["directory"]

    def snowflakes(backend: str | None = None, more: Any = (), **options: Any) -> dict[str, Any]:
        leases: dict[str, Any] = {"OPTIONS": {"window": WINDOW, **options}}
        if backend is not None:
            leases["BACKEND"] = f"{LEASES}.{backend}"
        return {"LEASES": leases, "OPTIONS": {"max_ahead": 1}, **dict(more)}

    # uid-generator's layout has worker ids for a new one at each start.
    seconds = {"time": 31, "worker": 22, "sequence": 10, "tick": 1}
    buffered = {"BACKEND": "django_idgen.core.buffered.BufferedGenerator", "OPTIONS": {}}
    generators: dict[str, Any] = {
        "database": snowflakes(),
        "lent": snowflakes(),
        "buffered": snowflakes(more=buffered),
        "redis": snowflakes("redis.RedisLeases", alias="idgen", timeout=2),
        "static": snowflakes("static.StaticLeases", workers=[0, 64], directory=directory),
        "checkpointed": snowflakes("checkpointed.CheckpointedLeases", directory=directory),
        "disposable": snowflakes("disposable.DisposableLeases", more={"LAYOUT": seconds}),
        "serial": {
            "BACKEND": "django_idgen.core.tag_generator.SerialGenerator",
            "SOURCE": {"OPTIONS": {"directory": directory}},
        },
        "incr": {
            "BACKEND": "django_idgen.sources.redis_incr.RedisIncrGenerator",
            "SOURCE": {"OPTIONS": {"alias": "idgen", "block": 20_000}},
        },
        "tickets": {
            "BACKEND": "django_idgen.contrib.sharding.TicketGenerator",
            "SOURCE": {"OPTIONS": {"databases": ["one", "two"]}},
        },
    }
    if where["zookeeper"]:
        generators["zookeeper"] = snowflakes(
            "zookeeper.ZooKeeperLeases", hosts=where["zookeeper"], timeout=2
        )
    pool = {"BACKEND": "django_idgen.sources.pool.PoolSource", "OPTIONS": {"alias": "idgen"}}
    return {
        "DATABASES": where["databases"],
        "CACHES": {
            "idgen": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": where["redis"]}
        },
        "INSTALLED_APPS": ["django_idgen"],
        "ROOT_URLCONF": "tests.remote.urls",
        "ALLOWED_HOSTS": ["*"],
        "SECRET_KEY": "soak",
        "USE_TZ": True,
        "IDGEN": {
            "GENERATORS": generators,
            "SEGMENTS": {"SOURCE": pool, "OPTIONS": {"default_step": 200, "timeout": 2}},
            "REST": {"make_tags": True, "max_leases": 500, "token_max_age": 0},
        },
    }


class Soak:
    """The processes, the servers and the faults."""

    def __init__(self, given: argparse.Namespace, stack: ExitStack) -> None:
        self.random = random.Random(given.seed)
        self.faults: Counter[str] = Counter()
        self.stack = stack
        self.directory = Path(stack.enter_context(TemporaryDirectory(prefix="idgen-soak-")))
        self.count = given.processes
        self.running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self.stopped: dict[int, float] = {}
        self.kept_off: list[tuple[float, OwnServer]] = []
        """Servers that are away, and until when."""
        self.groups: list[int] = []
        """Of processes: each with those that it forked."""
        self._start_servers()
        self.config = self.directory / "config.json"
        (self.directory / "ids").mkdir()
        words = {
            "directory": str(self.directory / "ids"),
            "settings": settings_of(self.where),
            "service": f"http://127.0.0.1:{self.port}/idgen/",
            "address": "127.0.0.1",
            "port": self.port,
            "window": WINDOW,
            "rate": given.rate / given.processes,
            "most": round(LONGEST_PAUSE * given.rate / given.processes),
        }
        self.config.write_text(json.dumps(words))
        self._migrate(words["settings"])

    def _start_servers(self) -> None:
        from tests.private_postgres import postgres_farm
        from tests.redis_servers import redis_farm
        from tests.zookeeper_servers import JAR, zookeeper

        self.port = servers.free_port()
        self.farm = self.stack.enter_context(redis_farm())
        self.redis = self.farm.server()
        self.postgres = self.stack.enter_context(postgres_farm()).server()
        self.zookeeper = self.stack.enter_context(zookeeper()) if JAR.exists() else None
        self.names = {"default": "soak", "one": "soak_one", "two": "soak_two"}
        for name in self.names.values():
            self.sql(f"CREATE DATABASE {name}")
        files = self.directory / "marks"
        files.mkdir()
        self.where = {
            "directory": str(files),
            "databases": {
                alias: {**self.postgres.settings, "NAME": name}
                for alias, name in self.names.items()
            },
            "redis": self.redis.url,
            "zookeeper": self.zookeeper.host if self.zookeeper else "",
        }

    def sql(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.postgres.port, user="postgres", autocommit=True
        ) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def _migrate(self, settings: dict[str, Any]) -> None:
        code = (
            "import json, sys, django; from django.conf import settings; "
            "settings.configure(**json.loads(sys.argv[1])); django.setup(); "
            "from django.core.management import call_command as call; "
            "[call('migrate', database=alias, verbosity=0) for alias in settings.DATABASES]"
        )
        subprocess.run([sys.executable, "-c", code, json.dumps(settings)], check=True, cwd=ROOT)

    # --- processes ----------------------------------------------------------------------

    def start(self, role: str) -> None:
        words = [sys.executable, "-m", "tests.soak.worker", role, str(self.config)]
        log = (self.directory / f"{role}.log").open("ab")
        process = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self.groups.append(process.pid)
        self.running[process.pid] = role, process

    def keep_up(self) -> None:
        """Start those that are missing, and go on with what was stopped long enough."""
        now = time.monotonic()
        for pid, until in list(self.stopped.items()):
            if until <= now:
                del self.stopped[pid]
                self.signal(pid, signal.SIGCONT)
        for until, server in list(self.kept_off):
            if until <= now:
                self.kept_off.remove((until, server))
                server.start()
        for pid, (_, process) in list(self.running.items()):
            if process.poll() is not None:
                del self.running[pid]
                self.stopped.pop(pid, None)
        roles = Counter(role for role, _ in self.running.values())
        for role, wanted in (("service", 1), ("upkeep", 1), ("worker", self.count)):
            for _ in range(wanted - roles[role]):
                self.start(role)

    def signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def one_of(self, role: str) -> int:
        """A process that is not stopped; 0 if there is none."""
        pids = [pid for pid, (its, _) in self.running.items() if its == role]
        return self.random.choice([pid for pid in pids if pid not in self.stopped] or [0])

    # --- faults -------------------------------------------------------------------------

    def fault(self) -> None:
        kinds: dict[Callable[[], object], int] = {
            self.kill: 4, self.stop: 8, self.fork: 8, self.step: 8, self.flush: 2,
            self.restart_redis: 1, self.kill_redis: 1, self.promote_a_replica: 1,
            self.cut_connections: 3, self.kill_postgres: 1, self.kill_service: 2,
            self.lose_a_file: 1, self.kill_zookeeper: 1,
        }  # fmt: skip
        (chosen,) = self.random.choices(list(kinds), list(kinds.values()))
        if chosen() is not False:
            self.faults[chosen.__name__.replace("_", " ")] += 1

    def kill(self) -> None:
        if pid := self.one_of("worker"):
            self.signal(pid, signal.SIGKILL)

    def stop(self) -> None:
        if pid := self.one_of(self.random.choice(("worker", "worker", "worker", "service"))):
            self.signal(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + self.random.uniform(0.1, 3 * WINDOW)

    def fork(self) -> None:
        if pid := self.one_of("worker"):
            self.signal(pid, signal.SIGUSR2)

    def step(self) -> None:
        if pid := self.one_of("worker"):
            self.signal(pid, signal.SIGUSR1)

    def flush(self) -> bool:
        if self.redis.runs:
            self.redis.run("FLUSHALL")
        return self.redis.runs

    def restart_redis(self) -> bool:
        """Empty."""
        if self.redis.runs:
            self.redis.restart_empty()
        return self.redis.runs

    def kill_redis(self) -> bool:
        return self._kill_for_a_while(self.redis)

    def promote_a_replica(self) -> bool:
        """It takes over the address, and lacks the last writes."""
        primary = self.redis
        if not primary.runs:
            return False
        replica = self.farm.server()
        replica.follow(primary)
        replica.promote()
        time.sleep(self.random.uniform(0, WINDOW / 2))
        primary.kill()
        replica.run("CONFIG", "SET", "port", primary.port)
        replica.port, self.redis = primary.port, replica
        return True

    def cut_connections(self) -> bool:
        if not self.postgres.runs:
            return False
        name = self.random.choice(list(self.names.values()))
        self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        return True

    def kill_postgres(self) -> bool:
        """As a crash does. It keeps what it has confirmed."""
        return self._kill_for_a_while(self.postgres)

    def kill_zookeeper(self) -> bool:
        if not (self.zookeeper and self._kill_for_a_while(self.zookeeper)):
            return False
        if self.random.random() < 0.5:
            self.zookeeper.wipe()
        return True

    def _kill_for_a_while(self, server: OwnServer) -> bool:
        if not server.runs:
            return False
        server.kill()
        self.kept_off.append((time.monotonic() + self.random.uniform(0, 2 * WINDOW), server))
        return True

    def kill_service(self) -> None:
        if pid := self.one_of("service"):
            self.signal(pid, signal.SIGKILL)

    def lose_a_file(self) -> None:
        """One of the two that have a tag's mark, or the checkpoint of a lease."""
        files = [*Path(self.where["directory"]).glob("*.copy")]
        files += Path(self.where["directory"]).glob("*.lease")
        if files:
            self.random.choice(files).unlink(missing_ok=True)

    def run(self, minutes: float) -> None:
        until = time.monotonic() + 60 * minutes
        begun = time.monotonic()
        while time.monotonic() < until:
            self.keep_up()
            time.sleep(self.random.uniform(0.05, 0.6))
            if time.monotonic() - begun > 5:  # they have started
                self.fault()
            if self.random.random() < 0.01:
                taken = sum(each.stat().st_size for each in self.ids()) // 8
                print(f"{time.monotonic() - begun:5.0f} s: {taken:,} ids", flush=True)

    def end(self) -> None:
        for _, server in self.kept_off:
            server.start()
        for pid, (role, _) in self.running.items():
            self.signal(pid, signal.SIGCONT)
            self.signal(pid, signal.SIGTERM if role == "worker" else signal.SIGCONT)
        for role, process in self.running.values():
            if role == "worker":
                with suppress(subprocess.TimeoutExpired):
                    process.wait(60)
        time.sleep(5)  # children of forks
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for _, process in self.running.values():
            process.wait()

    def ids(self) -> list[Path]:
        return written(self.directory / "ids")


# --- what came of it ----------------------------------------------------------------------


def written(directory: Path) -> list[Path]:
    """The files of ids: ``KIND.PROCESS.TIME.ids``, of which KIND may end with ``.http``."""
    return sorted(directory.glob("*.ids"))


def repeats_in(directory: Path) -> int:
    """Print the counts, and return how many ids came twice, or did not rise in their process."""
    of_kind = defaultdict(list)
    ways: Counter[str] = Counter()
    out_of_order = 0
    for path in written(directory):
        found = np.fromfile(path, dtype=np.int64)
        out_of_order += int((np.diff(found) <= 0).sum())
        ways[path.name.rsplit(".", 3)[0]] += len(found)
        of_kind[path.name.split(".")[0]].append(found)
    repeats = total = 0
    for kind, parts in sorted(of_kind.items()):
        every = np.sort(np.concatenate(parts))
        twice = int((np.diff(every) == 0).sum())
        http = f", {ways[f'{kind}.http']:,} over HTTP" if f"{kind}.http" in ways else ""
        print(f"{kind:<14}{len(every):>14,} ids in {len(parts):>5} files: {twice} twice{http}")
        repeats, total = repeats + twice, total + len(every)
    print(f"{total:,} ids; {repeats} came twice; {out_of_order} did not rise in their process")
    errors: Counter[str] = Counter()
    for words in directory.glob("errors.*.json"):
        errors.update(json.loads(words.read_text()))
    print("Errors:", ", ".join(f"{n} {what}" for what, n in errors.most_common(40)) or "none")
    return repeats + out_of_order


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument(
        "--rate", type=float, default=2_000_000, help="ids a second of all processes"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that nothing is left running
    print(f"seed {given.seed}, {given.processes} processes, {given.minutes:g} minutes", flush=True)
    with ExitStack() as stack:
        soak = Soak(given, stack)
        try:
            soak.run(given.minutes)
        finally:
            soak.end()
        print("Faults:", ", ".join(f"{n} {what}" for what, n in soak.faults.most_common()))
        return 1 if repeats_in(soak.directory / "ids") else 0


if __name__ == "__main__":
    sys.exit(main())

"""Servers and processes that take ids, each on a host of a network that comes apart."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.partitions.network import Network, is_reached
from tests.private_postgres import PostgresServer, postgres_farm
from tests.soak.__main__ import repeats_in, written

ROOT = Path(__file__).parents[2]
WINDOW = 3
"""Seconds. Short, so that leases expire while their holders are cut off."""
PATIENCE = 120
POSTGRES, REDIS, ZOOKEEPER, SERVICE = 5432, 6379, 2181, 8000


class Farm:
    """What runs on the hosts of ``network``. Its files are in ``directory``."""

    def __init__(self, network: Network, directory: Path) -> None:
        self.network = network
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._configs: dict[str, tuple[str, str, dict[str, Any]]] = {}
        (directory / "ids").mkdir()
        (directory / "marks").mkdir()

    def url(self, host: str, port: int) -> str:
        return f"{self.network.address(host)}:{port}"

    def start(self, name: str, host: str, *words: object) -> None:
        """Run a program on ``host``, in the directory of the farm."""
        log = (self.directory / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            [*self.network.inside(host), *map(str, words)],
            cwd=self.directory, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        log.close()

    def await_port(self, host: str, port: int) -> None:
        self.eventually(lambda: is_reached(self.network, host, host, port), f"{host}:{port}")

    def eventually(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"Not within {PATIENCE} s: {what}"
            time.sleep(0.1)

    # --- servers --------------------------------------------------------------------------

    def redis(self, host: str) -> None:
        options = ("--port", REDIS, "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "")
        self.start(host, host, "redis-server", *options)
        self.await_port(host, REDIS)

    def ask_redis(self, host: str, *words: str) -> str:
        done = subprocess.run(
            [*self.network.inside(host), "redis-cli", *words],
            capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout

    def relay(self, host: str, port: int, to: str, seconds: float) -> None:
        """What reaches ``port`` of ``host`` goes on to the same port of ``to``, later."""
        words = (sys.executable, "-m", "tests.partitions.relay", port, self.network.address(to))
        self.start(f"relay-{host}-{port}", host, "env", f"PYTHONPATH={ROOT}", *words, seconds)
        self.await_port(host, port)

    # --- processes that take ids ------------------------------------------------------------

    def process(self, name: str, host: str, role: str, settings: dict[str, Any]) -> None:
        """A process of ``role`` (see :mod:`tests.soak.worker`)."""
        words = {
            "directory": str(self.directory / "ids"),
            "settings": settings,
            "service": "",
            "address": "0.0.0.0",
            "port": SERVICE,
            "window": WINDOW,
            "rate": 20_000,
            "most": 2_000,
        }
        self._configs[name] = host, role, words
        self._launch(name)

    def _launch(self, name: str) -> None:
        host, role, words = self._configs[name]
        config = self.directory / f"{name}.json"
        config.write_text(json.dumps(words))
        python = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.soak.worker")
        self.start(name, host, *python, role, config)

    def kill(self, name: str) -> None:
        """SIGKILL, and another one in its place."""
        self.processes[name].kill()
        self.processes[name].wait()
        self._launch(name)

    def restart(self, name: str, settings: dict[str, Any]) -> None:
        """Kill it, and start it with other settings."""
        self._configs[name][2]["settings"] = settings
        self.kill(name)

    def migrate(self, host: str, settings: dict[str, Any]) -> None:
        code = (
            "import json, sys, django; from django.conf import settings; "
            "settings.configure(**json.loads(sys.argv[1])); django.setup(); "
            "from django.core.management import call_command as call; call('migrate', verbosity=0)"
        )
        words = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-c", code, json.dumps(settings)]
        subprocess.run([*self.network.inside(host), *words], check=True, timeout=PATIENCE)

    def workers(self) -> list[str]:
        return [name for name, (_, role, _) in self._configs.items() if role == "worker"]

    def come_apart(
        self, pairs: list[tuple[str, str]], seconds: float, chance: random.Random
    ) -> dict[str, int]:
        """For ``seconds``, cut and heal ``pairs`` of hosts and kill workers, at random."""
        done = {"cut": 0, "cut one way": 0, "heal": 0, "kill": 0}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            what = chance.choice(list(done))
            done[what] += 1
            if what == "heal":
                self.network.heal()
            elif what == "kill":
                self.kill(chance.choice(self.workers()))
            else:
                one, other = chance.choice(pairs)
                if chance.random() < 0.5:
                    one, other = other, one
                self.network.cut(one, other, both=what == "cut")
            time.sleep(chance.uniform(0.1, WINDOW))
        self.network.heal()
        return done

    def written(self) -> int:
        return sum(each.stat().st_size for each in written(self.directory / "ids")) // 8

    def all_take_ids(self, kinds: int) -> None:
        """Wait until each worker has new ids of every kind (progress, once all reach all)."""
        before = {path: path.stat().st_size for path in written(self.directory / "ids")}

        def grown() -> bool:
            now = written(self.directory / "ids")
            longer = [path for path in now if path.stat().st_size > before.get(path, 0)]
            return len(longer) >= kinds * len(self.workers())

        self.eventually(grown, "each worker takes ids of every kind")

    def end_workers(self) -> None:
        for name in self.workers():
            self.processes[name].send_signal(signal.SIGTERM)
        for name in self.workers():
            with suppress(subprocess.TimeoutExpired):
                self.processes[name].wait(PATIENCE)

    def repeats(self) -> int:
        return repeats_in(self.directory / "ids")

    def close(self) -> None:
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def postgres_on(farm: Farm, host: str) -> Iterator[dict[str, Any]]:
    """A PostgreSQL on ``host``: what leads to it from the other hosts."""
    with postgres_farm() as own:
        server = PostgresServer(own._binaries, own.place())
        server.initialize()
        with (server.directory / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/16 trust\n")
        user = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")
        options = ("listen_addresses=*", f"unix_socket_directories={server.directory}", "fsync=off")
        given = [word for option in options for word in ("-c", option)]
        program = (own._binaries / "postgres", "-D", server.directory, "-p", POSTGRES)
        farm.start(host, host, *user, *program, *given)
        farm.await_port(host, POSTGRES)
        yield leading_to(farm.network.address(host))


def leading_to(address: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": address,
        "PORT": str(POSTGRES),
        "USER": "postgres",
        "PASSWORD": "",
        "NAME": "postgres",
    }


def settings_of(database: dict[str, Any], idgen: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "DATABASES": {"default": database},
        "INSTALLED_APPS": ["django_idgen"],
        "ROOT_URLCONF": "tests.remote.urls",
        "ALLOWED_HOSTS": ["*"],
        "SECRET_KEY": "partitions",
        "USE_TZ": True,
        "IDGEN": idgen,
        **more,
    }
